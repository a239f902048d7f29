"""Rows held in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.devices import known_now, sent, sent_rows
from ..core.pytrees import as_pytree
from .order import check_batches
from .shuffle import shuffled
from .source import Batch, Source

__all__ = ["InMemory", "digest"]

PyTree = Any


@as_pytree
@dataclass(frozen=True)
class InMemory(Source):
    """N rows held in memory, already in a random order."""

    rows: PyTree  # leaves [N + 1, ...]: one spare row, so that a short last block is sliced whole
    num_data: int = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})
    order: str = field(metadata={"static": True})

    @classmethod
    def build(cls, data: PyTree, batch_size: int, order: str, seed: int = 0) -> InMemory:
        """A source over checked arrays, its rows shuffled once by `seed`."""
        leaves = jax.tree.leaves(data)
        num_data = int(np.shape(leaves[0])[0])
        check_batches(num_data, batch_size, order)
        permutation = shuffled(num_data, seed)
        permutation = np.append(permutation, permutation[:1])
        rows = jax.tree.map(lambda leaf: sent_rows(leaf, permutation), data)
        return cls(rows, num_data, int(batch_size), order)

    @classmethod
    def of(cls, data: PyTree, seed: int = 0) -> InMemory:
        """A source over checked arrays, all rows in one batch."""
        return cls.build(data, int(np.shape(jax.tree.leaves(data)[0])[0]), "reshuffle", seed)

    @classmethod
    def some(cls, source: Source, numbers: Int[np.ndarray, " m"]) -> InMemory:
        """A copy of some of a source's rows, all in one batch."""
        taken = np.append(numbers, numbers[:1]).astype(np.int32)
        return cls(source.take(sent(taken)), len(numbers), len(numbers), "reshuffle")

    def fetch(self, x: Int[Array, "*entry"]) -> Batch:
        """The Batch of one entry of `chunk`, inside compiled code: a block is a slice."""
        if not self.uses_blocks:
            return Batch(self.take(x), x, self.num_data / self.batch_size)
        start, size = self.block_start(x), self.block_size
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), self.rows)
        numbers = jnp.minimum(start + jnp.arange(size, dtype=jnp.int32), self.num_data - 1)
        return Batch(rows, numbers, float(self.num_blocks), self.block_weight(x), start)

    def tile(
        self, x: Int[Array, ""], begin: Int[Array, ""], size: int
    ) -> tuple[PyTree, Float[Array, " size"] | None]:
        """Rows [begin, begin + size) of block x and their weights; 0 of what fills the last tile up."""
        first = jnp.minimum(begin, self.block_size - size)
        start, weight = self.block_start(x) + first, self.block_weight(x)
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), self.rows)
        if weight is not None:
            weight = jax.lax.dynamic_slice_in_dim(weight, first, size)
        if self.block_size % size:
            own = first + jnp.arange(size) >= begin
            weight = jnp.where(own, 1.0 if weight is None else weight, 0.0)
        return rows, weight

    def take(self, rows: Int[Array, "*m"] | int) -> PyTree:
        """Rows by number, on the host or inside compiled code."""
        if known_now(self.rows, rows) and jax.default_backend() == "cpu":  # the host's own memory
            at = np.asarray(rows)
            return jax.tree.map(lambda leaf: sent(np.asarray(leaf)[at]), self.rows)
        return _taken(self.rows, rows)

    def original_rows(self, rows: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """The user's numbers of these rows, which `seed` has shuffled."""
        return shuffled(self.num_data, seed)[rows]

    def rows_called(self, names: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """The rows that the user calls so, in ascending order."""
        return np.flatnonzero(np.isin(shuffled(self.num_data, seed), names))

    def hash(self) -> str:
        """SHA-256 of the rows."""
        return digest(self.rows)


@partial(jax.jit, inline=True)  # on the host one compiled function, not five a leaf
def _taken(leaves: PyTree, rows: Any) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[rows], leaves)


def digest(tree: PyTree) -> str:
    """SHA-256 of the arrays of a pytree."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()
