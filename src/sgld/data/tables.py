"""Tables from files: CSV, Parquet and Arrow/Feather through pyarrow, each mistake a sentence.

Rows are counted from 1, the header not included: "data row 1" is the first row of values.
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
from .delimited import raise_all, read_delimited, trouble_of
from .source import check_names, listed

if TYPE_CHECKING:
    import pyarrow

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}
EXCEL_REMEDY = "save the sheet as 'CSV UTF-8', or read it with pandas.read_excel and hand the DataFrame to sgld.fit"
PANDAS_REMEDY = (
    "read it with pandas.{} and hand the DataFrame to sgld.fit, or write it as .csv or .parquet"
)
UNPACK_REMEDY = "unpack it; of packed files .csv.gz is read"
UNREAD_FORMATS = {  # what people have, and how it gets here
    ".xlsx": EXCEL_REMEDY, ".xlsm": EXCEL_REMEDY, ".xls": EXCEL_REMEDY, ".ods": EXCEL_REMEDY, ".json": PANDAS_REMEDY.format("read_json"),
    ".jsonl": PANDAS_REMEDY.format("read_json(lines=True)"), ".dta": PANDAS_REMEDY.format("read_stata"),
    ".sav": PANDAS_REMEDY.format("read_spss"), ".sas7bdat": PANDAS_REMEDY.format("read_sas"),
    ".pkl": PANDAS_REMEDY.format("read_pickle"), ".rds": "write it in R with write.csv(x, file, row.names = FALSE)",
    ".zip": UNPACK_REMEDY, ".7z": UNPACK_REMEDY, ".bz2": UNPACK_REMEDY, ".xz": UNPACK_REMEDY, ".zst": UNPACK_REMEDY,
}  # fmt: skip


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


def read_table(path: str | Path, sep: str | None = None, decimal: str = ".") -> pyarrow.Table:
    """The table in a .csv, .tsv, .txt, .parquet, .pq, .arrow, .feather or .ipc file.

    Text may be gzipped (.csv.gz). An empty unquoted cell and NA, NaN, null are nulls; a column
    whose later cells do not fit the type of its first ones becomes floating point, or else text.

    Args:
      sep: between the cells of a file of text, a sign or a name such as "tab"; by default comma,
        semicolon, tab or bar, as its first rows show.
      decimal: the decimal point of a file of text, "." or ",".

    Raises:
      DataError: the file is missing, empty, of an unknown kind, not what its name says,
        truncated, ragged (with the line), without rows, or has a duplicated column.
      UsageError: `sep` or `decimal` are none, or the file is not one of text.
    """
    path = existing(path)
    kind = kind_of_file(path)
    if kind != "csv" and (sep is not None or decimal != "."):
        raise UsageError(
            f"sep and decimal are of files of text, and {path} is none; leave them out."
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes); write it again.")
    arrow = need("pyarrow", "tables")
    try:
        if kind == "csv":
            table = read_delimited(path, sep, decimal)
        else:
            table = {"parquet": _read_parquet, "ipc": _read_ipc}[kind](path)
    except (arrow.ArrowException, OSError) as error:
        reason = first_line(error)
        raise DataError(f"{path} cannot be read as {kind}: {reason}; write it again.") from error
    check_names(table.column_names, str(path))
    if table.num_rows == 0:
        raise DataError(f"{path} has columns ({listed(table.column_names)}) but no rows.")
    return table


def kind_of_file(path: Path) -> str:
    """How a file is read, by its extension. Raises DataError, with what to do, for one of another kind."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    suffix = (suffixes[-2:-1] if packed else suffixes[-1:]) or [""]
    kind = FORMATS.get(suffix[0])
    if packed and kind != "csv":
        raise DataError(f"{path} is packed; unpack it (gunzip): of packed files .csv.gz is read.")
    if kind is None:
        remedy = UNREAD_FORMATS.get(
            suffix[0], f"rename or convert it to one of {', '.join(FORMATS)}"
        )
        hint = "" if suffix[0] in UNREAD_FORMATS else did_you_mean(suffix[0], FORMATS)
        raise DataError(f"{path} has the extension {path.suffix!r}; {remedy}.{hint}")
    return kind


def as_table(data: Any) -> pyarrow.Table:
    """A pyarrow.Table from a table, a pandas DataFrame or a dict of columns.

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
                    f"column {mixed[1]!r} of the table holds cells of several types ({first_line(error)}); make "
                    "them one, or leave the column out of the table."
                ) from error
            raise DataError(
                f"the data are a {type(data).__name__}, which does not make a table ({error}); "
                "give a pyarrow.Table, a DataFrame or a dict of columns of one length."
            ) from error
    check_names(data.column_names, "the table")
    if data.num_rows == 0:
        raise DataError("the table has no rows.")
    return data


def check_named(table: pyarrow.Table, name: str) -> None:
    """DataError where a table has no column of this name."""
    if name not in table.column_names:
        raise DataError(
            f"there is no column {name!r}; the columns are {listed(table.column_names)}."
            + did_you_mean(name, table.column_names)
        )


def column_array(table: pyarrow.Table, name: str) -> Float[np.ndarray, " N"]:
    """Column `name` as float64 [N]; booleans become 0 and 1.

    Raises:
      DataError: no such column, a null, NaN or infinite cell (with its data row), or a column
        of text or dates.
    """
    arrow = need("pyarrow", "tables")
    check_named(table, name)
    raise_all([trouble_of(table, name)])
    column = table.column(name)
    if arrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if arrow.types.is_boolean(column.type):
        return column.to_numpy().astype(np.float64)
    return column.cast(arrow.float64(), safe=False).to_numpy()


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
    if path.exists():
        raise DataError(f"{path} is no regular file (a pipe, or a device); write its rows to one.")
    if not path.parent.is_dir():
        raise DataError(f"there is no file {path}, nor a folder {path.parent}; check the path.")
    if set(path.name) & set("*?["):
        raise DataError(
            f"there is no file {path}; a pattern is not filled in: name the folder {path.parent}, or a "
            f"query, \"select * from '{path}'\"."
        )
    siblings = [p.name for p in path.parent.iterdir() if {*FORMATS} & {*p.suffixes}]
    hint = did_you_mean(path.name, siblings)
    raise DataError(f"there is no file {path}; check the path.{hint}")


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
