"""Rows of a large table that batches hardly ever hold, and on which a parameter hangs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

import sgld

from .case import Case, bound, moments

ROWS = 100_000
FEWER = 60_000  # where exact chains are the answer, and all rows are at every step


def prior(sd, b):
    return -0.5 * jnp.sum((b / sd) ** 2)


def gaussian(b, row):
    return -0.5 * (row[1] - row[0] @ b) ** 2


def logistic(b, row):
    eta = row[0] @ b
    return row[1] * eta - jax.nn.softplus(eta)


def robust(b, row):
    """Student-t errors with 4 degrees of freedom, and the effect of a level."""
    x, level, y = row
    return -2.5 * jnp.log1p((y - x @ b[:-1] - level * b[-1]) ** 2 / 4)


def squared(b, row):
    """Normal errors; the effect of a level enters squared."""
    x, level, y = row
    return -0.5 * (y - x @ b[:-1] - level * (b[-1] - 1) ** 2) ** 2


def plain(b, row):
    x, level, y = row
    return -0.5 * (y - x @ b[:-1] - level * b[-1]) ** 2


def linear(label: str, X: np.ndarray, noise: np.ndarray, beta: np.ndarray, sd: np.ndarray) -> Case:
    """Known noise sd 1: closed form, in the float32 numbers that the sampler gets."""
    X = X.astype(np.float32)
    y = (X @ beta + noise).astype(np.float32)
    exact = X.astype(np.float64)
    covariance = np.linalg.inv(exact.T @ exact + np.diag(1 / sd**2))
    posterior = sgld.Posterior(bound(prior, sd), gaussian)
    return Case(
        label, posterior, (X, y), jnp.zeros(len(beta)), covariance @ exact.T @ y,
        np.sqrt(np.diag(covariance)),
    )  # fmt: skip


def rare_level(rng: np.random.Generator, deceit: bool) -> Case:
    """A level that one to three rows have; of the twin every tenth row."""
    few, at_sd, binary = int(rng.integers(1, 4)), float(rng.uniform(1, 3)), rng.random() < 0.4
    rows = rng.permutation(ROWS)[: few if deceit else ROWS // 10]
    level = np.zeros(ROWS)
    level[rows] = 1
    X = np.c_[np.ones(ROWS), rng.standard_normal(ROWS), level]
    beta, sd = np.array([-1.0, 0.5, 0.3]), np.array([10.0, 10.0, at_sd])
    label = (
        f"{'logistic' if binary else 'linear'}, {len(rows)} of {ROWS} rows, prior sd {at_sd:.2g}"
    )
    if not binary:
        return linear(label, X, rng.standard_normal(ROWS), beta, sd)
    X = X.astype(np.float32)
    y = (rng.random(ROWS) < special.expit(X @ beta)).astype(np.float32)
    y[rows[:few]] = 1.0
    mean, own = _newton(X.astype(np.float64), y, sd)
    if deceit:  # the other two are known so well that the rare one has a grid of its own
        g = np.linspace(-12 * at_sd, 12 * at_sd, 4001)
        eta = X[rows, :2].astype(float) @ mean[:2] + g[:, None]
        log = -0.5 * (g / at_sd) ** 2 + np.sum(eta * y[rows] - np.logaddexp(0, eta), axis=1)
        mean[2], own[2] = moments(g, log)
    posterior = sgld.Posterior(bound(prior, sd), logistic)
    return Case(label, posterior, (X, y), jnp.zeros(3), mean, own)


def rare_modes(rng: np.random.Generator, deceit: bool) -> Case:
    """A level of 4 to 12 rows whose coefficient has two modes: half of them stand elsewhere and errors are robust,
    or the effect enters squared. Of the twin they agree, or it enters as it is.

    The level's rows have no other covariates, so that its coefficient is independent of the others: a grid of its own.
    """
    few, far = 2 * int(rng.integers(2, 7)), float(rng.uniform(15, 40))
    by_square, place = rng.random() < 0.4, float(rng.uniform(3, 9))
    rows, level = rng.permutation(FEWER)[:few], np.zeros(FEWER, np.float32)
    level[rows] = 1
    x = rng.standard_normal((FEWER, 3)).astype(np.float32)
    x[rows] = 0
    noise = rng.standard_normal(FEWER) if by_square else rng.standard_t(4, FEWER)
    y = (x @ np.array([-0.5, 0.0, 0.5]) + noise).astype(np.float32)
    apart = far * (np.arange(few) % 2) * deceit
    y[rows] = rng.standard_normal(few) + (place if by_square else apart)
    likelihood = (squared if deceit else plain) if by_square else robust
    sd = np.array([10.0, 10.0, 10.0, 10.0 if by_square else 50.0])
    mean, own = _others(x.astype(float), y.astype(float), sd[:3], not by_square)
    g = np.linspace(-60, 100, 160_001)
    if likelihood is robust:
        log = sum(-2.5 * np.log1p((v - g) ** 2 / 4) for v in y[rows].astype(float))
    else:
        log = sum(-0.5 * (v - ((g - 1) ** 2 if deceit else g)) ** 2 for v in y[rows].astype(float))
    own_mean, own_sd = moments(g, log - 0.5 * (g / sd[3]) ** 2)
    label = f"{'squared' if by_square else f'{far:.3g} apart'}, {few} of {FEWER} rows"
    return Case(
        label, sgld.Posterior(bound(prior, sd), likelihood), (x, level, y),
        jnp.asarray(rng.normal(0, 0.1, 4), jnp.float32), np.append(mean, own_mean), np.append(own, own_sd),
    )  # fmt: skip


def _others(
    x: np.ndarray, y: np.ndarray, sd: np.ndarray, heavy: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Mode and sds of a regression on all rows, with Student-t errors or normal ones."""
    b = np.zeros(x.shape[1])
    for _ in range(20):
        e = y - x @ b
        slope = 5 * e / (4 + e**2) if heavy else e
        bend = 5 * (4 - e**2) / (4 + e**2) ** 2 if heavy else np.ones(len(e))
        J = (x * bend[:, None]).T @ x + np.diag(1 / sd**2)
        b = b + np.linalg.solve(J, x.T @ slope - b / sd**2)
    return b, np.sqrt(np.diag(np.linalg.inv(J)))


def _newton(X: np.ndarray, y: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mode and sds of a logistic regression so large that it is Gaussian."""
    b = np.zeros(X.shape[1])
    for _ in range(12):
        p = special.expit(X @ b)
        J = (X * (p * (1 - p))[:, None]).T @ X + np.diag(1 / sd**2)
        b = b + np.linalg.solve(J, X.T @ (y - p) - b / sd**2)
    return b, np.sqrt(np.diag(np.linalg.inv(J)))


def heavy_covariate(rng: np.random.Generator, deceit: bool) -> Case:
    """A column with a handful of rows that outweigh all others; of the twin a tame one."""
    s, cauchy = float(rng.uniform(2.0, 3.0)), rng.random() < 0.3
    z = rng.standard_normal((ROWS, 2))
    if cauchy:
        column = z[:, 0] / np.abs(z[:, 1]) if deceit else z[:, 0]
    else:
        column = np.exp((s if deceit else 0.3) * z[:, 0])
    X = np.c_[np.ones(ROWS), rng.standard_normal(ROWS), column]
    label = "Cauchy column" if cauchy else f"log-normal({s:.2g}) column"
    return linear(label, X, rng.standard_normal(ROWS), np.array([-1.0, 0.5, 0.0]), np.full(3, 10.0))
