"""Tables from files: CSV, Parquet and Arrow/Feather through pyarrow, each mistake a sentence.

Rows are counted from 1, the header not included: "data row 1" is the first row of values.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..errors import DataError, did_you_mean, first_line, need

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "FORMATS",
    "as_table",
    "bundled",
    "check_names",
    "check_parquet",
    "column_array",
    "content_hash",
    "csv_header",
    "existing",
    "ragged",
    "read_table",
    "refuse_null",
]

FORMATS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}
MOST_LETTERS = 1000  # of a column's name
MOST_HEADER = 2**20  # letters of a CSV's first line, which pyarrow wants in its first block


def bundled(name: str) -> Path:
    """The path of a data set that comes with the package: "randhie", "handout_regression".

    Raises DataError for an unknown name.
    """
    folder = Path(__file__).parent / "bundled"
    path = folder / f"{Path(name).stem}.csv"
    if not path.is_file():
        names = sorted(p.stem for p in folder.glob("*.csv"))
        raise DataError(
            f"no bundled data set is called {name!r}; there are {', '.join(names)}."
            + did_you_mean(name, names)
        )
    return path


def content_hash(path: str | Path) -> str:
    """SHA-256 of the file's bytes, in hexadecimal. Raises DataError where there is no such file."""
    try:
        with open(existing(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def read_table(path: str | Path) -> pyarrow.Table:
    """The table in a .csv, .parquet, .pq, .arrow, .feather or .ipc file.

    In a CSV an empty unquoted cell and NA, NaN, null are nulls; a column whose later cells do
    not fit the type of its first ones becomes floating point, or else text.

    Raises:
      DataError: the file is missing, empty, of an unknown kind, not what its name says,
        truncated, ragged (with the line), without rows, or has a duplicated column.
    """
    path = existing(path)
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise DataError(
            f"{path} has the extension {path.suffix!r}; rename or convert it to one of "
            f"{', '.join(FORMATS)}." + did_you_mean(path.suffix.lower(), FORMATS)
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes); write it again.")
    arrow = need("pyarrow", "tables")
    try:
        table = {"csv": _read_csv, "parquet": _read_parquet, "ipc": _read_ipc}[kind](path)
    except (arrow.ArrowException, OSError) as error:
        reason = first_line(error)
        raise DataError(f"{path} cannot be read as {kind}: {reason}; write it again.") from error
    check_names(table.column_names, str(path))
    if table.num_rows == 0:
        raise DataError(f"{path} has columns ({_some(table.column_names)}) but no rows.")
    return table


def as_table(data: Any) -> pyarrow.Table:
    """A pyarrow.Table from a table, a pandas DataFrame or a dict of columns.

    Raises DataError for anything else, for a duplicated column and for a table without rows.
    """
    arrow = need("pyarrow", "tables")
    if not isinstance(data, arrow.Table):
        try:
            data = arrow.table(data)
        except (TypeError, ValueError, arrow.ArrowException) as error:
            raise DataError(
                f"the data are a {type(data).__name__}, which does not make a table ({error}); "
                "give a pyarrow.Table, a DataFrame or a dict of columns of one length."
            ) from error
    check_names(data.column_names, "the table")
    if data.num_rows == 0:
        raise DataError("the table has no rows.")
    return data


def refuse_null(table: pyarrow.Table, name: str) -> None:
    """Raises DataError with the first data row whose cell in column `name` is null."""
    column = table.column(name)
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy())) + 1
        raise DataError(
            f"column {name!r} is null (empty) in data row {row}; "
            "drop such rows or fill the cells in."
        )


def column_array(table: pyarrow.Table, name: str) -> Float[np.ndarray, " N"]:
    """Column `name` as float64 [N]; booleans become 0 and 1.

    Raises:
      DataError: no such column, a null, NaN or infinite cell (with its data row), or a column
        of text or dates.
    """
    arrow = need("pyarrow", "tables")
    if name not in table.column_names:
        raise DataError(
            f"there is no column {name!r}; the columns are {_some(table.column_names)}."
            + did_you_mean(name, table.column_names)
        )
    refuse_null(table, name)
    column, types = table.column(name), arrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_boolean(kind):
        return column.to_numpy().astype(np.float64)
    if types.is_binary(kind):
        raise DataError(
            f"column {name!r} is not UTF-8 text ({column[0].as_py()!r} in data row 1); save the file as UTF-8."
        )
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise DataError(
            f"column {name!r} holds {kind} values such as {column[0].as_py()!r} in data row 1, "
            "where numbers are needed; convert it to numbers."
        )
    values = column.cast(arrow.float64(), safe=False).to_numpy()
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise DataError(
            f"column {name!r} is {values[bad[0]]} in data row {bad[0] + 1}; "
            "drop such rows or fill the cells in."
        )
    return values


