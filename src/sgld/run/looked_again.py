"""Two looks at a run of a network that would be trusted, from the positions of its draws.

At rows that no probe row stands for (diagnose/other_rows.py), and whether its gradients are those of its log
density (gaussian/belonging.py), along lines between draws of a chain: temperatures do not show that they
are another function's, and chains that follow these agree with one another.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..device import sent
from ..diagnose.other_rows import TOGETHER, OtherRows, others
from ..gaussian.belonging import (
    BETWEEN_DRAWS,
    OF_RISES,
    ROWS_BETWEEN,
    lines_between,
    missed,
    quadrature,
    size_of,
)
from ..probe.predictions import Predictions, predictions_of
from ..problem.problem import Problem
from ..problem.rows import row_values
from ..stages import check_time

__all__ = ["misses_of_gradients", "other_rows"]

POSITIONS = 2**22  # numbers of positions that predict in one call


def other_rows(
    problem: Problem, z: Float[np.ndarray, "draw chain d"], gradients: int
) -> OtherRows | None:
    """Rows that are no probe rows, looked at by draws at these positions.

    None where the user named the rows that are judged, or probe rows are all there are.

    Args:
      gradients: of rows, that a chain of the run took.
    """
    found = predictions_of(problem)
    rows = others(len(jax.tree.leaves(found.rows)[0]), problem.num_data, gradients)
    if problem.posterior.predict_at is not None:
        return None
    return OtherRows.of(found.kind, partial(_at_rows, problem, found), np.moveaxis(z, 0, 1), rows)


def _at_rows(
    problem: Problem,
    found: Predictions,
    z: Float[np.ndarray, "chain draw d"],
    rows: Int[np.ndarray, " m"],
) -> Float[np.ndarray, "chain draw m k"]:
    """What draws predict at rows of these numbers, in pieces of both."""
    flat = z.reshape(-1, z.shape[-1])
    size = int(np.clip(POSITIONS // flat.shape[1], 1, len(flat)))
    pieces = []
    for first in range(0, len(rows), TOGETHER):
        some = rows[first : first + TOGETHER]
        # the last piece is filled up, or it would be compiled anew
        full = np.resize(some, TOGETHER) if first else some
        there = replace(found, rows=problem.source.take(sent(full, np.int32)))
        parts = []
        for begin in range(0, len(flat), size):
            check_time()
            part = flat[np.arange(begin, begin + size) % len(flat)]
            parts.append(np.asarray(_predicted(there, problem, problem.on_host(part))))
        pieces.append(np.concatenate(parts)[: len(flat), : len(some)])
    values = np.concatenate(pieces, axis=1)
    return values.reshape(*z.shape[:2], *values.shape[1:])


@jax.jit
def _predicted(
    found: Predictions, problem: Problem, zs: Float[Array, "n d"]
) -> Float[Array, "n m k"]:
    return jax.lax.map(lambda z: found.at(problem.target, z), zs)


def misses_of_gradients(problem: Problem, z: Float[np.ndarray, "draw chain d"]) -> float:
    """Root mean square of what integrated gradients miss of rises of log density, in nats of some rows."""
    begins, ends = lines_between(z)
    if not len(begins):
        return 0.0
    some = problem.first(min(problem.num_data, ROWS_BETWEEN)) if problem.has_rows else problem
    some = some.as_one_batch() if some.has_rows else some
    on_host = lambda values: np.asarray(values, np.float64)  # noqa: E731

    def rises(zs: np.ndarray, lines: Any) -> np.ndarray:
        return on_host(_rises(some, some.on_host(begins[lines]), some.on_host(zs)))

    def integral(lines: np.ndarray, panels: int) -> np.ndarray:
        away = some.on_host(begins[lines]), some.on_host(ends[lines])
        return on_host(_integrals(some, *away, panels=panels))

    def rounding(lines: np.ndarray) -> float:
        dtype = problem.layout.dtype
        beside = np.nextafter(ends[lines].astype(dtype), np.inf)
        return 4 * size_of(rises(beside, lines) - rises(ends[lines], lines))

    return missed(rises(ends, slice(None)), integral, rounding, BETWEEN_DRAWS, OF_RISES)


@jax.jit
def _rises(
    some: Problem, begins: Float[Array, "n d"], ends: Float[Array, "n d"]
) -> Float[Array, " n"]:
    """log p(end) - log p(begin), each row's difference by itself, so that their sum loses no digits."""

    def one(pair: tuple[Array, Array]) -> Array:
        begin, end = pair
        rise = some.log_prior(end) - some.log_prior(begin)
        if not some.has_rows:
            return rise
        rows = some.source.take(jnp.arange(some.num_data, dtype=jnp.int32))
        return rise + jnp.sum(row_values(some, end, rows) - row_values(some, begin, rows))

    return jax.lax.map(one, (begins, ends))


@partial(jax.jit, static_argnames="panels")
def _integrals(
    some: Problem, begins: Float[Array, "n d"], ends: Float[Array, "n d"], *, panels: int
) -> Float[Array, " n"]:
    """int grad log p . dz from each begin to its end."""
    at, share = (jnp.asarray(values, begins.dtype) for values in quadrature(panels))

    def density(z: Array) -> Array:
        if not some.has_rows:
            return some.log_prior(z)
        rows = some.source.take(jnp.arange(some.num_data, dtype=jnp.int32))
        return some.log_prior(z) + some.log_likelihood(z, rows)

    def one(pair: tuple[Array, Array]) -> Array:
        begin, end = pair
        away = end - begin
        slope = lambda t: jnp.vdot(jax.grad(density)(begin + t * away), away)  # noqa: E731
        return jnp.sum(share * jax.lax.map(slope, at))

    return jax.lax.map(one, (begins, ends))
