"""Columns of a table that is read in batches of rows, as the leaves of a datum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from ..data.cells import raise_all, written_number
from ..data.check import Rounding
from ..data.names import check_names
from ..errors import DataError, need
from .columns import Learned, leaves_of, structure_of
from .reader import Piece
from .spill import HELD

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Batches", "TableReader", "batch_rows"]

MOST_ROWS = 2**17  # of a batch
KINDS = {"boolean": np.dtype(bool), "text": np.dtype(np.int32)}


@runtime_checkable
class Batches(Protocol):
    """A table that can be read in batches, any number of times."""

    name: str
    schema: dict[str, Any]  # the columns' Arrow types, by name
    num_rows: int  # 0 where it is not known

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """All rows of these columns."""
        ...


class TableReader:
    """Some columns of a table as the leaves of a datum."""

    def __init__(self, table: Batches, columns: Any) -> None:
        self.table, self.name, self.num_rows = table, table.name, table.num_rows
        check_names(list(table.schema), table.name)
        self.treedef, wanted = structure_of(columns, list(table.schema))
        named = [n for leaf in wanted for n in ((leaf,) if isinstance(leaf, str) else leaf)]
        self._columns = list(dict.fromkeys(named))
        kinds = {name: _kind(name, table) for name in self._columns}
        self._kinds = {name: kind for name, (kind, _) in kinds.items()}
        texts = {name for name, kind in self._kinds.items() if kind == "text"}
        self.leaves = leaves_of(wanted, {name: dtype for name, (_, dtype) in kinds.items()}, texts)
        self.learned: list[Learned] = []
        self._losses: dict[str, Rounding] = {}

    def pieces(self) -> Iterator[Piece]:
        """All rows; what is learned of their columns begins anew."""
        self.learned = [Learned(name, self._kinds[name]) for name in self._columns]
        self._losses = {name: Rounding(f"column {name!r} of {self.name}") for name in self._columns}
        first = 0
        for batch in self.table.batches(self._columns):
            if batch.num_rows and not first:
                self._refuse_numbers_in_words(batch)
            if batch.num_rows:
                yield self._piece(batch, first)
            first += batch.num_rows
        for loss in self._losses.values():
            loss.check()

    def _refuse_numbers_in_words(self, batch: pyarrow.RecordBatch) -> None:
        """DataError for texts that are numbers or dates in another spelling: each would be a category."""
        arrow = need("pyarrow", "tables")
        names = [name for name in self._columns if self._kinds[name] == "text"]
        cells = {name: arrow.chunked_array([batch.column(name)]) for name in names}
        found = [written_number(name, column) for name, column in cells.items()]
        if not getattr(
            self.table, "is_text", False
        ):  # how cells are written is nobody's choice here
            cast = "make numbers of them in a query, or name the other columns in columns"
            found = [
                None if trouble is None else trouble._replace(remedy=cast) for trouble in found
            ]
        raise_all(found)

    def _piece(self, batch: pyarrow.RecordBatch, first: int) -> Piece:
        missing = np.zeros(batch.num_rows, bool)
        values: dict[str, np.ndarray] = {}
        for learned in self.learned:
            cells = batch.column(learned.name)
            values[learned.name], empty = _cells(learned, cells)
            learned.missing += int(empty.sum())
            missing |= empty
        stay = ~missing
        for learned in self.learned:
            found = values[learned.name]
            if learned.kind != "text":
                _check_cells(self.name, learned, found, stay, first)
                learned.add(found[stay])
        leaves = []
        for leaf in self.leaves:
            parts = [values[name].astype(leaf.dtype) for name in leaf.columns]
            for name, part in zip(leaf.columns, parts, strict=True):
                self._losses[name].add(values[name][stay], part[stay])
            leaves.append(np.stack(parts, axis=1) if leaf.shape else parts[0])
        return Piece(leaves, missing if missing.any() else None)


def _kind(name: str, table: Batches) -> tuple[str, np.dtype]:
    """What a column holds, and the type of NumPy's that holds its cells."""
    types, kind = need("pyarrow", "tables").types, table.schema[name]
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_boolean(kind):
        return "boolean", KINDS["boolean"]
    if types.is_integer(kind):
        return "integer", np.dtype(kind.to_pandas_dtype())
    if types.is_floating(kind):
        return "number", np.dtype(kind.to_pandas_dtype())
    if types.is_decimal(kind):
        return "number", np.dtype(np.float64)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text", KINDS["text"]
    if types.is_null(kind) and not any(batch.num_rows for batch in table.batches([name])):
        raise DataError(f"{table.name} has no row; at least one is needed.")
    what = "no values at all" if types.is_null(kind) else f"{kind} values"
    raise DataError(
        f"column {name!r} of {table.name} holds {what}, where numbers, booleans or texts are needed; convert it, or "
        "name the other columns in columns."
    )


def _cells(learned: Learned, cells: Any) -> tuple[np.ndarray, np.ndarray]:
    """The cells of a batch as numbers, and which of them are empty; what stands there then is any number."""
    arrow = need("pyarrow", "tables")
    empty = np.asarray(cells.is_null(nan_is_null=learned.kind == "number"))
    if learned.kind == "text":
        if not arrow.types.is_dictionary(cells.type):
            cells = cells.dictionary_encode()
        places = cells.indices.fill_null(0).to_numpy(zero_copy_only=False)
        texts = cells.dictionary.to_pylist()
        used = np.unique(places[~empty])  # a dictionary may hold texts that no row has
        codes = np.zeros(max(len(texts), 1), np.int32)
        codes[used] = learned.coded([texts[i] for i in used], np.arange(len(used)))
        return codes[places], empty
    if arrow.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if arrow.types.is_decimal(cells.type):
        cells = cells.cast(arrow.float64())
    if cells.null_count:
        cells = cells.fill_null(False if learned.kind == "boolean" else 0)
    return cells.to_numpy(zero_copy_only=False), empty


def _check_cells(
    name: str, learned: Learned, cells: np.ndarray, stay: np.ndarray, first: int
) -> None:
    """DataError for a number that is infinite, or more than the precision of a run can hold."""
    import jax

    if learned.kind == "boolean":
        return
    target = np.dtype(jax.dtypes.canonicalize_dtype(cells.dtype))
    if learned.kind == "number":
        with np.errstate(over="ignore"):  # that is what is looked for
            bad = ~np.isfinite(cells.astype(target)) & stay
        why = "which is no finite number of " + str(target)
    else:
        bad = (np.abs(cells.astype(np.float64)) > 2.0**24) & stay & (target.itemsize <= 4)
        why = "above 2^24, which float32 arithmetic would round"
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"column {learned.name!r} of {name} is {cells[row]} in data row {first + row + 1}, {why}; rescale it, or "
            "leave that row out."
        )


def batch_rows(columns: int) -> int:
    """Rows of a batch of so many columns."""
    return max(1, min(MOST_ROWS, HELD // (16 * max(1, columns))))
