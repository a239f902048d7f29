"""Rows appended to a table whose rows lie shuffled in the cache: laid among these by their keys.

The order is that of the keys of row numbers, and new rows are numbered on; so what lies there stays in its
order, new rows come between, and the files are those that the whole table would give, bit for bit: what lies
there is read once, copied and hashed, and no cell of the old table is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from ..data.shuffle import keys
from ..errors import DataError
from .cache import Writer
from .convert import DROPPED, MOST_ROWS, begin_array, digest_of, left_out, no_room, records
from .kept import Kept
from .reader import Reader
from .spill import Spill

__all__ = ["merge"]

MERGED_HELD = (
    2**22
)  # bytes of rows that are laid together: few, which stay in the processor's cache

Told = Callable[[int, int], Any]


def merge(before: Kept, reader: Reader, folder: Path, seed: int, told: Told) -> dict[str, Any]:
    """Write the rows of `before` and, numbered on, those of `reader` to `folder`, and say what is there, in JSON.

    Both have the same leaves; texts are no leaves here. Raises DataError as `convert`.
    """
    old = before.manifest
    width = sum(leaf.width for leaf in reader.leaves)
    num_read, gone = 0, list[np.ndarray]()
    with (
        no_room(folder, reader, width),
        Spill(folder / "spill", width, seed, first=old["num_data"]) as spill,
    ):
        for piece in reader.pieces():
            out = left_out(piece, reader, num_read, "drop")
            if out is not None:
                gone.append(old["num_read"] + num_read + np.flatnonzero(out))
                piece = type(piece)([leaf[~out] for leaf in piece.leaves])
            num_read += len(piece.leaves[0]) + (0 if out is None else int(out.sum()))
            if len(piece.leaves[0]):
                spill.add(records(piece, reader.leaves))
        if not num_read:
            raise DataError(f"{reader.name} has no row; at least one is needed.")
        count = old["num_data"] + spill.count
        if count > MOST_ROWS:
            raise DataError(f"there are {count:,} rows, and at most {MOST_ROWS:,} can be numbered.")
        blocks = _written(before, reader, spill, folder, count, told)
        with Writer(folder / DROPPED) as dropped:
            dropped.write(np.fromfile(before.folder / DROPPED, "<i8"))
            dropped.write(np.concatenate([np.zeros(0, "<i8"), *gone]).astype("<i8"))
            blocks[DROPPED] = dropped.close()
    return {
        **old,
        "name": reader.name,
        "num_data": count,
        "num_read": old["num_read"] + num_read,
        "num_dropped": old["num_dropped"] + sum(map(len, gone)),
        "blocks": blocks,
        "hash": digest_of(blocks),
    }


def _written(
    before: Kept, reader: Reader, spill: Spill, folder: Path, count: int, told: Told
) -> dict[str, list[str]]:
    """Write leaves and order; the hashes of their blocks, by file."""
    names = [f"{i}.npy" for i in range(len(reader.leaves))]
    with ExitStack() as held:
        writers = [held.enter_context(Writer(folder / name)) for name in names]
        order = held.enter_context(Writer(folder / "order.npy"))
        for writer, leaf in zip(writers, reader.leaves, strict=True):
            begin_array(writer, leaf.dtype, (count + 1, *leaf.shape))
        begin_array(order, np.dtype("<i4"), (count,))
        spare: list[bytes] = []
        done = 0
        for numbers, parts in _in_order(before, reader, spill):
            order.write(numbers.astype("<i4").data)
            for writer, part in zip(writers, parts, strict=True):
                writer.write(part.reshape(-1).data)
            if not done:
                spare = [part[:1].tobytes() for part in parts]
            done += len(numbers)
            told(done, count)
        for writer, row in zip(writers, spare, strict=True):
            writer.write(row)
        found = {name: writer.close() for name, writer in zip(names, writers, strict=True)}
        return {**found, "order.npy": order.close()}


def _in_order(
    before: Kept, reader: Reader, spill: Spill
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """All rows in the order of their keys, some at a time: their numbers, and the bytes of every leaf."""
    widths = [leaf.width for leaf in reader.leaves]
    order = np.load(before.folder / "order.npy", mmap_mode="r")
    files = [np.load(before.folder / f"{i}.npy", mmap_mode="r") for i in range(len(widths))]
    size = max(1, MERGED_HELD // (8 + sum(widths)))
    coming = _Coming(spill, widths)
    for at in range(0, len(order), size):
        numbers = np.array(order[at : at + size], np.int64)
        own = keys(numbers, spill.seed)
        last = at + size >= len(order)
        keyed, more, parts = coming.until(None if last else own[-1])
        places = np.searchsorted(own, keyed)
        pieces = [
            np.ascontiguousarray(file[at : at + len(numbers)])
            .reshape(len(numbers), -1)
            .view(np.uint8)
            for file in files
        ]
        yield (
            np.insert(numbers, places, more),
            [_inserted(p, places, new) for p, new in zip(pieces, parts, strict=True)],
        )


def _inserted(
    rows: UInt8[np.ndarray, "m w"], places: Int[np.ndarray, " k"], new: UInt8[np.ndarray, "k w"]
) -> UInt8[np.ndarray, "n w"]:
    """np.insert of rows, each one item of w bytes: a quarter of the time that bytes take."""
    width = rows.shape[1]
    one = np.dtype((np.void, width))
    before, coming = (np.ascontiguousarray(part).view(one).reshape(-1) for part in (rows, new))
    return np.insert(before, places, coming).view(np.uint8).reshape(-1, width)


class _Coming:
    """The new rows, in the order of their keys, handed out as far as they are wanted."""

    def __init__(self, spill: Spill, widths: list[int]) -> None:
        self._more = spill.in_order() if spill.count else iter(())
        self._seed, self._ends = spill.seed, np.cumsum(widths)[:-1]
        self._numbers = np.zeros(0, np.int64)
        self._records = np.zeros((0, sum(widths)), np.uint8)

    def until(self, key: np.uint64 | None) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Keys, numbers and leaves of the rows up to this key; of all that are left."""
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
