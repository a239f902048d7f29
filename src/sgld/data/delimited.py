"""Tables of text: CSV and its relatives, plain or gzipped, their separator found in the first rows."""

from __future__ import annotations

import contextlib
import csv
import gzip
import itertools
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import DataError, UsageError, did_you_mean, first_line, need
from .names import check_names

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "COMMAS",
    "GZIP",
    "Dialect",
    "csv_header",
    "dialect_of",
    "ragged",
    "read_delimited",
    "unpacking",
]

SEPARATORS = (",", ";", "\t", "|")  # those looked for, in this order where they fit equally
NAMES = {
    "comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "bar": "|", "pipe": "|", "space": " ",
}  # fmt: skip
MOST_HEADER = 2**20  # letters of the first line, which pyarrow wants in its first block
LOOKED_AT = 100  # rows in which the separator is looked for
GZIP = b"\x1f\x8b"
# first bytes of files that are no text, whatever their name says
OTHERS = {
    b"PK\x03\x04": "an Excel workbook or another zip archive; save the sheet as 'CSV UTF-8'",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as 'CSV UTF-8'",
    b"PAR1": "a Parquet file; name it .parquet",
    b"ARROW1": "an Arrow file; name it .arrow",
    b"\xff\xfe": "UTF-16 text, as Excel's 'Unicode Text' is; save it as 'CSV UTF-8', or iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "UTF-16 text, as Excel's 'Unicode Text' is; save it as 'CSV UTF-8', or iconv -f UTF-16 -t UTF-8",
}  # fmt: skip


class Dialect(NamedTuple):
    """How a table is written: the separator of cells, the decimal point, lines before the header."""

    sep: str = ","
    decimal: str = "."
    skip: int = 0


COMMAS = Dialect()


def dialect_of(path: Path, sep: str | None = None, decimal: str = ".") -> Dialect:
    """The dialect of a file; its separator is looked for where none is given.

    Of comma, semicolon, tab and bar it is the one that gives the first rows most cells, equally
    many in each; Excel's line "sep=;" is read. Raises UsageError for a `sep` or `decimal` that is
    none, DataError for a file that is no text.
    """
    head = _head(path)
    declared = re.match(r'"?sep=(.)"?\r?\n', head.decode("utf-8-sig", errors="replace"))
    skip = int(declared is not None)
    if decimal not in (".", ","):
        raise UsageError(f"decimal must be '.' or ','. Got {decimal!r}.")
    if sep is None and declared:
        sep = declared[1]
    sep = _found(head, path) if sep is None else NAMES.get(sep, sep)
    if len(sep) != 1 or not sep.isascii() or sep.isalnum() or sep in '"\r\n':
        raise UsageError(
            f"sep must be one sign, or one of {', '.join(NAMES)}. Got {sep!r}."
            + did_you_mean(sep, NAMES)
        )
    if sep == decimal:
        raise UsageError(f"sep and decimal are both {sep!r}; one file cannot have both.")
    return Dialect(sep, decimal, skip)


def _head(path: Path) -> bytes:
    """The first bytes of the text."""
    with _opened(path) as file:
        head = file.read(MOST_HEADER)
    for start, what in OTHERS.items():
        if head.startswith(start):
            raise DataError(f"{path} is named as text but is {what}.")
    return head


def _opened(path: Path) -> Any:
    with open(path, "rb") as file:
        zipped = file.read(2) == GZIP
    return gzip.open(path, "rb") if zipped else open(path, "rb")


def _found(head: bytes, path: Path) -> str:
    lines = head.decode("utf-8-sig", errors="replace").splitlines(keepends=True)
    if len(head) == MOST_HEADER:
        lines = lines[:-1]  # a part of one
    widths = {sep: _widths(lines, sep) for sep in SEPARATORS}
    whole = [sep for sep in SEPARATORS if len(set(widths[sep])) == 1 and widths[sep][0] > 1]
    best = max(whole or SEPARATORS, key=lambda sep: widths[sep][:1])
    spaced = [len(set(found)) == 1 and found[0] > 1 for found in (
        [len(line.split()) for line in lines[:LOOKED_AT] if line.strip()], _widths(lines, " "),
    )]  # fmt: skip
    if widths[best][:1] <= [1] and any(spaced) and len(lines) > 1:
        raise DataError(
            f"{path} has its columns separated by spaces; give sep=' ' where it is one "
            "space between cells, or write it with commas."
        )
    return best


def _widths(lines: list[str], sep: str) -> list[int]:
    """How many cells each of the first rows has."""
    try:
        rows = itertools.islice(filter(None, csv.reader(lines, delimiter=sep)), LOOKED_AT)
        return [len(row) for row in rows]
    except csv.Error:
        return []


def _rows(file: Iterator[bytes], dialect: Dialect) -> Any:
    """Of the cells, where bytes that are no UTF-8 stand as lone surrogates."""
    lines = (line.decode("utf-8", errors="surrogateescape") for line in file)
    for _ in range(dialect.skip):
        next(lines, "")
    first = next(lines, "").removeprefix("\ufeff")
    return csv.reader(itertools.chain([first], lines), delimiter=dialect.sep)


