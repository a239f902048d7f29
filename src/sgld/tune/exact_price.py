"""What an ensemble of exact chains would cost, predicted in counted operations, and how many chains.

A leapfrog of C chains takes their gradients, priced by what is counted in the model's jaxpr, and for
each two products with the metric's factor:

    seconds = shared + C (each + 2 METRIC d^2)

Where trajectories follow some rows for all, a leapfrog takes their share of that, and the end of the
trajectory ENDS of all.

No clock is read when a plan is made. Chains learn their metric from one another, and few learn a
worse one (16 on a Gaussian process of 53 parameters took twice the seconds of 64, and some diverged):
fewer are taken only where 64 are not affordable.
"""

from __future__ import annotations

from typing import NamedTuple

from ..metropolis.ensemble import CHAINS, TRAJECTORIES
from ..model.cost import Price

__all__ = ["CHEAP", "DRAWS", "MOST", "Exact", "exact_chains"]

METRIC = 1.5e-11  # seconds of a multiplication and addition
DRAWS = 12_800  # of all chains together, before a run is prolonged: 200 each of 64
MORE, NUMBERS, SHORT = 4, 2**20, 2.0  # times as many, up to so many numbers, in so many seconds
CHEAP = 5.0  # predicted seconds up to which nothing else is tried, where something else might do
MOST = 60.0  # and where nothing else would
ENDS = 2.0  # gradients that log p at the end of a trajectory takes as long as: softplus
FEW_CHAINS, FEW_DRAWS = 16, 3_840  # where the usual ones would take more than that


class Exact(NamedTuple):
    """How many chains, how many draws of each, and the predicted seconds of warm-up and draws."""

    chains: int
    draws: int
    seconds: float


def exact_chains(price: Price, dimension: int, share: float = 1.0) -> Exact:
    """Chains and draws for a gradient of this price, of which `share` is followed.

    More draws where they cost next to nothing, for the tails' sake: of Student's t with 2.5 degrees of
    freedom 2 of 6 runs of 12,800 draws seemed to have light tails, 1 of 10 of 51,200.
    """
    one = trajectory_seconds(price, dimension, CHAINS)
    affordable = min(NUMBERS // dimension, SHORT / one * CHAINS)
    draws = int(min(max(affordable, DRAWS), MORE * DRAWS)) // CHAINS
    if (TRAJECTORIES + DRAWS / CHAINS) * one <= MOST:
        return Exact(CHAINS, draws, (TRAJECTORIES + draws) * one)
    draws = FEW_DRAWS // FEW_CHAINS
    one = trajectory_seconds(price, dimension, FEW_CHAINS)
    if share < 1:
        one *= share + ENDS / (5 * dimension**0.25)
    return Exact(FEW_CHAINS, draws, (TRAJECTORIES + draws) * one)


def trajectory_seconds(price: Price, dimension: int, chains: int) -> float:
    """Of one trajectory of every chain, 5 d^{1/4} leapfrogs: the step that is accepted falls as
    d^{-1/4}, and posteriors far from Gaussian take a few times as many as a Gaussian."""
    d = dimension
    return 5 * d**0.25 * (price.seconds(chains) + chains * 2 * METRIC * d**2)
