"""Gradients and log likelihoods of single rows."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Array, Float, Int

from .problem import Problem

__all__ = ["row_gradient", "row_gradients", "row_values", "scores"]

NUMBERS = 2**20  # of the rows' gradients that are taken together


@jax.jit
def scores(problem: Problem, z: Array, rows: Array) -> Float[Array, "m d"]:
    """grad log_likelihood_i + grad log_prior / N of the given rows."""
    prior = jax.grad(problem.log_prior)(z) / problem.num_data
    one = lambda row: prior + row_gradient(problem, z, row)  # noqa: E731
    return jax.lax.map(one, rows, batch_size=max(1, NUMBERS // z.size))


@jax.jit
def row_gradients(problem: Problem, z: Array, rows: Array) -> Float[Array, "m d"]:
    """grad log_likelihood_i of the given rows: of the likelihood alone."""
    one = lambda row: row_gradient(problem, z, row)  # noqa: E731
    return jax.lax.map(one, rows, batch_size=max(1, NUMBERS // z.size))


def row_gradient(
    problem: Problem, z: Float[Array, " d"], row: Int[Array, ""]
) -> Float[Array, " d"]:
    """grad log_likelihood of one row, by number, inside compiled code."""
    return jax.grad(problem.log_likelihood)(z, problem.source.take(row[None]))


def row_values(problem: Problem, z: Float[Array, " d"], rows: Any) -> Float[Array, " n"]:
    """log_likelihood of each of some rows, leaves [n, ...], inside compiled code."""
    each = jax.tree.map(lambda leaf: leaf[:, None], rows)
    return jax.vmap(lambda row: problem.log_likelihood(z, row))(each)
