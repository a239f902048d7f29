"""Tables in files: Parquet, Arrow and CSV, one file, several parts or a folder of them, in batches of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..data.table import FORMATS, check_names, check_parquet, csv_header, existing, ragged
from ..errors import DataError, did_you_mean, first_line, need
from .columns import Learned, leaves_of, structure_of
from .reader import Piece
from .spill import HELD

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Batches", "TableFiles", "TableReader", "batch_rows", "table_files"]

CSV_BLOCK = 2**22  # bytes of a CSV from which the types of its columns are guessed
MOST_ROWS = 2**17  # of a batch
KINDS = {"boolean": np.dtype(bool), "text": np.dtype(np.int32)}


class Batches(Protocol):
    """A table that can be read in batches, any number of times."""

    name: str
    schema: dict[str, Any]  # the columns' Arrow types, by name
    num_rows: int  # 0 where it is not known

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """All rows of these columns."""
        ...


class TableReader:
    """Some columns of a table as the leaves of a datum."""

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
        self.learned: list[Learned] = []

    def pieces(self) -> Iterator[Piece]:
        """All rows; what is learned of their columns begins anew."""
        self.learned = [Learned(name, self._kinds[name]) for name in self._columns]
        first = 0
        for batch in self.table.batches(self._columns):
            if batch.num_rows:
                yield self._piece(batch, first)
            first += batch.num_rows

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
            leaves.append(np.stack(parts, axis=1) if leaf.shape else parts[0])
        return Piece(leaves, missing if missing.any() else None)


def _kind(name: str, table: Batches) -> tuple[str, np.dtype]:
    """What a column holds, and the type of NumPy's that holds its cells."""
    types, kind = need("pyarrow", "tables").types, table.schema[name]
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_boolean(kind):
        return "boolean", KINDS["boolean"]
    if types.is_integer(kind):
        return "integer", np.dtype(kind.to_pandas_dtype())
    if types.is_floating(kind):
        return "number", np.dtype(kind.to_pandas_dtype())
    if types.is_decimal(kind):
        return "number", np.dtype(np.float64)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text", KINDS["text"]
    what = "no values at all" if types.is_null(kind) else f"{kind} values"
    raise DataError(
        f"column {name!r} of {table.name} holds {what}, where numbers, booleans or texts are needed; convert it, or "
        "name the other columns in columns."
    )


def _cells(learned: Learned, cells: Any) -> tuple[np.ndarray, np.ndarray]:
    """The cells of a batch as numbers, and which of them are empty; what stands there then is any number."""
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
    name: str, learned: Learned, cells: np.ndarray, stay: np.ndarray, first: int
) -> None:
    """DataError for a number that is infinite, or more than the precision of a run can hold."""
    import jax

    if learned.kind == "boolean":
        return
    target = np.dtype(jax.dtypes.canonicalize_dtype(cells.dtype))
    if learned.kind == "number":
        with np.errstate(over="ignore"):  # that is what is looked for
            bad = ~np.isfinite(cells.astype(target)) & stay
        why = "which is no finite number of " + str(target)
    else:
        bad = (np.abs(cells.astype(np.float64)) > 2.0**24) & stay & (target.itemsize <= 4)
        why = "above 2^24, which float32 arithmetic would round"
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"column {learned.name!r} of {name} is {cells[row]} in data row {first + row + 1}, {why}; rescale it, or "
            "leave that row out."
        )


# -- files ---------------------------------------------------------------------------------


