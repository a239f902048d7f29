"""Readers of tables in batches, statistics of their columns, and the external shuffle.

A reader gives leaves of a datum, and their rows in pieces. Rows arrive in the order of a file and leave in
the order of their keys:

    in     each piece is sorted by key and appended to one temporary file, with the positions at
           which the first bits of the keys change
    out    the parts of all pieces whose keys begin with the same bits are read and sorted

Memory therefore holds one piece, or one range of keys, and every row is written once and read once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Int, UInt8

from ..errors import DataError, UsageError, did_you_mean, need
from .delimited import is_text, plain_type, raise_all, written_number
from .mapped import Running
from .memory import keys
from .source import check_names, listed
from .validate import Rounding

if TYPE_CHECKING:
    import pyarrow

# -- columns -------------------------------------------------------------------------------


MAX_CATEGORIES = 2**20
PyTree = Any


@dataclass(frozen=True)
class Column:
    """Statistics of a column of a table whose rows are on disk.

    Attributes:
      name: the name of the column.
      kind: "number", "integer", "boolean" or "text".
      missing: the number of rows that were left out because this cell was empty.
      mean, sd, least, most: statistics of the other rows, in float64; NaN for texts.
      categories: the sorted texts; a row holds the index of its text among them.
    """

    name: str
    kind: str
    missing: int = 0
    mean: float = math.nan
    sd: float = math.nan
    least: float = math.nan
    most: float = math.nan
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leaf:
    """A leaf of the datum: one column, an array of several columns, or a separate array."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The number of bytes of a row."""
        return self.dtype.itemsize * math.prod(self.shape)


def structure_of(columns: Any, names: Sequence[str]) -> tuple[Any, list[str | tuple[str, ...]]]:
    """Return the datum's structure, and for each leaf the name or names of its columns.

    `columns` None is a dict of all columns. Raises UsageError for an invalid value, DataError for columns that
    do not exist.
    """
    if columns is None:
        columns = {name: name for name in names}
    is_leaf = lambda part: _is_list(part) or not isinstance(part, (dict, tuple))  # noqa: E731
    found, treedef = jax.tree.flatten(columns, is_leaf=is_leaf)
    leaves: list[str | tuple[str, ...]] = []
    for leaf in found:
        if not isinstance(leaf, str) and not _is_list(leaf):
            raise UsageError(
                "columns must be names, lists of names (which become one array), or a tuple or dict of these. "
                f"Got {leaf!r}."
            )
        leaves.append(leaf if isinstance(leaf, str) else tuple(leaf))
    if not leaves:
        raise UsageError(f"columns names no column. Got {columns!r}.")
    for name in (n for leaf in leaves for n in ((leaf,) if isinstance(leaf, str) else leaf)):
        if name not in names:
            raise DataError(
                f"there is no column {name!r}; the columns are {listed(list(names))}."
                + did_you_mean(name, names)
            )
    return treedef, leaves


def _is_list(part: Any) -> bool:
    return isinstance(part, list) and bool(part) and all(isinstance(name, str) for name in part)


def leaves_of(
    wanted: list[str | tuple[str, ...]], dtypes: dict[str, np.dtype], texts: set[str]
) -> list[Leaf]:
    """Return the leaves in the precision of JAX; columns in one array share the widest type."""
    leaves = []
    for part in wanted:
        names = (part,) if isinstance(part, str) else part
        text = texts.intersection(names)
        if text and not isinstance(part, str):
            raise DataError(
                f"column {min(text)!r} holds text, which cannot be in an array of numbers; give it as a separate "
                "leaf, and each text becomes its index among all texts, sorted."
            )
        dtype = np.result_type(*(dtypes[name] for name in names))
        dtype = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
        shape = () if isinstance(part, str) else (len(names),)
        leaves.append(Leaf(", ".join(names), dtype, shape, names))
    return leaves


@dataclass
class ColumnStatistics:
    """Statistics of one column, accumulated in pieces."""

    name: str
    kind: str
    missing: int = 0
    numbers: Running = field(default_factory=Running)
    codes: dict[str, int] = field(default_factory=dict)  # in the order of appearance

    def add(self, values: np.ndarray) -> None:
        """Add the next cells, none of them empty."""
        if len(values):
            self.numbers.add(values)

    def coded(self, texts: list[str], places: np.ndarray) -> np.ndarray:
        """Return the codes of `texts[places]`, int32, in the order of appearance."""
        for text in texts:
            self.codes.setdefault(text, len(self.codes))
        if len(self.codes) > MAX_CATEGORIES:
            raise DataError(
                f"column {self.name!r} has more than {MAX_CATEGORIES:,} different texts, too many for categories; "
                "leave it out of columns."
            )
        return np.array([self.codes[text] for text in texts], np.int32)[places]

    def sorted_codes(self) -> np.ndarray | None:
        """Return the index of each code's text among all sorted texts; None for numbers."""
        if self.kind != "text":
            return None
        places = np.empty(len(self.codes), np.int32)
        for place, text in enumerate(sorted(self.codes)):
            places[self.codes[text]] = place
        return places

    def column(self) -> Column:
        """Return the statistics as a Column."""
        found = self.numbers
        if self.kind == "text" or not found.count:
            return Column(self.name, self.kind, self.missing, categories=tuple(sorted(self.codes)))
        sd = math.sqrt(found.squares / found.count)
        numbers = (float(found.mean), sd, float(found.least), float(found.most))
        return Column(self.name, self.kind, self.missing, *numbers)


