"""A run directory that was damaged, edited, or made by somebody else: read as it was, or refused in a sentence."""

import io
import json
import os
import shutil
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.files import read_arrays, read_json, write_arrays, write_json
from sgld.errors import RunError
from sgld.interfaces.report.page import write_report
from sgld.results.run_directory import RunDirectory
from sgld.results.storage import table_of, verify, write_confirmation
from sgld.results.verdict import Verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "slow"))

from mutated import damage

POSTERIOR = sgld.Posterior(lambda t: -0.5 * jnp.sum((t - 1) ** 2))
GIVEN = {"step_size": 0.1, "num_draws": 200, "num_chains": 2, "progress": False}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    return path, sgld.sample(POSTERIOR, None, jnp.zeros(2), path=path, **GIVEN)


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "run")


def read(path):
    """All that a finished run says."""
    draws = sgld.load(path)
    return draws, table_of(RunDirectory(path)), verify(path)


FILES = ("run.json", "setup.npz", "draws.npz", "summary.json", "result.json")


def harm(finished, tmp_path, times, seed):
    """How often a damaged directory was read to the same content, and refused; the longest read."""
    whole, draws = finished
    table = table_of(RunDirectory(whole))
    rng, counts, longest = np.random.default_rng(seed), {"same": 0, "refused": 0}, 0.0
    path = tmp_path / "run"
    for _ in range(times):
        shutil.copytree(whole, path)
        damage(path, rng)
        began = time.perf_counter()
        try:
            again, found, _ = read(path)
        except RunError as error:
            assert "\n" not in str(error)
            counts["refused"] += 1
        else:
            np.testing.assert_array_equal(again.position, draws.position)
            assert again.verdict.to_dict() == draws.verdict.to_dict() and found in (None, table)
            counts["same"] += 1
        longest = max(longest, time.perf_counter() - began)
        shutil.rmtree(path)
    return counts, longest


def test_whatever_harm_is_done_to_one_file(finished, tmp_path):
    counts, _ = harm(finished, tmp_path, 150, 0)
    assert counts["refused"] > 100, counts


@pytest.mark.slow
def test_whatever_harm_is_done_to_one_file_20000_times(finished, tmp_path):
    counts, longest = harm(finished, tmp_path, 20_000, 1)
    print(counts, f"longest {longest:.2f} s")
    assert counts["refused"] > 15_000 and longest < 1


LINKED = ["lock", "draws.npz", "summary.json", "result.json", "run.json", "setup.npz", "report.html", "chunks", "checkpoint.npz", "next.json"]  # fmt: skip


@pytest.mark.parametrize("name", LINKED)
def test_no_link_is_followed_or_written_through(copy, tmp_path, name):
    """A stranger's directory with a link out of it: what lies there is not read as the run's, nor changed."""
    outside = tmp_path / "outside"
    if name == "chunks":
        outside.mkdir()
        (outside / "0-0.npz").write_bytes(b"mine")
    else:
        outside.write_bytes((copy / name).read_bytes() if (copy / name).exists() else b"mine")
        (copy / name).unlink(missing_ok=True)
    before = outside.read_bytes() if outside.is_file() else None
    os.symlink(outside, copy / name)
    if name in FILES:
        with pytest.raises(RunError, match=f"{name} is a symbolic link"):
            read(copy)
    for door in (
        lambda: read(copy),
        lambda: write_report(copy),
        lambda: sgld.resume(copy, POSTERIOR, None, jnp.zeros(2), progress=False),
        lambda: sgld.sample(POSTERIOR, None, jnp.zeros(2), path=copy, overwrite=True, **GIVEN),
    ):
        try:
            door()
        except RunError as error:
            assert str(copy) in str(error)
    if before is not None:
        assert outside.read_bytes() == before
    else:
        assert (outside / "0-0.npz").read_bytes() == b"mine"


def test_an_archive_that_would_take_more_memory_than_it_has_bytes(copy):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        header = io.BytesIO()
        np.lib.format.write_array(header, np.zeros(2**22))
        archive.writestr("json.npy", header.getvalue())
    (copy / "draws.npz").write_bytes(packed.getvalue())
    with pytest.raises(RunError, match="was damaged"):
        sgld.load(copy)  # the manifest speaks first
    with pytest.raises(RunError, match="its parts are larger than the file"):
        read_arrays(copy / "draws.npz")
    lying = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        lying, {"shape": (10**12,), "fortran_order": False, "descr": "<f8"}
    )
    with zipfile.ZipFile(copy / "draws.npz", "w") as archive:
        archive.writestr("json.npy", lying.getvalue() + b"12345678")
    with pytest.raises(RunError, match="cannot be read"):
        read_arrays(copy / "draws.npz")


