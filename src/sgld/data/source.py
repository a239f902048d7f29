"""What a source of rows is: the contract, and a batch of it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.pytrees import as_pytree
from .order import check_batches, entries

__all__ = ["Batch", "Source"]

PyTree = Any
CALLED = 2**20  # rows whose names are looked at together


@as_pytree
@dataclass(frozen=True)
class Batch:
    """The rows of one step, and how often each counts in the estimate of the sum over all rows.

    sum_{i=1}^N f_i is estimated by scale * sum_j weight_j f_{numbers_j}, without bias. A row of
    weight 0 only fills the batch up; a row that is in every batch has weight 1 / scale (and, if
    it was drawn or stands in the block as well, weight 0 there).

    Attributes:
      rows: leaves [m, ...].
      numbers: which rows they are, each from 0 to N - 1. One row has a positive weight at most
        once, but in order "replacement".
      scale: K in orders of blocks, N/n in orders of rows.
      weight: of each row; None where all are 1.
      start: where numbers are consecutive, the first of them; else None. (A filling last row may
        be any.) What belongs to the rows can then be sliced, not gathered.
    """

    rows: PyTree
    numbers: Int[Array, " m"]
    scale: float
    weight: Float[Array, " m"] | None = None
    start: Int[Array, ""] | None = None

    def drawn(self) -> Int[np.ndarray, " m"]:
        """The numbers of the rows that count, on the host."""
        numbers = np.asarray(self.numbers)
        return numbers if self.weight is None else numbers[np.asarray(self.weight) > 0]


@runtime_checkable
class Source(Protocol):
    """N rows, numbered from 0, that are visited in batches.

    A source is a pytree (a frozen dataclass under `jax.tree_util.register_dataclass`): arrays that
    compiled code reads are leaves, `num_data`, `batch_size`, `order` and all else static. Of its
    own it has those three, `take` and `hash`. The rest is made from them here, and may be written
    otherwise (`fetch`, to hold some rows in every batch); a class that does not inherit writes it all.

      on the host             chunk((seed, chain), step, n): what steps [step, step + n) visit, one
                              entry each. Any stretch can be made again, alone; chains differ.
      inside compiled code    fetch(entry) -> Batch, and take(rows): rows by number.
      for a full pass         the blocks 0 ... K - 1 of with_batches(n, "reshuffle"), for any n: there
                              the weights of every row add up to 1, and scale is K. Full gradients
                              take all rows as one block.

    An entry is a block's number, or the numbers [batch_size] of rows, as int32: what the host loop
    copies to the device. A source that reads ahead will hand out whole batches in their place,
    pytrees of arrays with a leading axis [n] that `fetch` unpacks: `chunk`, `entry_shape` and the
    loop's buffer of entries are all that then changes. On the host `ahead(entries)` tells a source what
    will be fetched next.

    The first m rows stand for all where a search begins: number them in a random order, or blocks of
    similar rows make noisy batches. `sgld.sample` chooses batch size and order (`batch_size=`,
    `order=`) and takes what `sgld.testing.check_source` certifies.
    """

    num_data: int
    batch_size: int
    order: str

    @abstractmethod
    def take(self, rows: Int[Array, "*m"] | int) -> PyTree:
        """Rows by number, leaves [*m, ...], on the host or inside compiled code."""
        ...

    @abstractmethod
    def hash(self) -> str:
        """A digest of the rows, whatever the batches: what `resume` knows the data by."""
        ...

    def chunk(self, key: tuple[int, int], step: int, n: int) -> Int[np.ndarray, "n ..."]:
        """The entries of steps [step, step + n) of a chain, int32; `key` is (seed, chain)."""
        return entries(self, key, step, n)

    def ahead(self, entries: Int[np.ndarray, "n ..."]) -> None:
        """These entries will be fetched next, in this order: a source on disk begins to read."""

    def fetch(self, x: Int[Array, "*entry"]) -> Batch:
        """The Batch of one entry of `chunk`, inside compiled code."""
        if not self.uses_blocks:
            return Batch(self.take(x), x, self.num_data / self.batch_size)
        last = jnp.arange(self.block_size, dtype=jnp.int32)
        numbers = jnp.minimum(self.block_start(x) + last, self.num_data - 1)
        return Batch(self.take(numbers), numbers, float(self.num_blocks), self.block_weight(x))

    def with_batches(self, batch_size: int, order: str) -> Source:
        """The same rows in other batches. Raises UsageError for an impossible size or order."""
        check_batches(self.num_data, batch_size, order)
        same: Any = self
        return replace(same, batch_size=int(batch_size), order=order)

    def original_rows(self, rows: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """What the user calls these rows, for messages; `seed` is the run's."""
        return rows

    def rows_called(self, names: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """The rows that the user calls so, in ascending order: the inverse of `original_rows`."""
        found = []
        for begin in range(0, self.num_data, CALLED):
            rows = np.arange(begin, min(begin + CALLED, self.num_data))
            found.append(rows[np.isin(self.original_rows(rows, seed), names)])
        return np.concatenate(found)

    @property
    def shards(self) -> int:
        """Over how many devices the rows lie: a block is so many parts of one length, one after another."""
        return 1

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

    @property
    def row_width(self) -> int:
        """Numbers in a row."""
        row = jax.eval_shape(self.take, jnp.int32(0))
        return sum(leaf.size for leaf in jax.tree.leaves(row))

    def block_start(self, k: Int[Array, ""]) -> Int[Array, ""]:
        """First row of block k: the larger blocks come first."""
        return k * self.block_size - jnp.maximum(k - self._larger, 0)

    def block_weight(self, k: Int[Array, ""]) -> Float[Array, " m"] | None:
        """Weights of block k: 0 for the row that fills a smaller block; None where none is smaller."""
        if self._larger == self.num_blocks:
            return None
        last = jnp.where(k < self._larger, 1.0, 0.0)
        return jnp.ones(self.block_size).at[self.block_size - 1].set(last)

    @property
    def _larger(self) -> int:
        """How many blocks are larger."""
        return self.num_data - self.num_blocks * (self.block_size - 1)
