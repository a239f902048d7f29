"""Bayesian linear regression, noise sd 1, prior sd 3, correlated columns, and its exact answers."""

import math

import jax.numpy as jnp
import numpy as np
from scipy import stats

import sgld

UsageError = sgld.errors.UsageError


def run(posterior, data, init, **kwargs):
    return sgld.bayes_by_backprop(posterior, data, init, progress=False, **kwargs)


N = 103  # not a multiple of the batch sizes


def columns():
    rng = np.random.default_rng(1)
    x = np.stack([np.ones(N), rng.normal(1.0, 1.0, N), rng.normal(size=N)], 1)
    return x.astype(np.float32), (x @ [0.5, -1.0, 2.0] + rng.normal(size=N)).astype(np.float32)


def log_prior(b):
    return jnp.sum(stats_normal(b, 0.0, 3.0))


def log_likelihood(b, row):
    return stats_normal(row[1], row[0] @ b, 1.0)


def stats_normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - math.log(sd) - 0.5 * math.log(2 * math.pi)


REGRESSION = sgld.Posterior(log_prior, log_likelihood)


def exact(x, y):
    """Posterior mean, precision and log evidence."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    J = np.eye(3) / 9 + x.T @ x
    evidence = stats.multivariate_normal(np.zeros(N), np.eye(N) + 9 * x @ x.T).logpdf(y)
    return np.linalg.solve(J, x.T @ y), J, evidence


START = np.zeros(3, np.float32)
