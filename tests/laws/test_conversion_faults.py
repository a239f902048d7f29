"""A conversion that is stopped before any single thing it does to the disk: its folder is whole or not there.

As test_faults.py, of what `sgld.open` makes, of a formula's design, and of rows appended to one and dropped from it.
What is stopped runs no clean-up: what it left, the next conversion removes.
"""

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_faults
from test_faults import Stopped

import sgld
from sgld.core import files
from sgld.data import arrays, cache, convert, readers
from sgld.data.table_source import TableSource
from sgld.regression import streaming

FORMULA = "y ~ x + town"
NOTHING = {"weights": None, "trials": None, "missing": "drop"}
NONE, GONE = np.zeros(0, np.int64), np.array([3, 11, 250])


class Disk(test_faults.Disk):
    """With folders that are renamed, and files that are written to piece by piece."""

    def __init__(self, last=None):
        super().__init__(last)
        self.folders = []

    def rename(self, old, new):
        self._about("rename the folder")
        os.rename(old, new)
        self.folders.append((old, new))

    def fsync(self, handle):
        super().fsync(handle)
        self.folders = [pair for pair in self.folders if pair[1].parent != self.names[handle]]

    def cut(self):
        for old, new in self.folders:
            os.rename(new, old)
        super().cut()
        for path in self.unsafe:
            if path.exists():
                path.write_bytes(b"")

    def of(self, what, method):
        """A method that changes the disk."""

        def counted(one, *given):
            self._about(f"{what} {one.path.name}")
            return method(one, *given)

        return counted


def run_on(disk, work):
    """`work()` on that disk; whether it came to its end."""
    begin, remove, end = cache.Writer.__init__, shutil.rmtree, readers.Spill.__exit__

    def begun(writer, path):
        disk._about(f"make {path.name}")
        begin(writer, path)
        disk.names[writer._file.fileno()] = path
        disk.unsafe.add(path)

    def ended(one, *error):
        if disk.dead:
            one._file.close()
        else:
            end(one, *error)

    with pytest.MonkeyPatch.context() as patch:
        for module in (files, cache):
            patch.setattr(module, "os", disk)
        patch.setattr(shutil, "rmtree", lambda path, **how: disk.dead or remove(path, **how))
        patch.setattr(cache.Writer, "__init__", begun)
        patch.setattr(cache.Writer, "write", disk.of("write", cache.Writer.write))
        patch.setattr(readers.Spill, "__enter__", disk.of("make", readers.Spill.__enter__))
        patch.setattr(readers.Spill, "add", disk.of("write", readers.Spill.add))
        patch.setattr(readers.Spill, "__exit__", ended)
        try:
            work()
        except Stopped:
            return False
        return True


def table(n, seed):
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(n) < 0.02, np.nan, rng.normal(size=n))
    town = np.array(["inner", "outer"])[rng.integers(0, 2, n)]
    return pa.table({"x": pa.array(x, from_pandas=True), "town": town, "y": rng.normal(size=n)})


def of_arrays(folder):
    return lambda where: sgld.open(folder / "x.npy", cache=where, progress=False).hash()


def of_a_formula(folder, parts=1, dropped=()):
    sources = [TableSource.of(folder / f"{k}.parquet") for k in range(parts)]

    def design(where, parts=parts, dropped=dropped):
        made = streaming.Streamed(
            sources[:parts], FORMULA, "gaussian", NOTHING, 3, where, dropped and dropped[:parts]
        )
        first = streaming.Streamed(sources[:1], FORMULA, "gaussian", NOTHING, 3, where)
        return made.kept({**first.estimate(), "prior": None})[0].manifest["hash"]

    return design


WORK = {
    "arrays": (of_arrays, None),
    "a formula's design": (of_a_formula, None),
    "rows appended": (lambda folder: of_a_formula(folder, 2), of_a_formula),
    "rows dropped": (lambda folder: of_a_formula(folder, 1, (GONE,)), of_a_formula),
    "rows dropped, others appended": (lambda folder: of_a_formula(folder, 2, (GONE, NONE)), of_a_formula),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for module in (arrays, convert, convert, readers):
        monkeypatch.setattr(module, "MAX_HELD_BYTES", 6000)
    monkeypatch.setattr(streaming, "MAX_BLOCK_ROWS", 150)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32))
    for k in range(2):
        pq.write_table(table(300, k), tmp_path / f"{k}.parquet")
    monkeypatch.setattr(cache, "RACY_NS", -1.0)  # hashes are remembered at the first look
    return tmp_path


def left(where):
    return [path.name for path in where.glob(f"{files.SCRATCH_PREFIX}*")]


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("what", WORK)
def test_stopped_before_every_fifth_call(folder, what, power, monkeypatch):
    stopped(folder, what, power, monkeypatch, 5)


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("what", WORK)
def test_stopped_before_every_call(folder, what, power, monkeypatch):
    stopped(folder, what, power, monkeypatch, 1)


def stopped(folder, what, power, monkeypatch, every):
    made, before = (one and one(folder) for one in WORK[what])

    def begun(where):  # what stands there before
        if before is not None:
            before(where)
        return where

    disk, whole = Disk(), begun(folder / "whole")
    assert run_on(disk, lambda: made(whole))
    expected = made(whole)
    assert len(disk.calls) > 20 and disk.calls.count("rename the folder") >= 1, disk.calls
    for last in range(2 * power if every > 2 else 0, len(disk.calls), every):
        where = begun(folder / f"cache{last}")
        cut = Disk(last)
        assert not run_on(cut, lambda: made(where)), "it was to be stopped"  # noqa: B023
        if power:
            cut.cut()
        monkeypatch.setattr(cache, "STALE_AFTER_SECONDS", -1.0)  # nobody else is at work here
        assert made(where) == expected, disk.calls[last]
        with cache.Cache(where).scratch():
            pass
        assert not left(where), disk.calls[last]
        shutil.rmtree(where)