def as_json(column: Column) -> dict[str, Any]:
    """Return a column for a manifest, without NaN, which JSON does not have."""
    numbers = {k: v for k, v in asdict(column).items() if not (isinstance(v, float) and math.isnan(v))}  # fmt: skip
    return {**numbers, "categories": list(column.categories)}


def from_json(value: dict[str, Any]) -> Column:
    """Return the column of `as_json`."""
    return Column(**{**value, "categories": tuple(value["categories"])})


# -- reader --------------------------------------------------------------------------------


class Piece(NamedTuple):
    """Rows in the order of the data: an array [m, ...] per leaf, and a mask of incomplete rows."""

    leaves: list[np.ndarray]
    missing: np.ndarray | None = None  # [m]: whether a cell is empty


@runtime_checkable
class Reader(Protocol):
    """Data that can be read from beginning to end any number of times.

    Attributes:
      name: the name of the data in messages.
      leaves: in the order of `treedef`, with the types that JAX will use.
      learned: statistics of a table's columns, updated while it is read.
      num_rows: the number of rows; 0 if it is known only at the end.
    """

    name: str
    treedef: Any
    leaves: list[Leaf]
    learned: list[ColumnStatistics]
    num_rows: int

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in pieces of bounded memory; raise DataError for unreadable data."""
        ...


# -- spill ---------------------------------------------------------------------------------


MAX_HELD_BYTES = 2**26  # bytes of rows that are held at once
KEY_RANGE_BITS = 12  # leading bits of a key, which number its range


class Spill:
    """A temporary file of records, [m, width] bytes, with row numbers from `first` on.

    The context manager removes the file.
    """

    def __init__(self, path: Path, width: int, seed: int, first: int = 0) -> None:
        self.path, self.width, self.seed, self.first = path, width, seed, first
        self.count = 0
        self._starts: list[int] = []  # the start of each piece, in records
        self._edges: list[np.ndarray] = []  # the start of each range of keys in a piece
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
        """Add the next rows, numbered consecutively or by `called`."""
        assert self._file is not None
        if called is None:
            called = self.first + np.arange(self.count, self.count + len(records))
        own = keys(called, self.seed)
        order = np.argsort(own)
        first = np.arange(2**KEY_RANGE_BITS + 1, dtype=np.float64) * 2.0 ** (64 - KEY_RANGE_BITS)
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
        """Yield the numbers and records of all rows in the order of their keys, in pieces."""
        assert self._file is not None
        self._file.flush()
        edges = np.asarray(self._edges, np.int64).reshape(-1, 2**KEY_RANGE_BITS + 1)
        whole = edges.sum(0)  # rows whose keys come before a range
        most = max(1, MAX_HELD_BYTES // (8 + self.width))
        begin = 0
        while begin < 2**KEY_RANGE_BITS:
            end = int(np.searchsorted(whole, whole[begin] + most, side="right")) - 1
            end = min(2**KEY_RANGE_BITS, max(begin + 1, end))
            if whole[end] > whole[begin]:
                yield self._range(edges[:, begin], edges[:, end])
            begin = end

    def _range(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the pieces from `begin` up to `end`, sorted by key."""
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


# -- tables --------------------------------------------------------------------------------


MAX_BATCH_ROWS = 2**17
DTYPE_OF_KIND = {"boolean": np.dtype(bool), "text": np.dtype(np.int32)}


@runtime_checkable
class Batches(Protocol):
    """A table that can be read in batches, any number of times."""

    name: str
    schema: dict[str, Any]  # the columns' Arrow types, by name
    num_rows: int  # 0 where it is not known

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """Yield all rows of these columns."""
        ...


