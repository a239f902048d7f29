"""A cheaper log density for trajectories to follow: some rows for all, and what these miss near a centre.

Hamiltonian trajectories are exact whatever field they follow, as long as their ends are accepted by the
density itself (Rasmussen 2003; Neal 2011, section 5.5.3). Of many rows a twentieth says well enough where
to go. With S some rows, w_i how many each stands for, and c a centre,

    log p~(z) = log prior(z) + sum_{i in S} w_i log_likelihood_i(z) + a . (z - c) + (z - c)^T B (z - c) / 2,

a and B being the differences of gradient and Hessian at c between all rows and S: what is left is of
third order in z - c, and small by the share of a sum that a sample of its terms misses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from .estimate import Estimate

__all__ = ["Guide"]


@as_pytree
@dataclass(frozen=True)
class Guide:
    """The equation above.

    Attributes:
      numbers, weight: of the rows in S, as the source numbers them, and w [m].
      center, slope, curvature: c [d], a [d] and B [d, d].
    """

    numbers: Any
    weight: Any
    center: Any
    slope: Any
    curvature: Any

    def at(self, problem: Any, x: Array | None) -> Estimate:
        """log p~ itself, for chains that learn from it; the entry x is not used."""
        return Estimate(self.log_density(problem))

    def log_density(self, problem: Any) -> Callable[[Float[Array, " d"]], Float[Array, ""]]:
        """z -> log p~(z), inside compiled code; the rows are taken once."""
        rows = problem.source.take(self.numbers)

        def followed(z: Float[Array, " d"]) -> Float[Array, ""]:
            away = z - self.center
            missed = away @ (self.slope + 0.5 * (self.curvature @ away))
            return problem.log_prior(z) + problem.log_likelihood(z, rows, self.weight) + missed

        return followed
