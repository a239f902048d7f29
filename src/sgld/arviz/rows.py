"""Log likelihoods of single rows at draws, in pieces of bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from ..core.devices import sent
from ..data.source import Source
from ..data.validate import as_source, check_data, is_source

__all__ = ["Rows"]

PyTree = Any
CELLS = 2**23  # draws times rows that are held at once
TOGETHER = 2**21  # of the rows, times the draws that they are evaluated at together


@dataclass(frozen=True)
class Rows:
    """N rows, and the log likelihood of one.

    Attributes:
      log_likelihood: (position, datum) -> scalar.
      data: a pytree of arrays in the user's order; None where there is a source.
      source: the rows of a source of the user's own.
      count: N.
      called: [N], what the user calls the rows, where that is not 0, 1, 2, ...
      seed: of the run, by which a Source names its rows.
    """

    log_likelihood: Callable
    data: Any
    source: Source | None
    count: int
    called: Int[np.ndarray, " N"] | None = None
    seed: int = 0

    @classmethod
    def of(cls, log_likelihood: Callable, data: Any, *, called: Any = None, seed: int = 0) -> Rows:
        """Checked rows. Raises UsageError and DataError as `sgld.sample`."""
        if is_source(data):
            source = as_source(data, seed)
            return cls(log_likelihood, None, source, source.num_data, called, seed)
        data = check_data(data)
        return cls(log_likelihood, data, None, len(jax.tree.leaves(data)[0]), called, seed)

    def names(self, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """What the user calls these rows."""
        if self.called is not None:
            return self.called[numbers]
        return numbers if self.source is None else self.source.original_rows(numbers, self.seed)

    def take(self, numbers: Int[np.ndarray, " n"]) -> PyTree:
        """Rows by number, leaves [n, ...]."""
        if self.source is not None:
            return self.source.take(sent(numbers, np.int32))
        return jax.tree.map(lambda leaf: leaf[numbers], self.data)

    def block(self, draws: int) -> int:
        """How many rows are evaluated together at so many draws."""
        return max(1, min(self.count, CELLS // draws))

    def values(self, positions: PyTree, numbers: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n S"]:
        """The log likelihoods of rows at positions [S, ...], float64."""
        draws = len(jax.tree.leaves(positions)[0])
        size = min(self.block(draws), len(numbers))
        out = np.empty((len(numbers), draws))
        for start in range(0, len(numbers), size):
            here = numbers[start : start + size]
            # one shape, so that one function is compiled
            rows = self.take(np.append(here, np.repeat(here[-1:], size - len(here))))
            width = sum(leaf[:1].size for leaf in jax.tree.leaves(rows))
            together = max(1, min(draws, TOGETHER // (size * width)))
            found = _values(self.log_likelihood, positions, rows, together=together)
            out[start : start + len(here)] = np.asarray(found, np.float64).T[: len(here)]
        return out


@partial(jax.jit, static_argnames="together")
def _values(
    log_likelihood: Callable, positions: PyTree, rows: PyTree, *, together: int
) -> Float[jax.Array, "S n"]:
    every = jax.vmap(log_likelihood, (None, 0))
    return jax.lax.map(lambda position: every(position, rows), positions, batch_size=together)
