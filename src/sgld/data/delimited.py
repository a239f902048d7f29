"""Tables of text (CSV and similar, plain or gzipped) and diagnoses of cells that are not numbers.

The separator is detected in the first rows. For a column that should hold numbers, the diagnosis names
what the text looks like: a number with a decimal comma, a percentage, an amount of money, a date, or a
yes or no. The problem of a column is a `Trouble`; problems of several columns form one message.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import itertools
import json
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Int

from ..errors import DataError, SGLDWarning, UsageError, did_you_mean, first_line, need
from .source import check_names

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
SEPARATORS = (",", ";", "\t", "|")  # the separators that are detected; ties go to the first
SEPARATOR_NAMES = {
    "comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "bar": "|", "pipe": "|", "space": " ",
}  # fmt: skip
MAX_HEADER_CHARS = 2**20  # characters of the first line, which must fit pyarrow's first block
CSV_BLOCK_BYTES = 2**22  # bytes of a text from which the types of its columns are inferred
SEPARATOR_ROWS = 100  # rows in which the separator is detected
IDS_KEY = b"sgld.leading_zeros"  # of a table's metadata
GZIP = b"\x1f\x8b"
# first bytes of files that are not text, whatever their name
NOT_TEXT_SIGNATURES = {
    b"PK\x03\x04": "an Excel workbook or another zip archive; save the sheet as 'CSV UTF-8'",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as 'CSV UTF-8'",
    b"PAR1": "a Parquet file; name it .parquet",
    b"ARROW1": "an Arrow file; name it .arrow",
    b"\xff\xfe": "UTF-16 text, as Excel's 'Unicode Text' is; save it as 'CSV UTF-8', or iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "UTF-16 text, as Excel's 'Unicode Text' is; save it as 'CSV UTF-8', or iconv -f UTF-16 -t UTF-8",
}  # fmt: skip


class Dialect(NamedTuple):
    """The format of a table: the cell separator, the decimal point, lines before the header."""

    sep: str = ","
    decimal: str = "."
    skip: int = 0


COMMAS = Dialect()


def dialect_of(path: Path, sep: str | None = None, decimal: str = ".") -> Dialect:
    """Return the dialect of a file; the separator is detected if none is given.

    Of comma, semicolon, tab and bar it is the one that gives the first rows the most cells, with equally
    many in each row. Excel's line "sep=;" is read. Raises UsageError for an invalid `sep` or `decimal`,
    DataError for a file that is not text.
    """
    head = _head(path)
    declared = re.match(r'"?sep=(.)"?\r?\n', head.decode("utf-8-sig", errors="replace"))
    skip = int(declared is not None)
    if decimal not in (".", ","):
        raise UsageError(f"decimal must be '.' or ','. Got {decimal!r}.")
    if sep is None and declared:
        sep = declared[1]
    sep = _found(head, path) if sep is None else SEPARATOR_NAMES.get(sep, sep)
    if len(sep) != 1 or not sep.isascii() or sep.isalnum() or sep in '"\r\n':
        raise UsageError(
            f"sep must be one character, or one of {', '.join(SEPARATOR_NAMES)}. Got {sep!r}."
            + did_you_mean(sep, SEPARATOR_NAMES)
        )
    if sep == decimal:
        raise UsageError(f"sep and decimal are both {sep!r}; they must differ.")
    return Dialect(sep, decimal, skip)


def _head(path: Path) -> bytes:
    """Return the first bytes of the text."""
    with _opened(path) as file:
        head = file.read(MAX_HEADER_CHARS)
    for start, what in NOT_TEXT_SIGNATURES.items():
        if head.startswith(start):
            raise DataError(f"{path} has the extension of a text file but is {what}.")
    return head


def _opened(path: Path) -> Any:
    with open(path, "rb") as file:
        zipped = file.read(2) == GZIP
    return gzip.open(path, "rb") if zipped else open(path, "rb")


def _found(head: bytes, path: Path) -> str:
    lines = head.decode("utf-8-sig", errors="replace").splitlines(keepends=True)
    if len(head) == MAX_HEADER_CHARS:
        lines = lines[:-1]  # the last line is incomplete
    widths = {sep: _widths(lines, sep) for sep in SEPARATORS}
    whole = [sep for sep in SEPARATORS if len(set(widths[sep])) == 1 and widths[sep][0] > 1]
    best = max(whole or SEPARATORS, key=lambda sep: widths[sep][:1])
    spaced = [len(set(found)) == 1 and found[0] > 1 for found in (
        [len(line.split()) for line in lines[:SEPARATOR_ROWS] if line.strip()], _widths(lines, " "),
    )]  # fmt: skip
    if widths[best][:1] <= [1] and any(spaced) and len(lines) > 1:
        raise DataError(
            f"{path} has its columns separated by spaces; give sep=' ' if it is one space between cells, "
            "or write it with commas."
        )
    return best


def _widths(lines: list[str], sep: str) -> list[int]:
    """Return the number of cells in each of the first rows."""
    try:
        rows = itertools.islice(filter(None, csv.reader(lines, delimiter=sep)), SEPARATOR_ROWS)
        return [len(row) for row in rows]
    except csv.Error:
        return []


def _rows(file: Iterator[bytes], dialect: Dialect) -> Any:
    """Return a reader of the cells; bytes that are not UTF-8 become lone surrogates."""
    lines = (line.decode("utf-8", errors="surrogateescape") for line in file)
    for _ in range(dialect.skip):
        next(lines, "")
    first = next(lines, "").removeprefix("\ufeff")
    return csv.reader(itertools.chain([first], lines), delimiter=dialect.sep)


def csv_header(path: Path, dialect: Dialect = COMMAS) -> list[str]:
    """Return the names in the first row of a text table, unchanged."""
    with _opened(path) as file:
        # bounded, because a file may have no line breaks
        lines = iter(lambda: file.readline(MAX_HEADER_CHARS), b"")
        lines, probe = itertools.tee(lines)
        if len(next(probe, b"")) == MAX_HEADER_CHARS:
            raise DataError(
                f"{path} has a first line of {MAX_HEADER_CHARS:,} characters or more, which should hold the column "
                "names; write it again."
            )
        try:
            names = next(_rows(lines, dialect), [])
        except csv.Error as error:
            raise DataError(
                f"{path} has a name of more than {csv.field_size_limit():,} characters in its header, or cannot be "
                f"read as csv ({first_line(error)}); write it again."
            ) from error
    wrong = re.search("[\udc80-\udcff]", "".join(names))
    if wrong:
        byte = ord(wrong[0]) - 0xDC00
        raise DataError(f"{path} {not_utf8(bytes([byte]))} in its first line; {TO_UTF8}.")
    check_names([name.strip() for name in names], str(path))
    return names


def _ids_of(path: Path, names: list[str], dialect: Dialect) -> dict[str, str]:
    """Return a cell with leading zeros of each column whose first cells are digits of one width, 3 or more."""
    rows: list[list[str]] = []
    with _opened(path) as file, contextlib.suppress(csv.Error):  # the reader names that line
        lines = iter(lambda: file.readline(MAX_HEADER_CHARS), b"")
        rows += itertools.islice(filter(None, _rows(lines, dialect)), SEPARATOR_ROWS + 1)
    found = {}
    for name, *column in zip(names, *rows[1:], strict=False):
        cells = [cell for cell in column if cell]
        zeros = [cell for cell in cells if cell.startswith("0") and len(cell) > 2]
        if zeros and len({len(cell) for cell in cells}) == 1 and all(map(str.isdecimal, cells)):
            found[name.strip()] = zeros[0]
    return found


def warn_of_ids(table: pyarrow.Table, names: Iterable[str]) -> None:
    """Warn of columns that a formula uses as numbers and that looked like identifiers in a text file."""
    found = json.loads((table.schema.metadata or {}).get(IDS_KEY, b"{}"))
    for name in names:
        if name in found:
            warnings.warn(
                f"column {name!r} holds numbers with leading zeros, such as {found[name]!r}, as identifiers do; it is "
                f"used as a number. Leave it out of the formula, or use it as a category, C({name}).",
                SGLDWarning, stacklevel=2,
            )  # fmt: skip


TO_UTF8 = "save it as 'CSV UTF-8', or convert it: iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW"


def not_utf8(cell: bytes) -> str:
    """Describe bytes that are not UTF-8 by their reading in Latin-1."""
    byte = next((b for b in cell if b > 127), 0)
    return f"is not UTF-8 text (byte {byte:#04x}, which is {bytes([byte]).decode('latin-1')!r} in Latin-1)"


def _read_rows(rows: Any, path: Path, dialect: Dialect) -> Iterator[list[str]]:
    """Yield the remaining rows; raise DataError at one that cannot be parsed."""
    try:
        yield from rows
    except csv.Error as error:
        line = rows.line_num + dialect.skip
        raise DataError(
            f"{path} cannot be read as a table from line {line} on: a quotation mark is not closed, or a line ends "
            f"in a carriage return alone ({first_line(error)}); fix that line."
        ) from error


def ragged(path: Path, dialect: Dialect = COMMAS) -> DataError:
    """Return the error for the first row of a text table that has a different length."""
    with _opened(path) as file:
        rows = _rows(file, dialect)
        width = len(next(rows))
        for cells in filter(None, _read_rows(rows, path, dialect)):
            if len(cells) != width:
                line = rows.line_num + dialect.skip
                names = " (does the header lack a name for the row numbers?)" * (
                    line == 2 and len(cells) == width + 1
                )
                return DataError(
                    f"{path} line {line} has {len(cells)} cells, and the header has {width}{names}; fix that line."
                )
    return DataError(f"{path} has rows of different lengths; write it again.")


class CsvFile:
    """The table in a text file, read into memory (`table`) or in batches.

    An empty unquoted cell and NA, NaN, null are nulls. Types come from the first block of the file: a column
    whose later cells do not fit becomes floating point, or else text. Spaces around names are removed.

    Raises: DataError for a file that is not text or not a table, UsageError for `sep` and `decimal`.
    """

    def __init__(
        self, path: Path, sep: str | None = None, decimal: str = ".", as_text: Sequence[str] = ()
    ) -> None:
        self.path, text = path, need("pyarrow", "tables").string()
        with unpacking(path):
            self._dialect = dialect_of(path, sep, decimal)
            self._names = csv_header(path, self._dialect)  # unchanged, with spaces
        self._types: dict[str, Any] = {n: text for n in self._names if n.strip() in as_text}
        self.num_rows, self.schema = 0, dict[str, Any]()

    def table(self) -> pyarrow.Table:
        """Return the whole table; every column is in one piece."""
        # a block at a time: read_csv holds three times the table
        table = self._fitted(lambda: _in_one_piece(self._read_all()))
        ids = _ids_of(self.path, self._names, self._dialect)
        return table.replace_schema_metadata({IDS_KEY: json.dumps(ids)}) if ids else table

    def typed(self) -> CsvFile:
        """Find the types of all columns and the number of rows in a pass over the file."""
        self._fitted(self._scan)
        return self

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """Yield all rows of these columns."""
        names = [name for name in self._names if name.strip() in columns]
        with self._opened(names) as reader:
            for batch in reader:
                yield batch.rename_columns([name.strip() for name in names])

    def _read_all(self) -> pyarrow.Table:
        with self._opened(self._names, threads=True) as reader:
            return reader.read_all().rename_columns([name.strip() for name in self._names])

    def _scan(self) -> None:
        self.num_rows, schema = 0, {}
        for batch in self.batches([name.strip() for name in self._names]):
            self.num_rows += batch.num_rows
            schema = {field.name: field.type for field in batch.schema}
        # a file with only a header has no batch
        null = need("pyarrow", "tables").null()
        self.schema = schema or {name.strip(): null for name in self._names}
        self._types = {name: self.schema[name.strip()] for name in self._names}

    def _fitted(self, read: Callable[[], T]) -> T:
        """Return `read()` once the types of all columns fit."""
        arrow = need("pyarrow", "tables")
        while True:
            try:
                return read()
            except arrow.ArrowInvalid as error:
                self._widen(error)

    def _widen(self, error: Exception) -> None:
        """Widen the type of the column whose cells did not fit; raise DataError for invalid CSV."""
        arrow = need("pyarrow", "tables")
        if "straddl" in str(error):
            raise DataError(
                f"{self.path} has a row of more than {CSV_BLOCK_BYTES:,} characters; close an open quotation mark, or write "
                "it again."
            ) from error
        if "Expected" in str(error) and "columns" in str(error):
            raise ragged(self.path, self._dialect) from error
        found = re.search(r"In CSV column #(\d+).*conversion error to (\S+):", str(error))
        if not found or found[2] == "string":
            raise error
        name = self._names[int(found[1])]
        numeric = found[2] in ("int64", "null") and name not in self._types
        self._types[name] = arrow.float64() if numeric else arrow.string()

    @contextlib.contextmanager
    def _opened(self, columns: list[str], threads: bool = False) -> Iterator[Any]:
        arrow, reader = need("pyarrow", "tables"), need("pyarrow.csv", "tables")
        read = reader.ReadOptions(
            block_size=CSV_BLOCK_BYTES, use_threads=threads, skip_rows=self._dialect.skip
        )
        parse = reader.ParseOptions(delimiter=self._dialect.sep, newlines_in_values=True)
        convert = reader.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False, column_types=self._types,
            include_columns=columns, decimal_point=self._dialect.decimal,
        )  # fmt: skip
        with open(self.path, "rb") as file:
            packed = "gzip" if file.read(2) == GZIP else None
        with (
            arrow.input_stream(str(self.path), compression=packed, buffer_size=2**18) as source,
            reader.open_csv(
                source, read_options=read, parse_options=parse, convert_options=convert
            ) as batches,
        ):
            yield batches


@contextlib.contextmanager
def unpacking(path: Path) -> Iterator[None]:
    """Raise DataError if a gzip file is truncated or damaged."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} is a damaged gzip file ({first_line(error)}); copy it again."
        ) from error


