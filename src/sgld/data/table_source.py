"""Tables for formulas: where they are read from, sequences of tables, and tables that grow.

`TableSource` reads a whole table into memory, from every source of tables that `sgld.open` supports.
`Chained` reads several tables in batches as one: the columns are those of the first, found by name, and
some rows may be left out. A table that has grown or lost rows since a run is recorded in run.json by its
parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ..core.devices import check_memory
from ..errors import DataError, RunError, UsageError, need
from .cache import stamp_of
from .convert import check_drop
from .databases import DuckDB, SQLite, database_files, is_query, kind_of_database
from .delimited import plain_type
from .source import check_names
from .table_files import TableFiles, table_files
from .tables import content_hash, existing, kind_of_file, read_table

if TYPE_CHECKING:
    import pyarrow

    from .readers import Batches

STORED_ARGUMENTS = ("table", "database", "sep", "decimal")  # stored in run.json with the path
CELL_BYTES = 16  # bytes of a cell while a table is assembled


class TableSource(NamedTuple):
    """Where a table is read from: a file, a folder, a database, or a query.

    `database` is the file that a query reads, `table` the table of a database that has several. `sep` and
    `decimal` belong to a text file (`sgld.data.tables.read_table`), of which `batches` reads the columns
    `as_text` as unchanged text.
    """

    data: str
    table: str | None = None
    database: str | None = None
    sep: str | None = None
    decimal: str = "."
    as_text: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, data: str | Path, table: str | None = None, database: Any = None,
        sep: str | None = None, decimal: str = ".",
    ) -> TableSource:  # fmt: skip
        """Return the source for a user's arguments; raise UsageError for those that do not apply."""
        source = cls(str(data), table, None if database is None else str(database), sep, decimal)
        if database is not None and not source.is_query:
            raise UsageError(f"database must be used with a query. Got the data {source.data!r}.")
        if table is not None and (source.is_query or kind_of_database(source.data) is None):
            raise UsageError(f"table must be of a database file. Got the data {source.data!r}.")
        if (sep is not None or decimal != ".") and not source.is_file:
            raise UsageError(
                f"sep and decimal are only for one text file. Got the data {source.data!r}."
            )
        return source

    @classmethod
    def like(
        cls, stored: Any, data: str | Path, sep: str | None, decimal: str | None,
        table: str | None = None, database: Any = None,
    ) -> TableSource:  # fmt: skip
        """Return a source with the text format of the first stored file with the same extension.

        `stored` is the JSON object of `as_json`.
        """
        alike = [part for part in _parts(stored) if _ends(part.get("path")) == _ends(data)]
        if alike:
            sep = alike[0].get("sep") if sep is None else sep
            decimal = alike[0].get("decimal") if decimal is None else decimal
        sep, decimal = None if sep is None else str(sep), str(decimal or ".")
        return cls.of(data, table, database, sep, decimal)

    @property
    def is_file(self) -> bool:
        """Whether it is one file of a table."""
        return not (self.is_query or Path(self.data).is_dir() or kind_of_database(self.data))

    @property
    def is_parquet(self) -> bool:
        """Whether it consists of Parquet files, which record their number of rows."""
        files = [] if self.is_query or kind_of_database(self.data) else self.files()
        return bool(files) and kind_of_file(files[0]) == "parquet"

    @property
    def is_query(self) -> bool:
        """Whether the data are SQL."""
        return is_query(self.data)

    def read(self) -> tuple[pyarrow.Table, str]:
        """Return the table and the SHA-256 of its files' bytes, or of the rows if a query names files.

        Raises: DataError for data that cannot be read, or change while they are read; UsageError for a table
        that does not fit in memory.
        """
        files = self.files()
        digest = _digest(files)
        before = [stamp_of(path) for path in files]
        table = read_table(self.data, self.sep, self.decimal) if self.is_file else self._read()
        if [stamp_of(path) for path in files] != before:
            raise DataError(f"{self.data} changed while it was read; read it again.")
        return table, digest or _digest_of_rows(table)

    def files(self) -> list[Path]:
        """Return the files whose bytes determine the rows; none for a query that names files."""
        if self.is_query:
            return [] if self.database is None else database_files(self.database)
        if kind_of_database(self.data):
            return database_files(self.data)
        path = Path(self.data)
        return table_files(path) if path.is_dir() else [existing(path)]

    def _read(self) -> pyarrow.Table:
        arrow, source = need("pyarrow", "tables"), self.batches()
        check_names(list(source.schema), source.name)
        check_memory(
            CELL_BYTES * source.num_rows * len(source.schema), f"the table {source.name}",
            "use sgld.open with a user-supplied density for more rows than fit in memory",
        )  # fmt: skip
        schema = arrow.schema([(name, plain_type(kind)) for name, kind in source.schema.items()])
        batches = (batch.select(schema.names) for batch in source.batches(schema.names))
        table = arrow.Table.from_batches([batch.cast(schema) for batch in batches], schema)
        if not table.num_rows:
            raise DataError(f"{source.name} has no row; at least one is needed.")
        return table

    def batches(self, spill: Path | None = None) -> Batches:
        """Return the table in batches; DuckDB uses the folder `spill` beyond its memory limit."""
        query = self.data if self.is_query else None
        if query is None and not kind_of_database(self.data):
            how: dict[str, Any] = {"sep": self.sep, "decimal": self.decimal}
            return TableFiles(table_files(self.data), **how, as_text=self.as_text)
        path = self.database if query is not None else self.data
        if path is not None and kind_of_database(path) == "sqlite":
            return SQLite(Path(path), query, self.table)
        return DuckDB(None if path is None else Path(path), query, self.table, spill)

    def as_json(self, digest: str) -> dict[str, Any]:
        """Return the source as a JSON object for run.json."""
        place = {} if self.is_query else {"absolute": str(Path(self.data).absolute())}
        if self.database is not None:
            place = {"absolute": str(Path(self.database).absolute())}
        decimal = None if self.decimal == "." else self.decimal
        rest = {"table": self.table, "database": self.database, "sep": self.sep, "decimal": decimal}
        return {"path": self.data, **place, "sha256": digest, **{k: v for k, v in rest.items() if v}}  # fmt: skip

    @classmethod
    def located(cls, stored: dict[str, Any]) -> TableSource:
        """Return the source of `as_json` at its present path.

        Raises RunError if the data are missing, or may not be read again.
        """
        words: Any = {n: str(stored[n]) for n in STORED_ARGUMENTS if stored.get(n) is not None}
        source = cls(str(stored["path"]), **words)
        if source.is_query and source.database is None:
            # the query names files itself, and a run directory from elsewhere must not read them
            raise RunError(
                "the run was started from a query that reads files, and such a query is not repeated; to resume or "
                "inspect runs, write its rows to a file and fit that file."
            )
        absolute = stored.get("absolute")
        if absolute is not None:
            # a run may be resumed from another folder, or have moved together with its data
            place = source.data if source.database is None else source.database
            found = next((p for p in (absolute, place) if Path(p).exists()), None)
            if found is None:
                raise RunError(f"the run's data file {absolute} is missing; restore it.")
            source = source._replace(**{"data" if source.database is None else "database": found})

        return source

    def changed(self) -> RunError:
        """Return the error for data that differ from those of the run."""
        what = self.data if self.database is None else self.database
        return RunError(
            f"the run's data file {what} has changed since the run started; restore the old file, "
            "or fit the new one in another directory."
        )

    @classmethod
    def again(cls, stored: dict[str, Any]) -> Callable[[], pyarrow.Table]:
        """Return a function that reads the stored table; both raise RunError if it has changed."""
        source = cls.located(stored)

        def read() -> pyarrow.Table:
            table, digest = source.read()
            if digest != stored["sha256"]:
                raise source.changed()
            return table

        return read


