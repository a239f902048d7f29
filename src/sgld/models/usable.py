"""Whether the cells of the columns that a formula uses are what it can take."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.delimited import Trouble, missing_cells, raise_all, trouble_of, written_number
from ..errors import need
from .size import MOST_LEVELS, is_text

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["check_cells"]

FEW_LEVELS = 20  # up to so many, text is a category whatever it looks like


def check_cells(
    terms: Iterable[Any], table: pyarrow.Table, used: Iterable[str], numbers: Collection[str]
) -> None:
    """DataError that names every column whose cells are not what a formula can take.

    Args:
      numbers: columns that have to be of numbers; text in others is a category.
    """
    factors = [factor for term in terms for factor in term.factors]
    alone = {factor.expr for factor in factors if factor.eval_method.value == "lookup"}
    named = " ".join(factor.expr for factor in factors if "C(" in factor.expr)

    def trouble(name: str) -> Trouble | None:
        kind = table.schema.field(name).type
        made = need("pyarrow", "tables").types.is_dictionary(
            kind
        )  # a category by who made the table
        if name in numbers or not is_text(kind.value_type if made else kind, dictionary=False):
            return trouble_of(table, name)
        names = made or name in named
        return missing_cells(table, name) or _of_category(table, name, name in alone, names)

    raise_all(trouble(name) for name in sorted(used))


def _of_category(table: pyarrow.Table, name: str, alone: bool, named: bool) -> Trouble | None:
    """Why text is no category: it means numbers, has a slip among numbers, or too many levels.

    Args:
      alone: the column is a term by itself, which formulaic makes a category.
      named: it stands inside C(...), or is a category of the table: its numbers are names.
    """
    column = table.column(name)
    if is_text(column.type) and not is_text(column.type, dictionary=False):
        column = column.cast(column.type.value_type)
    if not named:
        found = written_number(name, column)
        if found is not None:
            return found
    levels = column.unique().to_pandas()
    if len(levels) <= FEW_LEVELS:
        return None
    bad = _no_numbers(levels)
    if alone and not named and not bad.any():
        return Trouble(
            name,
            f"is text, with numbers in every row ({levels[0]!r} in data row 1) and {len(levels):,} levels",
            f"convert it to numbers, or write C({name}) where they are names",
        )
    if 0 < bad.sum() < len(levels) / 2:
        return trouble_of(table, name)  # which names the slip
    if len(levels) > MOST_LEVELS:
        return Trouble(
            name,
            f"is text with {len(levels)} levels (at most {MOST_LEVELS})",
            "group them, or take it out of the formula",
        )
    return None


def _no_numbers(text: pandas.Series) -> np.ndarray:
    return need("pandas", "tables").to_numeric(text, errors="coerce").isna().to_numpy()
