"""Estimates from chains that were kept in regions of known mass: strata.

With M_g the mass of region g, mu_g and s_g^2 mean and variance there,

    mean = sum M_g mu_g,      variance = sum M_g (s_g^2 + (mu_g - mean)^2),

and the errors of M, of covariance C, carry over to first order: d mean = sum mu_g dM_g, d variance =
sum (s_g^2 + (mu_g - mean)^2) dM_g. Chains of different regions differ as they should: R-hat and ESS
are those within regions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from . import weighted

if TYPE_CHECKING:
    from .draws import Draws

__all__ = ["Strata", "strata_of"]

PerParameter = Float[np.ndarray, " parameter"]


def strata_of(draws: Draws, values: Float[np.ndarray, "ok draw m"]) -> Strata | None:
    """Of a run whose chains were kept in modes; None of another.

    `values` are of the healthy chains.
    """
    modes = draws.modes
    if modes is None or modes.chain is None or modes.group is None:
        return None
    count, group = int(modes.group.max()) + 1, modes.group
    mass = np.bincount(group, modes.mass, count)
    covariance = np.zeros((count, count))
    if modes.covariance is not None:
        np.add.at(covariance, np.ix_(group, group), modes.covariance)
    return Strata(values, modes.chain[draws.healthy], mass, covariance)


@dataclass(frozen=True)
class Strata:
    """Values [chain, draw, parameter], the region of each chain, the regions' masses and C."""

    values: Float[np.ndarray, "chain draw parameter"]
    region: Int[np.ndarray, " chain"]
    mass: Float[np.ndarray, " region"]
    covariance: Float[np.ndarray, "region region"]

    @property
    def occupied(self) -> Int[np.ndarray, " g"]:
        """Regions that hold a chain."""
        return np.unique(self.region)

    @cached_property
    def each(self) -> dict[int, weighted.Estimates]:
        """Of every occupied region by itself."""
        of = {int(g): self.values[self.region == g] for g in self.occupied}
        return {
            g: weighted.Estimates(v, np.full(v.shape[:2], 1 / v[..., 0].size))
            for g, v in of.items()
        }

    def _stacked(self, name: str) -> Float[np.ndarray, "g parameter"]:
        return np.stack([getattr(own, name) for own in self.each.values()])

    @property
    def _share(self) -> Float[np.ndarray, "g 1"]:
        share = self.mass[list(self.each)]
        return (share / share.sum())[:, None]

    @cached_property
    def mean(self) -> PerParameter:
        """sum M_g mu_g."""
        return np.sum(self._share * self._stacked("mean"), axis=0)

    @cached_property
    def sd(self) -> PerParameter:
        """The root of the variance."""
        return np.sqrt(np.sum(self._share * self._second, axis=0))

    @property
    def _second(self) -> Float[np.ndarray, "g parameter"]:
        return self._stacked("sd") ** 2 + (self._stacked("mean") - self.mean) ** 2

    @property
    def r_hat(self) -> PerParameter:
        """The largest within a region."""
        return self._stacked("r_hat").max(axis=0)

    def ess(self, method: weighted.mixing.Method = "bulk") -> PerParameter:
        """1 / sum M_g^2 / ESS_g: what the regions' draws are worth together."""
        own = np.stack([weighted.ess(e.values, e.weights, method) for e in self.each.values()])
        return 1 / np.sum(self._share**2 / own, axis=0)

    @cached_property
    def mean_se(self) -> PerParameter:
        """Of the mean: the chains' Monte Carlo error, and what the masses' errors make of it."""
        own = np.sum((self._share * self._stacked("mean_se")) ** 2, axis=0)
        return np.sqrt(own + self._carried(self._stacked("mean")))

    @cached_property
    def sd_se(self) -> PerParameter:
        """Of the sd, as a share of it."""
        mean, sd = self._stacked("mean"), self._stacked("sd")
        se = (2 * sd**2 * self._stacked("sd_se")) ** 2
        se += (2 * (mean - self.mean) * self._stacked("mean_se")) ** 2
        own = np.sum(self._share**2 * se, axis=0)
        return np.sqrt(own + self._carried(self._second)) / (2 * self.sd**2)

    def _carried(self, slope: Float[np.ndarray, "g parameter"]) -> PerParameter:
        """The variance of sum slope_g M_g."""
        at = list(self.each)
        part = self.covariance[np.ix_(at, at)]
        # errors of masses sum to 0: a number common to all regions carries nothing over
        apart = slope - np.sum(self._share * slope, axis=0)
        return np.einsum("gm,gh,hm->m", apart, part, apart).clip(0)
