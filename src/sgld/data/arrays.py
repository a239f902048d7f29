"""Rows from .npy files, and from any object with a length and items by number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..core.pytrees import leaf_names
from ..core.validation import unmasked
from ..errors import DataError, UsageError, first_line
from .readers import MAX_HELD_BYTES, ColumnStatistics, Leaf, Piece
from .source import listed
from .tables import existing
from .validate import Rounding, converted, held_dtype

ITEMS_AT_ONCE = 256  # items that are read one by one and stacked
PyTree = Any


class Arrays:
    """.npy files as the leaves of a datum: one file, or a pytree of them."""

    def __init__(self, paths: PyTree) -> None:
        found, self.treedef = jax.tree.flatten(paths)
        self.paths = [existing(path) for path in found]
        self.files = [_Npy(path) for path in self.paths]
        self.learned: list[ColumnStatistics] = []
        self.name = ", ".join(str(path) for path in self.paths)
        self.leaves = [
            Leaf(str(file.path), _precise(file.dtype, file.path), file.shape[1:])
            for file in self.files
        ]
        lengths = {len(file) for file in self.files}
        if len(lengths) > 1:
            listed = ", ".join(f"{file.path} has {len(file)}" for file in self.files)
            raise DataError(f"the files differ in their number of rows: {listed}; they must agree.")
        self.num_rows = lengths.pop()
        if not self.num_rows:
            raise DataError(f"{self.name} has 0 rows; at least one is needed.")

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows."""
        width = sum(file.width for file in self.files)
        most = max(1, MAX_HELD_BYTES // max(1, width))
        losses = [Rounding(leaf.name) for leaf in self.leaves]  # the paths
        for begin in range(0, self.num_rows, most):
            end = min(begin + most, self.num_rows)
            parts = [file.rows(begin, end) for file in self.files]
            yield Piece(_converted(self.leaves, parts, begin, losses))
        for loss in losses:
            loss.check()


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
                version = np.lib.format.read_magic(file)
                read = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }[version]
                self.shape, self.by_column, self.dtype = read(file)
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
        content = bytearray((end - begin) * self.width)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + begin * self.width)
            at, view = 0, memoryview(content)
            while at < len(content):
                got = file.readinto(view[at:])
                if not got:
                    raise DataError(f"{self.path} was cut short while it was read; open it again.")
                at += got
        return np.frombuffer(content, self.dtype).reshape(end - begin, *self.shape[1:])


def _precise(dtype: np.dtype, path: Path) -> np.dtype:
    """Return the dtype that JAX will use for numbers of this dtype."""
    if dtype.hasobject or dtype.names is not None or dtype.kind not in "biuf":
        raise DataError(f"{path} has dtype {dtype}; encode it as real numbers first.")
    return held_dtype(dtype)


class Items:
    """Rows from an object with `len(items)` and `items[i]`.

    Examples are a data set of PyTorch or grain, a list, and an array of h5py or zarr.
    """

    def __init__(self, items: Any) -> None:
        self.items, self.name = items, f"a {type(items).__name__}"
        self.learned: list[ColumnStatistics] = []
        self.num_rows = len(items)
        if self.num_rows < 1:
            raise DataError(f"{self.name} has 0 rows; at least one is needed.")
        self._sliced = all(hasattr(items, name) for name in ("shape", "dtype"))
        first = self._item(0)
        flat, self.treedef = jax.tree.flatten(first)
        if not flat:
            raise UsageError(
                f"item 0 of {self.name} is {first!r}; items must be pytrees of numbers."
            )
        names = leaf_names(first)
        arrays = [converted(f"{name} of item 0", np.asarray(unmasked(f"{name!r} of item 0", x))[None]) for name, x in zip(names, flat, strict=True)]  # fmt: skip
        self.leaves = [Leaf(name, a.dtype, a.shape[1:]) for name, a in zip(names, arrays, strict=True)]  # fmt: skip

    def pieces(self) -> Iterator[Piece]:
        """Yield all items."""
        width = sum(leaf.width for leaf in self.leaves)
        most = max(1, MAX_HELD_BYTES // max(1, width))
        most = most if self._sliced else min(most, ITEMS_AT_ONCE)
        losses = [Rounding(f"{leaf.name!r} of {self.name}") for leaf in self.leaves]
        for begin in range(0, self.num_rows, most):
            parts = self._some(begin, min(begin + most, self.num_rows))
            yield Piece(_converted(self.leaves, parts, begin, losses))
        for loss in losses:
            loss.check()

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
