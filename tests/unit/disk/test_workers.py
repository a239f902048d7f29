"""Passes mapped over workers: the sums, the rows that stand out and the draws of a run without them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints
from on_disk_rows import MODEL, X, Y

import sgld
from sgld.core.files import read_json, write_json
from sgld.errors import DataError, RunError, UsageError
from sgld.model import sums
from sgld.model import sums as spread
from sgld.model.prepare import prepare

pytest.importorskip("cloudpickle", reason="what is sent to workers is pickled by it")
Z = np.array([0.3, -0.2, 0.1], np.float32)
ZS = np.random.default_rng(3).normal(size=(5, 3)).astype(np.float32)


@pytest.fixture
def rows(opened, tmp_path, monkeypatch):
    """3,000 rows in five pieces."""
    monkeypatch.setattr(spread, "MAX_WORKER_NUMBERS", 2800)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    return opened((tmp_path / "x.npy", tmp_path / "y.npy"))


def counting(mapped):
    """A map, and how many items it was given, call by call."""
    calls = []

    def map_(function, items):
        calls.append(len(items))
        return mapped(function, items)

    return map_, calls


SUMS = {
    "value and gradient": lambda p: sums.value_and_gradient(p, Z),
    "gradient of the likelihood": lambda p: sums.likelihood_gradient(p, Z),
    "curvature": lambda p: sums.curvature(p, Z),
    "differences": lambda p: sums.differences(p, ZS, Z),
    "gradients": lambda p: sums.gradients(p, ZS),
    "log densities": lambda p: sums.log_densities(p, ZS),
    "directions": lambda p: sums.directions(p, Z, np.eye(3, dtype=np.float32)),
}


@pytest.mark.parametrize("what", SUMS)
def test_sums_are_those_of_one_process(rows, what):
    mapped, calls = counting(map)
    with ThreadPoolExecutor(2) as pool:
        found = [SUMS[what](prepare(MODEL, source, np.zeros(3))) for source in (rows, rows.over(mapped), rows.over(pool))]  # fmt: skip
    assert calls[-1] == 5
    for one, other, third in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-3)
        np.testing.assert_array_equal(other, third)


@pytest.mark.parametrize("constrained", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_is_that_of_one_process(rows, constrained):
    """With a prior, and a Jacobian, that count once; compiled steps send nothing."""
    model, init = MODEL, jnp.zeros(3)
    if constrained:
        model = sgld.Posterior(
            lambda p: -p["s"] - 0.005 * jnp.sum(p["b"] ** 2),
            lambda p, row: -0.5 * ((row[1] - row[0] @ p["b"]) / p["s"]) ** 2 - jnp.log(p["s"]),
            constraints={"s": constraints.positive, "b": None},
        )
        init = {"b": jnp.zeros(3), "s": 1.0}
    mapped, calls = counting(map)
    given = {"num_draws": 200, "progress": False}
    alone, together = (sgld.sample(model, source, init, **given) for source in (rows, rows.over(mapped)))  # fmt: skip
    assert len(calls) > 10
    assert repr(alone.plan.setup.gradient)[:12] == repr(together.plan.setup.gradient)[:12]
    for one, other in zip(
        *(jax.tree.leaves(draws.sd()) for draws in (alone, together)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-2)


def test_what_workers_may_be_and_what_becomes_of_their_failures(rows):
    with pytest.raises(UsageError, match=r"workers must be a Dask client, .* Got int"):
        rows.over(3)
    problem = lambda workers: prepare(MODEL, rows.over(workers), np.zeros(3))  # noqa: E731

    def lost(function, items):
        raise ConnectionError("worker 3 is gone")

    for workers, error, said in (
        (lost, RunError, r"the workers failed: ConnectionError \(worker 3 is gone\)"),
        (lambda f, items: [f(items[0])], RunError, "returned 1 results for 5 pieces"),
    ):
        with pytest.raises(error, match=said):
            problem(workers)
    good = problem(map)
    folder = Path(rows.files.paths[0]).parent
    for harm, said in (
        (lambda path: write_json(path, {**read_json(path), "hash": "0"}), "but others; give a folder"),
        (lambda path: path.unlink(), "a worker does not find the rows in .*; give a folder that all workers share"),
    ):  # fmt: skip
        spread._leaves.cache_clear()
        harm(folder / "rows.json")
        with pytest.raises(DataError, match=said):
            sums.value_and_gradient(good, Z)
    lock = threading.Lock()  # which nobody can pickle
    odd = sgld.Posterior(
        lambda t: -0.5 * jnp.sum(t**2) + 0.0 * (lock is None), MODEL.log_likelihood
    )
    with pytest.raises(UsageError, match="the posterior cannot be sent to workers: TypeError"):
        prepare(odd, rows.over(map), np.zeros(3))


def test_on_workers_of_dask(rows):
    """Processes of their own, as on other machines."""
    distributed = pytest.importorskip("distributed", reason="an extra: pip install 'sgld[dask]'")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        given = {"num_draws": 100, "progress": False}
        alone = sgld.sample(MODEL, rows, jnp.zeros(3), **given)
        there = sgld.sample(MODEL, rows.over(client), jnp.zeros(3), **given)
    np.testing.assert_allclose(there.position, alone.position, atol=2e-3 * float(alone.sd().min()))
