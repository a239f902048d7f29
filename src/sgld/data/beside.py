"""Rows with a value of one's own beside each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.pytrees import as_pytree
from .memory import digest
from .source import Batch, Source

__all__ = ["Beside", "each"]

PyTree = Any


@as_pytree
@dataclass(frozen=True)
class Beside(Source):
    """The rows of a source as pairs (row, value)."""

    source: Source
    values: Float[Array, "N+1 ..."]  # a spare one, as the rows in memory have it
    num_data: int = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})
    order: str = field(metadata={"static": True})

    @classmethod
    def of(cls, source: Source, values: Float[Array, "N ..."]) -> Beside:
        """`values` as `each` gave them."""
        values = jnp.concatenate([values, values[:1]])
        return cls(source, values, source.num_data, source.batch_size, source.order)

    def chunk(self, key: tuple[int, int], step: int, n: int) -> Int[np.ndarray, "n ..."]:
        """The source's entries."""
        return self.source.chunk(key, step, n)

    def ahead(self, entries: Int[np.ndarray, "n ..."]) -> None:
        """The source's."""
        self.source.ahead(entries)

    def fetch(self, x: Int[Array, "*entry"]) -> Batch:
        """The source's Batch, with a value beside each row."""
        batch = self.source.fetch(x)
        if batch.start is None:
            return replace(batch, rows=(batch.rows, self.values[batch.numbers]))
        size = batch.numbers.shape[0]
        values = jax.lax.dynamic_slice_in_dim(self.values, batch.start, size)
        return replace(batch, rows=(batch.rows, values))

    def take(self, rows: Int[Array, "*m"] | int) -> PyTree:
        """Rows by number, with their values."""
        return self.source.take(rows), self.values[rows]

    def with_batches(self, batch_size: int, order: str) -> Beside:
        """The same pairs in other batches."""
        return replace(
            self,
            source=self.source.with_batches(batch_size, order),
            batch_size=batch_size,
            order=order,
        )

    def hash(self) -> str:
        """SHA-256 of the source's hash and the values."""
        return hashlib.sha256(f"{self.source.hash()}{digest(self.values)}".encode()).hexdigest()


def each(
    source: Source, function: Callable[[PyTree], Array], at_once: int
) -> Float[Array, "N ..."]:
    """function(row) of every row, `at_once` of them together, inside compiled code."""
    numbers = jnp.arange(source.num_data, dtype=jnp.int32)
    return jax.lax.map(lambda i: function(source.take(i)), numbers, batch_size=at_once)
