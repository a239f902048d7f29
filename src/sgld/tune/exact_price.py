"""What an ensemble of exact chains would cost, predicted in counted operations.

A leapfrog of one chain takes N row gradients, each of some fixed work and some for every
parameter, and two products with the metric's factor:

    seconds = CALL + N (ROW + ENTRY d) + 2 METRIC d^2

The constants were measured once, on one core of a server of 2024 with logistic regressions of up to
100,000 rows and 400 parameters; no clock is read when a plan is made.
"""

from __future__ import annotations

from ..metropolis.ensemble import CHAINS, TRAJECTORIES

__all__ = ["CHEAP", "MOST", "exact_draws", "exact_seconds"]

CALL, ROW, ENTRY, METRIC = 1e-7, 6e-9, 1e-10, 1.5e-11  # seconds
DRAWS = 12_800  # of all chains together, before a run is prolonged: 200 each
MORE, NUMBERS, SHORT = 4, 2**20, 2.0  # times as many, up to so many numbers, in so many seconds
CHEAP = 5.0  # predicted seconds up to which nothing else is tried, where something else might do
MOST = 60.0  # and where nothing else would


def exact_seconds(num_data: int, dimension: int) -> float:
    """Predicted seconds of warm-up and draws."""
    return (CHAINS * TRAJECTORIES + DRAWS) * _trajectory(num_data, dimension)


def exact_draws(num_data: int, dimension: int) -> int:
    """Draws of all chains: more where they cost next to nothing, for the tails' sake.

    Of Student's t with 2.5 degrees of freedom 2 of 6 runs of 12,800 draws seemed to have light tails, 1 of 10 of 51,200.
    """
    affordable = min(NUMBERS // dimension, SHORT / _trajectory(num_data, dimension))
    return int(min(max(affordable, DRAWS), MORE * DRAWS))


def _trajectory(num_data: int, dimension: int) -> float:
    """Of 5 d^{1/4} leapfrogs: the step that is accepted falls as d^{-1/4}, and posteriors far from
    Gaussian take a few times as many as a Gaussian."""
    N, d = max(num_data, 1), dimension
    return 5 * d**0.25 * (CALL + N * (ROW + ENTRY * d) + 2 * METRIC * d**2)
