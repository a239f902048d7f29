"""Several tables read one after the other, in batches, as one: the first's columns, found by name; some rows left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from ..errors import DataError, need
from .whole import TableSource, plain_type

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Chained"]


class Chained:
    """The rows of the sources in turn, whatever the order of their columns.

    Args:
      dropped: of each source, the numbers, from 0, of those rows of the table up to its end that are no longer there;
        none: all are.
    """

    def __init__(
        self, sources: Sequence[TableSource], spill: Path | None,
        dropped: Sequence[Int[np.ndarray, " m"]] = (),
    ) -> None:  # fmt: skip
        self._parts = [source.batches(spill) for source in sources]
        first = self._parts[0]
        self.name = " + ".join(part.name for part in self._parts)
        self.schema = {name: plain_type(kind) for name, kind in first.schema.items()}
        counts = [part.num_rows for part in self._parts]
        self._dropped = dropped or [np.zeros(0, np.int64)] * len(counts)
        self.num_rows = sum(counts) - sum(map(len, self._dropped)) if all(counts) else 0
        for part in self._parts[1:]:
            for name in self.schema:
                if name not in part.schema:
                    raise DataError(
                        f"{part.name} has no column {name!r}, which the run's table has; give it there."
                    )

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """All rows of these columns, with the first table's types."""
        yield from self._up_to(len(self._parts) - 1, list(columns))

    def _up_to(self, last: int, names: list[str]) -> Iterator[pyarrow.RecordBatch]:
        """The rows of the sources up to that number, without those that were dropped then."""
        arrow, gone, first = need("pyarrow", "tables"), self._dropped[last], 0
        for batch in self._with(last, names):
            end = first + batch.num_rows
            here = gone[np.searchsorted(gone, first) : np.searchsorted(gone, end)] - first
            if len(here):
                left = np.ones(batch.num_rows, bool)
                left[here] = False
                batch = batch.filter(arrow.array(left))
            yield batch
            first = end

    def _with(self, last: int, names: list[str]) -> Iterator[pyarrow.RecordBatch]:
        """The rows of the sources before that number, and then all of its own."""
        arrow, part = need("pyarrow", "tables"), self._parts[last]
        if last:
            yield from self._up_to(last - 1, names)
        for batch in part.batches(names):
            cells = [self._cast(part.name, name, batch.column(name)) for name in names]
            yield arrow.record_batch(cells, names=names)

    def _cast(self, part: str, name: str, cells: Any) -> Any:
        kind = self.schema[name]
        if cells.type == kind:
            return cells
        arrow = need("pyarrow", "tables")
        try:
            return cells.cast(kind)
        except (arrow.ArrowException, ValueError) as error:
            raise DataError(
                f"{part} has other kinds of cells than the run's table ({str(error).splitlines()[0]}); write them alike."
            ) from error
