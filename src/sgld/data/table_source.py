"""Whole tables, held in memory: what a formula is read against, from all that `sgld.open` reads tables of.

Several tables read one after the other, in batches, as one: the first's columns, found by name; some rows left out.

A table that has grown, or lost rows, since a run was made from it: told in run.json by its parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ..core.devices import check_memory
from ..errors import DataError, RunError, UsageError, need
from .cache import stamp_of
from .convert import check_drop
from .databases import DuckDB, SQLite, database_files, is_query, kind_of_database
from .source import check_names
from .table_files import TableFiles, table_files
from .tables import content_hash, existing, kind_of_file, read_table

if TYPE_CHECKING:
    import pyarrow

    from .readers import Batches

STORED_ARGUMENTS = ("table", "database", "sep", "decimal")  # beside the path, in run.json
CELL_BYTES = 16  # bytes of a cell while a table is put together


class TableSource(NamedTuple):
    """Where a table is read from: a file, a folder, a database, or a query.

    `database` is the file that a query is asked of, `table` of a database that has several, `sep`
    and `decimal` of a file of text (`sgld.data.tables.read_table`), of which `batches` takes the
    columns `as_text` letter by letter.
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
        """What a user gave. Raises UsageError for what means nothing there."""
        source = cls(str(data), table, None if database is None else str(database), sep, decimal)
        if database is not None and not source.is_query:
            raise UsageError(f"database is what a query is asked of. Got the data {source.data!r}.")
        if table is not None and (source.is_query or kind_of_database(source.data) is None):
            raise UsageError(f"table is of a database file. Got the data {source.data!r}.")
        if (sep is not None or decimal != ".") and not source.is_file:
            raise UsageError(
                f"sep and decimal are of one file of text. Got the data {source.data!r}."
            )
        return source

    @classmethod
    def like(
        cls, stored: Any, data: str | Path, sep: str | None, decimal: str | None,
        table: str | None = None, database: Any = None,
    ) -> TableSource:  # fmt: skip
        """A file beside those that `as_json` told of: written as the first of them whose name ends in the same letters."""
        alike = [part for part in _parts(stored) if _ends(part.get("path")) == _ends(data)]
        if alike:
            sep = alike[0].get("sep") if sep is None else sep
            decimal = alike[0].get("decimal") if decimal is None else decimal
        sep, decimal = None if sep is None else str(sep), str(decimal or ".")
        return cls.of(data, table, database, sep, decimal)

    @property
    def is_file(self) -> bool:
        """Whether it is one file, of a table."""
        return not (self.is_query or Path(self.data).is_dir() or kind_of_database(self.data))

    @property
    def is_parquet(self) -> bool:
        """Whether it is files of Parquet, which tell their rows."""
        files = [] if self.is_query or kind_of_database(self.data) else self.files()
        return bool(files) and kind_of_file(files[0]) == "parquet"

    @property
    def is_query(self) -> bool:
        """Whether the data are SQL."""
        return is_query(self.data)

    def read(self) -> tuple[pyarrow.Table, str]:
        """The table, and the SHA-256 of what decides it: of the bytes of its files; of a query without a database, of its rows.

        Raises: DataError for what cannot be read, or changes meanwhile; UsageError for a table that
        does not fit in memory.
        """
        files = self.files()
        digest = _digest(files)
        before = [stamp_of(path) for path in files]
        table = read_table(self.data, self.sep, self.decimal) if self.is_file else self._read()
        if [stamp_of(path) for path in files] != before:
            raise DataError(f"{self.data} changed while it was read; read it again.")
        return table, digest or _digest_of_rows(table)

    def files(self) -> list[Path]:
        """The files whose bytes decide the rows; none of a query that names its own."""
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
            "sgld.open reads more rows than fit in memory, for a density of your own",
        )  # fmt: skip
        schema = arrow.schema(list(source.schema.items()))
        batches = []
        for batch in source.batches(schema.names):
            cells = [batch.column(field.name).cast(plain_type(field.type)) for field in schema]
            batches.append(arrow.record_batch(cells, names=schema.names))
        if not sum(batch.num_rows for batch in batches):
            raise DataError(f"{source.name} has no row; at least one is needed.")
        return arrow.Table.from_batches(batches)

    def batches(self, spill: Path | None = None) -> Batches:
        """The table in batches; what DuckDB does not hold goes to the folder `spill`."""
        query = self.data if self.is_query else None
        if query is None and not kind_of_database(self.data):
            how: dict[str, Any] = {"sep": self.sep, "decimal": self.decimal}
            return TableFiles(table_files(self.data), **how, as_text=self.as_text)
        path = self.database if query is not None else self.data
        if path is not None and kind_of_database(path) == "sqlite":
            return SQLite(Path(path), query, self.table)
        return DuckDB(None if path is None else Path(path), query, self.table, spill)

    def as_json(self, digest: str) -> dict[str, Any]:
        """For run.json."""
        place = {} if self.is_query else {"absolute": str(Path(self.data).absolute())}
        if self.database is not None:
            place = {"absolute": str(Path(self.database).absolute())}
        decimal = None if self.decimal == "." else self.decimal
        rest = {"table": self.table, "database": self.database, "sep": self.sep, "decimal": decimal}
        return {"path": self.data, **place, "sha256": digest, **{k: v for k, v in rest.items() if v}}  # fmt: skip

    @classmethod
    def located(cls, stored: dict[str, Any]) -> TableSource:
        """What `as_json` tells of, where it is now. RunError where it is missing, or is not to be read again."""
        words: Any = {n: str(stored[n]) for n in STORED_ARGUMENTS if stored.get(n) is not None}
        source = cls(str(stored["path"]), **words)
        if source.is_query and source.database is None:
            # of files that it names itself: a run directory of a stranger's may not read them
            raise RunError(
                "the run was begun from a query that reads files, which is not asked again; write its rows to a file "
                "and fit that, where a run is to be resumed or looked at again."
            )
        absolute = stored.get("absolute")
        if absolute is not None:
            # a run may be resumed from another folder, or have moved together with its data
            place = source.data if source.database is None else source.database
            found = next((p for p in (absolute, place) if Path(p).exists()), None)
            if found is None:
                raise RunError(f"the run's data file {absolute} is missing; put it back to go on.")
            source = source._replace(**{"data" if source.database is None else "database": found})

        return source

    def changed(self) -> RunError:
        """What is said where the data are not those of the run."""
        what = self.data if self.database is None else self.database
        return RunError(
            f"the run's data file {what} has changed since the run was begun; put the old file "
            "back, or fit the new one to another directory."
        )

    @classmethod
    def again(cls, stored: dict[str, Any]) -> Callable[[], pyarrow.Table]:
        """A function that reads the table that `as_json` tells of. Either raises RunError where it is not the same."""
        source = cls.located(stored)

        def read() -> pyarrow.Table:
            table, digest = source.read()
            if digest != stored["sha256"]:
                raise source.changed()
            return table

        return read


