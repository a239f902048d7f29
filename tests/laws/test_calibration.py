"""Simulation-based calibration (Talts et al. 2018): over draws of the prior and data from the
model, the rank of the true value among posterior draws is uniform, and intervals cover.

The band is simultaneous over all ranks, by simulation (Säilynoja, Bürkner & Vehtari 2022). Every
replicate is one whole call of `sgld.sample`; models have one shape each, so that few compile.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import sgld
from sgld.results import statistics

RANKED = 127  # draws that a true value is ranked among, so that there are 128 ranks
CHAINS, DRAWS = 4, 256  # every 8th draw of each chain is ranked against
REPLICATES = {"gaussian": 1000, "logistic": 1000, "poisson": 1000}
CONTROL = 150  # replicates of the run with ten times the step
LEVEL = 0.99


# -- the band --------------------------------------------------------------------------------


def least_tail(ranks):
    """The least pointwise two-sided binomial tail of the ranks' ECDF [..., replicate]."""
    n = ranks.shape[-1]
    counts = np.stack([(ranks <= k).sum(-1) for k in range(RANKED)], axis=-1)
    share = np.arange(1, RANKED + 1) / (RANKED + 1)
    below, above = stats.binom.cdf(counts, n, share), stats.binom.sf(counts - 1, n, share)
    return 2 * np.minimum(below, above).min(-1)


@lru_cache
def critical(n):
    """What `least_tail` of uniform ranks exceeds with probability LEVEL."""
    ranks = np.random.default_rng(0).integers(0, RANKED + 1, (4000, n), dtype=np.uint8)
    return np.quantile(least_tail(ranks), 1 - LEVEL)


def fits(ranks):
    return least_tail(ranks) >= critical(ranks.shape[-1])


def test_the_band_keeps_uniform_ranks_and_refuses_a_wrong_sd():
    rng = np.random.default_rng(1)
    kept = fits(rng.integers(0, RANKED + 1, (1000, 200)))
    assert 0.975 < kept.mean() < 0.999
    for sd, shift in ((1.4, 0.0), (1 / 1.4, 0.0), (1.0, 0.5)):
        draws = sd * rng.standard_normal((100, 200, RANKED)) + shift
        ranks = (draws < rng.standard_normal((100, 200, 1))).sum(-1)
        assert fits(ranks).mean() < 0.2, (sd, shift)


# -- models ----------------------------------------------------------------------------------


class Model(NamedTuple):
    posterior: sgld.Posterior
    simulate: Callable[..., Any]  # rng -> true position, data
    curvature: Callable[..., Any]  # of -log posterior at the true position, for the control


def gaussian_simulate(rng):
    """One mean, conjugate; rows of different known sds, so that control variates have noise."""
    theta = rng.standard_normal(1)
    sd = np.exp(rng.normal(0.5, 0.5, 100))
    return theta, (theta + sd * rng.standard_normal(100), 1 / sd**2)


def predictors(rng, count):
    return np.column_stack([np.ones(count), rng.standard_normal(count)])


def logistic_simulate(rng):
    theta, X = rng.standard_normal(2), predictors(rng, 300)
    return theta, (X, 1.0 * (rng.random(300) < special.expit(X @ theta)))


def poisson_simulate(rng):
    theta, X = 0.5 * rng.standard_normal(2), predictors(rng, 200)
    return theta, (X, 1.0 * rng.poisson(np.exp(X @ theta)))


def logistic_row(b, row):
    eta = jnp.dot(row[0], b)
    return row[1] * eta - jnp.logaddexp(0.0, eta)


def poisson_row(b, row):
    eta = jnp.dot(row[0], b)
    return row[1] * eta - jnp.exp(eta)


def weighted_square(X, w):
    return X.T @ (w[:, None] * X)


