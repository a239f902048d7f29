"""Tables in databases: DuckDB files and queries, and SQLite files, which Python's sqlite3 reads."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, UsageError, did_you_mean, first_line, need
from .readers import batch_rows
from .tables import existing

if TYPE_CHECKING:
    import pyarrow

QUERY = re.compile(r"\s*(select|with|from|values)\s", re.IGNORECASE)
SAMPLED = re.compile(r"\b(using\s+sample|tablesample)\b", re.IGNORECASE)
SEEDED = re.compile(r"\brepeatable\s*\(|\(\s*\w+\s*,\s*\d+\s*\)", re.IGNORECASE)
DUCKDB_MEMORY = "400MB"  # DuckDB's memory limit; larger sorts and joins use the disk
LOG_SUFFIXES = (".wal", "-wal", "-journal")  # suffixes of a database file's logs
ARROW_TYPES = {"null": "null", "integer": "int64", "real": "double", "text": "string", "blob": "binary"}  # fmt: skip
MAX_QUERY_CHARS = 60  # characters of a query in a message


def is_query(data: Any) -> bool:
    """Return whether `data` is SQL and not the name of a file."""
    return isinstance(data, str) and QUERY.match(data) is not None and not Path(data).exists()


def kind_of_database(path: str | Path) -> str | None:
    """Return "duckdb" or "sqlite" from a file's first bytes, or None for any other file."""
    try:
        if not Path(path).is_file():  # a named pipe would wait for a writer
            return None
        with open(path, "rb") as file:
            first = file.read(16)
    except (OSError, ValueError):
        return None
    if first == b"SQLite format 3\0":
        return "sqlite"
    return "duckdb" if first[8:12] == b"DUCK" else None


def database_files(path: str | Path) -> list[Path]:
    """Return a database file and its logs; raise DataError for other files."""
    path = existing(path)
    if kind_of_database(path) is None:
        raise DataError(f"{path} is not a DuckDB or SQLite database; write it again.")
    logs = [path.with_name(path.name + end) for end in LOG_SUFFIXES]
    return [path, *(log for log in logs if log.is_file() and log.stat().st_size)]


def _asked(
    path: Path | None, query: str | None, table: str | None, tables: Callable[[], list[Any]]
) -> tuple[str, str]:
    """Return the description and the SQL of what is read: the query, or a table of the file."""
    if query is not None:
        if SAMPLED.search(query) and not SEEDED.search(query):
            raise UsageError(
                f"the query {_shown(query)} draws other rows each time; give its sample a seed: "
                "using sample 10% (bernoulli, 1), or tablesample ... repeatable (1)."
            )
        return f"the query {_shown(query)}", query.strip().rstrip(";")
    assert path is not None
    name = _named(path, [str(row[0]) for row in tables()], table)
    return f"{name} of {path}", f"select * from {_quoted(name)}"


