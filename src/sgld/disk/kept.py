"""Shuffled rows in the cache, made where they are not there yet, as a source."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.devices import gib
from ..core.progress import aside, counted
from ..data.on_disk import Files, OnDisk
from ..errors import DataError
from .cache import Cache, key_of, stamp_of
from .columns import from_json
from .convert import DROPPED

__all__ = ["Kept", "bytes_told", "check_unchanged", "kept_rows", "rows_told"]


class Kept(NamedTuple):
    """A folder of shuffled rows.

    Attributes:
      manifest: what `convert` said of it.
      began: when its conversion was begun; None where it stood there.
    """

    folder: Path
    manifest: dict[str, Any]
    began: float | None

    def source(self, treedef: Any) -> OnDisk:
        """The rows as a source, each of this structure."""
        manifest, folder = self.manifest, self.folder
        files = Files(
            tuple(str(folder / f"{i}.npy") for i in range(len(manifest["leaves"]))),
            np.load(folder / "order.npy", mmap_mode="r"),
            np.fromfile(folder / DROPPED, "<i8"),
            manifest["hash"],
            str(manifest["name"]),
            {column["name"]: from_json(column) for column in manifest["columns"]},
        )
        return OnDisk.of(files, treedef)

    def tell(self, found: OnDisk) -> None:
        """What was made or found, on standard error."""
        began = self.began
        took = "used again" if began is None else f"made in {time.monotonic() - began:.1f} s"
        left_out = f", {found.num_dropped:,} left out" if found.num_dropped else ""
        with aside():
            print(
                f"{found.files}: {found.num_data:,} rows{left_out}; shuffled in {self.folder} "
                f"({gib(found.files.size)}, {took})",
                file=sys.stderr,
            )


def kept_rows(
    cache: Cache, decides: dict[str, Any], write: Callable[[Path], dict[str, Any]], *, known: bool = True
) -> Kept:  # fmt: skip
    """The rows that `decides` decides, JSON: those of the cache, or what `write` writes to a folder.

    `known=False`: the rows themselves decide too, so that they are written at every call.
    """
    key = key_of(decides) if known else None
    manifest = None if key is None else cache.found(key, bytes_told)
    began = None
    if manifest is None or key is None:
        began = time.monotonic()
        with cache.scratch() as folder:
            manifest = write(folder)
            key = key or key_of({**decides, "content": manifest["hash"]})
            cache.keep(folder, key, manifest)
        _give_back()
    return Kept(cache.folder / key, manifest, began)


def check_unchanged(stamps: dict[Path, list[int]]) -> None:
    """DataError where a file is not what it was: `stamps` are those of before."""
    for path, before in stamps.items():
        if stamp_of(path) != before:
            raise DataError(
                f"{path} changed while it was read; open it again when nobody writes to it."
            )


def bytes_told(done: int, total: int) -> None:
    """For the line of progress."""
    counted(done, total, "bytes")


def rows_told(done: int, total: int) -> None:
    """For the line of progress."""
    counted(done, total, "rows")


def _give_back() -> None:
    """Memory that Arrow keeps for the next table; there is none."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