def table_files(given: Any) -> list[Path]:
    """The files of a table: the one that is named, or those of a folder or list, in order, all of one kind."""
    paths = list(given) if isinstance(given, (list, tuple)) else [given]
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            parts = sorted(
                p for p in path.rglob("*") if p.suffix.lower() in FORMATS and p.is_file()
            )
            parts = [p for p in parts if not p.name.startswith((".", "_"))]
            if not parts:
                raise DataError(
                    f"{path} is a folder without a table; put files in it that end in {', '.join(FORMATS)}."
                )
            found += parts
        else:
            found.append(existing(path))
    kinds = {FORMATS.get(path.suffix.lower()) for path in found}
    if None in kinds:
        path = next(p for p in found if p.suffix.lower() not in FORMATS)
        raise DataError(
            f"{path} has the extension {path.suffix!r}; give .npy, a table ({', '.join(FORMATS)}), a database or a "
            "query." + did_you_mean(path.suffix.lower(), [*FORMATS, ".npy", ".duckdb", ".sqlite"])
        )
    if len(kinds) > 1:
        raise DataError(
            f"the parts of a table are of several kinds ({', '.join(sorted(map(str, kinds)))}); open one kind."
        )
    return found


class TableFiles:
    """The parts of a table as one, their columns matched by name."""

    def __init__(self, paths: Sequence[Path], columns: Any = None) -> None:
        self.paths = list(paths)
        self.name = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        part = {"csv": _Csv, "parquet": _Parquet, "ipc": _Ipc}[FORMATS[paths[0].suffix.lower()]]
        self.parts: list[Any] = []
        for path in paths:
            if path.stat().st_size == 0:
                raise DataError(f"{path} is empty (0 bytes); write it again.")
            with _as_data_error(path):
                self.parts.append(part(path))
        wanted = None if columns is None else _flat(columns)
        self.schema = _common(self.parts, wanted)
        self.num_rows = sum(part.num_rows for part in self.parts)

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """All rows of these columns, part by part."""
        for part in self.parts:
            with _as_data_error(part.path):
                yield from part.batches(list(columns))


def _flat(columns: Any) -> set[str]:
    """The names in `columns`, however they are nested."""
    import jax

    return {name for name in jax.tree.leaves(columns) if isinstance(name, str)}


def _common(parts: list[Any], wanted: set[str] | None) -> dict[str, Any]:
    """The types of the columns that are read, those of all parts taken together."""
    first = parts[0]
    schema = dict(first.schema)
    names = list(schema) if wanted is None else [name for name in schema if name in wanted]
    for part in parts[1:]:
        for name in names:
            if name not in part.schema:
                raise DataError(
                    f"{part.path} lacks the column {name!r} that {first.path} has; add it there, or name the "
                    "others in columns."
                )
            schema[name] = _wider(name, schema[name], part, first)
    return schema


def _wider(name: str, kind: Any, part: Any, first: Any) -> Any:
    """A type for both: numbers may differ in their size, and nothing else."""
    arrow, other = need("pyarrow", "tables"), part.schema[name]
    numeric = lambda t: arrow.types.is_integer(t) or arrow.types.is_floating(t)  # noqa: E731
    if _plain(kind) == _plain(other):
        return kind
    if numeric(kind) and numeric(other):
        both = np.result_type(kind.to_pandas_dtype(), other.to_pandas_dtype())
        return arrow.from_numpy_dtype(both)
    raise DataError(
        f"the column {name!r} is {other} in {part.path}, and {kind} in {first.path}; write it with one type."
    )


def _plain(kind: Any) -> str:
    """A type's name, texts of every kind being texts."""
    types = need("pyarrow", "tables").types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return "text" if text else str(kind)


@contextmanager
def _as_data_error(path: Path) -> Iterator[None]:
    arrow = need("pyarrow", "tables")
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        kind = FORMATS[path.suffix.lower()]
        raise DataError(
            f"{path} cannot be read as {kind}: {first_line(error)}; it is damaged or was cut short: write it again."
        ) from error


