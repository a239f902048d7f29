"""The Gaussian at the mode of a posterior that is one, in wild units and correlated."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation.laplace import laplace_at
from sgld.core.pytrees import Layout
from sgld.model.problem import Problem, Target

SD, MEAN = np.array([0.01, 1.0, 200.0]), np.array([0.05, -2.0, 300.0])
CORRELATION = np.array([[1.0, 0.8, -0.3], [0.8, 1.0, 0.1], [-0.3, 0.1, 1.0]])
COVARIANCE = CORRELATION * np.outer(SD, SD)
PRECISION = np.linalg.inv(CORRELATION)


def log_density(t):
    z = (t - jnp.asarray(MEAN, jnp.float32)) / jnp.asarray(SD, jnp.float32)
    return -0.5 * z @ jnp.asarray(PRECISION, jnp.float32) @ z


POSTERIOR = sgld.Posterior(log_density)
PROBLEM = Problem(Target(POSTERIOR, Layout.of(jnp.zeros(3))))


@pytest.mark.parametrize("T", [1.0, 0.25, 9.0])
def test_covariance_factor_and_whitening_belong_to_the_posterior(T, rng):
    laplace = laplace_at(PROBLEM, MEAN).tempered(T)
    np.testing.assert_allclose(
        laplace.covariance / np.outer(SD, SD), T * CORRELATION, atol=1e-4 * T
    )
    xi = rng.standard_normal((5, 3))
    np.testing.assert_allclose(laplace.whiten(MEAN + laplace.spread(xi)), xi, atol=1e-8)
    draws = laplace.draw(rng, 20_000)
    np.testing.assert_allclose(np.cov(draws / SD, rowvar=False), T * CORRELATION, atol=0.05 * T)
    # a Gaussian's own whitened gradient is the whitened distance
    g = -laplace.pull((draws[:5] - MEAN) @ np.linalg.inv(COVARIANCE)) / T
    np.testing.assert_allclose(-g, laplace.whiten(draws[:5]), rtol=1e-3, atol=1e-3)


def test_marginals_are_those_of_the_reported_parameters(rng):
    A = np.array([[1.0, 2.0, 0.0], [0.0, 5.0, -0.1]])
    posterior = sgld.Posterior(log_density, output=lambda t: jnp.asarray(A, jnp.float32) @ t)
    scaled = Problem(Target(posterior, Layout.of(jnp.zeros(3))))
    of = laplace_at(scaled, MEAN).marginals(scaled)
    np.testing.assert_allclose(of.variance, np.diag(A @ COVARIANCE @ A.T), rtol=1e-4)
    z = MEAN + rng.standard_normal((4, 3)) * SD
    np.testing.assert_allclose(of.phi(z), (z - MEAN) @ A.T, rtol=1e-4, atol=1e-8)
    gradient = -(z - MEAN) @ np.linalg.inv(COVARIANCE)  # of the log posterior
    np.testing.assert_allclose(of.gamma(gradient), of.phi(z), rtol=1e-3, atol=1e-3)


def test_newton_needs_one_step_on_any_gaussian():
    mode = sgld.find_map(POSTERIOR, None, np.array([3.0, 5.0, -900.0], np.float32))
    assert mode.converged and mode.num_steps <= 3
    np.testing.assert_allclose((mode.position - MEAN) / SD, 0, atol=0.01)
