"""Means, variances and quantiles of draws that were not kept, with the standard error of the means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from .histogram import Histogram
from .mixing import GROUPS, MANY_CHAINS

__all__ = ["Moments"]

Chains = Int[np.ndarray, " ok"]
MomentValues = Float[np.ndarray, " parameter"]


@dataclass(frozen=True)
class Moments:
    """Weighted moments of every chain, parameters in one row.

    Attributes:
      chain_mean, chain_square: [chain, parameter], mean and mean square deviation from it.
      between: [chain, parameter], mean square deviation of the means of batches of draws.
      weight, squared_weights: sums over a chain's draws of the weight and of its square.
      num_batches, num_draws: of a chain.
      histogram: of all draws, for quantiles; None where there are too many parameters for one of each.
    """

    chain_mean: Float[np.ndarray, "chain parameter"]
    chain_square: Float[np.ndarray, "chain parameter"]
    between: Float[np.ndarray, "chain parameter"]
    weight: float
    squared_weights: float
    num_batches: int
    num_draws: int
    histogram: Histogram | None = None

    def mean(self, chains: Chains) -> MomentValues:
        """The mean over these chains, which weigh the same."""
        return self.chain_mean[chains].mean(axis=0, dtype=np.float64)

    def var(self, chains: Chains) -> MomentValues:
        """The variance over these chains' draws, with the divisor of weighted draws."""
        means = self.chain_mean[chains].astype(np.float64)
        square = self.chain_square[chains].mean(axis=0, dtype=np.float64) + means.var(axis=0)
        share = self.squared_weights / self.weight**2 / len(chains)
        return square / (1 - share) if share < 1 else np.full_like(square, np.nan)

    def mcse(self, chains: Chains) -> MomentValues:
        """Monte Carlo standard error of the mean, by the means of batches of draws."""
        if self.num_batches < 2:
            return np.full(self.chain_mean.shape[1], np.nan)
        square = self.between[chains].mean(axis=0, dtype=np.float64)
        return np.sqrt(square / ((self.num_batches - 1) * len(chains)))

    def ess(self, chains: Chains) -> MomentValues:
        """Effective draws for the mean, (sd / mcse)^2: NaN for a parameter that does not move."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.var(chains) / self.mcse(chains) ** 2

    def r_hat(self, chains: Chains) -> MomentValues:
        """Gelman & Rubin's (1992) R-hat, of the means of whole chains; NaN for one chain.

        Of the means of GROUPS groups where chains are many, as `draws.mixing` has it.
        """
        if len(chains) < 2:
            return np.full(self.chain_mean.shape[1], np.nan)
        groups = len(chains) if len(chains) <= MANY_CHAINS else GROUPS
        chains = chains[: len(chains) // groups * groups].reshape(groups, -1)
        means = self.chain_mean[chains].astype(np.float64)
        square = self.chain_square[chains].mean(axis=1, dtype=np.float64) + means.var(axis=1)
        within, between = square.mean(axis=0), means.mean(axis=1).var(axis=0, ddof=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(1 + between / within)
