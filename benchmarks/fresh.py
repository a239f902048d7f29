"""Regressions on data that nothing else uses, and what is true of them.

`case(name, k)` is the k-th data set of a kind: nine of them, each of one shape, so that one
compiled function serves every data set. The truth is closed (linear), or importance sampling of
the Laplace approximation with 65,536 quasi-random Student-t draws, from two independently
scrambled nets whose difference says how exact it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from scipy import special
from scipy.stats import qmc

import sgld
from problems.binary import columns
from sgld.approximation.gradient_noise import row_noise
from sgld.approximation.laplace import Laplace
from sgld.approximation.mode import gaussian_at_mode
from sgld.core.pytrees import Layout
from sgld.data.memory import InMemory
from sgld.model.problem import Problem, Target

__all__ = ["FRESH", "KINDS", "Case", "case"]

FRESH = 20_417  # data seeds are [FRESH, kind, k]
IMPORTANCE_LOG2, DEGREES = 15, 7  # draws of each of two scrambled nets; of freedom


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


def design(num_data: int, d: int, correlation: float, first: float, spread: float):
    """(rng) -> X and its linear predictor, of a fresh beta with the given intercept."""

    def make(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        X = columns(rng, num_data, d, correlation)
        return X, X @ np.array([first, *rng.normal(0, spread, d - 1)])

    return make


def outcome(make: Callable, draw: Callable) -> Callable:
    def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        X, eta = make(rng)
        return X, np.asarray(draw(rng, eta), np.float32)

    return data


def logit(rng, eta):
    return rng.random(eta.size) < special.expit(eta)


def counts(rng, eta):
    return rng.poisson(np.exp(eta))


def overdispersed(rng, eta):
    return rng.poisson(np.exp(eta) * rng.gamma(1.5, 1 / 1.5, eta.size))


def shaped(d: int) -> dict[str, Any]:
    return {"beta": jnp.zeros(d), "shape": jnp.ones(())}


_POSITIVE = {"beta": constraints.real, "shape": constraints.positive}
_LOGISTIC = sgld.Posterior(normal_prior, bernoulli)
_POISSON = sgld.Posterior(normal_prior, poisson)
KINDS = {
    "linear": Kind(
        sgld.Posterior(normal_prior, normal),
        outcome(design(1000, 6, 0.6, 0.5, 1.0), lambda rng, eta: eta + rng.normal(size=eta.size)),
        jnp.zeros(6),
    ),
    "rate": Kind(_POISSON, outcome(design(1000, 1, 0.0, 0.5, 0.3), counts), jnp.zeros(1)),
    "logistic": Kind(_LOGISTIC, outcome(design(1600, 8, 0.5, 0.3, 0.6), logit), jnp.zeros(8)),
    "logistic_few": Kind(_LOGISTIC, outcome(design(300, 3, 0.2, 0.2, 0.7), logit), jnp.zeros(3)),
    "logistic_rare": Kind(_LOGISTIC, outcome(design(4000, 4, 0.3, -4.0, 0.5), logit), jnp.zeros(4)),
    "poisson": Kind(
        _POISSON, outcome(design(2000, 5, 0.6, -0.2, 0.3), overdispersed), jnp.zeros(5)
    ),
    "negative_binomial": Kind(
        sgld.Posterior(shape_prior, negative_binomial, constraints=_POSITIVE),
        outcome(design(700, 4, 0.4, 0.8, 0.4), overdispersed),
        shaped(4),
    ),
    "student": Kind(
        sgld.Posterior(shape_prior, student, constraints=_POSITIVE),
        outcome(
            design(500, 3, 0.5, 1.0, 1.0), lambda rng, eta: eta + rng.standard_t(4, eta.size)
        ),
        shaped(3),
    ),
    # a dozen events: far enough from Gaussian that r2 is .5 to .9
    "logistic_sparse": Kind(
        _LOGISTIC, outcome(design(400, 2, 0.0, -3.6, 0.4), logit), jnp.zeros(2)
    ),
}  # fmt: skip


class Case(NamedTuple):
    """One data set and everything about it that a run needs."""

    data: tuple[np.ndarray, np.ndarray]
    posed: Problem
    laplace: Laplace
    rows: tuple[np.ndarray, np.ndarray]  # covariance of N times one row's gradient: plain, centred
    mean: np.ndarray
    sd: np.ndarray
    effective: float  # share of the importance draws; 1 where the truth is closed
    error: float  # relative, of the worst sd


@lru_cache(maxsize=64)
def case(name: str, k: int) -> Case:
    kind = KINDS[name]
    data = kind.data(np.random.default_rng([FRESH, list(KINDS).index(name), k]))
    free = kind.posterior.unconstrain(kind.init)
    layout = Layout.of(free)
    target = Target(kind.posterior, layout)
    posed = Problem(target, InMemory.of(data), layout.ravel(free))
    laplace = gaussian_at_mode(posed).gaussian
    truth = closed(data) if name == "linear" else importance(target, data, laplace)
    survey = row_noise(posed, laplace, 0)
    plain, centred = (
        next(noise.without(lambda g: g.T @ g))[2] for noise in (survey.plain, survey.centred)
    )
    return Case(data, posed, laplace, (plain, centred), *truth)


def closed(data: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray, float, float]:
    X, y = (part.astype(np.float64) for part in data)
    covariance = np.linalg.inv(X.T @ X + np.eye(X.shape[1]) / 4)
    return covariance @ X.T @ y, np.sqrt(np.diag(covariance)), 1.0, 0.0


@jax.jit
def densities(target: Target, zs: Any, rows: Any) -> Any:
    one = lambda z: (  # noqa: E731
        target.log_prior(z) + target.log_likelihood(z, rows), target.flat_reported(z)
    )  # fmt: skip
    return jax.lax.map(one, zs, batch_size=256)


def importance(
    target: Target, data: tuple, laplace: Laplace
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Mean and sd of what is reported, from two independent nets."""
    d, moments, shares = laplace.center.size, [], []
    assert laplace.factor is not None
    for scramble in range(2):
        u = qmc.Sobol(d + 1, rng=scramble).random_base2(IMPORTANCE_LOG2)
        normals = special.ndtri(np.clip(u[:, :d], 1e-9, 1 - 1e-9))
        t = normals / np.sqrt(2 * special.gammaincinv(DEGREES / 2, u[:, d]) / DEGREES)[:, None]
        zs = laplace.center + t @ laplace.factor.T
        value, reported = (
            np.asarray(part, np.float64)
            for part in densities(target, target.layout.array(zs), data)
        )
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
