"""The data sets that come with the package, as columns."""

from __future__ import annotations

import csv

import numpy as np

from ..data.table import bundled

__all__ = ["columns"]


def columns(name: str) -> dict[str, np.ndarray]:
    """The columns of a bundled CSV file: numbers as float64 [N], anything else as text [N].

    Raises DataError for an unknown name.

    Example:
      >>> from sgld.gallery.data import columns
      >>> {name: values.shape for name, values in columns("handout_regression").items()}
      {'x': (10000,), 'y': (10000,)}
    """
    with open(bundled(name), newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    return {
        title: _numbers(np.array(cells))
        for title, cells in zip(head, zip(*rows, strict=True), strict=True)
    }


def _numbers(cells: np.ndarray) -> np.ndarray:
    try:
        return cells.astype(np.float64)
    except ValueError:
        return cells
