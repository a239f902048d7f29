"""Moments and range of numbers that come piece by piece, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Running"]


@dataclass
class Running:
    """Of columns [n, ...], over all pieces, by the sums of Chan, Golub & LeVeque (1979).

    Attributes:
      count: rows.
      mean, least, most: of each column.
      squares: sums of squared deviations from the mean.
    """

    count: int = 0
    mean: Any = 0.0
    squares: Any = 0.0
    least: Any = np.inf
    most: Any = -np.inf

    def add(self, values: np.ndarray) -> None:
        """The next rows, one or more."""
        values = values.astype(np.float64)
        count, mean = len(values), values.mean(axis=0)
        apart, whole = mean - self.mean, self.count + len(values)
        self.squares += ((values - mean) ** 2).sum(axis=0) + apart**2 * self.count * count / whole
        self.mean, self.count = self.mean + apart * count / whole, whole
        self.least = np.minimum(self.least, values.min(axis=0))
        self.most = np.maximum(self.most, values.max(axis=0))
