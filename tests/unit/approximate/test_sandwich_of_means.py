"""Sandwich intervals of means, whose covariance is that of the rows over their number."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import sgld

N, D = 400, 2
ROWS = np.random.default_rng(4).standard_normal((N, D)) @ np.array([[3.0, 1.0], [0.0, 0.5]])
X = ROWS.astype(np.float32)
MODEL = sgld.Posterior(lambda t: 0.0 * jnp.sum(t), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))


@pytest.fixture(scope="module")
def draws():
    return sgld.laplace(MODEL, X, jnp.zeros(D), num_draws=4000)


def test_the_covariance_is_that_of_the_rows_over_their_number(draws):
    found = sgld.sandwich(MODEL, X, draws)
    exact = np.cov(ROWS, rowvar=False) / N
    unit = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    z = found.position.reshape(-1, D)
    np.testing.assert_allclose(np.cov(z, rowvar=False) / unit, exact / unit, atol=0.06)


def test_nothing_but_the_spread_moves_whatever_the_weights(draws):
    skewed = replace(draws, log_weight=20 * draws.position[..., 0])
    found = sgld.sandwich(MODEL, X, skewed)
    sd = np.sqrt(np.diag(np.cov(ROWS, rowvar=False)) / N)
    np.testing.assert_allclose((found.mean() - skewed.mean()) / sd, 0, atol=1e-3)
    assert abs(skewed.mean()[0] - draws.mean()[0]) > sd[0] / 5
