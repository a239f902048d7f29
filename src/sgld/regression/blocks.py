"""A formula's table in blocks of complete rows, and the design of one block.

A few representative rows determine everything that the formula's terms estimate. They hold all levels of
categories and the minimum and maximum of every number. Terms that estimate more than these (knots, means,
norms) also need a random sample. The formula is trained on the table of these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from ..data.delimited import renumbered
from ..data.memory import keys
from ..data.table_source import Chained
from ..data.tables import check_named
from ..errors import DataError, need
from .columns import MAX_CATEGORY_LEVELS, is_text
from .design import (
    TRANSFORMS,
    Design,
    OtherColumns,
    apply_with_outcome,
    columns_of,
    learn_again,
    parse,
)
from .expression import check_expression
from .families import find_family
from .rows import coded, complete, trials_of, weights_of

if TYPE_CHECKING:
    import pyarrow

MAX_LEARNING_ROWS = 2**16  # rows from which knots, means and norms are estimated
REPRESENTATIVE_ROWS = 2**10  # rows that represent the table if none of these is needed


class Block(NamedTuple):
    """Some rows in the order of the table.

    Attributes:
      table: the rows without an empty cell.
      first: the number of the block's first row.
      keep: [m], which of its rows these are.
    """

    table: pyarrow.Table
    first: int
    keep: Bool[np.ndarray, " m"]

    @property
    def numbers(self) -> Int[np.ndarray, " n"]:
        """The numbers of the complete rows in the table, from 0."""
        return self.first + np.flatnonzero(self.keep)


class Blocks:
    """The columns of a table that a formula uses, block by block, as often as needed.

    Raises the errors of `rows_of` for unknown columns, and DataError for an empty cell if `missing` is "error".
    """

    def __init__(self, table: Chained, formula: str, columns: dict[str, Any], missing: str) -> None:
        arrow = need("pyarrow", "tables")
        empty = arrow.schema(list(table.schema.items())).empty_table()
        self.outcome, used = columns_of(formula, empty)
        roles = [role for role in ("weights", "trials") if columns[role] is not None]
        for role in roles:
            check_named(empty, columns[role], f"{role}: ")
        named = [columns[role] for role in roles]
        self.columns = sorted({*used, *named})
        self.table, self.formula, self.missing = table, formula, missing
        self._as_names = _categories(formula, empty, self.columns)

    @property
    def has_levels(self) -> bool:
        """Whether any used column holds names."""
        return bool(self._as_names)

    def __call__(self, most: int) -> Iterator[Block]:
        """Yield all rows, at most `most` in a block."""
        arrow, first = need("pyarrow", "tables"), 0
        for batch in self.table.batches(self.columns):
            for at in range(0, batch.num_rows, most):
                rows = arrow.Table.from_batches([batch.slice(at, most)])
                whole, keep = complete(rows, self.columns)
                if self.missing == "error" and not keep.all():
                    raise DataError(
                        f"{self.table.name} has an empty cell (or NaN) in data row {first + int(np.argmin(keep)) + 1}, in a "
                        "column that is used; fill it in, or drop such rows with missing='drop'."
                    )
                yield Block(whole, first, keep)
                first += rows.num_rows

    def representative(self) -> tuple[pyarrow.Table, Int[np.ndarray, " k"], int]:
        """Return rows that determine the terms, their numbers, and the count of complete rows."""
        arrow = need("pyarrow", "tables")
        size = MAX_LEARNING_ROWS if TRANSFORMS.search(self.formula) else REPRESENTATIVE_ROWS
        span, count, read = _Span(self._as_names), 0, 0
        shown, sample = _Shown(), _Shown()
        limit = np.uint64(2**64 - 1)
        for block in self(2**17):
            numbers = block.numbers
            read, count = read + len(block.keep), count + len(numbers)
            if not len(numbers):
                continue
            shown.add(block.table, numbers, span.new(block.table))
            sample.add(block.table, numbers, np.flatnonzero(keys(numbers, 0) <= limit))
            if sample.count > 2 * size:  # the rows of the smallest keys are a random sample
                limit = sample.cut(size)
        if not count:
            raise DataError(
                f"every one of the {read:,} rows has a missing cell in a column that is used; remove such columns."
                if read
                else f"{self.table.name} has no row; at least one is needed."
            )
        sample.cut(size)
        table = arrow.concat_tables([*shown.tables, *sample.tables])
        numbers = np.concatenate([*shown.numbers, *sample.numbers])
        numbers, at = np.unique(numbers, return_index=True)
        return table.take(arrow.array(at)).combine_chunks(), numbers, count


class _Shown:
    """Selected rows and their numbers."""

    def __init__(self) -> None:
        self.tables: list[pyarrow.Table] = []
        self.numbers: list[np.ndarray] = []

    @property
    def count(self) -> int:
        return sum(map(len, self.numbers))

    def add(self, table: pyarrow.Table, numbers: np.ndarray, which: np.ndarray) -> None:
        if len(which):
            # `take` instead of a slice, which would keep the whole block in memory
            self.tables.append(table.take(need("pyarrow", "tables").array(which)))
            self.numbers.append(numbers[which])

    def cut(self, size: int) -> np.uint64:
        """Keep the `size` rows of the smallest keys, and return the largest key among them."""
        numbers = np.concatenate(self.numbers)
        own = keys(numbers, 0)
        chosen = np.sort(np.argsort(own)[:size])
        table = need("pyarrow", "tables").concat_tables(self.tables)
        self.tables, self.numbers = [], []
        self.add(table, numbers, chosen)
        return own[chosen].max()


class _Span:
    """Levels, minima and maxima of all columns so far."""

    def __init__(self, as_names: set[str]) -> None:
        self._as_names = as_names
        self._levels: dict[str, set[Any]] = {name: set() for name in as_names}
        self._ends: dict[str, list[float]] = {}

    def new(self, table: pyarrow.Table) -> Int[np.ndarray, " k"]:
        """Return the rows of this block with a new level, or a number outside the range so far."""
        found: set[int] = set()
        for name in table.column_names:
            column = table.column(name).combine_chunks()
            found |= self._of_names(name, column) if name in self._as_names else self._of_numbers(name, column)  # fmt: skip
        return np.array(sorted(found), np.int64)

    def _of_names(self, name: str, column: Any) -> set[int]:
        compute, seen, found = need("pyarrow.compute", "tables"), self._levels[name], set()
        for level in column.unique():
            if level.as_py() not in seen:
                seen.add(level.as_py())
                found.add(compute.index(column, level).as_py())
            # one more than allowed: the formula's check then raises with the column's name
            if len(seen) > MAX_CATEGORY_LEVELS + 1:
                break
        return found

    def _of_numbers(self, name: str, column: Any) -> set[int]:
        types = need("pyarrow", "tables").types
        if not (types.is_integer(column.type) or types.is_floating(column.type)):
            return {0}  # the formula's check raises for this type
        values = column.to_numpy(zero_copy_only=False)
        ends = self._ends.setdefault(name, [np.inf, -np.inf])
        least, most, found = int(np.argmin(values)), int(np.argmax(values)), set()
        if values[least] < ends[0]:
            ends[0] = values[least]
            found.add(least)
        if values[most] > ends[1]:
            ends[1] = values[most]
            found.add(most)
        return found


def _categories(formula: str, table: pyarrow.Table, used: list[str]) -> set[str]:
    """Return the columns whose values are names: texts, booleans, and arguments of C(...)."""
    types, parsed = need("pyarrow", "tables").types, parse(formula, table.column_names)
    found = {
        name for name in used
        if is_text(table.schema.field(name).type) or types.is_boolean(table.schema.field(name).type)
    }  # fmt: skip
    for side in (parsed.lhs, parsed.rhs):
        for factor in (factor for term in side for factor in term.factors):
            if factor.eval_method.value == "python" and "C(" in factor.expr:
                found |= check_expression(factor.expr, table.column_names)
    return found


# -- block design --------------------------------------------------------------------------


Spec = dict[str, Any]


class BlockDesign(NamedTuple):
    """The design of a block of rows under a formula, computed locally or by a worker."""

    formula: str
    family: str
    given: dict[str, Any]

    def made(self, spec: Spec, dtype: Any, block: Block) -> tuple[Design, dict[str, np.ndarray]]:
        """Return design, outcome and extra data; unchanged columns are standardised already."""
        center, scale = np.asarray(spec["center"]), np.asarray(spec["scale"])
        table, state = block.table, spec["design"]
        levels = spec.get("levels") or spec.get("words")
        named = [name for name in (self.given["weights"], self.given["trials"]) if name]
        try:
            if levels:
                table, _ = coded(table, state["outcome"], find_family(self.family), levels)
            other = partial(apply_with_outcome, state)
            rows = learn_again(
                state, center, scale, table, self.formula, named, other=other, dtype=dtype
            )
            extra = {} if rows.offset is None else {"offset": rows.offset}
            if self.given["trials"] is not None:
                extra["trials"] = trials_of(table, self.given["trials"], rows.y, state["outcome"])
            if self.given["weights"] is not None:
                extra["weight"] = weights_of(table, self.given["weights"])
        except OtherColumns:
            raise
        except DataError as error:
            raise renumbered(error, block.numbers) from error.__cause__
        return rows, extra

    def standardised(self, spec: Spec, block: Block) -> Any:
        """Return the rows for the model's posterior: (x [n, p], y [n], ...), in float32."""
        rows, extra = self.made(spec, np.float32, block)
        x = rows.x
        if x.dtype != np.float32:  # else it is standardised already
            x = ((x - np.asarray(spec["center"])) / np.asarray(spec["scale"])).astype(np.float32)
        y = ((rows.y - spec["outcome_center"]) / spec["outcome_scale"]).astype(np.float32)
        unit = {"offset": spec["outcome_scale"]}
        more = {name: (v / unit.get(name, 1.0)).astype(np.float32) for name, v in extra.items()}
        return (x, y, more) if more else (x, y)
