"""Several modes of a posterior, and how much of its mass each holds: by Laplace, density is not mass.

At temperature T a mode of log density l and curvature J holds, up to a factor that all share,

    log mass = l / T - log det J / 2,

the integral of the Gaussian there. A mode e^10 times less dense holds more than another where it is
four times as wide in each of eight dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

__all__ = ["KnownModes", "apart", "known_modes", "log_mass"]

SEPARATE = 3.0  # sds of the narrower of two modes that lie between them, at least
# share of the second moment that a mode may hold and be left out: an error of .05% in a sd, and were
# Laplace's mass wrong by a factor of 20, as of heavy tails, still of 1%
NEGLIGIBLE = 1e-3


@runtime_checkable
class AtPlace(Protocol):
    """The Gaussian at a mode, dense or diagonal plus low rank."""

    @property
    def center(self) -> Float[np.ndarray, " d"]:
        """The mode."""
        ...

    @property
    def half_log_det(self) -> float:
        """Of the covariance: log det J^{-1} / 2; NaN where J is not positive definite."""
        ...

    def whiten(self, z: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """F^{-1} (z - center)."""
        ...


@runtime_checkable
class HasMode(Protocol):
    """The Gaussian at a mode and the log density there."""

    @property
    def gaussian(self) -> AtPlace:
        """With its centre at the mode."""
        ...

    @property
    def log_density(self) -> float:
        """At the mode."""
        ...


@dataclass(frozen=True)
class KnownModes:
    """The modes that were found, the heaviest first, by Laplace's approximation.

    Attributes:
      z: free coordinates [mode, d].
      log_density: [mode], of free coordinates.
      log_mass: [mode], up to a constant.
    """

    z: Float[np.ndarray, "k d"]
    log_density: Float[np.ndarray, " k"]
    log_mass: Float[np.ndarray, " k"]

    def __len__(self) -> int:
        return len(self.z)

    @property
    def mass(self) -> Float[np.ndarray, " k"]:
        """Shares of the whole, which sum to 1."""
        mass = np.exp(self.log_mass - self.log_mass.max())
        return mass / mass.sum()


def log_mass(at: HasMode, temperature: float) -> float:
    """l / T - log det J / 2; l alone at T = 0, where all is in the densest mode."""
    if temperature == 0:
        return at.log_density
    return at.log_density / temperature + at.gaussian.half_log_det


def apart(one: AtPlace, other: AtPlace) -> float:
    """Distance between two modes in sds of the narrower one."""
    between = (np.linalg.norm(a.whiten(b.center)) for a, b in ((one, other), (other, one)))
    return float(max(between))


def known_modes(found: Sequence[HasMode], temperature: float) -> tuple[list[int], KnownModes]:
    """Which of `found` matter, the heaviest first, and what is to be known of them.

    A mode counts by its share of the second moment around the heaviest: its mass times its squared
    distance in the heaviest mode's sds, its own width included. One whose curvature gives no mass
    is taken to be as wide as the widest, and is never the first.
    """
    volumes = np.array([at.gaussian.half_log_det for at in found])
    masses = np.array([log_mass(at, temperature) for at in found])
    flat = np.isnan(volumes)
    densities = np.array([at.log_density for at in found])
    masses[flat] = densities[flat] / (temperature or 1.0) + np.nanmax(volumes)
    order = np.lexsort((-masses, flat))
    heaviest = found[order[0]].gaussian
    share = np.exp(masses - masses.max())
    away = np.array([np.sum(heaviest.whiten(at.gaussian.center) ** 2) for at in found])
    width = np.array([_width(heaviest, at.gaussian) for at in found])
    moment = share * (1 + away / (temperature or 1.0) + width)
    kept = [int(i) for i in order if moment[i] >= NEGLIGIBLE or i == order[0]]
    z = np.array([found[i].gaussian.center for i in kept])
    return kept, KnownModes(z, densities[kept], masses[kept])


def _width(heaviest: AtPlace, other: AtPlace) -> float:
    """The largest variance of `other` in the heaviest mode's sds; their mean where no factor is kept."""
    factor = getattr(other, "factor", None)
    if factor is None:
        wider = np.nan_to_num(other.half_log_det - heaviest.half_log_det)
        return float(np.exp(2 * wider / len(other.center)))
    return float(np.linalg.norm(heaviest.whiten(heaviest.center + factor.T), 2) ** 2)
