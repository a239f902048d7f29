"""Tables in Parquet, Arrow and text files: one file, several parts or a folder, read in batches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, need
from .delimited import CsvFile, arrow_errors, is_text, plain_type
from .readers import batch_rows
from .source import check_names
from .tables import FORMATS, check_parquet, existing, kind_of_file, readable_kind

if TYPE_CHECKING:
    import pyarrow

PART_SUFFIXES = {*FORMATS} - {".txt"}  # in a folder, a .txt file is not a table


def table_files(given: Any) -> list[Path]:
    """Return the files of a table in order, all of one kind: a file, or those of a folder or list."""
    paths = list(given) if isinstance(given, (list, tuple)) else [given]
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            parts = [p for p in path.rglob("*") if p.suffix.lower() in FORMATS and p.is_file()]
            parts = [p for p in parts if not p.name.startswith((".", "_"))]
            parts.sort(key=_numeric_order)
            if not parts:
                raise DataError(
                    f"{path} is a folder without a table; files must end in {', '.join(sorted(PART_SUFFIXES))}."
                )
            found += parts
        else:
            found.append(existing(path))
    kinds = {kind_of_file(path) for path in found}
    if len(kinds) > 1:
        raise DataError(
            f"the parts of a table have several formats ({', '.join(sorted(kinds))}); open files of one format."
        )
    return found


def _numeric_order(path: Path) -> list[tuple[Any, ...]]:
    """Return a key by which part-2 comes before part-10."""
    words = [re.split(r"(\d+)", part) for part in path.parts]
    return [tuple(int(w) if i % 2 else w for i, w in enumerate(part)) for part in words]


class TableFiles:
    """The parts of a table as one table, with columns matched by name.

    `sep`, `decimal` and `as_text`, the columns that are read as unchanged text, apply to text files.
    """

    def __init__(
        self, paths: Sequence[Path], columns: Any = None, sep: str | None = None, decimal: str = ".",
        as_text: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.paths = list(paths)
        self.name = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        self._kind = kind_of_file(paths[0])
        self.is_text = self._kind == "csv"
        csv = lambda path: CsvFile(path, sep, decimal, as_text).typed()  # noqa: E731
        part = {"csv": csv, "parquet": _Parquet, "ipc": _Ipc}[self._kind]
        self.parts: list[Any] = []
        for path in paths:
            with arrow_errors(path, readable_kind(path, sep, decimal)):
                self.parts.append(part(path))
        wanted = None if columns is None else _flat(columns)
        self.schema = _common(self.parts, wanted)
        self.num_rows = sum(part.num_rows for part in self.parts)

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """Yield all rows of these columns, part by part."""
        for part in self.parts:
            with arrow_errors(part.path, self._kind):
                yield from part.batches(list(columns))


def _flat(columns: Any) -> set[str]:
    """Return the names in `columns`, at any depth."""
    import jax

    return {name for name in jax.tree.leaves(columns) if isinstance(name, str)}


def _common(parts: list[Any], wanted: set[str] | None) -> dict[str, Any]:
    """Return the types of the columns that are read, common to all parts."""
    first = parts[0]
    schema = dict(first.schema)
    names = list(schema) if wanted is None else [name for name in schema if name in wanted]
    for part in parts[1:]:
        for name in names:
            if name not in part.schema:
                raise DataError(
                    f"{part.path} lacks the column {name!r} that {first.path} has; add it there, or give only the "
                    "other columns in columns."
                )
            schema[name] = _wider(name, schema[name], part, first)
    return schema


def _wider(name: str, kind: Any, part: Any, first: Any) -> Any:
    """Return a type for both parts; only numbers may differ, and only in size."""
    arrow, other = need("pyarrow", "tables"), part.schema[name]
    numeric = lambda t: arrow.types.is_integer(t) or arrow.types.is_floating(t)  # noqa: E731
    if _plain(kind) == _plain(other):
        return kind
    if numeric(kind) and numeric(other):
        both = np.result_type(kind.to_pandas_dtype(), other.to_pandas_dtype())
        return arrow.from_numpy_dtype(both)
    raise DataError(
        f"the column {name!r} has type {other} in {part.path}, and {kind} in {first.path}; write it with one type."
    )


def _plain(kind: Any) -> str:
    """Return the name of a type, with one name for all kinds of text."""
    kind = plain_type(kind)
    return "text" if is_text(kind) else str(kind)


class _Parquet:
    """A Parquet file whose pages are read as needed, for row groups of any size."""

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
        """Yield all rows."""
        with self._opened() as file:
            yield from file.iter_batches(
                batch_rows(len(columns)), columns=columns, use_threads=False
            )


class _Ipc:
    """An Arrow or Feather file, or stream, read batch by batch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file:
            self._first = file.read(6)
        if self._first.startswith(b"FEA1"):
            raise DataError(
                f"{path} is a Feather file of version 1, which cannot be read in batches; write it again as Parquet or "
                "Arrow."
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
        """Yield all rows, as slices of the file's batches."""
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
