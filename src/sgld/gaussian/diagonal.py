"""Curvature where there is no Gaussian to be had: along the axes, and in the stiffest direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.problem import Problem
from ..model.sums import row_gradient

__all__ = ["largest_eigenvalue", "squared_gradients", "stiffness"]

ITERATIONS = 30  # of the power method
STIFFNESS_ROWS = 4096


@jax.jit
def squared_gradients(problem: Problem, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """Diagonal of the empirical Fisher information plus the prior's curvature along each axis."""
    prior = -jax.jvp(jax.grad(problem.log_prior), (z,), (jnp.ones_like(z),))[1]
    # a kink at z has no curvature to go by
    prior = jnp.where(jnp.isfinite(prior), jnp.maximum(prior, 1e-6), 1.0)
    if not problem.has_rows:
        return jnp.maximum(prior, 1e-2 * jnp.max(prior))
    count = min(problem.num_data, max(16, 2**22 // z.size))
    one = lambda row: row_gradient(problem, z, row) ** 2  # noqa: E731
    rows = jnp.arange(count, dtype=jnp.int32)
    squares = jnp.sum(jax.lax.map(one, rows, batch_size=max(1, 2**20 // z.size)), 0)
    return prior + squares * (problem.num_data / count)


@jax.jit
def stiffness(problem: Problem, D: Any, z: Float[Array, " d"]) -> Float[Array, ""]:
    """lambda_max of D^{1/2}^T J D^{1/2} by power iteration on a few thousand rows."""
    gradient = jax.grad(problem.log_prior)
    if problem.has_rows:
        count = min(problem.num_data, STIFFNESS_ROWS)
        rows = problem.source.take(jnp.arange(count, dtype=jnp.int32))
        scale = problem.num_data / count
        gradient = jax.grad(
            lambda q: problem.log_prior(q) + scale * problem.log_likelihood(q, rows)
        )
    return largest_eigenvalue(lambda v: -D.pullback(jax.jvp(gradient, (z,), (D.noise(v),))[1]), z)


def largest_eigenvalue(
    times: Callable[[Array], Array], like: Float[Array, " d"]
) -> Float[Array, ""]:
    """|lambda|_max of the symmetric matrix v -> times(v), by the power method; traceable."""

    def iterate(v, _):
        v = times(v)
        size = jnp.linalg.norm(v)
        return v / jnp.maximum(size, 1e-30), size

    start = jax.random.normal(jax.random.key(0), like.shape, like.dtype)
    return jax.lax.scan(iterate, start / jnp.linalg.norm(start), length=ITERATIONS)[1][-1]
