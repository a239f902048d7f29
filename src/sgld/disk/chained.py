"""Several tables read one after the other, in batches, as one: the first's columns, found by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, need
from .whole import TableSource, plain_type

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Chained"]


class Chained:
    """The rows of the sources in turn, whatever the order of their columns."""

    def __init__(self, sources: Sequence[TableSource], spill: Path | None) -> None:
        self._parts = [source.batches(spill) for source in sources]
        first = self._parts[0]
        self.name = " + ".join(part.name for part in self._parts)
        self.schema = {name: plain_type(kind) for name, kind in first.schema.items()}
        counts = [part.num_rows for part in self._parts]
        self.num_rows = sum(counts) if all(counts) else 0
        for part in self._parts[1:]:
            for name in self.schema:
                if name not in part.schema:
                    raise DataError(
                        f"{part.name} has no column {name!r}, which the run's table has; give it there."
                    )

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """All rows of these columns, with the first table's types."""
        arrow = need("pyarrow", "tables")
        names = list(columns)
        for part in self._parts:
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
