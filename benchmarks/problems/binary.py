"""Regressions of a binary outcome. The truth is a stored NUTS run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import jax.scipy.stats as jss
import numpy as np
import numpyro.distributions as dist

import sgld

from .truth import Problem


def bernoulli(row_logits, y):
    return dist.Bernoulli(logits=row_logits).log_prob(y)


def columns(rng, num_data: int, d: int, correlation: float) -> np.ndarray:
    """An intercept and d - 1 columns of unit variance that correlate."""
    shared, own = rng.standard_normal((num_data, 1)), rng.standard_normal((num_data, d - 1))
    X = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    return np.hstack([np.ones((num_data, 1)), X]).astype(np.float32)


def standardised(load: Callable[..., Any]) -> tuple[np.ndarray, np.ndarray]:
    """A data set of scikit-learn: an intercept and standardised columns, and the outcome."""
    X, y = (np.asarray(part, float) for part in load(return_X_y=True))
    return np.hstack([np.ones((len(X), 1)), (X - X.mean(0)) / X.std(0)]), y


def logistic(name: str, X: np.ndarray, y: np.ndarray, prior_sd: float) -> Problem:
    posterior = sgld.Posterior(
        lambda b: jss.norm.logpdf(b, 0.0, prior_sd).sum(),
        lambda b, row: bernoulli(row[0] @ b, row[1]),
    )
    data = (X.astype(np.float32), y.astype(np.float32))
    return Problem(name, posterior, data, jnp.zeros(X.shape[1]), None)


def generated(name: str, num_data: int, beta: list[float], correlation: float) -> Problem:
    rng = np.random.default_rng(num_data + len(beta))
    X = columns(rng, num_data, len(beta), correlation)
    y = rng.random(num_data) < 1 / (1 + np.exp(-X @ np.array(beta)))
    return logistic(name, X, y, 2.5)


def logistic_correlated() -> Problem:
    return generated("logistic_correlated", 2000, [0.3, 1.0, -0.7, 0.5, 0.0, -0.4], 0.9)


def logistic_rare() -> Problem:
    """About one event in a hundred."""
    return generated("logistic_rare", 5000, [-5.0, 0.8, -0.5, 0.3], 0.3)


def logistic_small() -> Problem:
    return generated("logistic_small", 200, [0.5, 1.0, -1.0, 0.5, 0.0], 0.2)


def logistic_large() -> Problem:
    beta = [0.2, *np.random.default_rng(3).normal(0, 0.4, 19)]
    return generated("logistic_large", 20_000, beta, 0.3)


def logistic_separated() -> Problem:
    """Sixty rows, all but two on their own side of a plane: a long ridge held by the prior."""
    rng = np.random.default_rng(8)
    X = columns(rng, 60, 3, 0.0)
    y = X @ np.array([0.2, 2.0, -1.5]) > 0
    y[np.argsort(np.abs(X @ np.array([0.2, 2.0, -1.5])))[:2]] ^= True
    return logistic("logistic_separated", X, y, 5.0)


def breast_cancer() -> Problem:
    """scikit-learn's, all 30 standardised columns, which correlate up to .998."""
    from sklearn.datasets import load_breast_cancer

    X, y = standardised(load_breast_cancer)
    return logistic("breast_cancer", X, y, 1.0)


def diabetes_logistic() -> Problem:
    """scikit-learn's diabetes: progression above the median."""
    from sklearn.datasets import load_diabetes

    X, y = standardised(load_diabetes)
    return logistic("diabetes_logistic", X, y > np.median(y), 2.5)


def probit() -> Problem:
    rng = np.random.default_rng(9)
    X = columns(rng, 500, 4, 0.4)
    y = X @ np.array([-0.3, 0.8, -0.5, 0.2]) + rng.standard_normal(500) > 0

    def log_likelihood(b, row):
        x, hit = row
        sign = 2 * hit - 1
        return jss.norm.logcdf(sign * (x @ b))

    posterior = sgld.Posterior(lambda b: jss.norm.logpdf(b, 0.0, 2.0).sum(), log_likelihood)
    return Problem("probit", posterior, (X, y.astype(np.float32)), jnp.zeros(4), None)
