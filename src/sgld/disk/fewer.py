"""Rows dropped from a table whose rows lie shuffled in the cache: the others are numbered anew and shuffled again.

The files are those that the table without these rows would give, bit for bit, and no cell of it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from ..data.names import listed
from ..errors import DataError, UsageError
from .cache import Writer
from .convert import DROPPED, digest_of, no_room, written
from .kept import Kept
from .reader import Reader
from .spill import HELD, Spill

__all__ = ["check_drop", "fewer", "renumbered_drop"]

Told = Callable[[int, int], Any]


def check_drop(rows: Int[np.ndarray, " m"], num_rows: int) -> None:
    """UsageError for numbers that are no rows, or are there twice, and where none would be left."""
    outside = rows[(rows < 0) | (rows >= num_rows)]
    if outside.size:
        raise UsageError(f"drop must hold rows from 0 to {num_rows - 1}. Got {outside[0]}.")
    if len(np.unique(rows)) != len(rows):
        raise UsageError("drop must name no row twice.")
    if len(rows) == num_rows:
        raise UsageError("drop must leave at least one row.")


def renumbered_drop(
    before: Int[np.ndarray, " k"], rows: Int[np.ndarray, " m"]
) -> Int[np.ndarray, " n"]:
    """All that is gone, where of a table without `before` (sorted) these rows are dropped too."""
    return np.union1d(before, _above(before, np.sort(rows)))


def fewer(
    before: Kept, rows: Int[np.ndarray, " m"], reader: Reader, folder: Path, seed: int, told: Told
) -> dict[str, Any]:
    """Write the rows of `before` but for `rows`, the user's numbers, sorted, to `folder`; what is there, in JSON.

    `reader` has the same leaves. Raises DataError as `convert`, and where no row is left.
    """
    old, width = before.manifest, sum(leaf.width for leaf in reader.leaves)
    left_out = np.fromfile(before.folder / DROPPED, "<i8")
    still = left_out[~np.isin(left_out, rows)]
    # the same rows by the numbers of the files, which do not count those that were left out
    gone = np.setdiff1d(rows, left_out)
    gone = gone - np.searchsorted(left_out, gone)
    if len(gone) == old["num_data"]:
        raise DataError(f"no row of {listed([str(old['name'])])} is left; drop fewer.")
    with no_room(folder, reader, width), Spill(folder / "spill", width, seed) as spill:
        _respill(before, gone, reader, spill, told)
        blocks = written(reader, folder, spill, told)
        with Writer(folder / DROPPED) as dropped:
            dropped.write((still - np.searchsorted(rows, still)).astype("<i8"))
            blocks[DROPPED] = dropped.close()
    return {
        **old,
        "num_data": spill.count,
        "num_read": old["num_read"] - len(rows),
        "num_dropped": len(still),
        "blocks": blocks,
        "hash": digest_of(blocks),
    }


def _respill(
    before: Kept, gone: Int[np.ndarray, " m"], reader: Reader, spill: Spill, told: Told
) -> None:
    """The rows that stay, under their new numbers."""
    order = np.load(before.folder / "order.npy", mmap_mode="r")
    files = [np.load(before.folder / f"{i}.npy", mmap_mode="r") for i in range(len(reader.leaves))]
    size = max(1, HELD // (8 + spill.width))
    for at in range(0, len(order), size):
        numbers = np.array(order[at : at + size], np.int64)
        stay = ~np.isin(numbers, gone)
        parts = [
            np.ascontiguousarray(file[at : at + len(numbers)]).reshape(len(numbers), -1).view(np.uint8)
            for file in files
        ]  # fmt: skip
        if stay.any():
            numbers = numbers[stay]
            spill.add(np.concatenate(parts, axis=1)[stay], numbers - np.searchsorted(gone, numbers))
        told(at + len(stay), len(order))


def _above(gone: Int[np.ndarray, " k"], rows: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
    """The numbers of rows before `gone` went, of those that they have now."""
    return rows + np.searchsorted(gone - np.arange(len(gone)), rows, side="right")
