"""The contract of a source of rows, its batches, and the order in which batches are visited.

N rows are split into K = ceil(N/n) contiguous blocks whose sizes differ by at most one. The
gradient estimate scales a block's sum by K, which is exactly unbiased also if n does not
divide N. Each chain has its own order, drawn on the host by a counter-based generator. The
generator is addressed by (seed, chain, position in the order), so that any part of an order can be
recomputed without the earlier parts.

Orders:
  reshuffle    every block once per pass, in a new order each pass (the default)
  symmetric    a new order, then the same order backwards (Paulin et al. 2024)
  independent  one of the fixed blocks at random at every step
  replacement  n rows drawn with replacement at every step
  subset       a new subset of n rows at every step, without replacement
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, get_args, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.pytrees import as_pytree
from ..core.validation import one_of
from ..errors import DataError, UsageError
from ..typing import Order

# -- names ---------------------------------------------------------------------------------


MAX_NAME_CHARS = 1000  # of a column's name


def check_names(names: list[str], where: str) -> None:
    """Raise DataError for a column name that is repeated or too long."""
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if len(name) > MAX_NAME_CHARS:
            raise DataError(
                f"{where} has a name of {len(name):,} characters in column {position} ({name[:20]!r} ...), and at most "
                f"{MAX_NAME_CHARS:,} are allowed; rename it."
            )
        if name in seen:
            raise DataError(
                f"{where} has the column name {name!r} twice (columns {seen[name]} and "
                f"{position}); rename one of them."
            )
        seen[name] = position


def listed(names: list[str], most: int = 12) -> str:
    """Join the first names, with the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def common_length(what: str, lengths: dict[str, Any]) -> Any:
    """Return the length that all have, by their names in messages; raise DataError otherwise."""
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise DataError(f"{what} differ in their number of rows: {listed}; they must agree.")
    return next(iter(lengths.values()))


# -- order ---------------------------------------------------------------------------------


ORDERS: tuple[Order, ...] = get_args(Order)
ORDER_BLOCK_STEPS = 4096  # steps of an order drawn at once; the runs of a seed depend on it
_ORDER_STREAM = 1  # the stream of the host generator for orders


def generator(seed: int, stream: int, counter: int, chain: int = 0) -> np.random.Generator:
    """Return a host generator addressed by stream, chain and counter."""
    key = [np.uint64(seed % 2**64), np.uint64((stream << 32) + chain)]
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, counter]))


def check_batches(num_data: int, batch_size: int, order: str) -> None:
    """Raise UsageError for an unknown order, or a batch size outside 1 to `num_data`."""
    one_of("order", order, ORDERS)
    if not 1 <= batch_size <= num_data:
        raise UsageError(
            f"batch_size must lie between 1 and the number of rows, {num_data}. Got {batch_size}."
        )


