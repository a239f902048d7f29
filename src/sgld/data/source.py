"""Rows in memory and the order in which they are visited.

Rows are shuffled once and split into K = ceil(N/n) contiguous blocks whose sizes differ
by at most one; the gradient estimate scales a block's sum by K, which is exactly
unbiased also when n does not divide N. Each chain has its own order, drawn on the host
by a counter-based generator addressed by (seed, chain, position in the order), so that
any stretch of it can be made again without what came before.

Orders:
  reshuffle    every block once per pass, in a fresh order each pass (the default)
  symmetric    a fresh order, then the same order backwards (Paulin et al. 2024)
  independent  one of the fixed blocks at random at every step
  replacement  n rows drawn with replacement at every step
  subset       a fresh subset of n rows at every step, without replacement
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import DataError, UsageError, did_you_mean
from ..layout import leaf_names
from ..typing import Order

__all__ = ["ORDERS", "Batch", "Source", "check_data", "generator"]

ORDERS: tuple[Order, ...] = get_args(Order)
ORDER_BLOCK = 4096  # steps of an order that are drawn at once: part of what a seed means
_SHUFFLE, _ORDER = 0, 1

PyTree = Any


def generator(seed: int, stream: int, counter: int, chain: int = 0) -> np.random.Generator:
    """A host generator addressed by stream, chain and counter."""
    key = [np.uint64(seed % 2**64), np.uint64((stream << 32) + chain)]
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, counter]))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """What a gradient estimate sees: rows, their weights, and the factor that scales their sum."""

    rows: PyTree
    weight: Float[Array, " n"] | None
    scale: float
    index: Int[Array, ""] | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Source:
    """N rows held in memory (already shuffled), a batch size and an order.

    `chunk(key, step, n)` runs on the host and says what the steps [step, step + n) visit;
    `fetch(x)` runs inside compiled code and returns the Batch of one such entry.
    """

    rows: PyTree  # leaves [N, ...], or [N + 1, ...] where the last block is short
    num_data: int = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})
    order: str = field(metadata={"static": True})

    @classmethod
    def build(cls, data: PyTree, batch_size: int, order: str, seed: int = 0) -> Source:
        """A source over checked arrays, its rows shuffled once by `seed`."""
        leaves = jax.tree.leaves(data)
        num_data = int(np.shape(leaves[0])[0])
        permutation = generator(seed, _SHUFFLE, 0).permutation(num_data)
        # one spare row, so that a short last block can be sliced at full length
        permutation = np.append(permutation, permutation[:1])
        rows = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[permutation]), data)
        return cls(rows, num_data, num_data, "reshuffle").with_batches(batch_size, order)

    @classmethod
    def of(cls, data: PyTree, seed: int = 0) -> Source:
        """A source over checked arrays, all rows in one batch."""
        return cls.build(data, int(np.shape(jax.tree.leaves(data)[0])[0]), "reshuffle", seed)

    def with_batches(self, batch_size: int, order: str) -> Source:
        """The same rows in other batches. Raises UsageError for an impossible size or order."""
        if order not in ORDERS:
            raise UsageError(
                f"order must be one of {', '.join(ORDERS)}. Got {order!r}.{did_you_mean(order, ORDERS)}"
            )
        if not 1 <= batch_size <= self.num_data:
            raise UsageError(
                f"batch_size must lie between 1 and the number of rows, {self.num_data}. Got {batch_size}."
            )
        return Source(self.rows, self.num_data, int(batch_size), order)

    def first(self, count: int) -> Source:
        """A source over the first `count` rows, which are a random subset: rows are shuffled."""
        rows = jax.tree.map(lambda leaf: leaf[: count + 1], self.rows)
        return Source(rows, count, count, "reshuffle")

    @property
    def num_blocks(self) -> int:
        """K = ceil(N/n)."""
        return -(-self.num_data // self.batch_size)

    @property
    def block_size(self) -> int:
        """The size of the larger blocks, ceil(N/K)."""
        return -(-self.num_data // self.num_blocks)

    @property
    def uses_blocks(self) -> bool:
        """Whether the order visits fixed blocks of rows."""
        return self.order in ("reshuffle", "symmetric", "independent")

    @property
    def is_independent(self) -> bool:
        """Whether each step's batch is independent of the steps before."""
        return self.order in ("independent", "replacement", "subset")

    @property
    def period(self) -> int:
        """Steps per pass over the order's cycle (1 where steps are independent)."""
        return {"reshuffle": self.num_blocks, "symmetric": 2 * self.num_blocks}.get(self.order, 1)

    @property
    def entry_shape(self) -> tuple[int, ...]:
        """Shape of one step's entry of `chunk`: () for a block, (n,) for rows."""
        return () if self.uses_blocks else (self.batch_size,)

    def chunk(self, key: tuple[int, int], step: int, n: int) -> Int[np.ndarray, "n ..."]:
        """What steps [step, step + n) of a chain visit; `key` is (seed, chain).

        Returns block numbers [n], or row numbers [n, batch_size], as int32. O(n) time and
        memory wherever `step` lies.
        """
        seed, chain = key
        unit = max(1, ORDER_BLOCK // self.period) * self.period
        if not self.uses_blocks:
            unit = max(1, ORDER_BLOCK // self.batch_size)
        first, last = step // unit, -(-(step + n) // unit)
        parts = [self._unit(generator(seed, _ORDER, u, chain), unit) for u in range(first, last)]
        start = step - first * unit
        return np.concatenate(parts)[start : start + n] if parts else self._unit(None, 0)

    def _unit(self, generator: np.random.Generator | None, unit: int) -> np.ndarray:
        """One unit of the order: always a whole number of passes."""
        if generator is None:
            return np.zeros((0, *self.entry_shape), np.int32)
        count = self.num_blocks
        if self.order == "independent":
            return generator.integers(0, count, unit, dtype=np.int32)
        if self.order == "replacement":
            return generator.integers(0, self.num_data, (unit, self.batch_size), dtype=np.int32)
        if self.order == "subset":
            draw = [
                generator.choice(self.num_data, self.batch_size, replace=False) for _ in range(unit)
            ]
            return np.asarray(draw, np.int32)
        passes = np.tile(np.arange(count, dtype=np.int32), (unit // self.period, 1))
        passes = generator.permuted(passes, axis=1)
        if self.order == "symmetric":
            passes = np.concatenate([passes, passes[:, ::-1]], axis=1)
        return passes.ravel()

    def block_start(self, k: Int[Array, "*n"]) -> Int[Array, "*n"]:
        """First row of block k: the larger blocks come first."""
        larger = self.num_data - self.num_blocks * (self.block_size - 1)
        return k * self.block_size - jnp.maximum(k - larger, 0)

    def fetch(self, x: Int[Array, "*entry"]) -> Batch:
        """The Batch of one entry of `chunk`, inside compiled code."""
        if not self.uses_blocks:
            rows = jax.tree.map(lambda leaf: leaf[x], self.rows)
            return Batch(rows, None, self.num_data / self.batch_size, None)
        size, count = self.block_size, self.num_blocks
        start = self.block_start(x)
        rows = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), self.rows)
        larger = self.num_data - count * (size - 1)
        weight = None
        if larger < count:
            weight = jnp.ones(size).at[size - 1].set(jnp.where(x < larger, 1.0, 0.0))
        return Batch(rows, weight, float(count), x)

    def take(self, rows: Int[Array, "*n"] | int) -> PyTree:
        """Rows by number, on the host or inside compiled code."""
        return jax.tree.map(lambda leaf: leaf[rows], self.rows)

    @property
    def row_width(self) -> int:
        """Numbers in a row."""
        return sum(leaf[0].size for leaf in jax.tree.leaves(self.rows))

    def beside(self, values: Float[Array, "N ..."]) -> Source:
        """The rows as pairs (row, value); `values` as `each` gave them."""
        return replace(self, rows=(self.rows, values))

    def each(self, function: Callable[[PyTree], Array], at_once: int) -> Float[Array, "N ..."]:
        """function(row) of every row the source holds, `at_once` of them together, inside compiled code."""
        return jax.lax.map(function, self.rows, batch_size=at_once)

    def row_numbers(self, x: Int[Array, "*entry"]) -> Int[Array, " n"]:
        """The rows of entry x, the spare one of a short block included (its weight is 0)."""
        if not self.uses_blocks:
            return x
        return self.block_start(x) + jnp.arange(self.block_size, dtype=jnp.int32)

    def original_rows(self, key: tuple[int, int], step: int) -> Int[np.ndarray, " n"]:
        """The user's row numbers that a step of a chain visits, sorted; `key` is (seed, chain)."""
        entry = jnp.asarray(self.chunk(key, step, 1)[0])
        rows = np.asarray(self.row_numbers(entry))
        weight = self.fetch(entry).weight
        rows = rows if weight is None else rows[np.asarray(weight) > 0]
        return np.sort(generator(key[0], _SHUFFLE, 0).permutation(self.num_data)[rows])

    def hash(self) -> str:
        """SHA-256 of the rows."""
        digest = hashlib.sha256()
        for leaf in jax.tree.leaves(self.rows):
            array = np.ascontiguousarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    def everything(self) -> PyTree:
        """All N rows, in the shuffled order."""
        return jax.tree.map(lambda leaf: leaf[: self.num_data], self.rows)


def check_data(data: PyTree) -> PyTree:
    """Data as numpy arrays of the precision JAX will use, or a DataError that names the place.

    Refuses: no arrays, arrays of different lengths, no rows, non-numeric or complex dtypes,
    NaN or infinite cells, floats beyond float32 and integers above 2^24 where x64 is off.
    """
    leaves, treedef = jax.tree.flatten(data)
    names = leaf_names(data)
    if not leaves:
        raise DataError("data holds no arrays; give a pytree of arrays with one row per datum.")
    arrays = [np.asarray(leaf) for leaf in leaves]
    lengths = {name: a.shape[0] if a.ndim else None for name, a in zip(names, arrays, strict=True)}
    if None in lengths.values():
        scalar = next(name for name, length in lengths.items() if length is None)
        raise DataError(
            f"data leaf {scalar!r} is a single number; every leaf needs a leading row axis."
        )
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise DataError(f"data leaves differ in their number of rows: {listed}; they must agree.")
    if next(iter(lengths.values())) == 0:
        raise DataError("data has 0 rows; at least one is needed.")
    return treedef.unflatten([_converted(n, a) for n, a in zip(names, arrays, strict=True)])


def _converted(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype == bool:
        return array
    if not np.issubdtype(array.dtype, np.number) or np.issubdtype(array.dtype, np.complexfloating):
        raise DataError(
            f"data leaf {name!r} has dtype {array.dtype}; encode it as real numbers first."
        )
    target = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))
    if np.issubdtype(array.dtype, np.integer):
        largest = max(abs(int(array.max())), abs(int(array.min())))
        if target.itemsize <= 4 and largest > 2**24:
            raise DataError(
                f"data leaf {name!r} holds the integer {largest}, above 2^24, which float32 arithmetic "
                "would round; subtract an offset, or enable jax_enable_x64."
            )
        return array.astype(target)
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f"row {where[0]}" + (f", column {where[1:]}" if len(where) > 1 else "")
        raise DataError(
            f"data leaf {name!r} holds {array[where]} at {place} (counted from 0); "
            "remove or impute it."
        )
    if array.dtype.itemsize > target.itemsize:
        limit = float(np.finfo(target).max)
        if array.size and float(np.abs(array).max()) > limit:
            raise DataError(
                f"data leaf {name!r} holds values beyond {target}'s largest, {limit:.3g}; rescale it, "
                "or enable jax_enable_x64."
            )
    return array.astype(target, copy=False)
