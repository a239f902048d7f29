"""The order in which batches of rows are visited.

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

from typing import TYPE_CHECKING, get_args

import numpy as np
from jaxtyping import Int

from ..errors import UsageError, did_you_mean
from ..typing import Order

if TYPE_CHECKING:
    from .source import Source

__all__ = ["ORDERS", "check_batches", "entries", "generator"]

ORDERS: tuple[Order, ...] = get_args(Order)
ORDER_BLOCK = 4096  # steps of an order that are drawn at once: part of what a seed means
_ORDER = 1  # the stream of the host's generator that orders use


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
    unit = max(1, ORDER_BLOCK // source.period) * source.period
    if not source.uses_blocks:
        unit = max(1, ORDER_BLOCK // source.batch_size)
    first, last = step // unit, -(-(step + n) // unit)
    parts = [_unit(source, generator(seed, _ORDER, u, chain), unit) for u in range(first, last)]
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