@pytest.mark.parametrize(
    "content", [b"[" * 10**5, b'{"a":' * 10**5, b"\xff\xfe", b"[]", b"nul", b'{"seal": 3}']
)
def test_json_that_is_none_or_too_deep(copy, content):
    (copy / "run.json").write_bytes(content)
    with pytest.raises(RunError, match=r"run\.json"):
        sgld.load(copy)


def test_parts_that_do_not_belong_together_are_refused_even_with_their_seals(copy):
    """Whoever seals a directory anew is believed, but not into an error or a wrong shape."""
    result = read_json(copy / "result.json")
    for name, value in {
        "status": ["ok"],
        "names": ["a"],
        "tree": "leaf leaf",
        "moments": {},
    }.items():
        write_json(copy / "result.json", {**result, name: value})
        with pytest.raises(RunError, match="damaged"):
            sgld.load(copy)
    write_json(copy / "result.json", result)
    head, arrays = read_arrays(copy / "draws.npz")
    write_arrays(copy / "draws.npz", head, {**arrays, "position0": arrays["position0"][:1]})
    with pytest.raises(RunError, match="was damaged"):
        sgld.load(copy)


def test_overwrite_takes_runs_alone_and_leaves_what_is_not_theirs(copy, tmp_path):
    (copy / "notes.txt").write_text("mine")
    sgld.sample(POSTERIOR, None, jnp.zeros(2), path=copy, overwrite=True, **GIVEN)
    assert (copy / "notes.txt").read_text() == "mine"
    for content in (None, "{}", json.dumps({"format": 3})):
        other = tmp_path / f"other{hash(content)}"
        other.mkdir()
        (other / "result.json").write_text("mine")
        if content is not None:
            (other / "run.json").write_text(content)
        with pytest.raises(RunError, match="not a run directory"):
            sgld.sample(POSTERIOR, None, jnp.zeros(2), path=other, overwrite=True, **GIVEN)
        assert (other / "result.json").read_text() == "mine"


def test_a_run_of_another_host_is_in_use_while_it_shows_signs_of_life(copy):
    lock = {"host": "another", "pid": 7, "until": time.time() + 60}
    (copy / "lock").write_text(json.dumps(lock))
    with pytest.raises(RunError, match=r"in use by another process, 7 on another; .*delete"):
        RunDirectory(copy).lock()
    (copy / "lock").write_text(json.dumps({**lock, "until": time.time() - 1}))
    with RunDirectory(copy):
        assert json.loads((copy / "lock").read_text())["pid"] == os.getpid()
        with pytest.raises(RunError, match=rf"in use by another process, process {os.getpid()} on"):
            RunDirectory(copy).lock()


def test_a_directory_that_vanishes_in_mid_run_is_told(tmp_path, monkeypatch):
    write = RunDirectory.write_checkpoint

    def vanish(self, *given):
        write(self, *given)
        self.path.rename(tmp_path / "elsewhere")

    monkeypatch.setattr(RunDirectory, "write_checkpoint", vanish)
    with pytest.raises(RunError, match="run no longer exists"):
        sgld.sample(POSTERIOR, None, jnp.zeros(2), path=tmp_path / "run", checkpoint_every=0.0, **GIVEN)  # fmt: skip
    monkeypatch.undo()
    again = sgld.resume(tmp_path / "elsewhere", POSTERIOR, None, jnp.zeros(2), progress=False)
    assert again.num_draws == 200


def test_a_second_verdict_that_is_lost_is_not_the_first_again(copy):
    with RunDirectory(copy) as run:
        write_confirmation(
            run, replace(sgld.load(copy), verdict=Verdict("biased", ("an sd is off.",)))
        )
    assert sgld.load(copy).verdict.word == "biased"
    (copy / "confirmation.json").unlink()
    with pytest.raises(RunError, match=r"summary\.json .*was damaged"):
        sgld.load(copy)


@pytest.mark.parametrize("tree", [{}, {"list": ["leaf", "leaf"]}, {"dict": {}, "list": []}])
def test_a_forged_tree_is_refused_in_a_sentence(copy, tree):
    result = read_json(copy / "result.json")
    write_json(copy / "result.json", {**result, "tree": tree})
    with pytest.raises(RunError):
        sgld.load(copy)
