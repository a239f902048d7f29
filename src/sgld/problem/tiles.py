"""The likelihood of a large batch, one tile of its rows after the other.

A gradient of a regression reads every number of its rows twice, and of a block that does not fit the
processor's cache both times from memory, after it was copied there. A tile is sliced from the rows, read
twice while it is at hand, and let go: 2,048 rows of 1,000 numbers for four chains take a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..data.memory import InMemory
from .problem import Problem

__all__ = ["SHARED_TILE", "batch_likelihood", "in_tiles", "tile_size"]

TILE = 2**17  # numbers in a tile's rows
SHARED_TILE = 2**21  # and of all rows, which chains multiply together
FEWEST = 4  # tiles; fewer are one
REREAD = 2  # parameters for each number of a row, up to which reading rows is what takes the time


def batch_likelihood(problem: Problem, x: Any) -> Callable[[Float[Array, " d"]], Float[Array, ""]]:
    """z -> the weighted sum of the log likelihoods of the rows of entry x, not scaled, inside compiled code."""
    tiled = in_tiles(problem, x)
    if tiled is not None:
        return tiled
    batch = problem.source.fetch(x)
    return lambda z: problem.log_likelihood(z, batch.rows, batch.weight)


def in_tiles(
    problem: Problem, x: Any, most: int | None = None
) -> Callable[[Float[Array, " d"]], Float[Array, ""]] | None:
    """The same a tile of `most` numbers at a time; None where that is no faster: of few numbers, or much work for each."""
    size = tile_size(problem, most or TILE)
    if size is None:
        return None
    source: Any = problem.source
    begins = jnp.arange(0, source.block_size, size, dtype=jnp.int32)

    def tiled(z: Float[Array, " d"]) -> Float[Array, ""]:
        # nothing of a tile is kept for its gradient, which takes it up anew
        @partial(jax.checkpoint, prevent_cse=False)
        def tile(z: Array, begin: Array) -> Array:
            rows, weight = source.tile(x, begin, size)
            return problem.log_likelihood(z, rows, weight)

        add = lambda total, begin: (total + tile(z, begin), None)  # noqa: E731
        zero = jnp.zeros((), jax.eval_shape(tile, z, begins[0]).dtype)  # rows may be in double
        return jax.lax.scan(add, zero, begins)[0]

    return tiled


def tile_size(problem: Problem, most: int) -> int | None:
    """Rows of a tile of at most so many numbers, as equal as can be; None where a batch is one."""
    source = problem.source
    if type(source) is not InMemory or not source.uses_blocks:
        return None
    width = source.row_width
    count = -(-source.block_size * width // most)
    if count < FEWEST or problem.dimension > REREAD * width:
        return None
    return -(-source.block_size // count)