class TableReader:
    """Columns of a table as the leaves of a datum."""

    def __init__(self, table: Batches, columns: Any) -> None:
        self.table, self.name, self.num_rows = table, table.name, table.num_rows
        check_names(list(table.schema), table.name)
        self.treedef, wanted = structure_of(columns, list(table.schema))
        named = [n for leaf in wanted for n in ((leaf,) if isinstance(leaf, str) else leaf)]
        self._columns = list(dict.fromkeys(named))
        kinds = {name: _kind(name, table) for name in self._columns}
        self._kinds = {name: kind for name, (kind, _) in kinds.items()}
        texts = {name for name, kind in self._kinds.items() if kind == "text"}
        self.leaves = leaves_of(wanted, {name: dtype for name, (_, dtype) in kinds.items()}, texts)
        self.learned: list[ColumnStatistics] = []
        self._losses: dict[str, Rounding] = {}

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows, and compute the statistics of the columns from the start."""
        self.learned = [ColumnStatistics(name, self._kinds[name]) for name in self._columns]
        self._losses = {name: Rounding(f"column {name!r} of {self.name}") for name in self._columns}
        first = 0
        for batch in self.table.batches(self._columns):
            if batch.num_rows and not first:
                self._refuse_numbers_in_words(batch)
            if batch.num_rows:
                yield self._piece(batch, first)
            first += batch.num_rows
        for loss in self._losses.values():
            loss.check()

    def _refuse_numbers_in_words(self, batch: pyarrow.RecordBatch) -> None:
        """Raise DataError for texts that are oddly written numbers or dates, not categories."""
        arrow = need("pyarrow", "tables")
        names = [name for name in self._columns if self._kinds[name] == "text"]
        cells = {name: arrow.chunked_array([batch.column(name)]) for name in names}
        found = [written_number(name, column) for name, column in cells.items()]
        if not getattr(self.table, "is_text", False):  # sep and decimal do not apply
            cast = "convert them to numbers in a query, or give only the other columns in columns"
            found = [
                None if trouble is None else trouble._replace(remedy=cast) for trouble in found
            ]
        raise_all(found)

    def _piece(self, batch: pyarrow.RecordBatch, first: int) -> Piece:
        missing = np.zeros(batch.num_rows, bool)
        values: dict[str, np.ndarray] = {}
        for learned in self.learned:
            cells = batch.column(learned.name)
            values[learned.name], empty = _cells(learned, cells)
            learned.missing += int(empty.sum())
            missing |= empty
        stay = ~missing
        for learned in self.learned:
            found = values[learned.name]
            if learned.kind != "text":
                _check_cells(self.name, learned, found, stay, first)
                learned.add(found[stay])
        leaves = []
        for leaf in self.leaves:
            parts = [values[name].astype(leaf.dtype) for name in leaf.columns]
            for name, part in zip(leaf.columns, parts, strict=True):
                self._losses[name].add(values[name][stay], part[stay])
            leaves.append(np.stack(parts, axis=1) if leaf.shape else parts[0])
        return Piece(leaves, missing if missing.any() else None)


def _kind(name: str, table: Batches) -> tuple[str, np.dtype]:
    """Return the kind of a column, and the NumPy dtype of its cells."""
    types, kind = need("pyarrow", "tables").types, plain_type(table.schema[name])
    if types.is_boolean(kind):
        return "boolean", DTYPE_OF_KIND["boolean"]
    if types.is_integer(kind):
        return "integer", np.dtype(kind.to_pandas_dtype())
    if types.is_floating(kind):
        return "number", np.dtype(kind.to_pandas_dtype())
    if types.is_decimal(kind):
        return "number", np.dtype(np.float64)
    if is_text(kind):
        return "text", DTYPE_OF_KIND["text"]
    if types.is_null(kind) and not any(batch.num_rows for batch in table.batches([name])):
        raise DataError(f"{table.name} has no row; at least one is needed.")
    what = "no values at all" if types.is_null(kind) else f"{kind} values"
    raise DataError(
        f"column {name!r} of {table.name} holds {what}, and numbers, booleans or texts are needed; convert it, or "
        "give only the other columns in columns."
    )


def _cells(learned: ColumnStatistics, cells: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells of a batch as numbers, arbitrary where empty, and the mask of empty cells."""
    arrow = need("pyarrow", "tables")
    empty = np.asarray(cells.is_null(nan_is_null=learned.kind == "number"))
    if learned.kind == "text":
        if not arrow.types.is_dictionary(cells.type):
            cells = cells.dictionary_encode()
        places = cells.indices.fill_null(0).to_numpy(zero_copy_only=False)
        texts = cells.dictionary.to_pylist()
        used = np.unique(places[~empty])  # a dictionary may hold texts that no row has
        codes = np.zeros(max(len(texts), 1), np.int32)
        codes[used] = learned.coded([texts[i] for i in used], np.arange(len(used)))
        return codes[places], empty
    if arrow.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if arrow.types.is_decimal(cells.type):
        cells = cells.cast(arrow.float64())
    if cells.null_count:
        cells = cells.fill_null(False if learned.kind == "boolean" else 0)
    return cells.to_numpy(zero_copy_only=False), empty


def _check_cells(
    name: str, learned: ColumnStatistics, cells: np.ndarray, stay: np.ndarray, first: int
) -> None:
    """Raise DataError for a number that is infinite or beyond the precision of a run."""
    import jax

    if learned.kind == "boolean":
        return
    target = np.dtype(jax.dtypes.canonicalize_dtype(cells.dtype))
    if learned.kind == "number":
        with np.errstate(over="ignore"):  # an overflow is what this detects
            bad = ~np.isfinite(cells.astype(target)) & stay
        why = "which is not a finite number in " + str(target)
    else:
        bad = (np.abs(cells.astype(np.float64)) > 2.0**24) & stay & (target.itemsize <= 4)
        why = "above 2^24, which float32 arithmetic would round"
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"column {learned.name!r} of {name} is {cells[row]} in data row {first + row + 1}, {why}; rescale it, or "
            "remove that row."
        )


def batch_rows(columns: int) -> int:
    """Return the number of rows in a batch with this many columns."""
    return max(1, min(MAX_BATCH_ROWS, MAX_HELD_BYTES // (16 * max(1, columns))))
