"""Gradients and log likelihoods of single rows, and a walk over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..core.devices import on_host
from ..core.progress import counted
from .problem import Problem
from .spread import seen_by_workers, spread_over

__all__ = ["each_row", "row_gradient", "row_gradients", "row_values", "scores"]

NUMBERS = 2**20  # of the rows' gradients that are taken together
SEEN_TOGETHER = 2**18  # rows that the host looks at together


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


def each_row(
    look: Callable[..., Array], problem: Problem, given: Any, width: int
) -> Iterator[tuple[Int[np.ndarray, " m"], np.ndarray]]:
    """The numbers of rows and look(problem, given, rows) [m, ...], once for every row, some pieces at a time.

    What is held does not grow with the number of rows: `look`, a function of a module, which is compiled, meets as
    many at a time as make NUMBERS numbers where each makes `width`.
    """
    N, done, rows = problem.num_data, 0, spread_over(problem)
    if rows is not None:
        for numbers, seen in seen_by_workers(rows, problem, look, given, width):
            done += len(numbers)
            counted(done, N, "rows")
            yield numbers, seen
        return
    pieces = problem.source.with_batches(max(1, min(N, NUMBERS // width)), "reshuffle")
    together = max(1, SEEN_TOGETHER // pieces.block_size)
    for first in range(0, pieces.num_blocks, together):
        found = _looked_at(
            problem, given, np.int32(first),
            look=look, size=pieces.batch_size, count=min(together, pieces.num_blocks),
        )  # fmt: skip
        numbers, seen, counts = (on_host(part) for part in found)
        done += int(counts.sum())
        counted(done, N, "rows")
        yield numbers[counts], seen[counts]


@partial(jax.jit, static_argnames=("look", "size", "count"))
def _looked_at(
    problem: Problem,
    given: Any,
    first: Int[Array, ""],
    *,
    look: Callable[..., Array],
    size: int,
    count: int,
) -> tuple[Int[Array, " m"], Array, Bool[Array, " m"]]:
    """Of `count` pieces of `size` rows from piece `first` on: numbers, what is seen, and which rows count.

    What only fills a piece up, or lies beyond the last, does not.
    """
    source = problem.source.with_batches(size, "reshuffle")

    def piece(k):
        batch = source.fetch(jnp.minimum(k, source.num_blocks - 1))
        counts = jnp.full(batch.numbers.shape, k < source.num_blocks)
        if batch.weight is not None:
            counts &= batch.weight > 0
        return batch.numbers, look(problem, given, batch.rows), counts

    found = jax.lax.map(piece, first + jnp.arange(count, dtype=jnp.int32))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)