def csv_header(path: Path, dialect: Dialect = COMMAS) -> list[str]:
    """The names in the first row of a table of text, as they stand there."""
    with _opened(path) as file:
        # no longer than what is looked for, where a file has no line at all
        lines = iter(lambda: file.readline(MOST_HEADER), b"")
        lines, probe = itertools.tee(lines)
        if len(next(probe, b"")) == MOST_HEADER:
            raise DataError(
                f"{path} has {MOST_HEADER:,} letters and more in its first line, where the names of columns "
                "should stand; write it again."
            )
        try:
            names = next(_rows(lines, dialect), [])
        except csv.Error as error:
            raise DataError(
                f"{path} has a name of more than {csv.field_size_limit():,} letters in its header, or cannot be "
                f"read as csv ({first_line(error)}); write it again."
            ) from error
    wrong = re.search("[\udc80-\udcff]", "".join(names))
    if wrong:
        byte = ord(wrong[0]) - 0xDC00
        raise DataError(f"{path} {not_utf8(bytes([byte]))} in its first line; {TO_UTF8}.")
    check_names([name.strip() for name in names], str(path))
    return names


TO_UTF8 = "save it as 'CSV UTF-8', or convert it: iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW"


def not_utf8(cell: bytes) -> str:
    """What is said of bytes that are no UTF-8: how they would read in the usual other encoding."""
    byte = next((b for b in cell if b > 127), 0)
    return f"is not UTF-8 text (byte {byte:#04x}, which is {bytes([byte]).decode('latin-1')!r} in Latin-1)"


def _read_rows(rows: Any, path: Path, dialect: Dialect) -> Iterator[list[str]]:
    """The rows that are left. Raises DataError at one that is none."""
    try:
        yield from rows
    except csv.Error as error:
        line = rows.line_num + dialect.skip
        raise DataError(
            f"{path} cannot be read as a table from line {line} on: a quotation mark that is not closed, or a "
            f"line that ends in a carriage return alone ({first_line(error)}); mend that line."
        ) from error


def ragged(path: Path, dialect: Dialect = COMMAS) -> DataError:
    """What is said of a table of text whose rows differ in length: the first that does."""
    with _opened(path) as file:
        rows = _rows(file, dialect)
        width = len(next(rows))
        for cells in filter(None, _read_rows(rows, path, dialect)):
            if len(cells) != width:
                line = rows.line_num + dialect.skip
                names = " (a header without a name for the rows' numbers?)" * (
                    line == 2 and len(cells) == width + 1
                )
                return DataError(
                    f"{path} line {line} has {len(cells)} cells where the header has {width}{names}; "
                    "mend that line."
                )
    return DataError(f"{path} has rows of different lengths; write it again.")


def read_delimited(path: Path, sep: str | None = None, decimal: str = ".") -> pyarrow.Table:
    """The table in a file of text.

    An empty unquoted cell and NA, NaN, null are nulls; a column whose later cells do not fit the
    type of its first ones becomes floating point, or else text. Spaces around names are left out.

    Raises: DataError for a file that is no text or no table, UsageError for `sep` and `decimal`.
    """
    with unpacking(path):
        return _read(path, dialect_of(path, sep, decimal))


@contextlib.contextmanager
def unpacking(path: Path) -> Iterator[None]:
    """DataError where a gzip file ends too early, or holds other bytes than it says."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} is a damaged gzip file ({first_line(error)}); copy it again."
        ) from error


def _read(path: Path, dialect: Dialect) -> pyarrow.Table:
    arrow, reader = need("pyarrow", "tables"), need("pyarrow.csv", "tables")
    names = csv_header(path, dialect)
    types: dict[str, Any] = {}
    while True:
        options = reader.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False, column_types=types,
            decimal_point=dialect.decimal,
        )  # fmt: skip
        zipped = _opened(path)
        source = zipped if isinstance(zipped, gzip.GzipFile) else path
        try:
            with zipped:
                # a block at a time: read_csv holds three times the table. No name is kept of it
                # here, so that each column's pieces go as they are put together
                return _in_one_piece(
                    reader.open_csv(
                        source,
                        read_options=reader.ReadOptions(skip_rows=dialect.skip),
                        parse_options=reader.ParseOptions(
                            delimiter=dialect.sep, newlines_in_values=True
                        ),
                        convert_options=options,
                    )
                    .read_all()
                    .rename_columns([name.strip() for name in names])
                )
        except arrow.ArrowInvalid as error:
            if "straddl" in str(error):
                raise DataError(
                    f"{path} has a row of more than a million letters; close an open quotation mark, or write it again."
                ) from error
            if "Expected" in str(error) and "columns" in str(error):
                raise ragged(path, dialect) from error
            # types are inferred from the first block of the file: widen the one that did not last
            found = re.search(r"In CSV column #(\d+).*conversion error to (\S+):", str(error))
            if not found or found[2] == "string":
                raise
            name = names[int(found[1])]
            numeric = found[2] in ("int64", "null") and name not in types
            types[name] = arrow.float64() if numeric else arrow.string()


def _in_one_piece(table: pyarrow.Table) -> pyarrow.Table:
    """The table with a chunk a column, which pandas and NumPy take as it is; a column at a time."""
    pool = need("pyarrow", "tables").default_memory_pool()
    for index, name in enumerate(table.column_names):
        whole = table.select([index]).combine_chunks()  # several pieces, of texts beyond 2 GiB
        table = table.set_column(index, name, whole.column(0))
        pool.release_unused()  # the pieces, which would be kept for others
    return table
