"""What a source of rows is: the contract, and a batch of it.

Names of columns, as files and tables have them.

The order in which batches of rows are visited.

N rows are split into K = ceil(N/n) contiguous blocks whose sizes differ by at most one; the
gradient estimate scales a block's sum by K, which is exactly unbiased also when n does not
divide N. Each chain has its own order, drawn on the host by a counter-based generator
addressed by (seed, chain, position in the order), so that any stretch of it can be made again
without what came before.

Orders:
  reshuffle    every block once per pass, in a fresh order each pass (the default)
  symmetric    a fresh order, then the same order backwards (Paulin et al. 2024)
  independent  one of the fixed blocks at random at every step
  replacement  n rows drawn with replacement at every step
  subset       a fresh subset of n rows at every step, without replacement
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Protocol, get_args, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.pytrees import as_pytree
from ..errors import DataError, UsageError, did_you_mean
from ..typing import Order

# -- names ---------------------------------------------------------------------------------


MAX_NAME_CHARS = 1000  # of a column's name


def check_names(names: list[str], where: str) -> None:
    """DataError for a column's name that stands there twice, or has no end."""
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if len(name) > MAX_NAME_CHARS:
            raise DataError(
                f"{where} has a name of {len(name):,} letters in column {position} ({name[:20]!r} ...), and a name "
                f"may have {MAX_NAME_CHARS:,}; rename it."
            )
        if name in seen:
            raise DataError(
                f"{where} has the column name {name!r} twice (columns {seen[name]} and "
                f"{position}); rename one of them."
            )
        seen[name] = position


def listed(names: list[str], most: int = 12) -> str:
    """The first names, and how many there are beside them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


# -- order ---------------------------------------------------------------------------------


ORDERS: tuple[Order, ...] = get_args(Order)
ORDER_BLOCK_STEPS = 4096  # steps of an order that are drawn at once: part of what a seed means
_ORDER_STREAM = 1  # the stream of the host's generator that orders use


def generator(seed: int, stream: int, counter: int, chain: int = 0) -> np.random.Generator:
    """A host generator addressed by stream, chain and counter."""
    key = [np.uint64(seed % 2**64), np.uint64((stream << 32) + chain)]
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, counter]))


def check_batches(num_data: int, batch_size: int, order: str) -> None:
    """UsageError for an order that is none, or a batch size that `num_data` rows do not have."""
    if order not in ORDERS:
        raise UsageError(
            f"order must be one of {', '.join(ORDERS)}. Got {order!r}.{did_you_mean(order, ORDERS)}"
        )
    if not 1 <= batch_size <= num_data:
        raise UsageError(
            f"batch_size must lie between 1 and the number of rows, {num_data}. Got {batch_size}."
        )


def entries(source: Source, key: tuple[int, int], step: int, n: int) -> Int[np.ndarray, "n ..."]:
    """What steps [step, step + n) of a chain visit, in the source's order; `key` is (seed, chain).

    Returns block numbers [n], or row numbers [n, batch_size], as int32. O(n) time and memory
    wherever `step` lies.
    """
    seed, chain = key
    unit = max(1, ORDER_BLOCK_STEPS // source.period) * source.period
    if not source.uses_blocks:
        unit = max(1, ORDER_BLOCK_STEPS // source.batch_size)
    first, last = step // unit, -(-(step + n) // unit)
    parts = [
        _unit(source, generator(seed, _ORDER_STREAM, u, chain), unit) for u in range(first, last)
    ]
    start = step - first * unit
    none = np.zeros((0, *source.entry_shape), np.int32)
    return np.concatenate(parts)[start : start + n] if parts else none


def _unit(source: Source, generator: np.random.Generator, unit: int) -> np.ndarray:
    """One unit of the order: always a whole number of passes."""
    count, num_data, size = source.num_blocks, source.num_data, source.batch_size
    if source.order == "independent":
        return generator.integers(0, count, unit, dtype=np.int32)
    if source.order == "replacement":
        return generator.integers(0, num_data, (unit, size), dtype=np.int32)
    if source.order == "subset":
        draw = [generator.choice(num_data, size, replace=False) for _ in range(unit)]
        return np.asarray(draw, np.int32)
    passes = np.tile(np.arange(count, dtype=np.int32), (unit // source.period, 1))
    passes = generator.permuted(passes, axis=1)
    if source.order == "symmetric":
        passes = np.concatenate([passes, passes[:, ::-1]], axis=1)
    return passes.ravel()


# -- source --------------------------------------------------------------------------------


PyTree = Any
NAMED_ROWS_AT_ONCE = 2**20  # rows whose names are looked at together


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
        for begin in range(0, self.num_data, NAMED_ROWS_AT_ONCE):
            rows = np.arange(begin, min(begin + NAMED_ROWS_AT_ONCE, self.num_data))
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
