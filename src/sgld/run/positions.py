"""Positions of a run's draws, as many as there is room for."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["Positions", "halve", "with_room"]

AHEAD = 4  # times what is expected, which there is room for: a prolonged run copies none


def with_room(
    held: np.ndarray | None, count: int, end: int, like: np.ndarray, most: float = math.inf
) -> np.ndarray:
    """`held`, or where `end` rows are too many for it an array for more, `most` at most, that begins with its first `count`.

    Memory is the operating system's to give, and it gives what is written to.
    """
    if held is not None and end <= len(held):
        return held
    ahead = max(end, int(min(AHEAD * end, most)))
    try:
        larger = np.empty((ahead, *like.shape[1:]), like.dtype)
    except MemoryError:  # where it gives no more than there is
        larger = np.empty((end, *like.shape[1:]), like.dtype)
    if held is not None:
        larger[:count] = held[:count]
    return larger


def halve(values: np.ndarray, count: int) -> int:
    """Move every second of `count` rows to the front, from the first on; how many those are.

    In pieces that do not overlap, which NumPy would copy.
    """
    left, begin = -(-count // 2), 1
    while begin < left:
        end = min(2 * begin, left)
        values[begin:end] = values[2 * begin : 2 * end - 1 : 2]
        begin = end
    return left


class Positions:
    """Those of all draws until there is no more room, then of every second one, and so on.

    Attributes:
      room: for those of so many draws, at least 2.
      every: draws from one that is held to the next, a power of 2; the first draw is held.
      count: how many are held.
    """

    def __init__(self, room: float) -> None:
        self.room, self.every, self.count = room, 1, 0
        self._values: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of a draw's, None before there is one."""
        return None if self._values is None else self._values.shape[1:]

    def take(self, first: int, z: np.ndarray, expected: int = 0) -> None:
        """Positions [draw, ...] of the draws `first`, `first` + 1, ...; so many are `expected` in all."""
        while (begin := self.count * self.every - first) < len(z):
            if self.count >= self.room:
                self._thin_out()
                continue
            due = z[begin :: self.every]
            self._put(due[: int(min(len(due), self.room - self.count))], expected)

    def put_back(self, numbers: np.ndarray, z: np.ndarray, expected: int = 0) -> None:
        """Those of draws with these numbers that were held, as far as they still are. Raises ValueError for others."""
        left = numbers % self.every == 0
        due = (self.count + np.arange(int(left.sum()))) * self.every
        if len(numbers) != len(z) or not np.array_equal(numbers[left], due):
            raise ValueError(
                f"positions of the draws {numbers.tolist()[:3]}..., not of {due.tolist()[:3]}..."
            )
        self._put(z[left], expected)

    def check(self, draws: int) -> None:
        """Raises ValueError unless those of so many draws are held as `take` would hold them."""
        few = self.every > 1 and self.count < 8  # half of the least room are there
        wrong = self._values is not None and self.count != -(-draws // self.every)
        if wrong or few or self.every & (self.every - 1):
            raise ValueError(f"{self.count} positions of {draws} draws, every {self.every}-th")

    def drop_draws(self) -> None:
        """Every second draw is gone, and those that are left are counted anew."""
        if self.every > 1:
            self.every //= 2
        elif self._values is not None:
            self.count = halve(self._values, self.count)

    def between(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Numbers of the draws from `first` up to `end` whose positions are held, and those."""
        if self._values is None:
            return None
        begin, stop = (min(self.count, -(-draw // self.every)) for draw in (first, end))
        return np.arange(begin, stop) * self.every, self._values[begin:stop]

    def _put(self, z: np.ndarray, expected: int) -> None:
        end = self.count + len(z)
        sure = max(end, int(min(expected, self.room)))
        self._values = with_room(self._values, self.count, sure, z, self.room)
        self._values[self.count : end] = z
        self.count = end

    def _thin_out(self) -> None:
        assert self._values is not None
        self.count, self.every = halve(self._values, self.count), 2 * self.every