@contextlib.contextmanager
def arrow_errors(path: Path, kind: str) -> Iterator[None]:
    """Raise DataError for a table's file that pyarrow cannot read."""
    arrow = need("pyarrow", "tables")
    try:
        with unpacking(path):
            yield
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
        raise DataError(
            f"{path} cannot be read as {kind}: {first_line(error)}; it is damaged or truncated: write it again."
        ) from error


def _in_one_piece(table: pyarrow.Table) -> pyarrow.Table:
    """Return the table with one chunk per column, for pandas and NumPy; works a column at a time."""
    pool = need("pyarrow", "tables").default_memory_pool()
    for index, name in enumerate(table.column_names):
        whole = table.select([index]).combine_chunks()  # texts beyond 2 GiB keep several
        table = table.set_column(index, name, whole.column(0))
        pool.release_unused()  # otherwise the pool keeps the memory of the chunks
    return table


def plain_type(kind: Any) -> Any:
    """Return the type without its dictionary, which may differ between batches."""
    types = need("pyarrow", "tables").types
    return kind.value_type if types.is_dictionary(kind) else kind


def is_text(kind: Any) -> bool:
    """Return whether cells of this Arrow type are texts."""
    types = need("pyarrow", "tables").types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


# -- cells ---------------------------------------------------------------------------------


