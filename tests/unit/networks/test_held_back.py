"""The log score of rows held back, under the posterior and under optimisers' ends."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sgld
from sgld.errors import SGLDWarning, UsageError
from sgld.networks import HeldBack, held_back, normal_prior


def regression(prior_sd):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4)).astype(np.float32)
    y = (x @ np.array([1.0, -1.5, 0.5, 0.8]) + rng.normal(size=300)).astype(np.float32)
    posterior = sgld.Posterior(
        normal_prior(prior_sd), lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2
    )
    return posterior, (x[:150], y[:150]), (x[150:], y[150:])


def test_log_scores_are_the_closed_form():
    posterior, known, new = regression(2.0)
    draws = sgld.sample(posterior, known, jnp.zeros(4), progress=False)
    found = held_back(posterior, known, jnp.zeros(4), draws, new, networks=2)
    x, y = known
    covariance = np.linalg.inv(x.T @ x + np.eye(4) / 4)
    mean = covariance @ x.T @ y
    constant = 0.5 * np.log(2 * np.pi)  # that the likelihood leaves out
    sd = np.sqrt(1 + np.einsum("ri,ij,rj->r", new[0], covariance, new[0]))
    exact = stats.norm.logpdf(new[1], new[0] @ mean, sd) + constant
    np.testing.assert_allclose(found.posterior.mean(), exact.mean(), atol=0.01)
    ends = -0.5 * (new[1] - new[0] @ mean) ** 2
    np.testing.assert_allclose(found.optimisers.mean(), ends.mean(), atol=0.01)
    assert found.warning is None and "difference" in str(found)


def test_draws_that_were_held_back_are_said_with_what_to_change():
    """Draws around a point that a far too narrow prior drew them to."""
    posterior, known, new = regression(2.0)
    rng = np.random.default_rng(1)
    narrow = sgld.Draws.of(0.1 * rng.normal(size=(4, 50, 4)).astype(np.float32))
    with pytest.warns(SGLDWarning, match=r"2 optimisers.*holds the network back.*learnt=True"):
        found = held_back(posterior, known, jnp.zeros(4), narrow, new, networks=2)
    assert found.difference > 3 * found.difference_se and found.warning in str(found)


def test_three_standard_errors_are_the_limit():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=400)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    zero = np.zeros(400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert HeldBack(zero, noise + 2.9 / 20, 5).warning is None
        assert HeldBack(zero, noise + 3.1 / 20, 5).warning is not None
        assert HeldBack(zero, noise - 9.0, 5).warning is None  # the posterior wins


def test_refusals():
    posterior, known, new = regression(2.0)
    draws = sgld.Draws.of(np.zeros((4, 50, 4), np.float32))
    with pytest.raises(UsageError, match=r"rows must be two at least. Got 1\."):
        held_back(posterior, known, jnp.zeros(4), draws, (new[0][:1], new[1][:1]))
    with pytest.raises(UsageError, match="networks must be a whole number"):
        held_back(posterior, known, jnp.zeros(4), draws, new, networks=0)
    bare = sgld.Posterior(lambda w: -0.5 * jnp.sum(w**2))
    with pytest.raises(UsageError, match="log likelihood of rows"):
        held_back(bare, known, jnp.zeros(4), draws, new)
