"""Conversion of data to a cache of shuffled rows, and updates of that cache.

A conversion reads the data once and a temporary file once.

If rows are dropped, the remaining rows are renumbered and shuffled again. The files equal, bit for bit,
those of the table without these rows, and the table is not read.

If rows are appended, they are merged into the cache by their keys. The order is that of the keys of row
numbers, and new rows continue the numbering. Existing rows therefore keep their order and new rows come
between them. The files equal, bit for bit, those of the whole table. The existing files are read once,
copied and hashed, and the old table is not read.
"""

from __future__ import annotations

import errno
import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from ..core.devices import gib
from ..core.progress import aside, report_count
from ..errors import DataError, UsageError
from .cache import Cache, Writer, key_of, stamp_of
from .mapped import Files, OnDisk
from .memory import keys
from .readers import MAX_HELD_BYTES, Leaf, Piece, Reader, Spill, as_json, from_json
from .source import listed

DROPPED_ROWS_FILE = "dropped.i8"
MAX_INT32_ROWS = 2**31 - 2  # rows that int32 can number, with one spare row

Tick = Callable[[int, int], Any]
Rows = Iterator[tuple[np.ndarray, Iterable[np.ndarray]]]  # numbers, and the bytes of every leaf


def convert(reader: Reader, folder: Path, seed: int, missing: str, tick: Tick) -> dict[str, Any]:
    """Write the rows of `reader`, shuffled by `seed`, to `folder`, and return the JSON manifest.

    Raises DataError if data cannot be read, and if the disk is full.
    """
    with conversion(folder, reader, seed) as (spill, dropped):
        num_read = _add_pieces(reader, spill, dropped, missing, 0, tick)
        _check_count(reader, spill.count, num_read)
        blocks = _write(reader, folder, spill.count, _spilled(reader, spill), dropped, tick)
    leaves = [
        {"name": leaf.name, "dtype": leaf.dtype.str, "shape": list(leaf.shape)}
        for leaf in reader.leaves
    ]
    columns = [as_json(learned.column()) for learned in reader.learned]
    found = {"name": reader.name, "leaves": leaves, "columns": columns}
    return _manifest(found, blocks, spill.count, num_read, num_read - spill.count)


def _manifest(
    found: dict[str, Any], blocks: dict[str, list[str]], num_data: int, num_read: int, num_dropped: int
) -> dict[str, Any]:  # fmt: skip
    """Return the manifest `found` for these files; their hash is computed from those of blocks."""
    counts = {"num_data": num_data, "num_read": num_read, "num_dropped": num_dropped}
    digest = hashlib.sha256(str(sorted(blocks.items())).encode()).hexdigest()
    return {**found, **counts, "blocks": blocks, "hash": digest}


@contextmanager
def conversion(
    folder: Path, reader: Reader, seed: int, first: int = 0
) -> Iterator[tuple[Spill, Writer]]:
    """Provide the temporary file of rows and the file of dropped rows; name the disk in errors."""
    width = sum(leaf.width for leaf in reader.leaves)
    try:
        with (
            Spill(folder / "spill", width, seed, first=first) as spill,
            Writer(folder / DROPPED_ROWS_FILE) as dropped,
        ):
            yield spill, dropped
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"{folder.parent} cannot be written to, or {reader.name} read: {error.strerror or error}."
            ) from error
        needs = f" ({gib(2 * width * reader.num_rows)} for these)" if reader.num_rows else ""
        raise DataError(
            f"the disk of {folder.parent} is full: the shuffled rows need twice their size while they are "
            f"written{needs}; free some space, or give a folder on another disk with cache=."
        ) from error


def _add_pieces(
    reader: Reader, spill: Spill, dropped: Writer, missing: str, first: int, tick: Tick
) -> int:
    """Add the rows to `spill`, the numbers of incomplete ones, from `first` on, to `dropped`."""
    num_read = 0
    for piece in reader.pieces():
        count, out = len(piece.leaves[0]), incomplete_rows(piece, reader, num_read, missing)
        if out is not None:
            piece = Piece([leaf[~out] for leaf in piece.leaves])
            dropped.write((first + num_read + np.flatnonzero(out)).astype("<i8").data)
        num_read += count
        if len(piece.leaves[0]):
            spill.add(records(piece, reader.leaves))
        tick(num_read, max(reader.num_rows, num_read))
    if not num_read:
        raise DataError(f"{reader.name} has no row; at least one is needed.")
    return num_read