MODELS = {
    "gaussian": Model(
        sgld.Posterior(
            lambda t: -0.5 * jnp.sum(t**2), lambda t, row: -0.5 * row[1] * (row[0] - t[0]) ** 2
        ),
        gaussian_simulate,
        lambda t, data: np.eye(1) * (1 + data[1].sum()),
    ),
    "logistic": Model(
        sgld.Posterior(lambda b: -0.5 * jnp.sum(b**2), logistic_row),
        logistic_simulate,
        lambda b, data: (
            np.eye(2)
            + weighted_square(data[0], special.expit(data[0] @ b) * special.expit(-data[0] @ b))
        ),
    ),
    "poisson": Model(
        sgld.Posterior(lambda b: -2 * jnp.sum(b**2), poisson_row),
        poisson_simulate,
        lambda b, data: 4 * np.eye(2) + weighted_square(data[0], np.exp(data[0] @ b)),
    ),
}


# -- replicates ------------------------------------------------------------------------------


class Replicates(NamedTuple):
    ranks: np.ndarray  # [parameter, replicate]
    covered: np.ndarray  # [parameter, replicate], by the 90% interval
    ess: np.ndarray  # [replicate], the least
    seconds: float


def run(name, seed, **given):
    model = MODELS[name]
    theta, data = model.simulate(np.random.default_rng([31, list(MODELS).index(name), seed]))
    data = tuple(part.astype(np.float32) for part in data)
    if given.pop("control", False):
        D = np.linalg.inv(model.curvature(theta, data))
        given |= {"preconditioner": sgld.Dense(D), "gradient": sgld.Full(), "burn_in": 50}
    init = np.zeros(theta.size, np.float32)
    draws = sgld.sample(
        model.posterior, data, init, num_chains=CHAINS, num_draws=DRAWS, seed=seed, progress=False,
        **given,
    )  # fmt: skip
    return theta, draws


@lru_cache
def replicates(name, count, step_size=None):
    """`count` runs at default arguments, or with exact gradients and a step given by hand."""
    given = {} if step_size is None else {"step_size": step_size, "thin": 12, "control": True}
    ranks, covered, ess, began = [], [], [], time.perf_counter()
    for seed in range(count):
        theta, draws = run(name, seed, **given)
        assert np.ptp(draws.weights) == 0  # ranks count draws
        picked = draws.position[:, :: CHAINS * DRAWS // (RANKED + 1)].reshape(-1, theta.size)
        ranks.append((picked[:RANKED] < theta).sum(0))
        low, high = draws.interval(0.9)
        covered.append((low < theta) & (theta < high))
        ess.append(statistics.ess(draws.position, draws.weights).min())
    seconds = time.perf_counter() - began
    found = Replicates(np.array(ranks).T, np.array(covered).T, np.array(ess), seconds)
    print(
        f"{name}: {count} replicates in {seconds:.0f} s, coverage {found.covered.mean(1)}, least ESS "
        f"{found.ess.min():.0f}, least tail {least_tail(found.ranks)}, critical {critical(count):.2e}"
    )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_ranks_are_uniform_at_default_arguments(name):
    found = replicates(name, REPLICATES[name])
    assert found.ess.min() >= RANKED
    assert fits(found.ranks).all(), least_tail(found.ranks)


@pytest.mark.slow
def test_a_90_percent_interval_covers_90_percent():
    covered = replicates("gaussian", REPLICATES["gaussian"]).covered.mean()
    assert 0.872 < covered < 0.928


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_ten_times_the_step_fails(name):
    """The control: what the tuner takes without noise correction, and ten times that."""
    _, draws = run(name, 0, sampler=sgld.SGLD(None), gradient=sgld.Full())
    h = draws.info["plan"]["step_size"]
    right = replicates(name, CONTROL, h)
    assert right.ess.min() >= RANKED and fits(right.ranks).all()
    wrong = replicates(name, CONTROL, 10 * h)
    assert not fits(wrong.ranks).any(), least_tail(wrong.ranks)
