"""What the conversion asks of data: leaves, and their rows in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from .columns import Leaf, Learned

__all__ = ["Piece", "Reader"]


class Piece(NamedTuple):
    """Some rows in the order of the data: an array [m, ...] of every leaf, and which rows to leave out."""

    leaves: list[np.ndarray]
    missing: np.ndarray | None = None  # [m], of a cell that is empty


@runtime_checkable
class Reader(Protocol):
    """Data that can be read from begin to end, once or more often.

    Attributes:
      name: what sentences call the data.
      leaves: in the order of `treedef`, with the types that JAX will use.
      learned: of the columns of a table, while it is read.
      num_rows: 0 where they are known at the end only.
    """

    name: str
    treedef: Any
    leaves: list[Leaf]
    learned: list[Learned]
    num_rows: int

    def pieces(self) -> Iterator[Piece]:
        """All rows, in pieces of bounded memory. Raises DataError for what cannot be read."""
        ...