def plain_type(kind: Any) -> Any:
    """A type without a dictionary, which may be another in each batch."""
    types = need("pyarrow", "tables").types
    return kind.value_type if types.is_dictionary(kind) else kind


def _digest(files: list[Path]) -> str:
    """SHA-256 of one file's bytes, or of those of several; empty of none."""
    found = [content_hash(path) for path in files]
    if len(found) < 2:
        return "".join(found)
    return hashlib.sha256(" ".join(found).encode()).hexdigest()


def _digest_of_rows(table: pyarrow.Table) -> str:
    arrow = need("pyarrow", "tables")
    sink, found = arrow.BufferOutputStream(), hashlib.sha256()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    found.update(sink.getvalue())
    return found.hexdigest()


def _ends(path: Any) -> str:
    """What tells how a file of text is written, of its name."""
    return Path(str(path).lower().removesuffix(".gz")).suffix


def _parts(stored: Any) -> list[dict[str, Any]]:
    """The files of a table, the run's first one before those that came later (grown.py)."""
    found = []
    while isinstance(stored, dict) and isinstance(stored.get("parts"), list) and stored["parts"]:
        found = [part for part in stored["parts"][1:] if isinstance(part, dict)] + found
        stored = stored["parts"][0]
    return [stored, *found] if isinstance(stored, dict) else found


