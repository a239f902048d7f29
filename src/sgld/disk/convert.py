"""From data as they lie to shuffled rows in a folder of their own: one pass over them, one over a scratch file."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..core.devices import gib
from ..errors import DataError
from .cache import Writer
from .columns import Leaf, as_json
from .reader import Piece, Reader
from .spill import Spill

__all__ = [
    "DROPPED", "MOST_ROWS", "begin_array", "convert", "digest_of", "left_out", "no_room", "records", "written",
]  # fmt: skip

DROPPED = "dropped.i8"
MOST_ROWS = 2**31 - 2  # that int32 can number, with a spare one

Told = Callable[[int, int], Any]


def convert(reader: Reader, folder: Path, seed: int, missing: str, told: Told) -> dict[str, Any]:
    """Write the rows of `reader`, shuffled by `seed`, to `folder`, and say what is there, in JSON.

    Raises DataError for data that cannot be had, and for a disk that is full.
    """
    width = sum(leaf.width for leaf in reader.leaves)
    num_read, num_dropped = 0, 0
    with (
        no_room(folder, reader, width),
        Spill(folder / "spill", width, seed) as spill,
        Writer(folder / DROPPED) as dropped,
    ):
        for piece in reader.pieces():
            out = left_out(piece, reader, num_read, missing)
            if out is not None:
                piece = Piece([leaf[~out] for leaf in piece.leaves])
                gone = num_read + np.flatnonzero(out)
                dropped.write(gone.astype("<i8").data)
                num_dropped += len(gone)
            num_read += len(piece.leaves[0]) + (0 if out is None else int(out.sum()))
            if len(piece.leaves[0]):
                spill.add(records(piece, reader.leaves))
            told(num_read, max(reader.num_rows, num_read))
        _check_count(reader, spill.count, num_read)
        blocks = written(reader, folder, spill, told)
        blocks[DROPPED] = dropped.close()
    return {
        "name": reader.name,
        "num_data": spill.count,
        "num_read": num_read,
        "num_dropped": num_dropped,
        "leaves": [
            {"name": leaf.name, "dtype": leaf.dtype.str, "shape": list(leaf.shape)}
            for leaf in reader.leaves
        ],
        "columns": [as_json(learned.column()) for learned in reader.learned],
        "blocks": blocks,
        "hash": digest_of(blocks),
    }


@contextmanager
def no_room(folder: Path, reader: Reader, width: int) -> Iterator[None]:
    """What the operating system refuses while a cache is written, as a DataError."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"{folder.parent} cannot be written to, or {reader.name} read: {error.strerror or error}."
            ) from error
        needs = f" ({gib(2 * width * reader.num_rows)} for these)" if reader.num_rows else ""
        raise DataError(
            f"the disk of {folder.parent} is full: the shuffled rows need twice their size while they are "
            f"made{needs}; make room, or name a folder on another disk with cache=."
        ) from error


def left_out(piece: Piece, reader: Reader, first: int, missing: str) -> np.ndarray | None:
    """Which rows have an empty cell, where any has. Raises DataError where they may not."""
    if piece.missing is None or not piece.missing.any():
        return None
    if missing == "error":
        row = first + int(np.argmax(piece.missing)) + 1
        raise DataError(
            f"{reader.name} has an empty cell (or NaN) in data row {row}; fill it in, or leave such rows out with "
            "missing='drop'."
        )
    return piece.missing


def _check_count(reader: Reader, count: int, num_read: int) -> None:
    if reader.num_rows and num_read != reader.num_rows:
        raise DataError(
            f"{reader.name} gave {num_read:,} rows where it has {reader.num_rows:,}; open it again."
        )
    if not num_read:
        raise DataError(f"{reader.name} has no row; at least one is needed.")
    if not count:
        raise DataError(
            f"every one of the {num_read:,} rows of {reader.name} has an empty cell in a column that is read."
        )
    if count > MOST_ROWS:
        raise DataError(
            f"{reader.name} has {count:,} rows, and at most {MOST_ROWS:,} can be numbered; take a part of them."
        )


def records(piece: Piece, leaves: list[Leaf]) -> np.ndarray:
    """The rows as bytes [m, width]."""
    count = len(piece.leaves[0])
    parts = [
        np.ascontiguousarray(array, leaf.dtype).reshape(count, -1).view(np.uint8)
        for array, leaf in zip(piece.leaves, leaves, strict=True)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def digest_of(blocks: dict[str, list[str]]) -> str:
    """SHA-256 of all files, by the hashes of their blocks."""
    return hashlib.sha256(str(sorted(blocks.items())).encode()).hexdigest()


def written(reader: Reader, folder: Path, spill: Spill, told: Told) -> dict[str, list[str]]:
    """Write leaves and order; the hashes of their blocks, by file."""
    names = [f"{i}.npy" for i in range(len(reader.leaves))]
    with ExitStack() as held:
        writers = [held.enter_context(Writer(folder / name)) for name in names]
        order = held.enter_context(Writer(folder / "order.npy"))
        _lay(reader, spill, writers, order, told)
        found = {name: writer.close() for name, writer in zip(names, writers, strict=True)}
        return {**found, "order.npy": order.close()}


def _lay(reader: Reader, spill: Spill, writers: list[Writer], order: Writer, told: Told) -> None:
    """Write every row to its leaves' files, in the order of the shuffle."""
    for writer, leaf in zip(writers, reader.leaves, strict=True):
        begin_array(writer, leaf.dtype, (spill.count + 1, *leaf.shape))
    begin_array(order, np.dtype("<i4"), (spill.count,))
    places = {one.name: one.sorted_codes() for one in reader.learned}
    ends = np.cumsum([leaf.width for leaf in reader.leaves])
    spare: list[bytes] = []
    done = 0
    for numbers, records in spill.in_order():
        order.write(numbers.astype("<i4").data)
        for writer, leaf, end in zip(writers, reader.leaves, ends, strict=True):
            content = np.ascontiguousarray(records[:, end - leaf.width : end])
            code = places.get(leaf.columns[0]) if leaf.columns else None
            if code is not None:  # of a text, which is a leaf by itself
                content = code[content.view(leaf.dtype)].view(np.uint8)
            writer.write(content.reshape(-1).data)
            if not done:
                spare.append(content[:1].tobytes())
        done += len(numbers)
        told(done, spill.count)
    for writer, row in zip(writers, spare, strict=True):
        writer.write(row)  # so that a short last block is sliced whole


def begin_array(writer: Writer, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """The head of a .npy file."""
    head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(writer, head)
