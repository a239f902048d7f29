"""Two looks at a run of a network that would be trusted, from the positions of its draws.

At rows that no probe row stands for (diagnostics/function_space/other_chains.py), and whether its gradients are those of its log
density (diagnostics/hidden_mass.py), along lines between draws of a chain: temperatures do not show that they
are another function's, and chains that follow these agree with one another.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.devices import sent
from ..core.progress import Over
from ..diagnostics.function_space.other_chains import TOGETHER, OtherRows, others
from ..diagnostics.function_space.predictions import Predictions, predictions_of
from ..diagnostics.hidden_mass import (
    BETWEEN_DRAWS,
    OF_RISES,
    ROWS_BETWEEN,
    WORST,
    lines_between,
    missed,
    quadrature,
    size_of,
)
from ..model.problem import Problem
from ..model.sums import row_values

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


def misses_of_gradients(
    problem: Problem, z: Float[np.ndarray, "draw chain d"], until: float = math.inf
) -> float | None:
    """Root mean square of what integrated gradients miss of rises of log density, in nats of some rows.

    nan where the time `until` (of time.monotonic) came first; None where the density is computed in half precision,
    whose rounding is as large.
    """
    begins, ends = lines_between(z)
    if not len(begins):
        return 0.0
    some = problem.first(min(problem.num_data, ROWS_BETWEEN)) if problem.has_rows else problem
    some = some.as_one_batch() if some.has_rows else some
    if "f16[" in str(jax.make_jaxpr(_density)(some, some.start)):  # float16 or bfloat16
        return None

    def rises(to: np.ndarray, lines: np.ndarray) -> np.ndarray:
        return _in_fours(
            lambda k: _rises(some, some.on_host(begins[k]), some.on_host(to[k])), lines
        )

    def integral(lines: np.ndarray, panels: int) -> np.ndarray:
        nodes = [some.on_host(part.reshape(panels, -1)) for part in quadrature(panels)]

        def along(k: np.ndarray) -> np.ndarray:
            begin, end, total = some.on_host(begins[k]), some.on_host(ends[k]), np.zeros(len(k))
            for at, share in zip(*nodes, strict=True):
                if time.monotonic() > until:
                    raise Over
                total += np.asarray(_integrals(some, begin, end, at, share), np.float64)
            return total

        return _in_fours(along, lines)

    def rounding(lines: np.ndarray) -> float:
        beside = np.nextafter(ends.astype(problem.layout.dtype), np.inf)
        return 4 * size_of(rises(beside, lines) - rises(ends, lines))

    try:
        return missed(
            rises(ends, np.arange(len(ends))), integral, rounding, BETWEEN_DRAWS, OF_RISES
        )
    except Over:
        return math.nan


def _in_fours(
    f: Callable[[Int[np.ndarray, " k"]], Any], lines: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """f of some lines after others, always of as many, so that it is compiled once."""
    parts = [np.resize(lines[at : at + WORST], WORST) for at in range(0, len(lines), WORST)]
    return np.concatenate([np.asarray(f(part), np.float64) for part in parts])[: len(lines)]


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


def _density(some: Problem, z: Float[Array, " d"]) -> Float[Array, ""]:
    if not some.has_rows:
        return some.log_prior(z)
    rows = some.source.take(jnp.arange(some.num_data, dtype=jnp.int32))
    return some.log_prior(z) + some.log_likelihood(z, rows)


@jax.jit
def _integrals(
    some: Problem, begins: Float[Array, "n d"], ends: Float[Array, "n d"], at: Float[Array, " k"],
    share: Float[Array, " k"],
) -> Float[Array, " n"]:  # fmt: skip
    """int grad log p . dz from each begin to its end, the part of these nodes."""

    def one(pair: tuple[Array, Array]) -> Array:
        begin, end = pair
        away = end - begin
        slope = lambda t: jnp.vdot(jax.grad(partial(_density, some))(begin + t * away), away)  # noqa: E731
        return jnp.sum(share * jax.lax.map(slope, at))

    return jax.lax.map(one, (begins, ends))