def incomplete_rows(piece: Piece, reader: Reader, first: int, missing: str) -> np.ndarray | None:
    """Return the mask of rows with an empty cell, or None; raise DataError if missing="error"."""
    if piece.missing is None or not piece.missing.any():
        return None
    if missing == "error":
        row = first + int(np.argmax(piece.missing)) + 1
        raise DataError(
            f"{reader.name} has an empty cell (or NaN) in data row {row}; fill it in, or drop such rows with "
            "missing='drop'."
        )
    return piece.missing


def _check_count(reader: Reader, count: int, num_read: int) -> None:
    if reader.num_rows and num_read != reader.num_rows:
        raise DataError(
            f"{num_read:,} of the {reader.num_rows:,} rows of {reader.name} were read; open it again."
        )
    if not count:
        raise DataError(
            f"every one of the {num_read:,} rows of {reader.name} has an empty cell in a column that is read."
        )
    if count > MAX_INT32_ROWS:
        raise DataError(
            f"{reader.name} has {count:,} rows, and at most {MAX_INT32_ROWS:,} are supported; use a part of them."
        )


def records(piece: Piece, leaves: list[Leaf]) -> np.ndarray:
    """Return the rows as bytes [m, width]."""
    count = len(piece.leaves[0])
    parts = [
        np.ascontiguousarray(array, leaf.dtype).reshape(count, -1).view(np.uint8)
        for array, leaf in zip(piece.leaves, leaves, strict=True)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _write(
    reader: Reader, folder: Path, count: int, rows: Rows, dropped: Writer, tick: Tick
) -> dict[str, list[str]]:
    """Write `count` rows in shuffled order, and return the hashes of the blocks by file."""
    names = [f"{i}.npy" for i in range(len(reader.leaves))]
    with ExitStack() as held:
        writers = [held.enter_context(Writer(folder / name)) for name in names]
        order = held.enter_context(Writer(folder / "order.npy"))
        for writer, leaf in zip(writers, reader.leaves, strict=True):
            begin_array(writer, leaf.dtype, (count + 1, *leaf.shape))
        begin_array(order, np.dtype("<i4"), (count,))
        spare: list[bytes] = []
        done = 0
        for numbers, parts in rows:
            order.write(numbers.astype("<i4").data)
            for writer, part in zip(writers, parts, strict=True):
                writer.write(part.reshape(-1).data)
                if not done:
                    spare.append(part[:1].tobytes())
            done += len(numbers)
            tick(done, count)
        for writer, row in zip(writers, spare, strict=True):
            writer.write(row)  # a spare row, so that a short last block can be sliced at full size
        found = {name: writer.close() for name, writer in zip(names, writers, strict=True)}
        return {**found, "order.npy": order.close(), DROPPED_ROWS_FILE: dropped.close()}


def _spilled(reader: Reader, spill: Spill) -> Rows:
    """Yield the rows of a new table in the order of keys, one leaf in memory at a time."""
    codes = {one.name: one.sorted_codes() for one in reader.learned}
    ends = np.cumsum([leaf.width for leaf in reader.leaves])

    def bytes_of(leaf: Leaf, end: int, records: np.ndarray) -> np.ndarray:
        content = np.ascontiguousarray(records[:, end - leaf.width : end])
        code = codes.get(leaf.columns[0]) if leaf.columns else None
        if code is not None:  # a text column, which is always its own leaf
            content = code[content.view(leaf.dtype)].view(np.uint8)
        return content

    for numbers, records in spill.in_order():
        leaves = zip(reader.leaves, ends, strict=True)
        yield numbers, (bytes_of(leaf, end, records) for leaf, end in leaves)


def _stored(before: CachedRows, leaves: int, size: int) -> Iterator[tuple[Any, list[np.ndarray]]]:
    """Yield the numbers and the bytes of every leaf of cached rows, `size` rows at a time."""
    order = np.load(before.folder / "order.npy", mmap_mode="r")
    files = [np.load(before.folder / f"{i}.npy", mmap_mode="r") for i in range(leaves)]
    for at in range(0, len(order), size):
        numbers = np.array(order[at : at + size], np.int64)
        parts = (np.ascontiguousarray(file[at : at + len(numbers)]) for file in files)
        yield numbers, [part.reshape(len(numbers), -1).view(np.uint8) for part in parts]


def begin_array(writer: Writer, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Write the header of a .npy file."""
    head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(writer, head)


# -- kept ----------------------------------------------------------------------------------


class CachedRows(NamedTuple):
    """A folder of shuffled rows.

    Attributes:
      manifest: the manifest that `convert` returned.
      began: the start time of its conversion; None if the folder existed.
    """

    folder: Path
    manifest: dict[str, Any]
    began: float | None

    def source(self, treedef: Any) -> OnDisk:
        """Return the rows as a source whose rows have this structure."""
        manifest, folder = self.manifest, self.folder
        files = Files(
            tuple(str(folder / f"{i}.npy") for i in range(len(manifest["leaves"]))),
            np.load(folder / "order.npy", mmap_mode="r"),
            np.fromfile(folder / DROPPED_ROWS_FILE, "<i8"),
            manifest["hash"],
            str(manifest["name"]),
            {column["name"]: from_json(column) for column in manifest["columns"]},
        )
        return OnDisk.of(files, treedef)

    def tell(self, found: OnDisk) -> None:
        """Print what was created or found on standard error."""
        began = self.began
        took = "used again" if began is None else f"made in {time.monotonic() - began:.1f} s"
        left_out = f", {found.num_dropped:,} left out" if found.num_dropped else ""
        with aside():
            print(
                f"{found.files}: {found.num_data:,} rows{left_out}; shuffled in {self.folder} "
                f"({gib(found.files.size)}, {took})",
                file=sys.stderr,
            )


def cached_rows(
    cache: Cache, decides: dict[str, Any], write: Callable[[Path], dict[str, Any]], *, known: bool = True
) -> CachedRows:  # fmt: skip
    """Return the rows that the JSON object `decides` determines, from the cache or from `write`.

    `write` writes them to a folder. With `known=False` the rows themselves are part of the key, so that they
    are written at every call.
    """
    key = key_of(decides) if known else None
    manifest = None if key is None else cache.found(key, report_bytes)
    began = None
    if manifest is None or key is None:
        began = time.monotonic()
        with cache.scratch() as folder:
            manifest = write(folder)
            key = key or key_of({**decides, "content": manifest["hash"]})
            cache.keep(folder, key, manifest)
        _release_arrow_memory()
    return CachedRows(cache.folder / key, manifest, began)


def check_unchanged(stamps: dict[Path, list[int]]) -> None:
    """Raise DataError if a file has changed since `stamps` was taken."""
    for path, before in stamps.items():
        if stamp_of(path) != before:
            raise DataError(
                f"{path} changed while it was read; open it again when no program writes to it."
            )


def report_bytes(done: int, total: int) -> None:
    """Report progress in bytes."""
    report_count(done, total, "bytes")


def report_rows(done: int, total: int) -> None:
    """Report progress in rows."""
    report_count(done, total, "rows")


def _release_arrow_memory() -> None:
    """Release the memory that Arrow keeps for later tables."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()


# -- fewer ---------------------------------------------------------------------------------


def check_drop(rows: Int[np.ndarray, " m"], num_rows: int) -> None:
    """Raise UsageError for rows that do not exist or are repeated, and if no row would be left."""
    outside = rows[(rows < 0) | (rows >= num_rows)]
    if outside.size:
        raise UsageError(f"drop must hold rows from 0 to {num_rows - 1}. Got {outside[0]}.")
    if len(np.unique(rows)) != len(rows):
        raise UsageError("drop must not repeat a row.")
    if len(rows) == num_rows:
        raise UsageError("drop must leave at least one row.")


def renumbered_drop(
    before: Int[np.ndarray, " k"], rows: Int[np.ndarray, " m"]
) -> Int[np.ndarray, " n"]:
    """Return all dropped rows after `rows` of the table without `before` (sorted) are dropped too."""
    return np.union1d(before, _earlier(before, np.sort(rows)))


def drop_rows(
    before: CachedRows,
    rows: Int[np.ndarray, " m"],
    reader: Reader,
    folder: Path,
    seed: int,
    tick: Tick,
) -> dict[str, Any]:
    """Write the rows of `before` without `rows`, sorted user numbers; return the JSON manifest.

    `reader` has the same leaves. Raises DataError as `convert` does, and if no row is left.
    """
    old = before.manifest
    left_out = np.fromfile(before.folder / DROPPED_ROWS_FILE, "<i8")
    still = left_out[~np.isin(left_out, rows)]
    # renumbered as in the files, which do not count rows that were left out
    gone = np.setdiff1d(rows, left_out)
    gone = gone - np.searchsorted(left_out, gone)
    if len(gone) == old["num_data"]:
        raise DataError(f"no row of {listed([str(old['name'])])} is left; drop fewer.")
    with conversion(folder, reader, seed) as (spill, dropped):
        _spill_remaining(before, gone, spill, tick)
        dropped.write((still - np.searchsorted(rows, still)).astype("<i8"))
        blocks = _write(reader, folder, spill.count, _spilled(reader, spill), dropped, tick)
    return _manifest(old, blocks, spill.count, old["num_read"] - len(rows), len(still))


def _spill_remaining(
    before: CachedRows, gone: Int[np.ndarray, " m"], spill: Spill, tick: Tick
) -> None:
    """Add the remaining rows to `spill` under their new numbers."""
    done, size = 0, max(1, MAX_HELD_BYTES // (8 + spill.width))
    for numbers, parts in _stored(before, len(before.manifest["leaves"]), size):
        stay = ~np.isin(numbers, gone)
        if stay.any():
            numbers = numbers[stay]
            spill.add(np.concatenate(parts, axis=1)[stay], numbers - np.searchsorted(gone, numbers))
        done += len(stay)
        tick(done, before.manifest["num_data"])


def _earlier(gone: Int[np.ndarray, " k"], rows: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
    """Return the row numbers before `gone` was dropped, given the current ones."""
    return rows + np.searchsorted(gone - np.arange(len(gone)), rows, side="right")


# -- merged --------------------------------------------------------------------------------


# bytes of rows merged at once: few, so that they stay in the processor's cache
MAX_MERGED_BYTES = 2**22


def merge(
    before: CachedRows, reader: Reader, folder: Path, seed: int, tick: Tick
) -> dict[str, Any]:
    """Write the rows of `before` and then those of `reader` to `folder`; return the JSON manifest.

    Both have the same leaves, and none of them is a text. Raises DataError as `convert` does.
    """
    old = before.manifest
    with conversion(folder, reader, seed, first=old["num_data"]) as (spill, dropped):
        dropped.write(np.fromfile(before.folder / DROPPED_ROWS_FILE, "<i8"))
        num_read = _add_pieces(reader, spill, dropped, "drop", old["num_read"], tick)
        count = old["num_data"] + spill.count
        if count > MAX_INT32_ROWS:
            raise DataError(
                f"the table would have {count:,} rows, and at most {MAX_INT32_ROWS:,} are supported."
            )
        blocks = _write(reader, folder, count, _merged(before, reader, spill), dropped, tick)
    gone = old["num_dropped"] + num_read - spill.count
    found = {**old, "name": reader.name}
    return _manifest(found, blocks, count, old["num_read"] + num_read, gone)


def _merged(before: CachedRows, reader: Reader, spill: Spill) -> Rows:
    """Yield the cached rows and the new ones in the order of keys."""
    widths = [leaf.width for leaf in reader.leaves]
    size, done = max(1, MAX_MERGED_BYTES // (8 + sum(widths))), 0
    coming = _NewRows(spill, widths)
    for numbers, pieces in _stored(before, len(widths), size):
        own = keys(numbers, spill.seed)
        done += len(numbers)
        keyed, more, parts = coming.until(None if done == before.manifest["num_data"] else own[-1])
        places = np.searchsorted(own, keyed)
        yield (
            np.insert(numbers, places, more),
            (_inserted(p, places, new) for p, new in zip(pieces, parts, strict=True)),
        )


def _inserted(
    rows: UInt8[np.ndarray, "m w"], places: Int[np.ndarray, " k"], new: UInt8[np.ndarray, "k w"]
) -> UInt8[np.ndarray, "n w"]:
    """Insert rows like np.insert, as items of w bytes: a quarter of the time of single bytes."""
    width = rows.shape[1]
    one = np.dtype((np.void, width))
    before, coming = (np.ascontiguousarray(part).view(one).reshape(-1) for part in (rows, new))
    return np.insert(before, places, coming).view(np.uint8).reshape(-1, width)


class _NewRows:
    """The new rows in the order of their keys, taken as far as they are needed."""

    def __init__(self, spill: Spill, widths: list[int]) -> None:
        self._more = spill.in_order() if spill.count else iter(())
        self._seed, self._ends = spill.seed, np.cumsum(widths)[:-1]
        self._numbers = np.zeros(0, np.int64)
        self._records = np.zeros((0, sum(widths)), np.uint8)

    def until(self, key: np.uint64 | None) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Return keys, numbers and leaves of the rows up to this key, or of all remaining rows."""
        while key is None or not len(self._numbers) or keys(self._numbers[-1:], self._seed)[0] <= key:  # fmt: skip
            found = next(self._more, None)
            if found is None:
                break
            self._numbers = np.concatenate([self._numbers, found[0]])
            self._records = np.concatenate([self._records, found[1]])
        own = keys(self._numbers, self._seed)
        count = len(own) if key is None else int(np.searchsorted(own, key))
        taken = self._numbers[:count], self._records[:count]
        self._numbers, self._records = self._numbers[count:], self._records[count:]
        return own[:count], taken[0], np.split(taken[1], self._ends, axis=1)
