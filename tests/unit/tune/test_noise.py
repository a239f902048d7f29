"""The covariance of a gradient estimate: measured, against closed forms on a linear regression."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation import gradient_noise
from sgld.approximation.laplace import laplace_at
from sgld.core.pytrees import Layout
from sgld.data.memory import InMemory
from sgld.model.problem import Problem, Target

N, D, PRIOR = 60, 2, 4.0
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D)) @ np.array([[1.0, 0.7], [0.0, 0.5]])
Y = X @ [1.0, -0.5] + 2 * RNG.normal(size=N)
POSTERIOR = sgld.Posterior(
    lambda b: -0.5 * PRIOR * jnp.sum(b**2), lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
)
TARGET = Target(POSTERIOR, Layout.of(jnp.zeros(D)))
SOURCE = InMemory.build((X.astype(np.float32), Y.astype(np.float32)), N, "reshuffle")
PROBLEM = Problem(TARGET, SOURCE)
PRECISION = X.T @ X + PRIOR * np.eye(D)
MODE = np.linalg.solve(PRECISION, X.T @ Y)


def of_rows(z):
    """[N, d]: every row's gradient at z."""
    return X * (Y - X @ z)[:, None]


def centred(n):
    """Covariance of control variates at the mode for n rows, averaged over N(mode, S)."""
    S = np.linalg.inv(PRECISION)
    H = N * X[:, :, None] * X[:, None, :] - X.T @ X
    return np.einsum("nij,jk,nlk->il", H, S, H) / N / n


def test_the_noise_of_blocks_is_over_all_of_them():
    problem = PROBLEM.with_batches(15, "reshuffle")
    rows, y = (
        np.asarray(leaf, float) for leaf in problem.source.take(jnp.arange(problem.num_data))
    )
    g = rows * (y - rows @ MODE)[:, None]
    blocks = 4 * g.reshape(4, 15, D).sum(1)
    exact = np.cov(blocks, rowvar=False, bias=True)
    np.testing.assert_allclose(
        gradient_noise.block_noise(problem, MODE), exact, rtol=1e-3, atol=1e-3 * np.trace(exact)
    )


@pytest.mark.parametrize("n", [5, 20])
def test_the_noise_of_control_variates_is_averaged_over_the_posterior(n):
    laplace = laplace_at(PROBLEM, MODE)
    problem = PROBLEM.with_batches(n, "replacement")
    gradient = sgld.ControlVariates().prepare(problem, jnp.asarray(MODE, jnp.float32))
    found = gradient_noise.estimator_noise(problem, gradient, laplace, 0, 4000)
    exact = centred(n)
    np.testing.assert_allclose(found, exact, rtol=0.12, atol=0.1 * np.trace(exact))


def test_draws_that_share_their_batches_give_the_same_noise(monkeypatch):
    monkeypatch.setattr(gradient_noise, "MIN_SHARING_DIM", D)
    problem = PROBLEM.with_batches(5, "replacement")
    gradient = sgld.ControlVariates().prepare(problem, jnp.asarray(MODE, jnp.float32))
    asked = []
    monkeypatch.setattr(
        gradient_noise,
        "estimates",
        lambda *a, found=gradient_noise.estimates: asked.append(a[2:]) or found(*a),
    )
    found = gradient_noise.estimator_noise(problem, gradient, laplace_at(PROBLEM, MODE), 0, 50_000)
    exact = centred(5)
    np.testing.assert_allclose(found, exact, rtol=0.12, atol=0.1 * np.trace(exact))
    ((zs, entries),) = asked
    assert zs.shape == (
        2 * 50_000 // gradient_noise.DRAWS_PER_PAIR,
        gradient_noise.DRAWS_PER_PAIR,
        D,
    )
    assert len(entries) == len(zs)


@pytest.mark.parametrize("n", [2, 3])
def test_per_datum_statistics_give_the_noise_of_every_batch(n):
    """Over all subsets of n rows, of a posterior whose prior has a gradient there."""
    few = (X[:6].astype(np.float32), Y[:6].astype(np.float32))
    z = np.array([0.4, -0.3])
    found = sgld.gradient_statistics(POSTERIOR, few, z)
    g = of_rows(z)[:6]
    batches = [6 / n * g[list(rows)].sum(0) for rows in itertools.combinations(range(6), n)]
    exact = np.cov(np.array(batches), rowvar=False, bias=True)
    np.testing.assert_allclose(found.batch_covariance(n), exact, rtol=1e-4)
    np.testing.assert_allclose(found.mean, (g.sum(0) - PRIOR * z) / 6, rtol=1e-5)
