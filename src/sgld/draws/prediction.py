"""What draws predict."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Prediction"]

PyTree = Any


class Prediction(NamedTuple):
    """Weighted mean, sd and interval over draws, each of the shape f returns."""

    mean: PyTree
    sd: PyTree
    lower: PyTree
    upper: PyTree

    def _repr_html_(self) -> str:
        from ..notebook.views import view

        return view(self)