# -- chained -------------------------------------------------------------------------------


class Chained:
    """The rows of the sources in turn, whatever the order of their columns.

    Args:
      dropped: of each source, the numbers, from 0, of those rows of the table up to its end that are no longer there;
        none: all are.
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
            for name in self.schema:
                if name not in part.schema:
                    raise DataError(
                        f"{part.name} has no column {name!r}, which the run's table has; give it there."
                    )

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """All rows of these columns, with the first table's types."""
        yield from self._up_to(len(self._parts) - 1, list(columns))

    def _up_to(self, last: int, names: list[str]) -> Iterator[pyarrow.RecordBatch]:
        """The rows of the sources up to that number, without those that were dropped then."""
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
        """The rows of the sources before that number, and then all of its own."""
        arrow, part = need("pyarrow", "tables"), self._parts[last]
        if last:
            yield from self._up_to(last - 1, names)
        for batch in part.batches(names):
            cells = [self._cast(part.name, name, batch.column(name)) for name in names]
            yield arrow.record_batch(cells, names=names)

    def _cast(self, part: str, name: str, cells: Any) -> Any:
        kind = self.schema[name]
        if cells.type == kind:
            return cells
        arrow = need("pyarrow", "tables")
        try:
            return cells.cast(kind)
        except (arrow.ArrowException, ValueError) as error:
            raise DataError(
                f"{part} has other kinds of cells than the run's table ({str(error).splitlines()[0]}); write them alike."
            ) from error


# -- grown ---------------------------------------------------------------------------------


MAX_TABLE_PARTS = 1000  # of parts, of a table that grew so often


def appended(first: pyarrow.Table, second: pyarrow.Table, name: str) -> pyarrow.Table:
    """The rows of both, by the columns of the first. DataError where the second lacks one, or has other cells."""
    arrow = need("pyarrow", "tables")
    for column in first.column_names:
        if column not in second.column_names:
            raise DataError(
                f"{name} has no column {column!r}, which the run's table has; give it there."
            )
    try:
        cast = second.select(first.column_names).cast(first.schema)
    except (arrow.ArrowException, ValueError) as error:
        raise DataError(
            f"{name} has other kinds of cells than the run's table ({str(error).splitlines()[0]}); write them alike."
        ) from error
    return arrow.concat_tables([first, cast])


def without(table: pyarrow.Table, rows: Int[np.ndarray, " m"]) -> pyarrow.Table:
    """The other rows. UsageError for numbers that are no rows, or are there twice, and where none would be left."""
    check_drop(rows, table.num_rows)
    left = np.ones(table.num_rows, bool)
    left[rows] = False
    return table.filter(need("pyarrow", "tables").array(left))


def as_grown(
    first: dict[str, Any], second: dict[str, Any] | None, dropped: Int[np.ndarray, " m"]
) -> dict[str, Any]:
    """For run.json: rows of `first` were dropped, and those of `second` appended."""
    parts = [first] if second is None else [first, second]
    return {
        "path": " + ".join(str(part["path"]) for part in parts),
        "parts": parts,
        "dropped": [int(row) for row in dropped],
    }


def table_again(stored: dict[str, Any], depth: int = 0) -> Callable[[], pyarrow.Table]:
    """A function that reads the table that a run.json tells of, its parts found to be the same. Either raises RunError."""
    if "parts" not in stored:
        return TableSource.again(stored)
    parts = stored["parts"]
    if depth > MAX_TABLE_PARTS or not isinstance(parts, list) or not 1 <= len(parts) <= 2:
        raise RunError("run.json is damaged: its data have no parts.")
    before, dropped = table_again(parts[0], depth + 1), np.asarray(stored["dropped"], np.int64)
    added = TableSource.again(parts[1]) if len(parts) == 2 else None

    def read() -> pyarrow.Table:
        table = without(before(), dropped)
        return table if added is None else appended(table, added(), "a part")

    return read
