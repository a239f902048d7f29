"""What is learned of a formula's columns and outcome from all rows, a block of them at a time.

Second moments about the first block's means m, in float64, so that years lose no digits:

    S1 = sum (x - m),   S2 = sum (x - m)(x - m)^T;   mean = m + S1 / N,   cov = S2 / N - (S1 / N)(S1 / N)^T
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from .collinear import Facts, check_facts, check_largest
from .design import Learnt
from .family import Family

__all__ = ["Columns", "Outcome"]

ALIKE = 1e-12  # of two columns' mean, sd and correlation, that are called the same


class Columns:
    """Moments and extremes of the columns of a design."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.count = names, 0

    def add(self, x: Float[np.ndarray, "m p"]) -> None:
        """The next rows."""
        if not len(x):
            return
        least, most = x.min(axis=0), x.max(axis=0)
        if not self.count:
            self.first, self._about = x[0].copy(), x.mean(axis=0)
            self._sum, self._squares = np.zeros(x.shape[1]), np.zeros((x.shape[1],) * 2)
            self._least, self._most = least, most
            self._whole = np.ones(x.shape[1], bool)
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers that `check` refuses
            apart = x - self._about
            self._sum += apart.sum(axis=0)
            self._squares += apart.T @ apart
        self._least, self._most = np.minimum(self._least, least), np.maximum(self._most, most)
        self._whole &= (x == np.rint(x)).all(axis=0)
        self.count += len(x)

    def check(self) -> tuple[np.ndarray, np.ndarray]:
        """The columns' center and scale, [p]; DataError for columns that cannot be told apart."""
        intercept = "Intercept" in self.names
        largest = np.maximum(self._most, -self._least)
        check_largest(largest, self.names)
        apart = self._sum / self.count
        mean = self._about + apart
        second = self._squares / self.count - np.outer(apart, apart)
        if not intercept:  # about 0
            second, mean = second + np.outer(mean, mean), np.zeros_like(mean)
        scale = np.sqrt(np.maximum(np.diag(second), 0.0))

        def correlations(kept: list[int]) -> np.ndarray:
            return second[np.ix_(kept, kept)] / np.outer(scale[kept], scale[kept])

        def twins(columns: list[int]) -> dict[int, int]:
            found: dict[int, int] = {}
            for at, j in enumerate(columns):
                for i in columns[:at]:
                    same = np.isclose([mean[i], scale[i]], [mean[j], scale[j]], ALIKE, 0).all()
                    if i not in found and same and second[i, j] > (1 - ALIKE) * second[i, i]:
                        found[j] = i
                        break
            return found

        facts = Facts(
            self.count, mean, scale, largest, self._most - self._least, self._whole, self.first,
            twins, correlations,
        )  # fmt: skip
        check_facts(facts, self.names)
        if intercept:
            index = self.names.index("Intercept")
            mean[index], scale[index] = 0.0, 1.0
        return mean, scale


class Outcome:
    """Of the outcome, without offsets (identity link) or as a share of its trials: moments, counts of levels."""

    def __init__(self, family: Family) -> None:
        self.family, self.size = family, 0
        self._about = self._sum = self._squares = 0.0
        self._levels = np.zeros(0, np.int64)
        self._offset, self._top, self._exp = 0.0, -np.inf, 0.0
        self.has_offset, self.any_weight, self.largest = False, False, 0.0

    def add(self, rows: Learnt, extra: dict[str, np.ndarray]) -> None:
        """The next rows."""
        y, offset = rows.y, extra.get("offset")
        left = y - (0.0 if offset is None else offset) if self.family.location_scale else y / extra.get("trials", 1.0)  # fmt: skip
        if not self.size:
            self._about = float(left.mean())
        apart = left - self._about
        self._sum += float(apart.sum())
        self._squares += float(apart @ apart)
        self.largest = max(self.largest, float(np.abs(y).max()))
        if self.family.levels:
            counts = np.bincount(y.astype(np.int64), minlength=len(self._levels))
            counts[: len(self._levels)] += self._levels
            self._levels = counts
        if offset is not None:
            self.has_offset = True
            self._offset += float(offset.sum())
            top = max(self._top, float(offset.max()))
            self._exp = self._exp * np.exp(self._top - top) + float(np.exp(offset - top).sum())
            self._top = top
        self.any_weight = self.any_weight or bool(extra.get("weight", np.ones(1)).any())
        self.size += len(y)

    def mean(self) -> float:
        """Of the outcome."""
        return self._about + self._sum / self.size

    def sum(self) -> float:
        """Of the outcome."""
        return self._about * self.size + self._sum

    def sd(self, about: float | None = None) -> float:
        """Of the outcome; the root mean square `about` a number."""
        apart = self._sum / self.size
        variance = max(0.0, self._squares / self.size - apart**2)
        return float(np.sqrt(variance + (0.0 if about is None else (self.mean() - about) ** 2)))

    def typical(self) -> Any:
        """A typical linear predictor, offset taken off: where the intercept's prior sits."""
        if self.family.levels:
            shares = self._levels + 0.5
            centre: Any = np.log(shares[1:] / shares[0])
        else:
            sums: Any = self  # which has what is asked of an outcome: sum, mean and size
            centre = np.asarray(self.family.centre(sums))
        if self.has_offset and self.family.link == "log of the mean":
            centre = centre - (self._top + np.log(self._exp / self.size))
        elif self.has_offset:
            centre = centre - self._offset / self.size
        return centre.tolist()
