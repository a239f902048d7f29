"""Quantiles of draws that were not kept, from the histograms that the run made of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

__all__ = ["Histogram"]

HALVINGS = 60  # of the range of all draws


@dataclass(frozen=True)
class Histogram:
    """Of every number of every chain, bins of equal width and the weight of the draws in each.

    Attributes:
      low, width: [chain, parameter], where the bins begin, and how wide one is.
      weight: [chain, parameter, bin].
    """

    low: Float[np.ndarray, "chain parameter"]
    width: Float[np.ndarray, "chain parameter"]
    weight: Float[np.ndarray, "chain parameter bin"]

    def __post_init__(self) -> None:
        if self.weight.ndim != 3 or not self.low.shape == self.width.shape == self.weight.shape[:2]:
            raise ValueError("bins and their weights do not belong together")

    def quantile(self, q: float, chains: Int[np.ndarray, " ok"]) -> Float[np.ndarray, " parameter"]:
        """The q-quantile over these chains, which weigh the same: within a bin, whose draws count as spread evenly.

        NaN for a parameter that was never finite.

        Example:
          >>> import numpy as np
          >>> three = Histogram(np.zeros((1, 1)), np.ones((1, 1)), np.array([[[1.0, 2.0, 1.0]]]))
          >>> three.quantile(0.5, np.array([0])).round(6)
          array([1.5])
        """
        low, width = (a[chains].astype(np.float64) for a in (self.low, self.width))
        share = self.weight[chains].astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            share /= share.sum(axis=-1, keepdims=True)
        below = np.concatenate([np.zeros((*share.shape[:2], 1)), share.cumsum(axis=-1)], axis=-1)
        left, right = low.min(axis=0), (low + share.shape[-1] * width).max(axis=0)
        for _ in range(HALVINGS):
            middle = (left + right) / 2
            under = _distribution(below, (middle - low) / np.where(width > 0, width, 1.0)) < q
            left, right = np.where(under, middle, left), np.where(under, right, middle)
        return np.where(np.isfinite(share).all(axis=(0, 2)), right, np.nan)


def _distribution(
    below: Float[np.ndarray, "chain parameter edge"], at: Float[np.ndarray, "chain parameter"]
) -> Float[np.ndarray, " parameter"]:
    """The mean over chains of the share of draws up to a place, in bins from the first one."""
    at = np.clip(at, 0, below.shape[-1] - 1)
    bin_ = np.minimum(at.astype(int), below.shape[-1] - 2)[..., None]
    start, end = (np.take_along_axis(below, bin_ + i, axis=-1)[..., 0] for i in (0, 1))
    return (start + (at - bin_[..., 0]) * (end - start)).mean(axis=0)
