"""Rows from .npy files, and from any object with a length and items by number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..core.files import read_npy_header
from ..core.pytrees import leaf_names
from ..core.validation import unmasked
from ..errors import DataError, UsageError, first_line
from .readers import MAX_HELD_BYTES, ColumnStatistics, Leaf, Piece
from .source import common_length, listed
from .tables import existing
from .validate import Rounding, check_real, converted, held_dtype

ITEMS_AT_ONCE = 256  # items that are read one by one and stacked
PyTree = Any


class _ByRows:
    """Data of which rows [begin, end) can be read, a piece at a time.

    Attributes:
      width: bytes of a row while it is read.
      most: rows that are read at once, within MAX_HELD_BYTES.
    """

    leaves: list[Leaf]
    num_rows: int
    width: int
    most = 2**31

    def __init__(self, name: str) -> None:
        self.name, self.learned = name, list[ColumnStatistics]()

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows."""
        size = max(1, min(self.most, MAX_HELD_BYTES // max(1, self.width)))
        losses = [Rounding(self._called(leaf)) for leaf in self.leaves]
        for begin in range(0, self.num_rows, size):
            parts = self._some(begin, min(begin + size, self.num_rows))
            yield Piece(_converted(self.leaves, parts, begin, losses))
        for loss in losses:
            loss.check()

    def _called(self, leaf: Leaf) -> str:
        """Return the name of a leaf in messages."""
        return f"{leaf.name!r} of {self.name}"

    def _some(self, begin: int, end: int) -> list[np.ndarray]:
        """Return rows [begin, end) of every leaf; each subclass reads its own kind of data."""
        raise NotImplementedError


class Arrays(_ByRows):
    """.npy files as the leaves of a datum: one file, or a pytree of them."""

    def __init__(self, paths: PyTree) -> None:
        found, self.treedef = jax.tree.flatten(paths)
        self.paths = [existing(path) for path in found]
        self.files = [_Npy(path) for path in self.paths]
        super().__init__(", ".join(str(path) for path in self.paths))
        self.width = sum(file.width for file in self.files)
        self.leaves = [
            Leaf(str(file.path), _precise(file.dtype, file.path), file.shape[1:])
            for file in self.files
        ]
        self.num_rows = common_length("the files", {str(f.path): len(f) for f in self.files})
        if not self.num_rows:
            raise DataError(f"{self.name} has 0 rows; at least one is needed.")

    def _called(self, leaf: Leaf) -> str:
        return leaf.name  # the path

    def _some(self, begin: int, end: int) -> list[np.ndarray]:
        return [file.rows(begin, end) for file in self.files]


def _converted(
    leaves: Sequence[Leaf], parts: Sequence[np.ndarray], begin: int, losses: Sequence[Rounding]
) -> list[np.ndarray]:
    """Convert rows, the first of which has number `begin`, and add the rounding loss to `losses`."""
    found = []
    for leaf, part, loss in zip(leaves, parts, losses, strict=True):
        kept = converted(leaf.name, part, begin).astype(leaf.dtype, copy=False)
        loss.add(part, kept)
        found.append(kept)
    return found


class _Npy:
    """A .npy file that is read by rows.

    It is read, not memory-mapped: the process is killed if a mapped file is truncated.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self.shape, self.by_column, self.dtype = read_npy_header(file)
                self.offset = file.tell()
        except (OSError, ValueError, KeyError) as error:
            raise DataError(
                f"{path} cannot be read as .npy ({first_line(error)}); write it again with numpy.save."
            ) from error
        if not self.shape:
            raise DataError(f"{path} is a single number; its array needs a leading axis of rows.")
        _precise(self.dtype, path)
        wanted = self.offset + len(self) * self.width
        if path.stat().st_size < wanted:
            raise DataError(
                f"{path} is truncated: it has {path.stat().st_size:,} bytes of {wanted:,}; copy it again."
            )

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def width(self) -> int:
        """The number of bytes of a row."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    def rows(self, begin: int, end: int) -> np.ndarray:
        """Return rows [begin, end)."""
        if self.by_column and len(self.shape) > 1:
            mapped = np.memmap(
                self.path, self.dtype, "r", self.offset, tuple(self.shape), order="F"
            )
            return np.ascontiguousarray(mapped[begin:end])
        found = np.fromfile(
            self.path, self.dtype, (end - begin) * math.prod(self.shape[1:]),
            offset=self.offset + begin * self.width,
        )  # fmt: skip
        if found.nbytes < (end - begin) * self.width:
            raise DataError(f"{self.path} was cut short while it was read; open it again.")
        return found.reshape(end - begin, *self.shape[1:])


def _precise(dtype: np.dtype, path: Path) -> np.dtype:
    """Return the dtype that JAX will use for numbers of this dtype."""
    check_real(str(path), dtype)
    return held_dtype(dtype)


class Items(_ByRows):
    """Rows from an object with `len(items)` and `items[i]`.

    Examples are a data set of PyTorch or grain, a list, and an array of h5py or zarr.
    """

    def __init__(self, items: Any) -> None:
        super().__init__(f"a {type(items).__name__}")
        self.items = items
        self.num_rows = len(items)
        if self.num_rows < 1:
            raise DataError(f"{self.name} has 0 rows; at least one is needed.")
        self._sliced = all(hasattr(items, name) for name in ("shape", "dtype"))
        self.most = self.most if self._sliced else ITEMS_AT_ONCE
        first = self._item(0)
        flat, self.treedef = jax.tree.flatten(first)
        if not flat:
            raise UsageError(
                f"item 0 of {self.name} is {first!r}; items must be pytrees of numbers."
            )
        names = leaf_names(first)
        arrays = [converted(f"{name} of item 0", np.asarray(unmasked(f"{name!r} of item 0", x))[None]) for name, x in zip(names, flat, strict=True)]  # fmt: skip
        self.leaves = [Leaf(name, a.dtype, a.shape[1:]) for name, a in zip(names, arrays, strict=True)]  # fmt: skip
        self.width = sum(leaf.width for leaf in self.leaves)

    def _item(self, i: int) -> PyTree:
        try:
            return self.items[i]
        except Exception as error:
            raise DataError(
                f"item {i} of {self.name} cannot be read: {type(error).__name__} ({first_line(error)})."
            ) from error

    def _some(self, begin: int, end: int) -> list[np.ndarray]:
        if self._sliced:
            return [
                np.asarray(unmasked(f"rows {begin} to {end} of {self.name}", self.items[begin:end]))
            ]
        rows = [self._leaves(i) for i in range(begin, end)]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    def _leaves(self, i: int) -> list[np.ndarray]:
        """Return the leaves of one item; raise DataError if their form differs from item 0."""
        item = self._item(i)
        flat, treedef = jax.tree.flatten(item)
        if treedef != self.treedef:
            raise DataError(
                f"item {i} of {self.name} has the leaves {listed(leaf_names(item))}, and item 0 has "
                f"{listed([leaf.name for leaf in self.leaves])}; all items must have the same leaves."
            )
        arrays = [
            np.asarray(unmasked(f"{leaf.name!r} of item {i} of {self.name}", x))
            for leaf, x in zip(self.leaves, flat, strict=True)
        ]
        for leaf, array in zip(self.leaves, arrays, strict=True):
            if array.shape != leaf.shape:
                raise DataError(
                    f"{leaf.name!r} of item {i} of {self.name} has shape {array.shape}, and {leaf.shape} in item 0; "
                    "all items must have the same shape."
                )
        return arrays