def entries(source: Source, key: tuple[int, int], step: int, n: int) -> Int[np.ndarray, "n ..."]:
    """Return what steps [step, step + n) of a chain visit; `key` is (seed, chain).

    The result is block numbers [n], or row numbers [n, batch_size], as int32. It takes O(n) time and memory
    for any `step`.
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
    """Return one unit of the order, which is always a whole number of passes."""
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
NAMED_ROWS_AT_ONCE = 2**20  # rows whose user numbers are compared at once


@as_pytree
@dataclass(frozen=True)
class Batch:
    """The rows of one step, and the weight of each in the estimate of the sum over all rows.

    sum_{i=1}^N f_i is estimated by scale * sum_j weight_j f_{numbers_j}, without bias. A row of
    weight 0 is padding. A row that is in every batch has weight 1 / scale; if it was drawn or is in
    the block as well, it has weight 0 there.

    Attributes:
      rows: leaves [m, ...].
      numbers: the number of each row, from 0 to N - 1. A row has a positive weight at most
        once, except in order "replacement".
      scale: K in orders of blocks, N/n in orders of rows.
      weight: of each row; None if all are 1.
      start: the first number if numbers are consecutive, else None. (A last row that is padding may
        have any number.) Values of the rows can then be sliced instead of gathered.
    """

    rows: PyTree
    numbers: Int[Array, " m"]
    scale: float
    weight: Float[Array, " m"] | None = None
    start: Int[Array, ""] | None = None

    def drawn(self) -> Int[np.ndarray, " m"]:
        """Return the numbers of the rows with a positive weight, on the host."""
        numbers = np.asarray(self.numbers)
        return numbers if self.weight is None else numbers[np.asarray(self.weight) > 0]


@runtime_checkable
class Source(Protocol):
    """N rows, numbered from 0, that are visited in batches.

    A source is a pytree (a frozen dataclass under `jax.tree_util.register_dataclass`): arrays that
    compiled code reads are leaves; `num_data`, `batch_size`, `order` and all else are static. A source must
    define those three, `take` and `hash`. The rest is derived from them here, and may be overridden
    (`fetch`, to hold some rows in every batch). A class that does not inherit must define everything.

      on the host             chunk((seed, chain), step, n): one entry for each of steps
                              [step, step + n). Any part can be recomputed alone; chains differ.
      inside compiled code    fetch(entry) -> Batch, and take(rows): rows by number.
      for a full pass         the blocks 0 ... K - 1 of with_batches(n, "reshuffle"), for any n: there
                              the weights of every row sum to 1, and scale is K. Full gradients
                              use all rows as one block.

    An entry is the number of a block, or the numbers [batch_size] of rows, as int32; the host loop
    copies it to the device. A source that reads ahead could return whole batches instead,
    pytrees of arrays with a leading axis [n] that `fetch` unpacks: only `chunk`, `entry_shape` and the
    loop's buffer of entries would change. On the host, `ahead(entries)` announces the entries that
    will be fetched next.

    A search starts with the first m rows as a sample of all: number rows in a random order, because blocks of
    similar rows make noisy batches. `sgld.sample` chooses batch size and order (`batch_size=`,
    `order=`) and accepts a source that `sgld.testing.check_source` certifies.
    """

    num_data: int
    batch_size: int
    order: str

    @abstractmethod
    def take(self, rows: Int[Array, "*m"] | int) -> PyTree:
        """Return rows by number, leaves [*m, ...], on the host or inside compiled code."""
        ...

    @abstractmethod
    def hash(self) -> str:
        """Return a digest of the rows, whatever the batches, by which `resume` knows the data."""
        ...

    def chunk(self, key: tuple[int, int], step: int, n: int) -> Int[np.ndarray, "n ..."]:
        """Return the int32 entries of steps [step, step + n) of a chain; `key` is (seed, chain)."""
        return entries(self, key, step, n)

    def ahead(self, entries: Int[np.ndarray, "n ..."]) -> None:
        """Announce the entries that will be fetched next, in order: a source on disk reads ahead."""

    def fetch(self, x: Int[Array, "*entry"]) -> Batch:
        """Return the Batch of one entry of `chunk`, inside compiled code."""
        if not self.uses_blocks:
            return Batch(self.take(x), x, self.num_data / self.batch_size)
        last = jnp.arange(self.block_size, dtype=jnp.int32)
        numbers = jnp.minimum(self.block_start(x) + last, self.num_data - 1)
        return Batch(self.take(numbers), numbers, float(self.num_blocks), self.block_weight(x))

    def with_batches(self, batch_size: int, order: str) -> Self:
        """Return the same rows in other batches; raise UsageError for an impossible size or order."""
        check_batches(self.num_data, batch_size, order)
        same: Any = self
        return replace(same, batch_size=int(batch_size), order=order)

    def original_rows(self, rows: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """Return the user's numbers of these rows, for messages; `seed` is that of the run."""
        return rows

    def rows_called(self, names: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """Return the rows with these user numbers, ascending: the inverse of `original_rows`."""
        found = []
        for begin in range(0, self.num_data, NAMED_ROWS_AT_ONCE):
            rows = np.arange(begin, min(begin + NAMED_ROWS_AT_ONCE, self.num_data))
            found.append(rows[np.isin(self.original_rows(rows, seed), names)])
        return np.concatenate(found)

    @property
    def shards(self) -> int:
        """The number of devices that hold rows; a block consists of as many parts of equal length."""
        return 1

    @property
    def num_blocks(self) -> int:
        """The number of blocks, K = ceil(N/n)."""
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
        """The number of steps per cycle of the order (1 if steps are independent)."""
        return {"reshuffle": self.num_blocks, "symmetric": 2 * self.num_blocks}.get(self.order, 1)

    @property
    def entry_shape(self) -> tuple[int, ...]:
        """The shape of one step's entry of `chunk`: () for a block, (n,) for rows."""
        return () if self.uses_blocks else (self.batch_size,)

    @property
    def row_width(self) -> int:
        """The number of values in a row."""
        row = jax.eval_shape(self.take, jnp.int32(0))
        return sum(leaf.size for leaf in jax.tree.leaves(row))

    def block_start(self, k: Int[Array, ""]) -> Int[Array, ""]:
        """Return the first row of block k; the larger blocks come first."""
        return k * self.block_size - jnp.maximum(k - self._larger, 0)

    def block_weight(self, k: Int[Array, ""]) -> Float[Array, " m"] | None:
        """Return the weights of block k: 0 for the padding of a smaller block; None if all are 1."""
        if self._larger == self.num_blocks:
            return None
        last = jnp.where(k < self._larger, 1.0, 0.0)
        return jnp.ones(self.block_size).at[self.block_size - 1].set(last)

    @property
    def _larger(self) -> int:
        """The number of larger blocks."""
        return self.num_data - self.num_blocks * (self.block_size - 1)
