"""Whether every row counts once in a pass over all blocks: one by one, or, of very many, by a sum of keys."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from ..errors import DataError
from .shuffle import keys

__all__ = ["COUNTED", "Counted", "Summed"]

COUNTED = 2**24  # rows that are counted one by one, and looked at together where there are more
SEED = 0x5EED  # of the keys that are added up


class Counted:
    """How often each row counts."""

    def __init__(self, num_data: int) -> None:
        self.total = np.zeros(num_data)

    def add(self, numbers: Int[np.ndarray, " m"], weight: Float[np.ndarray, " m"]) -> None:
        """Some rows of a pass."""
        self.total += np.bincount(numbers, weight, minlength=len(self.total))

    def check(self) -> None:
        """DataError unless each did once."""
        wrong = np.flatnonzero(np.abs(self.total - 1) > 1e-4)
        if wrong.size:
            raise DataError(
                f"row {wrong[0]} counts {self.total[wrong[0]]:.6g} times in a pass over all blocks, not once; is "
                f"num_data, {len(self.total)}, what fetch goes through?"
            )


class Summed:
    """Whether each row counts once, of more rows than are counted one by one.

    The keys of the rows that came are added up modulo 2^64, and those of all rows: the sums of two
    different collections agree once in 2^64. Rows in every batch, a part in each, are counted.
    """

    def __init__(self, num_data: int) -> None:
        self.num_data, self.sum, self.parts = num_data, 0, dict[int, float]()

    def add(self, numbers: Int[np.ndarray, " m"], weight: Float[np.ndarray, " m"]) -> None:
        """Some rows of a pass."""
        self.sum += _sum(numbers[weight == 1])
        for k in np.flatnonzero((weight != 1) & (weight != 0)).tolist():
            row = int(numbers[k])
            self.parts[row] = self.parts.get(row, 0.0) + float(weight[k])

    def check(self) -> None:
        """DataError unless each did once."""
        whole = 0
        for first in range(0, self.num_data, COUNTED):
            rows = np.arange(first, min(first + COUNTED, self.num_data))
            whole += _sum(rows)
        held = np.array([row for row, part in self.parts.items() if abs(part - 1) < 1e-3], np.int64)
        if len(held) < len(self.parts) or (self.sum + _sum(held) - whole) % 2**64:
            raise DataError(
                f"not every row counts once in a pass over all blocks; is num_data, {self.num_data}, what fetch "
                "goes through?"
            )


def _sum(numbers: Int[np.ndarray, " m"]) -> int:
    """Of the keys of rows, modulo 2^64."""
    return int(keys(numbers, SEED).sum(dtype=np.uint64))
