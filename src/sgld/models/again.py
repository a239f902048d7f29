"""The design of a run on its table again, or on one that has grown: its columns are known."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..errors import DataError, need
from .blocks import blocks
from .design import Learnt, learn, parse, used_columns
from .usable import check_cells

if TYPE_CHECKING:
    import pyarrow

__all__ = ["OtherColumns", "learn_again"]


class OtherColumns(DataError):
    """The formula has other columns on a table than those of the run: `lost` and `came`."""

    def __init__(self, now: list[str], before: list[str]) -> None:
        self.lost = [name for name in before if name not in now]
        self.came = [name for name in now if name not in before]
        super().__init__(
            f"the table gives the columns {now} where the run has {before}; give the data the run was made from."
        )


def learn_again(
    state: dict[str, Any], center: Float[np.ndarray, " p"], scale: Float[np.ndarray, " p"],
    table: pyarrow.Table, formula: str, numbers: Collection[str] = (), *,
    other: Callable[..., Learnt] | None = None, dtype: Any = np.float32,
) -> Learnt:  # fmt: skip
    """As `learn`, where its state is known: of columns as they are x is (x - center) / scale, in single precision.

    The same bits as by way of formulaic, which holds each number twice more and takes three times as long.
    Of other columns `other` makes x, in double precision and neither centred nor scaled.
    """
    parsed = parse(formula, table.column_names)
    outcome = str(next(iter(parsed.lhs)))
    if not _as_they_are(state["names"], parsed, table):
        return (other or learn)(table, formula, numbers)
    used = used_columns(formula, [*parsed.lhs, *parsed.rhs], table)
    check_cells(parsed.rhs, table, {*used, *numbers, outcome}, {*numbers, outcome})
    whole = {name: table.column(name).to_numpy() for name in {*state["names"], outcome} - {"Intercept"}}  # fmt: skip
    x = np.empty((table.num_rows, len(state["names"])), dtype)
    for rows in blocks(x):
        for j, name in enumerate(state["names"]):
            values = 1.0 if name == "Intercept" else whole[name][rows]
            x[rows, j] = (values - center[j]) / scale[j]
    return Learnt(state, x, whole[outcome].astype(np.float64), None)


def _as_they_are(names: list[str], parsed: Any, table: pyarrow.Table) -> bool:
    """Whether outcome and predictors are columns of numbers of the table, and nothing is made of them."""
    types = need("pyarrow", "tables").types
    factors = [f for side in (parsed.lhs, parsed.rhs) for term in side for f in term.factors]
    if not all(factor.eval_method.value in ("lookup", "literal") for factor in factors):
        return False
    columns = {*names, str(next(iter(parsed.lhs)))} - {"Intercept"}
    if not columns <= set(table.column_names):  # products, levels
        return False
    kinds = [table.schema.field(name).type for name in columns]
    return all(types.is_integer(kind) or types.is_floating(kind) for kind in kinds)
