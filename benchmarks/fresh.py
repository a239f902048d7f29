"""Provide regressions on data that nothing else uses, with their true means and sds.

`case(name, k)` is the k-th data set of a kind: nine kinds, each of one shape, so that one compiled
function serves every data set. The truth is closed (linear), or importance sampling from the
Gaussian at the mode with 65,536 quasi-random Student-t draws, from two independently scrambled
nets whose difference says how exact it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.distributions import constraints
from scipy import special
from scipy.stats import qmc

import sgld
from densities import FlatDensity
from problems.binary import columns

__all__ = ["FRESH", "KINDS", "Case", "case"]

FRESH = 20_417  # data seeds are [FRESH, kind, k]
IMPORTANCE_LOG2, DEGREES = 15, 7  # draws of each of two scrambled nets; of freedom
NOISE_DRAWS = 16  # positions at which the noise of control variates is measured


class Kind(NamedTuple):
    """A family of problems of one shape, so that one compiled function serves all of them."""

    posterior: sgld.Posterior
    data: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
    init: Any


def normal_prior(b):
    return dist.Normal(0.0, 2.0).log_prob(b).sum()


def shape_prior(p):
    return normal_prior(p["beta"]) + dist.Gamma(2.0, 0.5).log_prob(p["shape"])


def normal(b, row):
    return -0.5 * (row[1] - row[0] @ b) ** 2


def bernoulli(b, row):
    return dist.Bernoulli(logits=row[0] @ b).log_prob(row[1])


def poisson(b, row):
    return dist.Poisson(jnp.exp(row[0] @ b)).log_prob(row[1])


def negative_binomial(p, row):
    return dist.NegativeBinomial2(jnp.exp(row[0] @ p["beta"]), p["shape"]).log_prob(row[1])


def student(p, row):
    return dist.StudentT(5.0, row[0] @ p["beta"], p["shape"]).log_prob(row[1])


# the outcome of a linear predictor: outcome(rng, eta)
OUTCOMES = {
    "normal": lambda rng, eta: eta + rng.normal(size=eta.size),
    "student": lambda rng, eta: eta + rng.standard_t(4, eta.size),
    "logit": lambda rng, eta: rng.random(eta.size) < special.expit(eta),
    "counts": lambda rng, eta: rng.poisson(np.exp(eta)),
    "overdispersed": lambda rng, eta: rng.poisson(np.exp(eta) * rng.gamma(1.5, 1 / 1.5, eta.size)),
}


def kind(
    posterior: sgld.Posterior, outcome: str, num_data: int, d: int, correlation: float, first: float,
    spread: float,
) -> Kind:  # fmt: skip
    """Return a regression on correlated columns, its coefficients fresh but for the intercept."""

    def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        X = columns(rng, num_data, d, correlation)
        eta = X @ np.array([first, *rng.normal(0, spread, d - 1)])
        return X, np.asarray(OUTCOMES[outcome](rng, eta), np.float32)

    shaped = posterior.transform is not None
    init = {"beta": jnp.zeros(d), "shape": jnp.ones(())} if shaped else jnp.zeros(d)
    return Kind(posterior, data, init)


_POSITIVE = {"beta": constraints.real, "shape": constraints.positive}
_LOGISTIC = sgld.Posterior(normal_prior, bernoulli)
_POISSON = sgld.Posterior(normal_prior, poisson)
_COUNTS = sgld.Posterior(shape_prior, negative_binomial, constraints=_POSITIVE)
_ROBUST = sgld.Posterior(shape_prior, student, constraints=_POSITIVE)
KINDS = {
    "linear": kind(sgld.Posterior(normal_prior, normal), "normal", 1000, 6, 0.6, 0.5, 1.0),
    "rate": kind(_POISSON, "counts", 1000, 1, 0.0, 0.5, 0.3),
    "logistic": kind(_LOGISTIC, "logit", 1600, 8, 0.5, 0.3, 0.6),
    "logistic_few": kind(_LOGISTIC, "logit", 300, 3, 0.2, 0.2, 0.7),
    "logistic_rare": kind(_LOGISTIC, "logit", 4000, 4, 0.3, -4.0, 0.5),
    "poisson": kind(_POISSON, "overdispersed", 2000, 5, 0.6, -0.2, 0.3),
    "negative_binomial": kind(_COUNTS, "overdispersed", 700, 4, 0.4, 0.8, 0.4),
    "student": kind(_ROBUST, "student", 500, 3, 0.5, 1.0, 1.0),
    # a dozen events: far enough from Gaussian that r2 is .5 to .9
    "logistic_sparse": kind(_LOGISTIC, "logit", 400, 2, 0.0, -3.6, 0.4),
}


class Case(NamedTuple):
    """One data set, the Gaussian at its mode, and its true means and sds.

    Attributes:
      plain, centred: covariance of N times one row's gradient, without and with control variates.
      effective: share of the importance draws that count; 1 where the truth is closed.
      error: of the worst true sd, relative.
    """

    data: tuple[np.ndarray, np.ndarray]
    density: FlatDensity
    center: np.ndarray
    curvature: np.ndarray
    plain: np.ndarray
    centred: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    effective: float
    error: float


@lru_cache(maxsize=64)
def case(name: str, k: int) -> Case:
    """Return the k-th data set of a kind."""
    chosen = KINDS[name]
    data = chosen.data(np.random.default_rng([FRESH, list(KINDS).index(name), k]))
    density = FlatDensity(chosen.posterior, data, chosen.init)
    center = density.mode()
    J = density.curvature(center)
    root, N = np.linalg.inv(np.linalg.cholesky(J)).T, len(data[1])
    at_mode = density.row_gradients(center)
    away = center + np.random.default_rng(0).standard_normal((NOISE_DRAWS, len(center))) @ root.T
    moved = [density.row_gradients(z) - at_mode for z in away]
    plain, centred = (
        N**2 * np.mean([np.cov(g.T).reshape(J.shape) for g in each], axis=0)
        for each in ([at_mode], moved)
    )
    truth = closed(data) if name == "linear" else importance(density, center, root)
    return Case(data, density, center, J, plain, centred, *truth)


def closed(data: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Return mean and sd of a linear regression with sd 2 of the prior."""
    X, y = (part.astype(np.float64) for part in data)
    covariance = np.linalg.inv(X.T @ X + np.eye(X.shape[1]) / 4)
    return covariance @ X.T @ y, np.sqrt(np.diag(covariance)), 1.0, 0.0


