"""What a formula makes of one block of a table that is read in blocks."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..data.delimited import renumbered
from ..errors import DataError
from .again import OtherColumns, learn_again
from .blockwise import Block
from .design import Learnt, apply_with_outcome
from .family import find_family
from .rows import coded, trials_of, weights_of

__all__ = ["BlockDesign"]

Spec = dict[str, Any]


class BlockDesign(NamedTuple):
    """What a formula makes of a block of rows, here or at a worker."""

    formula: str
    family: str
    given: dict[str, Any]

    def made(self, spec: Spec, dtype: Any, block: Block) -> tuple[Learnt, dict[str, np.ndarray]]:
        """Design, outcome and what else rows have; of columns as they are standardised already."""
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
        """The rows as the model's posterior takes them: (x [n, p], y [n], ...), in single precision."""
        rows, extra = self.made(spec, np.float32, block)
        x = rows.x
        if x.dtype != np.float32:  # else it was made so
            x = ((x - np.asarray(spec["center"])) / np.asarray(spec["scale"])).astype(np.float32)
        y = ((rows.y - spec["outcome_center"]) / spec["outcome_scale"]).astype(np.float32)
        unit = {"offset": spec["outcome_scale"]}
        more = {name: (v / unit.get(name, 1.0)).astype(np.float32) for name, v in extra.items()}
        return (x, y, more) if more else (x, y)
