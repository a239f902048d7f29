"""A table that has grown, or lost rows, since a run was made from it: told in run.json by its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from ..errors import DataError, RunError, need
from .fewer import check_drop
from .whole import TableSource

if TYPE_CHECKING:
    import pyarrow

__all__ = ["appended", "as_grown", "table_again", "without"]

MOST_PARTS = 1000  # of parts, of a table that grew so often


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
    if depth > MOST_PARTS or not isinstance(parts, list) or not 1 <= len(parts) <= 2:
        raise RunError("run.json is damaged: its data have no parts.")
    before, dropped = table_again(parts[0], depth + 1), np.asarray(stored["dropped"], np.int64)
    added = TableSource.again(parts[1]) if len(parts) == 2 else None

    def read() -> pyarrow.Table:
        table = without(before(), dropped)
        return table if added is None else appended(table, added(), "a part")

    return read
