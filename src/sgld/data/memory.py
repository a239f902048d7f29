"""Rows in memory, with some rows in every batch or a value for each row, and their shuffled order.

Rows are shuffled by a 64-bit mix of row number and seed:

    key(row) = mix(mix(row + s) ^ s'),   s = mix(seed + g),   s' = mix(s + g)

with the finalizer of SplitMix64 (Steele, Lea & Flood 2014) for `mix` and its constant for g. `mix` is a
bijection of 64 bits, so that no two rows have the same key. A key depends on no other row. A table that is
read in pieces, from any kind of file, therefore gets the order that it has in memory. No permutation of its
rows is ever stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt64

from ..core.devices import is_concrete, rows_to_device, sent
from ..core.pytrees import as_pytree
from .source import Batch, Source, check_batches

# -- always --------------------------------------------------------------------------------


PyTree = Any
MAX_MARKED_ROWS = 2**26  # rows up to which `left` has an entry for each


def _joined(drawn: Array, held: Array, *, shards: int, fill: float | None = None) -> Array:
    """Concatenate `drawn` and `held`; on several devices, separately on each, without transfers.

    Parts have one size: the missing rows repeat the first row, or have the value `fill`.
    """
    if shards == 1:
        return jnp.concatenate([drawn, held])
    missing = -len(held) % shards
    more = jnp.repeat(held[:1], missing, axis=0)
    more = more if fill is None else jnp.full_like(more, fill)
    parts = (a.reshape(shards, -1, *a.shape[1:]) for a in (drawn, jnp.concatenate([held, more])))
    return jnp.concatenate(list(parts), axis=1).reshape(-1, *drawn.shape[1:])


@dataclass(frozen=True)
class Wrapped(Source):
    """A source over the rows and batches of another one."""

    source: Source
    num_data: int = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})
    order: str = field(metadata={"static": True})

    def chunk(self, key: tuple[int, int], step: int, n: int) -> Int[np.ndarray, "n ..."]:
        """Return the entries of the source."""
        return self.source.chunk(key, step, n)

    def ahead(self, entries: Int[np.ndarray, "n ..."]) -> None:
        """Pass the entries to the source."""
        self.source.ahead(entries)

    def take(self, rows: Int[Array, "*m"] | int) -> PyTree:
        """Return rows by number."""
        return self.source.take(rows)

    def with_batches(self, batch_size: int, order: str) -> Self:
        """Return other batches of the same rows."""
        source = self.source.with_batches(batch_size, order)
        return replace(self, source=source, batch_size=source.batch_size, order=source.order)

    def original_rows(self, rows: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """Return the user's numbers of these rows, from the source."""
        return self.source.original_rows(rows, seed)

    def rows_called(self, names: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """Return the rows with these user numbers, from the source."""
        return self.source.rows_called(names, seed)

    def hash(self) -> str:
        """Return the hash of the source, which has the same rows."""
        return self.source.hash()


@as_pytree
@dataclass(frozen=True)
class AlwaysIn(Wrapped):
    """The batches of a source, with some of its rows in every batch.

    sum_i f_i is estimated by sum_{i chosen} f_i + scale * sum_{j in the batch, not chosen} f_j: the
    chosen rows add nothing to the variance, and the estimate is unbiased for any choice of rows.

    Attributes:
      source: the rows, and the batches of all of them.
      numbers: the numbers of the chosen rows.
      held: the chosen rows themselves.
      left: False for a chosen row, True for every other row and a spare one; None if there are so many
        rows that the chosen ones are looked up instead.
      chosen: the chosen rows in ascending order, which others() keeps.
    """

    numbers: Int[Array, " m"]
    held: PyTree
    left: Bool[Array, " spare"] | None
    chosen: Int[Array, " m"]

    @classmethod
    def of(
        cls, source: Source, numbers: Sequence[int] | Int[Array, " m"] | Int[np.ndarray, " m"]
    ) -> AlwaysIn:
        """Return `source` with the rows of these distinct numbers in every batch."""
        among, left = sent(numbers, np.int32), None
        if source.num_data <= MAX_MARKED_ROWS:
            left = np.ones(source.num_data + 1, bool)
            left[np.asarray(numbers)] = False
            left = sent(left)
        chosen = sent(np.sort(np.asarray(numbers)), np.int32)
        batches = (source.num_data, source.batch_size, source.order)
        return cls(source, *batches, among, source.take(among), left, chosen)

    def fetch(self, x: Int[Array, "*entry"]) -> Batch:
        """Return the source's Batch without the chosen rows, plus these at weight 1 in the sum."""
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
        """Return the mask of a batch's rows that are not chosen."""
        if self.left is None:
            place = jnp.searchsorted(self.chosen, batch.numbers)
            nearest = self.chosen[jnp.minimum(place, self.chosen.shape[0] - 1)]
            return nearest != batch.numbers
        if batch.start is None:
            return self.left[batch.numbers]
        return jax.lax.dynamic_slice_in_dim(self.left, batch.start, batch.numbers.shape[0])

    def others(self) -> AlwaysIn:
        """Return the same batches without the chosen rows: the random part of the sum."""
        none = jax.tree.map(lambda leaf: leaf[:0], (self.numbers, self.held))
        return replace(self, numbers=none[0], held=none[1])


# -- shuffle -------------------------------------------------------------------------------


GAMMA = np.uint64(0x9E3779B97F4A7C15)


def keys(rows: Int[np.ndarray, " m"], seed: int) -> UInt64[np.ndarray, " m"]:
    """Return the keys of the rows of these numbers; the ascending order of keys is the shuffle."""
    with np.errstate(over="ignore"):  # sums and products are modulo 2^64
        first = _mix(np.asarray([seed % 2**64], np.uint64) + GAMMA)
        second = _mix(first + GAMMA)
        return _mix(_mix(rows.astype(np.uint64) + first) ^ second)


def shuffled(num_data: int, seed: int) -> Int[np.ndarray, " N"]:
    """Return the numbers of all rows in the order of their keys."""
    return np.argsort(keys(np.arange(num_data), seed))


def _mix(x: UInt64[np.ndarray, " m"]) -> UInt64[np.ndarray, " m"]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


# -- memory --------------------------------------------------------------------------------


@as_pytree
@dataclass(frozen=True)
class InMemory(Source):
    """N rows in memory, in a random order."""

    rows: PyTree  # leaves [N + 1, ...]: with a spare row, a short last block is sliced at full size
    num_data: int = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})
    order: str = field(metadata={"static": True})

    @classmethod
    def build(cls, data: PyTree, batch_size: int, order: str, seed: int = 0) -> InMemory:
        """Return a source over checked arrays, with rows shuffled once by `seed`."""
        leaves = jax.tree.leaves(data)
        num_data = int(np.shape(leaves[0])[0])
        check_batches(num_data, batch_size, order)
        permutation = shuffled(num_data, seed)
        permutation = np.append(permutation, permutation[:1])
        rows = jax.tree.map(lambda leaf: rows_to_device(leaf, permutation), data)
        return cls(rows, num_data, int(batch_size), order)

    @classmethod
    def of(cls, data: PyTree, seed: int = 0) -> InMemory:
        """Return a source over checked arrays with all rows in one batch."""
        return cls.build(data, int(np.shape(jax.tree.leaves(data)[0])[0]), "reshuffle", seed)

    @classmethod
    def some(cls, source: Source, numbers: Int[np.ndarray, " m"]) -> InMemory:
        """Return a copy of some of a source's rows, all in one batch."""
        taken = np.append(numbers, numbers[:1]).astype(np.int32)
        return cls(source.take(sent(taken)), len(numbers), len(numbers), "reshuffle")

    def fetch(self, x: Int[Array, "*entry"]) -> Batch:
        """Return the Batch of one entry of `chunk`, inside compiled code: a block is a slice."""
        if not self.uses_blocks:
            return Batch(self.take(x), x, self.num_data / self.batch_size)
        start, size = self.block_start(x), self.block_size
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), self.rows)
        numbers = jnp.minimum(start + jnp.arange(size, dtype=jnp.int32), self.num_data - 1)
        return Batch(rows, numbers, float(self.num_blocks), self.block_weight(x), start)

    def tile(
        self, x: Int[Array, ""], begin: Int[Array, ""], size: int
    ) -> tuple[PyTree, Float[Array, " size"] | None]:
        """Return rows [begin, begin + size) of block x and their weights; padding has weight 0."""
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
        """Return rows by number, on the host or inside compiled code."""
        if is_concrete(self.rows, rows) and jax.default_backend() == "cpu":  # the host's own memory
            at = np.asarray(rows)
            return jax.tree.map(lambda leaf: sent(np.asarray(leaf)[at]), self.rows)
        return _taken(self.rows, rows)

    def original_rows(self, rows: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """Return the user's numbers of these rows, which `seed` has shuffled."""
        return shuffled(self.num_data, seed)[rows]

    def rows_called(self, names: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """Return the rows with these user numbers, in ascending order."""
        return np.flatnonzero(np.isin(shuffled(self.num_data, seed), names))

    def hash(self) -> str:
        """Return the SHA-256 of the rows."""
        return digest(self.rows)


@partial(jax.jit, inline=True)  # on the host, one compiled function instead of five per leaf
def _taken(leaves: PyTree, rows: Any) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[rows], leaves)


def digest(tree: PyTree) -> str:
    """Return the SHA-256 of the arrays of a pytree."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


# -- rows with values ----------------------------------------------------------------------


@as_pytree
@dataclass(frozen=True)
class RowsWithValues(Wrapped):
    """The rows of a source as pairs (row, value)."""

    values: Float[Array, "N+1 ..."]  # with a spare one, as rows in memory

    @classmethod
    def of(cls, source: Source, values: Float[Array, "N ..."]) -> RowsWithValues:
        """Return the source with `values` from `each`."""
        values = jnp.concatenate([values, values[:1]])
        return cls(source, source.num_data, source.batch_size, source.order, values)

    def fetch(self, x: Int[Array, "*entry"]) -> Batch:
        """Return the Batch of the source with the value of each row."""
        batch = self.source.fetch(x)
        if batch.start is None:
            return replace(batch, rows=(batch.rows, self.values[batch.numbers]))
        size = batch.numbers.shape[0]
        values = jax.lax.dynamic_slice_in_dim(self.values, batch.start, size)
        return replace(batch, rows=(batch.rows, values))

    def take(self, rows: Int[Array, "*m"] | int) -> PyTree:
        """Return rows by number, with their values."""
        return self.source.take(rows), self.values[rows]

    def hash(self) -> str:
        """Return the SHA-256 of the source's hash and the values."""
        return hashlib.sha256(f"{self.source.hash()}{digest(self.values)}".encode()).hexdigest()


def each(
    source: Source, function: Callable[[PyTree], Array], at_once: int
) -> Float[Array, "N ..."]:
    """Return function(row) for every row, `at_once` rows at a time, inside compiled code."""
    numbers = jnp.arange(source.num_data, dtype=jnp.int32)
    return jax.lax.map(lambda i: function(source.take(i)), numbers, batch_size=at_once)
