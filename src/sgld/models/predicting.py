"""Predictions of a formula's model for tables of any length: the rows come in pieces, and so do the predictions."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Bool

from ..core.progress import counted
from ..core.validation import fraction
from ..data.cache import stamp_of
from ..data.delimited import renumbered
from ..data.source import check_names
from ..data.table_source import Chained, TableSource
from ..data.tables import check_named
from ..errors import DataError, need
from ..results.draws import Draws
from ..typing import PredictionKind
from .formula import FormulaModel
from .predictive import check_kind, predict_rows
from .rows import complete

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Predicting", "rows_in"]

ROWS_AT_ONCE = 16_384  # one to three seconds


class Predicting:
    """`FormulaModel.predict` for draws on the original scale, piece by piece of a table.

    Attributes:
      blank: what is predicted, by name, of no row.

    Raises: UsageError for `kind` and `prob`.
    """

    def __init__(
        self, model: FormulaModel, draws: Draws, *, prob: float, seed: int, kind: PredictionKind
    ) -> None:
        fraction("prob", prob)
        check_kind(model.family, kind)
        position = jax.tree.map(lambda leaf: np.asarray(leaf)[draws.healthy], draws.position)
        self._model, self._position = model, model.to_standardised(position)
        self._how: dict[str, Any] = {"kind": kind, "prob": prob, "weights": draws.weights}
        self._seed = seed
        typical = predict_rows(
            model.family, model.spec, self._position, np.zeros((1, len(model.center))),
            {"trials": np.ones(1)} if model.spec.get("trials") else {}, seed=0, max_draws=1, **self._how,
        )  # fmt: skip
        self.blank = {name: values[:0] for name, values in typical.items()}

    @property
    def rows_at_once(self) -> int:
        """Of a piece: all, where a term looks at the row before."""
        formula = self._model.spec["design"]["formula"]
        return sys.maxsize if "lag(" in formula.replace(" ", "") else ROWS_AT_ONCE

    def __call__(
        self, rows: Rows, ids: Sequence[str] = ()
    ) -> Iterator[tuple[pyarrow.Table, dict[str, np.ndarray]]]:
        """The pieces, `ids` and the columns needed, and the predictions of their rows; empty (NaN or
        None) for a row with a missing cell, where the run left such rows out.

        Raises: DataError for the rows, and for a missing column.
        """
        columns = self._columns(rows.schema.empty_table(), ids)
        drops = self._model.spec.get("missing") == "drop"
        first, predicted, began, table = 0, 0, time.monotonic(), None
        for number, table in enumerate(rows.pieces(columns, self.rows_at_once)):
            if rows.num_rows:
                rate = first / (time.monotonic() - began) if first else 0.0
                counted(first, rows.num_rows, "rows", rate=rate)
            whole, keep = table, np.ones(len(table), bool)
            if drops:
                whole, keep = complete(table, columns[len(ids) :])
            found = self.blank
            if len(whole):
                try:
                    found = self._model.predict(self._position, whole, seed=self._seed + number, **self._how)  # fmt: skip
                except DataError as error:
                    raise renumbered(error, first + np.flatnonzero(keep)) from error.__cause__
            first, predicted = first + len(keep), predicted + len(whole)
            yield table, {name: _spread(values, keep) for name, values in found.items()}
        if first and not predicted:
            self._model.design(table)  # raises: every row has a missing cell

    def together(self, rows: Rows) -> dict[str, np.ndarray]:
        """The predictions of all rows."""
        parts = [found for _, found in self(rows)]
        return {name: np.concatenate([part[name] for part in parts]) for name in self.blank}

    def _columns(self, table: pyarrow.Table, ids: Sequence[str]) -> list[str]:
        """The `ids`, then those that the predictions need."""
        for name in ids:
            check_named(table, name)
            if name in self.blank:
                raise DataError(f"the predictions have a column {name!r} of their own; rename that of the table.")  # fmt: skip
        return [*ids, *self._model.predictors(table)]


def _spread(values: np.ndarray, keep: Bool[np.ndarray, " m"]) -> np.ndarray:
    """Values of the rows kept, in the places of all rows; NaN, or None for words, between them."""
    if keep.all():
        return values
    numbers = values.dtype.kind == "f"
    out = np.full(len(keep), np.nan) if numbers else np.full(len(keep), None, object)
    out[keep] = values
    return out


@runtime_checkable
class Rows(Protocol):
    """A table that is read in pieces; `num_rows` is 0 where it is not known before that."""

    schema: pyarrow.Schema
    num_rows: int

    def pieces(self, columns: Sequence[str], size: int) -> Iterator[pyarrow.Table]:
        """All rows of these columns, or of more, `size` at a time."""
        ...


def rows_in(given: TableSource | pyarrow.Table) -> Rows:
    """The rows of a table in memory, or of one on the disk. Raises as `TableSource.batches`."""
    return OnDisk(given) if isinstance(given, TableSource) else InMemory(given)


class InMemory:
    """The rows of a table in memory."""

    def __init__(self, table: pyarrow.Table) -> None:
        self._table, self.schema, self.num_rows = table, table.schema, table.num_rows

    def pieces(self, columns: Sequence[str], size: int) -> Iterator[pyarrow.Table]:
        """As `Rows`: slices, of all columns."""
        for start in range(0, self.num_rows, size):
            yield self._table.slice(start, size)


class OnDisk:
    """The rows of files, of a database, or of a query."""

    def __init__(self, source: TableSource) -> None:
        self._source = source
        self._before = self._stamps()
        self._table = Chained([source], None)
        check_names(list(self._table.schema), self._table.name)
        self.num_rows = self._table.num_rows
        self.schema = need("pyarrow", "tables").schema(list(self._table.schema.items()))

    def pieces(self, columns: Sequence[str], size: int) -> Iterator[pyarrow.Table]:
        """As `Rows`. Raises DataError where there is none, or they change meanwhile."""
        arrow, read = need("pyarrow", "tables"), 0
        held: list[Any] = []
        for batch in self._table.batches(list(dict.fromkeys(columns))):
            while batch.num_rows:
                held.append(batch.slice(0, size - read % size))
                read, batch = read + len(held[-1]), batch.slice(len(held[-1]))
                if read % size == 0:
                    yield arrow.Table.from_batches(held)
                    held = []
        if self._stamps() != self._before:
            raise DataError(f"{self._source.data} changed while it was read; read it again.")
        if held:
            yield arrow.Table.from_batches(held)
        if not read:
            raise DataError(f"{self._table.name} has no row; at least one is needed.")

    def _stamps(self) -> list[Any]:
        return [stamp_of(path) for path in self._source.files()]