DROP_REMEDY = "drop such rows or fill the cells in"
MAX_SLIP_SHARE = 0.1  # the share of distinct texts that may be typing errors among plain numbers
MAX_CHECKED_TEXTS = 100_000  # distinct texts whose notation is checked
SIGN = r"\s*[-+\u2212]?\s*"
MONEY = r"[$€£¥₹]|USD|EUR|GBP|CHF"
# (pattern of a whole cell, its description, the remedy)
CELL_PATTERNS = (
    (
        rf"{SIGN}[1-9]\d{{0,2}}([,.' \u00a0\u202f]\d{{3}})+([.,]\d+)?",
        "numbers with separated thousands",
        "write them without separators, or read the file with decimal=',' if that is a decimal comma",
    ),
    (
        rf"{SIGN}\d*,\d+(e[-+]?\d+)?",
        "numbers with a decimal comma",
        "read the file with decimal=',', or write points",
    ),
    (rf"{SIGN}[\d.,]+\s*%", "percentages", "remove the sign and write plain numbers"),
    (
        rf"(?=.*({MONEY})){SIGN}({MONEY})?{SIGN}[\d.,' ]*\d\s*({MONEY})?",
        "amounts of money",
        "remove the currency and write plain numbers",
    ),
    (
        r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}([T ].*)?",
        "dates or times",
        "convert each to a number: days since the first, or the year and month as separate columns",
    ),
)
DATES = CELL_PATTERNS[-1]