def _digest(files: list[Path]) -> str:
    """Return the SHA-256 of the bytes of one file or several; an empty string for none."""
    found = [content_hash(path) for path in files]
    if len(found) < 2:
        return "".join(found)
    return hashlib.sha256(" ".join(found).encode()).hexdigest()


def _digest_of_rows(table: pyarrow.Table) -> str:
    arrow = need("pyarrow", "tables")
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _ends(path: Any) -> str:
    """Return the extension of a path, which determines the text format."""
    return Path(str(path).lower().removesuffix(".gz")).suffix


def _parts(stored: Any) -> list[dict[str, Any]]:
    """Return the files of a table: that of the run, then later ones."""
    found = []
    while isinstance(stored, dict) and isinstance(stored.get("parts"), list) and stored["parts"]:
        found = [part for part in stored["parts"][1:] if isinstance(part, dict)] + found
        stored = stored["parts"][0]
    return [stored, *found] if isinstance(stored, dict) else found


# -- chained -------------------------------------------------------------------------------


class Chained:
    """The rows of several sources in turn, whatever the order of their columns.

    Args:
      dropped: for each source, the numbers, from 0, of the rows that are dropped from the table up to its
        end; none: all rows are kept.
    """

    def __init__(
        self, sources: Sequence[TableSource], spill: Path | None,
        dropped: Sequence[Int[np.ndarray, " m"]] = (),
    ) -> None:  # fmt: skip
        self._parts = [source.batches(spill) for source in sources]
        first = self._parts[0]
        self.name = " + ".join(part.name for part in self._parts)
        self.schema = {name: plain_type(kind) for name, kind in first.schema.items()}
        counts = [part.num_rows for part in self._parts]
        self._dropped = dropped or [np.zeros(0, np.int64)] * len(counts)
        self.num_rows = sum(counts) - sum(map(len, self._dropped)) if all(counts) else 0
        for part in self._parts[1:]:
            _check_columns(part.name, part.schema, self.schema)

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """Yield all rows of these columns, with the first table's types."""
        yield from self._up_to(len(self._parts) - 1, list(columns))

    def _up_to(self, last: int, names: list[str]) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of the sources up to number `last`, without those dropped at that point."""
        arrow, gone, first = need("pyarrow", "tables"), self._dropped[last], 0
        for batch in self._with(last, names):
            end = first + batch.num_rows
            here = gone[np.searchsorted(gone, first) : np.searchsorted(gone, end)] - first
            if len(here):
                left = np.ones(batch.num_rows, bool)
                left[here] = False
                batch = batch.filter(arrow.array(left))
            yield batch
            first = end

    def _with(self, last: int, names: list[str]) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of the sources before number `last`, and then all rows of that source."""
        part = self._parts[last]
        schema = need("pyarrow", "tables").schema([(name, self.schema[name]) for name in names])
        if last:
            yield from self._up_to(last - 1, names)
        for batch in part.batches(names):
            yield _cast(batch, schema, part.name)