def importance(
    density: FlatDensity, center: np.ndarray, root: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Return mean and sd of the parameters, from two independent nets."""
    d, moments, shares = center.size, [], []

    @jax.jit
    def evaluated(zs: Any) -> Any:
        one = lambda z: (density(z), ravel_pytree(density.position(z))[0])  # noqa: E731
        return jax.lax.map(one, zs, batch_size=256)

    for scramble in range(2):
        u = qmc.Sobol(d + 1, rng=scramble).random_base2(IMPORTANCE_LOG2)
        normals = special.ndtri(np.clip(u[:, :d], 1e-9, 1 - 1e-9))
        t = normals / np.sqrt(2 * special.gammaincinv(DEGREES / 2, u[:, d]) / DEGREES)[:, None]
        found = evaluated(jnp.float32(center + t @ root.T))
        value, reported = (np.asarray(part, np.float64) for part in found)
        log_weight = value + (DEGREES + d) / 2 * np.log1p(np.sum(t**2, axis=1) / DEGREES)
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        mean = weight @ reported
        moments.append((mean, weight @ (reported - mean) ** 2))
        shares.append(1 / np.sum(weight**2) / len(weight))
    (mean, variance), (other, second) = moments
    sd = np.sqrt((variance + second) / 2)
    error = np.max(np.abs(np.sqrt(variance) - np.sqrt(second)) / sd) / 2
    return (mean + other) / 2, sd, float(np.mean(shares)), float(error)
