"""A run stopped before every single call that changes the disk: resumable or finished, to the same bits.

    python tests/slow/faults.py [--every 1] [--streamed | --formula | --replacing]

As kill -9, and as a power cut, which undoes renames that were not flushed and empties files that were not.
With --streamed the rows of the run lie in a file, with --formula it is `sgld fit` of a folder of Parquet whose design
lies on the disk; with --replacing it overwrites another run. The layer, the run and what is held against what are those
of tests/laws/test_faults.py; conversions are stopped at every call by tests/laws/test_conversion_faults.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "laws"))

import numpy as np
import test_faults
from test_faults import GIVEN, Disk, check, other, run_on

import sgld
from sgld.data import cache as caches
from sgld.regression import streaming
from sgld.regression.fit import resume


def stream(folder: Path) -> None:
    """Have the runs of `test_faults` read rows from a file."""
    rows = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    np.save(folder / "rows.npy", rows)
    posterior = sgld.Posterior(lambda t: -0.005 * (t @ t), lambda t, x: -0.5 * ((x - t) @ (x - t)))
    start = np.zeros(3, np.float32)
    given = {**GIVEN, "step_size": 1e-4, "batch_size": 20}

    def opened() -> object:
        return sgld.open(folder / "rows.npy", cache=folder / "cache", progress=False)

    opened()  # converted once: what stops a conversion is tests/laws/test_conversion_faults.py's

    def begin(path: Path, overwrite: bool = False) -> None:
        sgld.sample(posterior, opened(), start, path=path, overwrite=overwrite, **given)

    test_faults.begin = begin

    def go_on(path: Path) -> None:
        if not (path / "run.json").exists():
            test_faults.begin(path)
            return
        sgld.resume(path, posterior, opened(), start, progress=False, checkpoint_every=0)

    test_faults.go_on = go_on


def formulate(folder: Path) -> None:
    """Have the runs of `test_faults` be those of a formula on a folder of Parquet, its design on the disk."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    town = np.array(["inner", "outer", "rural"])[np.arange(300) % 3]
    table = pa.table({"x": rng.normal(size=300), "y": rng.normal(size=300), "town": town})
    (folder / "parts").mkdir()
    for k in range(3):
        path = folder / "parts" / f"{k}.parquet"
        parquet.write_table(table.slice(100 * k, 100), path)
    os.environ["SGLD_DATA_CACHE"] = str(folder / "cache")
    caches.RACY_NS = -1.0  # hashes of files are remembered at the first look
    streaming.MAX_MEMORY_BYTES = 1
    given = {**GIVEN, "step_size": 1e-4, "batch_size": 20, "checkpoint_every": 1e-9}

    def begin(path: Path, overwrite: bool = False) -> None:
        sgld.fit(folder / "parts", "y ~ x + town", out=path, overwrite=overwrite, **given)

    def go_on(path: Path) -> None:
        if not (path / "run.json").exists():
            begin(path)
            return
        resume(path, progress=False, checkpoint_every=1e-9)

    begin(folder / "first")  # its design is made once
    test_faults.begin, test_faults.go_on = begin, go_on


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="of the calls, so many apart")
    parser.add_argument("--streamed", action="store_true", help="rows from a file")
    parser.add_argument(
        "--formula", action="store_true", help="a formula's, its design on the disk"
    )
    parser.add_argument("--replacing", action="store_true", help="a run that overwrites another")
    given = parser.parse_args()
    before = other if given.replacing else None
    began, done, lost = time.time(), 0, []
    with tempfile.TemporaryDirectory() as folder:
        if given.streamed:
            stream(Path(folder))
        if given.formula:
            formulate(Path(folder))
        disk, path = Disk(), Path(folder) / "whole"
        if before is not None:
            before(path)
        assert run_on(disk, path, lambda: test_faults.begin(path, before is not None))
        whole = sgld.load(path), disk.calls
        for power in (False, True):
            for last in range(0, len(disk.calls), given.every):
                try:
                    check(Path(folder), whole, last, power, before)
                except Exception as error:
                    lost.append(
                        f"before call {last}, {disk.calls[last]}, {'power cut' * power}: {error!r}"[
                            :300
                        ]
                    )
                done += 1
    kinds = Counter(
        name for call, _, name in (c.partition(" to ") for c in disk.calls) if call == "rename"
    )
    print(f"a run of {len(disk.calls)} calls that change the disk, writes: {dict(kinds)}")
    print(
        f"{done - len(lost)} of {done} stops (kill and power cut) resumable or finished; {time.time() - began:.0f} s"
    )
    for line in lost:
        print(line)
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
