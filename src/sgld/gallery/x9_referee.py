"""X9's truth where the table is the reader's own: NUTS on the logistic regression."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import sgld
from sgld.gallery.data import Table
from sgld.gallery.x9_logistic import chances, log_bernoulli, log_joint, log_laplace, split


def mode(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Newton's mode w [d] under N(0, I), close to that under the Laplace prior, and X^T V X there."""
    w = np.zeros(X.shape[1])
    for _ in range(20):
        p = chances(w, X)
        curvature = (X * (p * (1 - p))[:, None]).T @ X
        w = w + np.linalg.solve(curvature + np.eye(len(w)), X.T @ (y - p) - w)
    return w, curvature


def referee(own: Table, num_draws: int, seed: int) -> dict[str, Any]:
    """What `x9_nuts.json` holds for the cancer data, and a step size h.

    NUTS has u with w = center + L u, where L L^T is about the posterior's covariance: without it
    columns that all but sum to a constant, as those of a9a do, make long trajectories.
    """
    train, (X, y) = split(own.X, own.y)
    w, curvature = mode(*(part.astype(np.float64) for part in train))
    scale = np.linalg.inv(np.linalg.cholesky(curvature + np.eye(len(w)))).T
    center, L = jnp.asarray(w, jnp.float32), jnp.asarray(scale, jnp.float32)
    posterior = sgld.Posterior(
        lambda u: log_laplace(center + L @ u), lambda u, row: log_bernoulli(center + L @ u, row)
    )
    draws = sgld.reference(posterior, train, jnp.zeros_like(center), num_warmup=num_draws,
                           num_draws=num_draws, seed=seed, progress=False)  # fmt: skip
    found = np.asarray(draws.position) @ scale.T.astype(np.float32) + w.astype(np.float32)
    joint = np.asarray(log_joint(found, train), float)
    return {
        "log_joint": {"mean": joint.mean(), "sd": joint.std()},
        "accuracy": np.mean((chances(found, X).mean((0, 1)) > 0.5) == y),
        "h": 1 / (4 * np.linalg.eigvalsh(curvature)[-1]),
    }