class Trouble(NamedTuple):
    """Why a column cannot be used: the text after its name, and the remedy."""

    column: str
    what: str
    remedy: str


def raise_all(troubles: Iterable[Trouble | None]) -> None:
    """Raise a DataError that names every column with a problem, if there is one."""
    found = [trouble for trouble in troubles if trouble is not None]
    if not found:
        return
    remedies = "; ".join(dict.fromkeys(trouble.remedy for trouble in found))
    if len(found) == 1:
        raise DataError(f"column {found[0].column!r} {found[0].what}; {remedies}.")
    said = ", ".join(f"{trouble.column!r} {trouble.what}" for trouble in found)
    raise DataError(f"{len(found)} columns cannot be used: {said}; {remedies}.")


def renumbered(error: DataError, numbers: Int[np.ndarray, " n"]) -> DataError:
    """Return the error with data rows of a selection replaced by data rows of the whole table.

    Both are counted from 1.

    Args:
      error: the error on the selected rows.
      numbers: the selected rows of the table, counted from 0.

    Example:
      >>> import numpy as np
      >>> from sgld.data.delimited import renumbered
      >>> from sgld.errors import DataError
      >>> print(renumbered(DataError("'x' is inf in data row 2."), np.array([0, 5])))
      'x' is inf in data row 6.
    """

    def found(row: re.Match) -> str:
        place = int(row[1]) - 1
        return f"data row {numbers[place] + 1 if place < len(numbers) else row[1]}"

    return DataError(re.sub(r"data row (\d+)", found, str(error)))


