"""Single numbers of many rows, observed and replicated, from sums that are added up piece by piece.

A number of a part of the rows can look right where that of all is far off: its replicas spread as
1/sqrt(rows). So what a sentence of the page judges is a number of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats
from jaxtyping import Float

__all__ = ["FEW", "Totals", "band"]

SURE = (0.005, 0.995)  # a sentence that finds fault is wrong once in a hundred times
FEW = 100  # replicas, below which quantiles far out are those of a t law
POWERS = 4


@dataclass
class Totals:
    """Sums over rows; in each array the observed data set first, then the replicas.

    Attributes:
      center, scale: of the outcomes, so that their powers do not cancel.
      edges: between the bins of the predicted mean.
      count: of outcomes.
      num_rows: of the data.
      powers: [4, 1 + S], sums of ((y - center) / scale)^k, k = 1 to 4.
      zeros: [1 + S], outcomes that are 0.
      bins: [bins, 1 + S], sums of the outcomes in each bin.
      predicted, sizes: [bins], sums of the predicted means, and numbers of outcomes.
    """

    center: float
    scale: float
    edges: Float[np.ndarray, " k"]
    count: int = 0
    num_rows: int = 0
    powers: np.ndarray | float = 0.0
    zeros: np.ndarray | float = 0.0
    bins: np.ndarray | float = 0.0
    predicted: np.ndarray | float = 0.0
    sizes: np.ndarray | float = 0.0

    @classmethod
    def like(cls, observed: Float[np.ndarray, " n"], mean: Float[np.ndarray, " n"]) -> Totals:
        """Nothing yet, with center, scale and bins that suit outcomes like these."""
        count = int(np.clip(mean.size // 50, 2, 10))
        edges = np.unique(np.quantile(mean, np.arange(1, count) / count))
        return cls(float(observed.mean()), float(observed.std()) or 1.0, edges)

    def add(
        self,
        observed: Float[np.ndarray, " n"],
        replicas: Float[np.ndarray, "S n"],
        mean: Float[np.ndarray, " n"],
        num_rows: int,
    ) -> None:
        """Count these outcomes too."""
        every = np.concatenate([observed[None], replicas])
        self.count += observed.size
        self.num_rows += num_rows
        self.zeros = self.zeros + np.count_nonzero(every == 0, axis=1)
        bin_of = np.searchsorted(self.edges, mean, side="right")
        member = np.eye(len(self.edges) + 1)[bin_of]
        self.bins = self.bins + member.T @ every.T
        self.predicted = self.predicted + member.T @ mean
        self.sizes = self.sizes + member.sum(axis=0)
        z = (every - self.center) / self.scale
        power, sums = z, []
        for _ in range(POWERS):
            sums.append(power.sum(axis=1))
            power = power * z
        self.powers = self.powers + np.array(sums)

    @property
    def share_of_zeros(self) -> Float[np.ndarray, " data_sets"]:
        """Zeros per outcome."""
        return np.asarray(self.zeros) / self.count

    @property
    def variance(self) -> Float[np.ndarray, " data_sets"]:
        """Of the outcomes, about their own mean."""
        return self.scale**2 * self._central()[0]

    @property
    def skewness(self) -> Float[np.ndarray, " data_sets"]:
        """Third central moment over that of the second to 3/2."""
        second, third, _ = self._central()
        return third / second**1.5

    @property
    def kurtosis(self) -> Float[np.ndarray, " data_sets"]:
        """Fourth central moment over the square of the second; 3 of a normal law."""
        second, _, fourth = self._central()
        return fourth / second**2

    @property
    def rates(self) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, "bins data_sets"]]:
        """Predicted and other means of the bins that hold outcomes."""
        sizes = np.asarray(self.sizes)
        held = sizes > 0
        return (
            np.asarray(self.predicted)[held] / sizes[held],
            np.asarray(self.bins)[held] / sizes[held, None],
        )

    def _central(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first, second, third, fourth = np.asarray(self.powers) / self.count
        return (
            second - first**2,
            third - 3 * first * second + 2 * first**3,
            fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4,
        )


def band(
    replicas: Float[np.ndarray, " S"], tails: tuple[float, float] = SURE
) -> tuple[float, float]:
    """Where a number of one more data set like these would lie, with the probability between `tails`.

    Quantiles where there are many, Student's prediction interval where there are few.
    """
    if len(replicas) < 2:
        return -np.inf, np.inf
    if len(replicas) >= FEW:
        low, high = np.quantile(replicas, tails)
        return float(low), float(high)
    spread = np.std(replicas, ddof=1) * np.sqrt(1 + 1 / len(replicas))
    low, high = scipy.stats.t.ppf(tails, len(replicas) - 1) * spread + np.mean(replicas)
    return float(low), float(high)