def existing(path: str | Path) -> Path:
    """The path of a file that is there. Raises DataError otherwise."""
    path = Path(path)
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # no permission, a name too long, or with a zero byte
        raise DataError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error
    if path.is_file():
        return path
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise DataError(f"there is no file {path}, nor a folder {path.parent}; check the path.")
    siblings = [p.name for p in path.parent.iterdir() if p.suffix.lower() in FORMATS]
    hint = did_you_mean(path.name, siblings)
    raise DataError(f"there is no file {path}; check the path.{hint}")


def check_names(names: list[str], where: str) -> None:
    """DataError for a column's name that stands there twice, or has no end."""
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if len(name) > MOST_LETTERS:
            raise DataError(
                f"{where} has a name of {len(name):,} letters in column {position} ({name[:20]!r} ...), and a name "
                f"may have {MOST_LETTERS:,}; rename it."
            )
        if name in seen:
            raise DataError(
                f"{where} has the column name {name!r} twice (columns {seen[name]} and "
                f"{position}); rename one of them."
            )
        seen[name] = position


def _some(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def csv_header(path: Path) -> list[str]:
    """The names in the first row of a CSV."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        try:
            lines = iter(lambda: file.readline(MOST_HEADER), "")
            first = next(lines, "")
            if len(first) == MOST_HEADER:
                raise DataError(
                    f"{path} has {MOST_HEADER:,} letters and more in its first line, where the names of columns "
                    "should stand; write it again."
                )
            names = next(csv.reader(itertools.chain([first], lines)), [])
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x} in its first rows); save it as UTF-8."
            ) from error
        except csv.Error as error:
            raise DataError(
                f"{path} has a name of more than {csv.field_size_limit():,} letters in its header, or cannot be "
                f"read as csv ({first_line(error)}); write it again."
            ) from error
    check_names(names, str(path))
    return names


def _read_csv(path: Path) -> pyarrow.Table:
    arrow, reader = need("pyarrow", "tables"), need("pyarrow.csv", "tables")
    csv_header(path)
    types: dict[str, Any] = {}
    while True:
        options = reader.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False, column_types=types
        )
        try:
            return reader.read_csv(
                path,
                parse_options=reader.ParseOptions(newlines_in_values=True),
                convert_options=options,
            )
        except arrow.ArrowInvalid as error:
            if "straddl" in str(error):
                raise DataError(
                    f"{path} has a row of more than a million letters; close an open quotation mark, or write it again."
                ) from error
            if "Expected" in str(error) and "columns" in str(error):
                raise ragged(path) from error
            # types are inferred from the first block of the file: widen the one that did not last
            found = re.search(r"In CSV column #(\d+).*conversion error to (\S+):", str(error))
            if not found or found[2] == "string":
                raise
            name = csv_header(path)[int(found[1])]
            numeric = found[2] in ("int64", "null") and name not in types
            types[name] = arrow.float64() if numeric else arrow.string()


def ragged(path: Path) -> DataError:
    """What is said of a CSV whose rows differ in length: the first that does."""
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        rows = csv.reader(file)
        width = len(next(rows))
        for cells in rows:
            if cells and len(cells) != width:
                return DataError(
                    f"{path} line {rows.line_num} has {len(cells)} cells where the header has "
                    f"{width}; mend that line."
                )
    return DataError(f"{path} has rows of different lengths; write it again.")


def check_parquet(path: Path) -> None:
    """DataError for a file that does not begin and end as a Parquet file does."""
    with open(path, "rb") as file:
        first = file.read(4)
        file.seek(-min(4, path.stat().st_size), 2)
        last = file.read(4)
    if first != b"PAR1":
        raise DataError(
            f"{path} is named as Parquet but does not start as a Parquet file (its first bytes are "
            f"{first!r}); give it the extension of what it is, such as .csv."
        )
    if last != b"PAR1" or path.stat().st_size < 12:
        raise DataError(
            f"{path} is a truncated Parquet file (its footer is missing); copy it again."
        )


def _read_parquet(path: Path) -> pyarrow.Table:
    check_parquet(path)
    return need("pyarrow.parquet", "tables").ParquetFile(path).read()


def _read_ipc(path: Path) -> pyarrow.Table:
    arrow = need("pyarrow", "tables")
    with open(path, "rb") as file:
        first = file.read(6)
    if first.startswith(b"FEA1"):
        return need("pyarrow.feather", "tables").read_table(path)
    with arrow.memory_map(str(path)) as source:
        if first == b"ARROW1":
            return arrow.ipc.open_file(source).read_all()
        return arrow.ipc.open_stream(source).read_all()
