"""Run directories that an older version wrote load, print the same table, and resume to the same bits."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import sgld
from sgld.errors import RunError

FOLDER = Path(__file__).parents[2] / "fixtures" / "runs_0de9404"
sys.path.insert(0, str(FOLDER))
import write_runs  # noqa: E402

SUMMARIES = json.loads((FOLDER / "summaries.json").read_text())
SAME_NUMBERS = 1e-3  # of the draws, on a machine or a version of JAX whose rounding differs


def copied(name, tmp_path):
    """Return a copy of a stored run, which the test may change."""
    return Path(shutil.copytree(FOLDER / name, tmp_path / name))


def table(summary):
    """Return the lines of a printed summary that hold a name and numbers."""
    return str(summary).split("\n2 chains")[0].split("\n4 chains")[0]


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_finished_run_loads_and_prints_the_same_table(tmp_path, name):
    draws = sgld.load(copied(name, tmp_path))
    assert table(draws.summary()) == table(SUMMARIES[name])
    assert f"verdict: {draws.verdict.word}" in SUMMARIES[name]
    assert (draws.plan is None) == (name == "own")  # parts of a user's own are not stored


@pytest.mark.parametrize("name", SUMMARIES)
def test_an_interrupted_run_resumes_to_the_bits_of_the_uninterrupted_run(
    tmp_path, monkeypatch, name
):
    """A machine whose rounding differs from that of the older run resumes to nearly the same numbers."""
    monkeypatch.chdir(FOLDER)  # where the table of the formula is
    before = numbers(sgld.load(copied(name, tmp_path)))
    resumed = numbers(write_runs.resume(name, copied(f"{name}_interrupted", tmp_path)))
    if all(map(np.array_equal, before, resumed)):
        return
    run = write_runs.fit if name in write_runs.FITTED else write_runs.sample
    fresh = numbers(run(name, tmp_path / "fresh"))
    assert not all(map(np.array_equal, before, fresh)), "this machine does compute the same bits"
    for one, other in zip(before, resumed, strict=True):
        np.testing.assert_allclose(other, one, rtol=SAME_NUMBERS, atol=SAME_NUMBERS)


def numbers(draws):
    """Return the arrays of all that a run keeps of its draws."""
    position = draws.position if isinstance(draws.position, dict) else {"": draws.position}
    moments = draws.moments
    totals = [] if moments is None else [moments.chain_mean, moments.chain_square, moments.between]
    return [np.asarray(array) for array in (*position.values(), draws.step_size, *totals)]


def test_a_part_that_differs_from_that_of_the_older_run_is_refused(tmp_path):
    path = copied("own_interrupted", tmp_path)
    again = {**write_runs.OWN_AGAIN, "sampler": write_runs.own_parts.Damped(None, 0.25)}
    with pytest.raises(RunError, match="sampler is not the sampler"):
        sgld.resume(
            path, write_runs.POSTERIOR, (write_runs.X, write_runs.Y), write_runs.START,
            progress=False, **again,
        )  # fmt: skip