def _named(path: Path, names: Sequence[str], table: str | None) -> str:
    """Return the name of the table to read: the requested one, or the only one."""
    if table is None and len(names) == 1:
        return names[0]
    if table in names:
        return str(table)
    there = f"the tables are {', '.join(sorted(names)) or 'none'}"
    if table is None:
        raise UsageError(f"{path} has {len(names)} tables; name one with table=: {there}.")
    raise DataError(f"{path} has no table {table!r}; {there}.{did_you_mean(table, names)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _shown(query: str) -> str:
    words = " ".join(query.split())
    return repr(words if len(words) <= MAX_QUERY_CHARS else words[:MAX_QUERY_CHARS] + " ...")


class DuckDB:
    """A table of a DuckDB file, or the result of a query on that file or on files that it names.

    One thread reads it, so that a query returns its rows in the same order each time. With a folder
    `spill`, memory is bounded.
    """

    def __init__(
        self, path: Path | None, query: str | None, table: str | None, spill: Path | None = None
    ) -> None:
        self.path, self.spill = path, spill
        with self._opened() as connection:
            tables = "select table_name from information_schema.tables where table_schema = 'main'"
            self.name, self._query = _asked(
                path, query, table, lambda: connection.sql(tables).fetchall()
            )
            reader = self._reader(connection, f"select * from ({self._query}) limit 0", 1)
            self.schema = {field.name: field.type for field in reader.schema}
        self.num_rows = 0

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        duckdb = need("duckdb", "duckdb")
        where = "a query" if self.path is None else str(self.path)
        try:
            with duckdb.connect(
                ":memory:" if self.path is None else str(self.path), read_only=self.path is not None
            ) as connection:
                connection.execute("set threads = 1")
                if self.spill is not None:
                    connection.execute(f"set memory_limit = '{DUCKDB_MEMORY}'")
                    escaped = str(self.spill).replace("'", "''")
                    connection.execute(f"set temp_directory = '{escaped}'")
                if self.path is not None:  # the file alone must determine the rows
                    connection.execute("set enable_external_access = false")
                yield connection
        except duckdb.Error as error:
            raise DataError(f"{where} cannot be read by DuckDB: {first_line(error)}.") from error

    @staticmethod
    def _reader(connection: Any, query: str, rows: int) -> Any:
        found = connection.sql(query)
        # renamed in DuckDB 1.5; the old name warns
        read = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
        return read(rows)

    def count(self) -> int:
        """Count its rows."""
        with self._opened() as connection:
            return int(connection.sql(f"select count(*) from ({self._query})").fetchall()[0][0])

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """Yield all rows of these columns."""
        names = ", ".join(map(_quoted, columns))
        with self._opened() as connection:
            query = f"select {names} from ({self._query})"
            yield from self._reader(connection, query, batch_rows(len(columns)))


class SQLite:
    """A table of a SQLite file, or the result of a query on it."""

    def __init__(self, path: Path, query: str | None, table: str | None) -> None:
        self.path = path
        with self._opened() as connection:
            tables = "select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%'"
            self.name, self._query = _asked(
                path, query, table, lambda: connection.execute(tables).fetchall()
            )
            empty = connection.execute(f"select * from ({self._query}) limit 0")
            names = [column[0] for column in empty.description]
            self.schema = {name: self._type(connection, name) for name in names}
            self.num_rows = int(
                connection.execute(f"select count(*) from ({self._query})").fetchone()[0]
            )

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as connection:  # fmt: skip
                yield connection
        except sqlite3.Error as error:
            raise DataError(f"{self.path} cannot be read by SQLite: {error}.") from error

    def _type(self, connection: sqlite3.Connection, name: str) -> Any:
        """Return the Arrow type of a column from the types of its cells: SQLite types only cells."""
        arrow = need("pyarrow", "tables")
        query = f"select distinct typeof({_quoted(name)}) from ({self._query})"
        found = {str(row[0]) for row in connection.execute(query)} - {"null"}
        if found <= {"integer", "real"} and len(found) != 1:
            found = {"real"} if found else {"null"}
        if len(found) == 1:
            return arrow.type_for_alias(ARROW_TYPES[found.pop()])
        raise DataError(
            f"column {name!r} of {self.name} holds cells of several types ({', '.join(sorted(found))}); cast it in a "
            "query."
        )

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """Yield all rows of these columns."""
        arrow = need("pyarrow", "tables")
        names = ", ".join(map(_quoted, columns))
        schema = arrow.schema([(name, self.schema[name]) for name in columns])
        most = batch_rows(len(columns)) // 8 + 1  # Python numbers need more memory
        with self._opened() as connection:
            cursor = connection.execute(f"select {names} from ({self._query})")
            while rows := cursor.fetchmany(most):
                cells = zip(*rows, strict=True)
                yield arrow.record_batch(
                    [arrow.array(c, field.type) for c, field in zip(cells, schema, strict=True)],
                    schema=schema,
                )