def missing_cells(table: pyarrow.Table, name: str) -> Trouble | None:
    """Return the problem of a column with null cells, or None."""
    column = table.column(name)
    if not column.null_count:
        return None
    first = int(np.argmax(column.is_null().to_numpy())) + 1
    return Trouble(
        name, f"is null (empty) in data row {first}{_more(column.null_count)}", DROP_REMEDY
    )


def trouble_of(table: pyarrow.Table, name: str) -> Trouble | None:
    """Return why a column does not hold finite numbers or booleans, or None if it does."""
    missing = missing_cells(table, name)
    if missing is not None:
        return missing
    arrow = need("pyarrow", "tables")
    types, column = arrow.types, table.column(name)
    kind = plain_type(column.type)
    column = column.cast(kind)
    if types.is_boolean(kind):
        return None
    first = column[0].as_py() if len(column) else None
    if types.is_binary(kind):
        cells = column.to_pylist()
        row = next((i for i, cell in enumerate(cells) if not _is_utf8(cell)), 0)
        return Trouble(name, f"{not_utf8(cells[row])} in data row {row + 1}", TO_UTF8)
    if is_text(kind):
        return _of_text(name, column)
    if types.is_temporal(kind):
        return Trouble(
            name, f"holds {DATES[1]} ({kind} values such as {str(first)!r} in data row 1)", DATES[2]
        )
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        what = f"holds {kind} values such as {first!r} in data row 1, and numbers are needed"
        return Trouble(name, what, "convert it to numbers")
    values = column.cast(arrow.float64(), safe=False).to_numpy()
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        what = f"is {values[bad[0]]} in data row {bad[0] + 1}{_more(bad.size)}"
        return Trouble(name, what, DROP_REMEDY)
    return None


def written_number(name: str, column: pyarrow.ChunkedArray) -> Trouble | None:
    """Return the problem of a text column whose cells are mostly oddly written numbers or dates."""
    compute = need("pyarrow.compute", "tables")
    levels = [text for text in compute.unique(column).to_pylist() if text is not None]
    levels = [text.strip() for text in levels[:MAX_CHECKED_TEXTS]]
    written = [text for text in levels if not is_number(text)]
    if len(written) <= MAX_SLIP_SHARE * len(levels):
        return None
    for pattern, called, remedy in CELL_PATTERNS:
        form = re.compile(pattern)
        like = [text for text in written if form.fullmatch(text)]
        if len(like) > 0.9 * len(written):
            row = _first_row(column, form)
            return Trouble(
                name,
                f"holds {called}, such as {column[row].as_py()!r} in data row {row + 1}",
                remedy,
            )
    return None


def _of_text(name: str, column: pyarrow.ChunkedArray) -> Trouble:
    found = written_number(name, column)
    if found is not None:
        return found
    text = column.to_pylist()
    bad = [row for row, cell in enumerate(text) if not is_number(cell)]
    if bad and len(bad) < len(text) / 2:
        what = f"is {text[bad[0]]!r} in data row {bad[0] + 1}{_more(len(bad))}, and most rows hold numbers"
        return Trouble(name, what, "fix that cell, or leave it empty if the value is missing")
    if not bad:  # other rows of this column are text
        what = f"holds numbers such as {text[0]!r} in data row 1, and words in other rows"
        return Trouble(name, what, "fix those cells, or leave them empty if the values are missing")
    what = f"holds {column.type} values such as {text[0]!r} in data row 1, and numbers are needed"
    return Trouble(name, what, "convert it to numbers")


def _first_row(column: pyarrow.ChunkedArray, form: re.Pattern) -> int:
    return next(
        i for i, cell in enumerate(column.to_pylist()) if cell and form.fullmatch(cell.strip())
    )


def is_number(text: object) -> bool:
    """Return whether a cell is a number in the usual notation."""
    try:
        float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return "_" not in str(text)  # Python accepts underscores, and tables do not use them


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True


def _more(count: int) -> str:
    return f" and {count - 1:,} more" if count > 1 else ""