def batch_rows(columns: int) -> int:
    """Rows of a batch of so many columns."""
    return max(1, min(MOST_ROWS, HELD // (16 * max(1, columns))))


class _Parquet:
    """A Parquet file; its pages are read as they are needed, however large its row groups."""

    def __init__(self, path: Path) -> None:
        check_parquet(path)
        self.path = path
        with self._opened() as file:
            schema = file.schema_arrow
            check_names(schema.names, str(path))
            self.schema = {field.name: field.type for field in schema}
            self.num_rows = file.metadata.num_rows

    def _opened(self) -> Any:
        parquet = need("pyarrow.parquet", "tables")
        return parquet.ParquetFile(self.path, buffer_size=2**18, pre_buffer=False)

    def batches(self, columns: list[str]) -> Iterator[pyarrow.RecordBatch]:
        """All rows."""
        with self._opened() as file:
            yield from file.iter_batches(
                batch_rows(len(columns)), columns=columns, use_threads=False
            )


class _Ipc:
    """An Arrow or Feather file, or stream, batch by batch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file:
            self._first = file.read(6)
        if self._first.startswith(b"FEA1"):
            raise DataError(
                f"{path} is a Feather file of version 1, which is read at once or not at all; write it again as "
                "Parquet or Arrow."
            )
        with self._opened() as reader:
            check_names(reader.schema.names, str(path))
            self.schema = {field.name: field.type for field in reader.schema}
        self.num_rows = 0

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        arrow = need("pyarrow", "tables")
        with arrow.OSFile(str(self.path), "rb") as source:
            if self._first == b"ARROW1":
                yield arrow.ipc.open_file(source)
            else:
                yield arrow.ipc.open_stream(source)

    def batches(self, columns: list[str]) -> Iterator[pyarrow.RecordBatch]:
        """All rows; a batch of the file's own, in slices."""
        most = batch_rows(len(columns))
        with self._opened() as reader:
            if self._first == b"ARROW1":
                found = (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                found = iter(reader)
            for batch in found:
                batch = batch.select(columns)
                for begin in range(0, batch.num_rows, most):
                    yield batch.slice(begin, most)


class _Csv:
    """A CSV file; one pass over it finds the types of its columns, as a table in memory has them."""

    def __init__(self, path: Path) -> None:
        self.path, self._types = path, dict[str, Any]()
        self._names = csv_header(path)
        self.num_rows = self._typed()

    def _typed(self) -> int:
        """Go through the file until the types of all columns last; its rows."""
        arrow = need("pyarrow", "tables")
        while True:
            try:
                count, schema = 0, {}
                for batch in self._read(None):
                    count += batch.num_rows
                    schema = {field.name: field.type for field in batch.schema}
                self.schema = schema
                self._types = dict(schema)
                return count
            except arrow.ArrowInvalid as error:
                self._widen(error)

    def _widen(self, error: Exception) -> None:
        """Another type for the column whose cells did not fit it; DataError for what is no CSV."""
        arrow = need("pyarrow", "tables")
        if "straddl" in str(error):
            raise DataError(
                f"{self.path} has a row of more than {CSV_BLOCK:,} letters; close an open quotation mark, or write it "
                "again."
            ) from error
        if "Expected" in str(error) and "columns" in str(error):
            raise ragged(self.path) from error
        # types are inferred from the first block of the file: widen the one that did not last
        found = re.search(r"In CSV column #(\d+).*conversion error to (\S+):", str(error))
        if not found or found[2] == "string":
            raise error
        name = self._names[int(found[1])]
        numeric = found[2] in ("int64", "null") and name not in self._types
        self._types[name] = arrow.float64() if numeric else arrow.string()

    def batches(self, columns: list[str]) -> Iterator[pyarrow.RecordBatch]:
        """All rows."""
        yield from self._read(columns)

    def _read(self, columns: list[str] | None) -> Iterator[pyarrow.RecordBatch]:
        reader = need("pyarrow.csv", "tables")
        with reader.open_csv(
            self.path,
            read_options=reader.ReadOptions(block_size=CSV_BLOCK, use_threads=False),
            parse_options=reader.ParseOptions(newlines_in_values=True),
            convert_options=reader.ConvertOptions(
                strings_can_be_null=True, quoted_strings_can_be_null=False,
                column_types=self._types, include_columns=columns,
            ),
        ) as batches:  # fmt: skip
            yield from batches
