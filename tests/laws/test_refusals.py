"""What a refused call leaves as it was, and what is answered in a sentence: mistakes that were tried by hand."""

import os

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.data.table_source import TableSource
from sgld.data.tables import read_table
from sgld.errors import DataError, RunError, UsageError

POSTERIOR = sgld.Posterior(lambda z: -0.5 * jnp.sum(z**2))
GIVEN = {"step_size": 0.1, "num_draws": 50, "num_chains": 2, "progress": False}


@pytest.fixture
def run(tmp_path):
    sgld.sample(POSTERIOR, None, jnp.zeros(2), path=tmp_path / "run", **GIVEN)
    return tmp_path / "run"


def content(path):
    return {p.name: p.read_bytes() for p in path.iterdir() if p.name != "lock"}


@pytest.mark.parametrize(
    "wrong",
    [{"max_seconds": 1e-9}, {"step_size": 1e-30}, {"thin": 10**17}],
)  # fmt: skip
def test_a_refused_call_leaves_the_run_that_it_would_have_replaced(run, wrong):
    before = content(run)
    with pytest.raises((UsageError, RunError)):
        sgld.sample(POSTERIOR, None, jnp.zeros(2), path=run, overwrite=True, **{**GIVEN, **wrong})
    assert content(run) == before
    assert sgld.load(run).position.shape == (2, 50, 2)


def test_a_run_is_replaced_once_there_is_a_plan(run):
    before = sgld.load(run)
    seen = {}

    def look(plan):
        seen.update(content(run))

    from sgld.inference.sample import begin
    from sgld.model.problem import Request

    ask = Request(
        *(["auto"] * 1), 0.1, 0.05, 1.0, *(["auto"] * 4), 2, 60, "auto", "auto", 1, None, None
    )
    begin(
        POSTERIOR, None, jnp.zeros(2), ask, None, {"kind": "sample"}, path=run, overwrite=True,
        progress=False, checkpoint_every=10.0, on_plan=look,
    )  # fmt: skip
    assert set(seen) == {"run.json", "setup.npz"}, "the old run's draws beside the new one's plan"
    after = sgld.load(run)
    assert after.position.shape == (2, 60, 2) and before.position.shape == (2, 50, 2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"burn_in": 10**30}, "burn_in must be at most"),
        ({"tolerance": 1e-300}, "tolerance must be at least 1e-06"),
        ({"temperature": lambda t: "a"}, "temperature raised"),
        ({"temperature": lambda t: -1.0}, "temperature must be finite and not negative"),
        ({"step_size": lambda t: 1 / 0}, r"step_size raised ZeroDivisionError .*line \d+ of test_refusals"),
        ({"keep": lambda z: jnp.zeros(10**12)}, "numbers that keep returns, of every draw, would take"),
        ({"path": 3}, "path must be a run directory"),
        ({"path": b"run"}, "path must be a run directory"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_answered(wrong, said, tmp_path):
    before = set(tmp_path.iterdir())
    with pytest.raises(UsageError, match=said):
        sgld.sample(POSTERIOR, None, jnp.zeros(2), **{"path": tmp_path / "x", **GIVEN, **wrong})
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("counts", [{"num_chains": 10**9}, {"num_draws": 10**12}])
def test_a_reference_predicts_its_memory(counts):
    with pytest.raises(UsageError, match="GiB of memory"):
        sgld.reference(POSTERIOR, None, jnp.zeros(2), progress=False, **counts)


@pytest.mark.parametrize("door", [read_table, lambda path: TableSource.of(path).read()])
def test_a_pipe_is_no_table(tmp_path, door):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="not a regular file"):
        door(tmp_path / "pipe.csv")


@pytest.mark.parametrize("text", ["y,x\n1,2\n4\r5,6\n", 'y,x\n1,2\n"' + "a" * 200_000 + "\n"])
def test_a_line_that_is_none_is_named(tmp_path, text):
    (tmp_path / "t.csv").write_bytes(text.encode())
    with pytest.raises(DataError, match="cannot be read as a table from line 3 on"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("name", ["run.json", "result.json", "setup.npz", "summary.json"])
def test_a_folder_in_the_place_of_a_file_is_named_before_anything_goes(run, name):
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir()
    kept = {p.name for p in run.iterdir()}
    with pytest.raises(RunError, match=rf"{name} is a folder|cannot be read|not a run directory"):
        sgld.sample(POSTERIOR, None, jnp.zeros(2), path=run, overwrite=True, **GIVEN)
    assert {p.name for p in run.iterdir()} == kept


@pytest.mark.parametrize(("rows", "to", "what"), [(slice(4998, 4999), -1.0, "density"), (slice(0, 1000), 0.0, "gradient")])  # fmt: skip
def test_rows_at_a_large_position_are_looked_at_before_the_first_step(rows, to, what):
    """All rows' densities; the gradient of 4,096 of them: of 1,000 rows where it is not finite some are there."""
    x = np.ones(5000, np.float32)
    x[rows] = to
    posterior = sgld.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, x: jnp.sqrt(x + 0 * w[0]) - jnp.sum(w[:2] ** 2)
    )
    at = f"the {'log density' if what == 'density' else 'gradient of the log density'} at init is n"
    with pytest.raises(UsageError, match=at):
        sgld.sample(posterior, x, np.zeros(2**16, np.float32), step_size=1e-6, progress=False)
