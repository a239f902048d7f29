"""Tables from CSV, Parquet and Arrow/Feather files, read by pyarrow with one message per problem.

Rows are counted from 1, without the header: "data row 1" is the first row of values.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..errors import DataError, UsageError, did_you_mean, first_line, need
from .delimited import CsvFile, arrow_errors, plain_type, raise_all, trouble_of
from .source import check_names, listed

if TYPE_CHECKING:
    import pyarrow

FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "ipc"),
}
EXCEL_REMEDY = "save the sheet as 'CSV UTF-8', or read it with pandas.read_excel and hand the DataFrame to sgld.fit"
PANDAS_REMEDY = (
    "read it with pandas.{} and hand the DataFrame to sgld.fit, or write it as .csv or .parquet"
)
UNPACK_REMEDY = "unpack it; the only packed format that can be read is .csv.gz"
UNREAD_FORMATS = {  # common formats that cannot be read, with the remedy
    ".xlsx": EXCEL_REMEDY, ".xlsm": EXCEL_REMEDY, ".xls": EXCEL_REMEDY, ".ods": EXCEL_REMEDY, ".json": PANDAS_REMEDY.format("read_json"),
    ".jsonl": PANDAS_REMEDY.format("read_json(lines=True)"), ".dta": PANDAS_REMEDY.format("read_stata"),
    ".sav": PANDAS_REMEDY.format("read_spss"), ".sas7bdat": PANDAS_REMEDY.format("read_sas"),
    ".pkl": PANDAS_REMEDY.format("read_pickle"), ".rds": "write it in R with write.csv(x, file, row.names = FALSE)",
    ".zip": UNPACK_REMEDY, ".7z": UNPACK_REMEDY, ".bz2": UNPACK_REMEDY, ".xz": UNPACK_REMEDY, ".zst": UNPACK_REMEDY,
}  # fmt: skip


def bundled(name: str) -> Path:
    """Return the path of a data set in the package: "randhie", "handout_regression".

    Raises DataError for an unknown name.
    """
    folder = Path(__file__).parent / "bundled"
    path = folder / f"{Path(name).stem}.csv"
    if not path.is_file():
        names = sorted(p.stem for p in folder.glob("*.csv"))
        raise DataError(
            f"no bundled data set is called {name!r}; the data sets are {', '.join(names)}."
            + did_you_mean(name, names)
        )
    return path


def content_hash(path: str | Path) -> str:
    """Return the SHA-256 of the file's bytes in hexadecimal; raise DataError if it does not exist."""
    try:
        with open(existing(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def read_table(path: str | Path, sep: str | None = None, decimal: str = ".") -> pyarrow.Table:
    """Read the table in a .csv, .tsv, .txt, .parquet, .pq, .arrow, .feather or .ipc file.

    Text may be gzipped (.csv.gz). An empty unquoted cell and NA, NaN, null are nulls. A column
    whose later cells do not fit the type of its first cells becomes floating point, or else text.

    Args:
      path: the path of the file.
      sep: the cell separator of a text file, a character or a name such as "tab"; by default comma,
        semicolon, tab or bar is detected in its first rows.
      decimal: the decimal point of a text file, "." or ",".

    Raises:
      DataError: the file is missing, empty, of an unknown format, not what its name says,
        truncated, ragged (with the line), without rows, or has a duplicated column.
      UsageError: `sep` or `decimal` is invalid, or the file is not text.
    """
    path = existing(path)
    kind = readable_kind(path, sep, decimal)
    csv = lambda path: CsvFile(path, sep, decimal).table()  # noqa: E731
    with arrow_errors(path, kind):
        table = {"csv": csv, "parquet": _read_parquet, "ipc": _read_ipc}[kind](path)
    check_names(table.column_names, str(path))
    if table.num_rows == 0:
        raise DataError(f"{path} has columns ({listed(table.column_names)}) but no rows.")
    return table


def kind_of_file(path: Path) -> str:
    """Return the format of a file by its extension; raise DataError with the remedy for others."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    suffix = (suffixes[-2:-1] if packed else suffixes[-1:]) or [""]
    kind = FORMATS.get(suffix[0])
    if packed and kind != "csv":
        raise DataError(f"{path} is packed; unpack it (gunzip): only .csv.gz is read packed.")
    if kind is None:
        remedy = UNREAD_FORMATS.get(
            suffix[0], f"rename or convert it to one of {', '.join(FORMATS)}"
        )
        hint = "" if suffix[0] in UNREAD_FORMATS else did_you_mean(suffix[0], FORMATS)
        raise DataError(f"{path} has the extension {path.suffix!r}; {remedy}.{hint}")
    return kind


def readable_kind(path: Path, sep: str | None, decimal: str) -> str:
    """Return the format of a file with content; raise UsageError for `sep`, `decimal` without text."""
    kind = kind_of_file(path)
    if kind != "csv" and (sep is not None or decimal != "."):
        raise UsageError(
            f"sep and decimal are only for text files, and {path} is not text; leave them out."
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes); write it again.")
    return kind


def as_table(data: Any) -> pyarrow.Table:
    """Return a pyarrow.Table from a table, a pandas DataFrame or a dict of columns.

    Raises DataError for anything else, for a duplicated column and for a table without rows.
    """
    arrow = need("pyarrow", "tables")
    if not isinstance(data, arrow.Table):
        try:
            data = arrow.table(data)
        except (TypeError, ValueError, arrow.ArrowException) as error:
            mixed = re.search(r"Conversion failed for column (.*) with type object", str(error))
            if mixed:
                raise DataError(
                    f"column {mixed[1]!r} of the table holds cells of several types ({first_line(error)}); convert them "
                    "to one type, or leave the column out of the table."
                ) from error
            raise DataError(
                f"the data are a {type(data).__name__}, which cannot be converted to a table ({error}); "
                "give a pyarrow.Table, a DataFrame or a dict of columns of equal length."
            ) from error
    check_names(data.column_names, "the table")
    if data.num_rows == 0:
        raise DataError("the table has no rows; give one that has some.")
    return data


def check_named(table: pyarrow.Table, name: str, role: str = "") -> None:
    """Raise DataError, which begins with `role`, if a table has no column of this name."""
    if name not in table.column_names:
        raise DataError(
            f"{role}there is no column {name!r}; the columns are {listed(table.column_names)}."
            + did_you_mean(name, table.column_names)
        )


def column_array(table: pyarrow.Table, name: str) -> Float[np.ndarray, " N"]:
    """Return column `name` as float64 [N]; booleans become 0 and 1.

    Raises:
      DataError: no such column, a null, NaN or infinite cell (with its data row), or a column
        of text or dates.
    """
    arrow = need("pyarrow", "tables")
    check_named(table, name)
    raise_all([trouble_of(table, name)])
    column = table.column(name)
    column = column.cast(plain_type(column.type))
    if arrow.types.is_boolean(column.type):
        return column.to_numpy().astype(np.float64)
    return column.cast(arrow.float64(), safe=False).to_numpy()


def existing(path: str | Path) -> Path:
    """Return the path of an existing file; raise DataError otherwise."""
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
    if path.exists():
        raise DataError(f"{path} is not a regular file (but a pipe or device); write a file.")
    if not path.parent.is_dir():
        raise DataError(f"there is no file {path}, nor a folder {path.parent}; check the path.")
    if set(path.name) & set("*?["):
        raise DataError(
            f"there is no file {path}, and patterns are not expanded; give the folder {path.parent}, or a "
            f"query, \"select * from '{path}'\"."
        )
    siblings = [p.name for p in path.parent.iterdir() if {*FORMATS} & {*p.suffixes}]
    hint = did_you_mean(path.name, siblings)
    raise DataError(f"there is no file {path}; check the path.{hint}")


def check_parquet(path: Path) -> None:
    """Raise DataError for a file that does not begin and end as a Parquet file does."""
    with open(path, "rb") as file:
        first = file.read(4)
        file.seek(-min(4, path.stat().st_size), 2)
        last = file.read(4)
    if first != b"PAR1":
        raise DataError(
            f"{path} has the extension of a Parquet file but does not start as one (its first bytes are "
            f"{first!r}); give it the extension of its format, such as .csv."
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
