"""Some rows in every batch: those that a random batch would miss, or be thrown by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from ..core.devices import sent
from ..core.pytrees import as_pytree
from .source import Batch, Source

__all__ = ["AlwaysIn"]

PyTree = Any
LISTED = 2**26  # rows of which each has a mark


def _joined(drawn: Array, held: Array, *, shards: int, fill: float | None = None) -> Array:
    """`drawn` and then `held`; of rows over several devices a part of each there, so that none moves.

    Parts are of one size: what is missing is filled up with the first, or with `fill`.
    """
    if shards == 1:
        return jnp.concatenate([drawn, held])
    missing = -len(held) % shards
    more = jnp.repeat(held[:1], missing, axis=0)
    more = more if fill is None else jnp.full_like(more, fill)
    parts = (a.reshape(shards, -1, *a.shape[1:]) for a in (drawn, jnp.concatenate([held, more])))
    return jnp.concatenate(list(parts), axis=1).reshape(-1, *drawn.shape[1:])


@as_pytree
@dataclass(frozen=True)
class AlwaysIn(Source):
    """A source's batches, with some of its rows in every one.

    sum_i f_i is estimated by sum_{i chosen} f_i + scale * sum_{j in the batch, not chosen} f_j: the
    chosen rows add nothing to its variance, and it stays unbiased whatever rows are chosen.

    Attributes:
      source: the rows, and the batches of them all.
      numbers: the chosen rows.
      held: the chosen rows themselves.
      left: False for a chosen row, True for every other, and a spare one; None of so many rows that
        the chosen ones are looked up instead.
      chosen: the chosen rows in ascending order, which others() keeps.
    """

    source: Source
    numbers: Int[Array, " m"]
    held: PyTree
    left: Bool[Array, " spare"] | None
    chosen: Int[Array, " m"]
    num_data: int = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})
    order: str = field(metadata={"static": True})

    @classmethod
    def of(
        cls, source: Source, numbers: Sequence[int] | Int[Array, " m"] | Int[np.ndarray, " m"]
    ) -> AlwaysIn:
        """`source` with the rows of these numbers, no two the same, in every batch."""
        among, left = sent(numbers, np.int32), None
        if source.num_data <= LISTED:
            left = np.ones(source.num_data + 1, bool)
            left[np.asarray(numbers)] = False
            left = sent(left)
        chosen = sent(np.sort(np.asarray(numbers)), np.int32)
        batches = (source.num_data, source.batch_size, source.order)
        return cls(source, among, source.take(among), left, chosen, *batches)

    def fetch(self, x: Int[Array, "*entry"]) -> Batch:
        """The source's Batch without the chosen rows, and these at weight 1 in the sum."""
        batch = self.source.fetch(x)
        dtype = jnp.result_type(float)
        weight = self._left(batch).astype(dtype)
        weight = weight if batch.weight is None else batch.weight * weight
        join = partial(_joined, shards=self.source.shards if self.uses_blocks else 1)
        own = jnp.full(self.numbers.shape, 1 / batch.scale, dtype)
        return replace(
            batch,
            rows=jax.tree.map(join, batch.rows, self.held),
            numbers=join(batch.numbers, self.numbers),
            weight=join(weight, own, fill=0.0),
            start=None,
        )

    def _left(self, batch: Batch) -> Bool[Array, " m"]:
        """Which rows of a batch are not among the chosen."""
        if self.left is None:
            place = jnp.searchsorted(self.chosen, batch.numbers)
            nearest = self.chosen[jnp.minimum(place, self.chosen.shape[0] - 1)]
            return nearest != batch.numbers
        if batch.start is None:
            return self.left[batch.numbers]
        return jax.lax.dynamic_slice_in_dim(self.left, batch.start, batch.numbers.shape[0])

    def others(self) -> AlwaysIn:
        """The same batches without the chosen rows: what is left to chance, a part of the sum."""
        none = jax.tree.map(lambda leaf: leaf[:0], (self.numbers, self.held))
        return replace(self, numbers=none[0], held=none[1])

    def chunk(self, key: tuple[int, int], step: int, n: int) -> Int[np.ndarray, "n ..."]:
        """The source's entries."""
        return self.source.chunk(key, step, n)

    def ahead(self, entries: Int[np.ndarray, "n ..."]) -> None:
        """The source's."""
        self.source.ahead(entries)

    def take(self, rows: Int[Array, "*m"] | int) -> PyTree:
        """Rows by number."""
        return self.source.take(rows)

    def with_batches(self, batch_size: int, order: str) -> AlwaysIn:
        """Other batches, with the same rows in every one."""
        source = self.source.with_batches(batch_size, order)
        return replace(self, source=source, batch_size=source.batch_size, order=source.order)

    def original_rows(self, rows: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """The source's."""
        return self.source.original_rows(rows, seed)

    def rows_called(self, names: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """The source's."""
        return self.source.rows_called(names, seed)

    def hash(self) -> str:
        """The source's: the rows are the same."""
        return self.source.hash()
