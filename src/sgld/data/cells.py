"""What stands in the cells of a column that should hold numbers, and what to do about it.

Of text it is said what it looks like: a number with a decimal comma, a percentage, an amount of
money, a date, a yes or no. A column's trouble is a `Trouble`; those of several columns are one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Int

from ..errors import DataError, need
from .delimited import TO_UTF8, not_utf8

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "Trouble",
    "is_number",
    "missing_cells",
    "raise_all",
    "renumbered",
    "trouble_of",
    "written_number",
]

DROP = "drop such rows or fill the cells in"
FEW = 0.1  # of the different texts: slips among plain numbers
MOST_LOOKED_AT = 100_000  # different texts, of which it is asked what they look like
SIGN = r"\s*[-+\u2212]?\s*"
MONEY = r"[$€£¥₹]|USD|EUR|GBP|CHF"
# of a whole cell: what it is called, what to do about it
LOOKS = (
    (
        rf"{SIGN}[1-9]\d{{0,2}}([,.' \u00a0\u202f]\d{{3}})+([.,]\d+)?",
        "numbers with separated thousands",
        "write them without, or read the file with decimal=',' where that is a decimal comma",
    ),
    (
        rf"{SIGN}\d*,\d+(e[-+]?\d+)?",
        "numbers with a decimal comma",
        "read the file with decimal=',', or write points",
    ),
    (rf"{SIGN}[\d.,]+\s*%", "percentages", "take the sign off and write plain numbers"),
    (
        rf"(?=.*({MONEY})){SIGN}({MONEY})?{SIGN}[\d.,' ]*\d\s*({MONEY})?",
        "amounts of money",
        "take the currency off and write plain numbers",
    ),
    (
        r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}([T ].*)?",
        "dates or times",
        "make a number of each: days since the first, or the year or month as columns of their own",
    ),
)
DATES = LOOKS[-1]


class Trouble(NamedTuple):
    """Why a column cannot be used: what is said after its name, and the remedy."""

    column: str
    what: str
    remedy: str


def raise_all(troubles: Iterable[Trouble | None]) -> None:
    """DataError that names every column in trouble, where there is one."""
    found = [trouble for trouble in troubles if trouble is not None]
    if not found:
        return
    remedies = "; ".join(dict.fromkeys(trouble.remedy for trouble in found))
    if len(found) == 1:
        raise DataError(f"column {found[0].column!r} {found[0].what}; {remedies}.")
    said = ", ".join(f"{trouble.column!r} {trouble.what}" for trouble in found)
    raise DataError(f"{len(found)} columns cannot be used: {said}; {remedies}.")


def renumbered(error: DataError, numbers: Int[np.ndarray, " n"]) -> DataError:
    """The error with its data rows, counted from 1 among some rows, counted in the whole table.

    Args:
      numbers: which rows of the table, from 0, they are.

    Example:
      >>> import numpy as np
      >>> from sgld.data.cells import renumbered
      >>> from sgld.errors import DataError
      >>> print(renumbered(DataError("'x' is inf in data row 2."), np.array([0, 5])))
      'x' is inf in data row 6.
    """

    def found(row: re.Match) -> str:
        place = int(row[1]) - 1
        return f"data row {numbers[place] + 1 if place < len(numbers) else row[1]}"

    return DataError(re.sub(r"data row (\d+)", found, str(error)))


def missing_cells(table: pyarrow.Table, name: str) -> Trouble | None:
    """The null cells of a column."""
    column = table.column(name)
    if not column.null_count:
        return None
    first = int(np.argmax(column.is_null().to_numpy())) + 1
    return Trouble(name, f"is null (empty) in data row {first}{_more(column.null_count)}", DROP)


def trouble_of(table: pyarrow.Table, name: str) -> Trouble | None:
    """Why a column is not one of finite numbers or truth values; None where it is."""
    missing = missing_cells(table, name)
    if missing is not None:
        return missing
    arrow = need("pyarrow", "tables")
    types, column = arrow.types, table.column(name)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_boolean(kind):
        return None
    first = column[0].as_py() if len(column) else None
    if types.is_binary(kind):
        cells = column.to_pylist()
        row = next((i for i, cell in enumerate(cells) if not _is_utf8(cell)), 0)
        return Trouble(name, f"{not_utf8(cells[row])} in data row {row + 1}", TO_UTF8)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _of_text(name, column)
    if types.is_temporal(kind):
        return Trouble(
            name, f"holds {DATES[1]} ({kind} values such as {str(first)!r} in data row 1)", DATES[2]
        )
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        what = f"holds {kind} values such as {first!r} in data row 1, where numbers are needed"
        return Trouble(name, what, "convert it to numbers")
    values = column.cast(arrow.float64(), safe=False).to_numpy()
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        what = f"is {values[bad[0]]} in data row {bad[0] + 1}{_more(bad.size)}"
        return Trouble(name, what, DROP)
    return None


def written_number(name: str, column: pyarrow.ChunkedArray) -> Trouble | None:
    """Text that means numbers or dates written in another way, in nearly every cell; None of other text."""
    compute = need("pyarrow.compute", "tables")
    levels = [text for text in compute.unique(column).to_pylist() if text is not None]
    levels = [text.strip() for text in levels[:MOST_LOOKED_AT]]
    written = [text for text in levels if not is_number(text)]
    if len(written) <= FEW * len(levels):
        return None
    for pattern, called, remedy in LOOKS:
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
        what = f"is {text[bad[0]]!r} in data row {bad[0] + 1}{_more(len(bad))} where most rows hold numbers"
        return Trouble(name, what, "mend that cell, or leave it empty where it is missing")
    if not bad:  # these rows are a piece of a column that others make text
        what = f"holds numbers such as {text[0]!r} in data row 1, and words in other rows"
        return Trouble(name, what, "mend those, or leave them empty where they are missing")
    what = f"holds {column.type} values such as {text[0]!r} in data row 1, where numbers are needed"
    return Trouble(name, what, "convert it to numbers")


def _first_row(column: pyarrow.ChunkedArray, form: re.Pattern) -> int:
    return next(
        i for i, cell in enumerate(column.to_pylist()) if cell and form.fullmatch(cell.strip())
    )


def is_number(text: object) -> bool:
    """Whether a cell is a number as every program writes it."""
    try:
        float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return "_" not in str(text)  # which Python reads, and no table means


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True


def _more(count: int) -> str:
    return f" and {count - 1:,} more" if count > 1 else ""
