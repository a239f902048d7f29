"""The external shuffle: rows come in pieces in the order of a file, and go in the order of their keys.

    in     each piece is sorted by key and written to the end of one scratch file, with the places at
           which the first bits of the keys change
    out    the parts of all pieces whose keys begin with the same bits are read, and sorted

so that memory holds one piece, or one range of keys, and every row is written once and read once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
from jaxtyping import Int, UInt8

from ..data.shuffle import keys
from ..errors import DataError

__all__ = ["HELD", "Spill"]

HELD = 2**26  # bytes of rows that are held at once
BITS = 12  # of a key: so many ranges can be told apart


class Spill:
    """Records of one size, [m, width] bytes, and the numbers of their rows, from `first` on; `with` removes the file."""

    def __init__(self, path: Path, width: int, seed: int, first: int = 0) -> None:
        self.path, self.width, self.seed, self.first = path, width, seed, first
        self.count = 0
        self._starts: list[int] = []  # of the pieces, in records
        self._edges: list[np.ndarray] = []  # in each piece, where a range of keys begins
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Spill:
        self._file = open(self.path, "x+b")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:  # fmt: skip
        assert self._file is not None
        self._file.close()
        self.path.unlink(missing_ok=True)

    def add(
        self, records: UInt8[np.ndarray, "m width"], called: Int[np.ndarray, " m"] | None = None
    ) -> None:
        """The next rows: they are numbered on, or `called` so."""
        assert self._file is not None
        if called is None:
            called = self.first + np.arange(self.count, self.count + len(records))
        own = keys(called, self.seed)
        order = np.argsort(own)
        first = np.arange(2**BITS + 1, dtype=np.float64) * 2.0 ** (64 - BITS)
        edges = np.searchsorted(own[order], first[:-1].astype(np.uint64))
        self._starts.append(self.count)
        self._edges.append(np.append(edges, len(records)).astype(np.int32))
        numbers = called[order].astype("<i8")
        laid = np.empty((len(records), 8 + self.width), np.uint8)
        laid[:, :8] = numbers[:, None].view(np.uint8)
        laid[:, 8:] = records[order]
        self._file.write(laid.data)
        self.count += len(records)

    def in_order(self) -> Iterator[tuple[Int[np.ndarray, " m"], UInt8[np.ndarray, "m width"]]]:
        """All rows in the order of their keys, some at a time: their numbers, and their records."""
        assert self._file is not None
        self._file.flush()
        edges = np.asarray(self._edges, np.int64).reshape(-1, 2**BITS + 1)
        whole = edges.sum(0)  # rows whose keys come before a range
        most = max(1, HELD // (8 + self.width))
        begin = 0
        while begin < 2**BITS:
            end = int(np.searchsorted(whole, whole[begin] + most, side="right")) - 1
            end = min(2**BITS, max(begin + 1, end))
            if whole[end] > whole[begin]:
                yield self._range(edges[:, begin], edges[:, end])
            begin = end

    def _range(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the pieces from `begin` up to `end`, sorted by key."""
        assert self._file is not None
        width = 8 + self.width
        laid = np.empty((int((end - begin).sum()), width), np.uint8)
        at = 0
        for start, a, b in zip(self._starts, begin.tolist(), end.tolist(), strict=True):
            part = laid[at : at + b - a].reshape(-1).data
            if os.preadv(self._file.fileno(), [part], (start + a) * width) != (b - a) * width:
                raise DataError(f"{self.path} was cut short while it was read; try again.")
            at += b - a
        numbers = np.ascontiguousarray(laid[:, :8]).view("<i8").reshape(-1)
        order = np.argsort(keys(numbers, self.seed))
        return numbers[order], laid[order, 8:]
