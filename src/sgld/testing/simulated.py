"""Samplers whose step is not affine, looked at by long simulations on a Gaussian."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..samplers.preconditioners.fixed import Scalar
from .affine import gaussian, noise_shape

__all__ = ["simulated"]

CHAINS, SPAN, FINE = 1024, 8.0, 0.0005  # SPAN is steps times step size
EXACT = 0.01  # of an sd and of a variance: what a simulation at step size 0 may be off by


def simulated(sampler: Any) -> tuple[str | None, float]:
    """Mean and variances of long simulations on a Gaussian, extrapolated to step size 0.

    In words what they are wrong by, if they are, and the least error of a variance that would be seen.
    """
    J, seen = np.array([1.0, 2.0]), 0.0
    for T in (1.0, 2.0):
        truth = np.concatenate([np.zeros(2), T / J])
        scale = np.concatenate([np.sqrt(T / J), T / J])
        (coarse, se), (fine, finer) = (_simulate(sampler, J, h, T) for h in (4 * FINE, FINE))
        limit = 2 * fine - coarse  # of errors of order sqrt(h); those of h have shrunk by four
        tolerance = EXACT * scale + 4.5 * np.hypot(2 * finer, se)
        if not (np.abs(limit - truth) <= tolerance).all():
            return (
                f"simulations at step sizes {4 * FINE:g} and {FINE:g} and temperature {T:g} tend to mean errors "
                f"{np.round(limit[:2], 4)} and variances {np.round(limit[2:], 4)}, where the truth is 0 and {truth[2:]}.",
                seen,
            )
        seen = max(seen, float((tolerance / scale)[2:].max()))
    return None, seen


def _simulate(sampler: Any, J: Any, h: Any, T: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean errors and variances, and their standard errors, by the second half of many chains.

    SGLD, whose law is known, takes the same noise: what both owe to chance is subtracted.
    """
    mean = jnp.asarray([1.0, -1.0], jnp.float32)
    shape, steps = noise_shape(sampler, 2), round(SPAN / h)
    exact = T / (J * (1 - h * J / 2))
    rows = math.prod(shape) // 2
    key = jax.random.split(jax.random.key(0), CHAINS)
    grad = gaussian(np.diag(J).astype(np.float32), mean)
    a, start, h, T = (jnp.asarray(x, jnp.float32) for x in (J, np.sqrt(exact), h, T))
    D = Scalar(jnp.float32(1.0))

    def one(carry, i):
        state, known, key, total = carry
        xi = jax.random.normal(jax.random.fold_in(key, i), shape, jnp.float32)
        state = sampler.step(state, grad, h, xi, preconditioner=D, temperature=T)
        known = known - h * a[None] * known + jnp.sqrt(2 * h * T) * xi.reshape(rows, 2)
        x = jnp.concatenate([(state.position - mean)[None], known])
        return (
            state,
            known,
            key,
            total + jnp.where(i >= steps // 2, jnp.stack([x, x * x]), 0.0),
        ), None

    @jax.jit
    def run(key):
        first, key = jax.random.split(key)
        x = start * jax.random.normal(first, (2,))
        carry = (
            sampler.init(mean + x),
            jnp.tile(x, (rows, 1)),
            key,
            jnp.zeros((2, rows + 1, 2)),
        )
        carry = jax.lax.scan(one, carry, jnp.arange(steps, dtype=jnp.int32))[0]
        return carry[3] / (steps - steps // 2)

    moments = np.asarray(jax.vmap(run)(key), np.float64)
    chance = moments[:, :, 1:] - np.array([np.zeros(2), exact])[:, None]
    X = np.column_stack([np.ones(CHAINS), chance.reshape(CHAINS, -1)])
    Y = moments[:, :, 0].reshape(CHAINS, 4)
    fitted = np.linalg.pinv(X) @ Y
    left = np.sum((Y - X @ fitted) ** 2, 0) / (CHAINS - X.shape[1])
    return fitted[0], np.sqrt(left * np.linalg.pinv(X.T @ X)[0, 0])