# -- grown ---------------------------------------------------------------------------------


MAX_TABLE_PARTS = 1000  # parts of a table that grew several times


def append_rows(first: pyarrow.Table, second: pyarrow.Table, name: str) -> pyarrow.Table:
    """Return the rows of both tables with the columns of the first.

    Raises DataError if the second lacks a column, or has cells of another type.
    """
    _check_columns(name, second.column_names, first.column_names)
    return need("pyarrow", "tables").concat_tables([first, _cast(second, first.schema, name)])


def _check_columns(name: str, columns: Collection[str], needed: Iterable[str]) -> None:
    for column in needed:
        if column not in columns:
            raise DataError(
                f"{name} has no column {column!r}, which the run's table has; add it there."
            )


def _cast(rows: Any, schema: Any, name: str) -> Any:
    """Return a table or a batch with these columns; raise DataError for cells of other types."""
    arrow = need("pyarrow", "tables")
    try:
        return rows.select(schema.names).cast(schema)
    except (arrow.ArrowException, ValueError) as error:
        raise DataError(
            f"{name} has cells of other types than the run's table ({str(error).splitlines()[0]}); use its types."
        ) from error


def without(table: pyarrow.Table, rows: Int[np.ndarray, " m"]) -> pyarrow.Table:
    """Return the table without these rows; raise UsageError for invalid or repeated row numbers."""
    check_drop(rows, table.num_rows)
    left = np.ones(table.num_rows, bool)
    left[rows] = False
    return table.filter(need("pyarrow", "tables").array(left))


def parts_record(
    first: dict[str, Any], second: dict[str, Any] | None, dropped: Int[np.ndarray, " m"]
) -> dict[str, Any]:
    """Return the record for run.json: rows of `first` were dropped, those of `second` appended."""
    parts = [first] if second is None else [first, second]
    return {
        "path": " + ".join(str(part["path"]) for part in parts),
        "parts": parts,
        "dropped": [int(row) for row in dropped],
    }


def stored_table(stored: dict[str, Any], depth: int = 0) -> Callable[[], pyarrow.Table]:
    """Return a function that reads the table recorded in run.json and verifies its parts.

    Both raise RunError if the table has changed.
    """
    if "parts" not in stored:
        return TableSource.again(stored)
    parts = stored["parts"]
    if depth > MAX_TABLE_PARTS or not isinstance(parts, list) or not 1 <= len(parts) <= 2:
        raise RunError("run.json is damaged: its data have no parts.")
    before, dropped = stored_table(parts[0], depth + 1), np.asarray(stored["dropped"], np.int64)
    added = TableSource.again(parts[1]) if len(parts) == 2 else None

    def read() -> pyarrow.Table:
        table = without(before(), dropped)
        return table if added is None else append_rows(table, added(), "a part")

    return read
