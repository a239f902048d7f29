"""The rows of a table that a model uses: outcome, design, offset, weight and trials of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..core.validation import one_of
from ..data.delimited import is_number, renumbered, written_number
from ..data.tables import check_named, column_array
from ..errors import DataError, did_you_mean, need
from .columns import is_text
from .design import Design, columns_of, learn
from .families import Family

if TYPE_CHECKING:
    import pyarrow

MISSING_CHOICES = ("drop", "error")
MAX_OUTCOME_LEVELS = 100


class Rows(NamedTuple):
    """The rows that a model uses.

    Attributes:
      design: state, design, outcome and offset of the formula.
      extra: {"offset", "weight", "trials"}, those of the three that exist.
      levels: of an outcome in words, in order; else empty.
      num_dropped: rows dropped because of a missing cell.
      numbers: the rows' numbers in the table, from 0; None for all.
    """

    design: Design
    extra: dict[str, Float[np.ndarray, " N"]]
    levels: list[Any]
    num_dropped: int
    numbers: Int[np.ndarray, " N"] | None = None


def rows_of(
    table: pyarrow.Table, formula: str, family: Family, columns: dict[str, Any],
    learn: Callable[..., Design] = learn,
) -> Rows:  # fmt: skip
    """Return the rows of `table` that the model uses.

    Args:
      table: the table.
      formula: "outcome ~ predictors".
      family: the family.
      columns: the names of the columns of "weights" and "trials" or None, "missing", and "levels"
        if they are known.
      learn: computes design and outcome of the rows.

    Raises UsageError for a wrong `missing`, DataError for invalid rows.
    """
    check_missing(columns["missing"])
    outcome, used = columns_of(formula, table)
    roles = [role for role in ("weights", "trials") if columns[role] is not None]
    for role in roles:
        check_named(table, columns[role], f"{role}: ")
    named = [columns[role] for role in roles]
    dropped, numbers = 0, None
    if columns["missing"] == "drop":
        whole = table
        table, keep = complete(table, sorted({*used, *named}))
        dropped = whole.num_rows - table.num_rows
        numbers = np.flatnonzero(keep) if dropped else None
        if not table.num_rows:
            raise DataError(
                f"every one of the {whole.num_rows} rows has a missing cell in a column that is used; "
                f"{_emptiest(whole, [*used, *named])!r} has the most; remove such columns."
            )
    levels: list[Any] = []
    try:
        if family.levels or is_words(table, outcome):
            table, levels = coded(table, outcome, family, columns.get("levels"))
        design = learn(table, formula, named)
        family.check(design.y, design.state["outcome"])
        extra = {} if design.offset is None else {"offset": design.offset}
        if columns["trials"] is not None:
            extra["trials"] = trials_of(table, columns["trials"], design.y, outcome)
        if columns["weights"] is not None:
            extra["weight"] = weights_of(table, columns["weights"])
            if not extra["weight"].any():
                raise no_weight(columns["weights"])
    except DataError as error:
        raise (error if numbers is None else renumbered(error, numbers)) from error.__cause__
    return Rows(design, extra, levels, dropped, numbers)


def check_missing(missing: Any) -> None:
    """Raise UsageError for an invalid `missing`."""
    one_of("missing", missing, MISSING_CHOICES)


def as_numbers(words: list[Any]) -> str:
    """Describe the coding of an outcome's words as numbers.

    Example:
      >>> from sgld.regression.rows import as_numbers
      >>> as_numbers(["no", "yes"])
      "'no' is 0, 'yes' is 1"
    """
    return ", ".join(f"{word!r} is {number}" for number, word in enumerate(words))


def complete(table: pyarrow.Table, used: list[str]) -> tuple[pyarrow.Table, Bool[np.ndarray, " N"]]:
    """Return the rows without a null or NaN in a used column, and a mask of them."""
    arrow = need("pyarrow", "tables")
    keep = np.ones(table.num_rows, bool)
    for name in used:
        keep &= ~_missing(table, name)
    return (table if keep.all() else table.filter(arrow.array(keep))), keep


def _missing(table: pyarrow.Table, name: str) -> Bool[np.ndarray, " N"]:
    arrow, compute = need("pyarrow", "tables"), need("pyarrow.compute", "tables")
    column = table.column(name)
    is_float = arrow.types.is_floating(column.type)
    return np.asarray(compute.is_null(column, nan_is_null=is_float))


def _emptiest(table: pyarrow.Table, used: list[str]) -> str:
    return max(used, key=lambda name: int(_missing(table, name).sum()))


def is_words(table: pyarrow.Table, outcome: str) -> bool:
    """Return whether an outcome is a column of text that does not represent numbers."""
    if outcome not in table.column_names or not is_text(table.schema.field(outcome).type):
        return False
    arrow, column = need("pyarrow", "tables"), table.column(outcome)
    if arrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    levels = column.unique().to_pylist()
    return (
        not column.null_count
        and not any(map(is_number, levels))
        and not written_number(outcome, column)
    )


def coded(
    table: pyarrow.Table, outcome: str, family: Family, known: list[Any] | None
) -> tuple[pyarrow.Table, list[Any]]:
    """Return the table with the outcome's levels coded 0, 1, ..., and the sorted levels.

    The levels are those `known`, or the outcome's own.
    """
    arrow, compute = need("pyarrow", "tables"), need("pyarrow.compute", "tables")
    if outcome not in table.column_names:
        raise DataError(
            f"the outcome of a categorical model is a column of the table. Got {outcome!r}."
            + did_you_mean(outcome, table.column_names)
        )
    column = table.column(outcome).combine_chunks()
    if arrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        column_array(table, outcome)  # raises, with the row
    levels = known or sorted(compute.unique(column).to_pylist())
    if not family.levels and (family.name != "bernoulli" or len(levels) != 2):
        shown = ", ".join(map(repr, levels[:5])) + ", ..." * (len(levels) > 5)
        other = {1: "choose another outcome", 2: "choose the family bernoulli"}
        remedy = other.get(len(levels), "choose the family categorical")
        takes = "two words, or 0 and 1" if family.name == "bernoulli" else "numbers"
        raise DataError(
            f"outcome {outcome!r} holds words ({shown}) and the {family.name} family takes {takes}; {remedy}."
        )
    if len(levels) > MAX_OUTCOME_LEVELS:
        raise DataError(
            f"outcome {outcome!r} has {len(levels)} levels (at most {MAX_OUTCOME_LEVELS}); group them, or "
            "choose a family for numbers."
        )
    codes = compute.index_in(column, arrow.array(levels, column.type))
    if codes.null_count:
        row = int(np.argmax(np.asarray(compute.is_null(codes))))
        raise DataError(
            f"outcome {outcome!r} is {column[row].as_py()!r} in data row {row + 1}, which is not one of "
            f"the levels {levels}."
        )
    place = table.column_names.index(outcome)
    return table.set_column(place, outcome, codes.cast(arrow.float64())), levels


def trials_of(
    table: pyarrow.Table, name: str, y: Float[np.ndarray, " N"] | None = None, outcome: str = ""
) -> Float[np.ndarray, " N"]:
    """Return the numbers of trials, at least y. Raises DataError for invalid numbers."""
    trials = column_array(table, name)
    y = np.zeros(len(trials)) if y is None else y
    for bad, what in (
        ((trials < 1) | (trials != np.floor(trials)), "trials must be whole numbers, at least 1"),
        (y > trials, f"outcome {outcome!r} is {{y:.10g}} there, more than its trials"),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(
                f"column {name!r} is {trials[row]:.10g} in data row {row + 1}; {what.format(y=y[row])}; "
                "fix the rows."
            )
    return trials


def weights_of(table: pyarrow.Table, name: str) -> Float[np.ndarray, " N"]:
    """Return the rows' weights. Raises DataError where one is negative."""
    weights = column_array(table, name)
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise DataError(
            f"column {name!r} is {weights[row]:.10g} in data row {row + 1}; weights must not be negative."
        )
    return weights


def no_weight(name: str) -> DataError:
    """Return the error for weights that are all 0."""
    return DataError(f"column {name!r} is 0 in every row; at least one weight must be positive.")
