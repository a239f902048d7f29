"""Gaussian posteriors, in closed form: densities alone, and means of Gaussian rows."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import sgld

from .truth import Problem, normals


def covariance(d: int, condition: float, seed: int) -> np.ndarray:
    """A random rotation of variances spread geometrically over `condition`."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (Q * np.geomspace(1 / condition, 1, d)) @ Q.T


def density(d: int, condition: float) -> Problem:
    """N(m, S) from its log density alone."""
    S = covariance(d, condition, d)
    m = np.random.default_rng(d + 1).standard_normal(d)
    law = dist.MultivariateNormal(
        jnp.asarray(m, jnp.float32), scale_tril=jnp.asarray(np.linalg.cholesky(S), jnp.float32)
    )
    posterior = sgld.Posterior(lambda x: law.log_prob(x))
    return Problem(f"gauss{d}", posterior, None, jnp.zeros(d), normals(m, S))


def gauss2() -> Problem:
    return density(2, 100.0)


def gauss10() -> Problem:
    return density(10, 1e4)


def gauss50() -> Problem:
    return density(50, 1e3)


def gauss200() -> Problem:
    return density(200, 1e4)


def rows(d: int, num_data: int, condition: float) -> Problem:
    """The mean of N rows of known covariance, prior N(0, 100 I)."""
    S = covariance(d, condition, 100 + d)
    rng = np.random.default_rng(200 + d)
    m = rng.standard_normal(d)
    Y = rng.multivariate_normal(m, S, num_data).astype(np.float32)
    root = jnp.asarray(np.linalg.cholesky(S), jnp.float32)
    posterior = sgld.Posterior(
        lambda m: dist.Normal(0.0, 10.0).log_prob(m).sum(),
        lambda m, y: dist.MultivariateNormal(m, scale_tril=root).log_prob(y),
    )
    exact = np.linalg.inv(np.eye(d) / 100 + num_data * np.linalg.inv(S))
    center = exact @ np.linalg.solve(S, Y.astype(float).sum(0))
    return Problem(f"gauss_mean{d}", posterior, Y, jnp.zeros(d), normals(center, exact))


def gauss_mean10() -> Problem:
    return rows(10, 5000, 100.0)


def gauss_mean50() -> Problem:
    return rows(50, 2000, 1e4)
