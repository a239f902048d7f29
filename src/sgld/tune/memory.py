"""The memory that a run takes, predicted from what was asked before anything is computed, and from its plan.

    bytes = DRAW draws chains d + CARRIED chains d

A draw's number is held as a position, a gradient and what is reported, and again in float64 where
the verdict looks at it; measured at the peak, 40 bytes with 100,000 parameters, and up to 110 with 200.
"""

from __future__ import annotations

from ..ceiling import check_memory
from ..problem.problem import Problem
from ..problem.request import Request, is_auto

__all__ = ["check_asked", "check_planned", "run_bytes"]

DRAW = 40.0  # bytes of each number of a draw, at the peak
CARRIED = 80.0  # and of each number of a chain's position: starts, carry, what is sent of it
LEAST_DRAWS = 20  # of a chain, whatever was left open
CHAINS = 4


def run_bytes(num_chains: int, num_draws: int, dimension: int, kept: int | None = None) -> float:
    """Bytes of a run at its peak; `kept`, numbers of a draw where they are not its position."""
    width = dimension if kept is None else kept
    return float(num_chains) * (DRAW * num_draws * width + CARRIED * dimension)


def check_asked(problem: Problem, ask: Request, kept: int | None = None) -> None:
    """UsageError where what was asked takes more memory than there is, whatever the plan will be."""
    chains = CHAINS if is_auto(ask.num_chains) else ask.num_chains
    draws = LEAST_DRAWS if is_auto(ask.num_draws) else ask.num_draws
    if ask.max_steps is not None:  # and so no more draws than that
        draws = min(draws, ask.max_steps)
    check_planned(chains, draws, problem.dimension, kept)


def check_planned(num_chains: int, num_draws: int, dimension: int, kept: int | None = None) -> None:
    """The same of a plan, in which nothing is open."""
    width = f"{dimension:,} parameter{'s' * (dimension != 1)}"
    if kept is not None:
        width = f"{kept:,} kept number{'s' * (kept != 1)}"
    check_memory(
        run_bytes(num_chains, num_draws, dimension, kept),
        f"{num_chains:,} chains with {num_draws:,} draws each of {width}",
        "ask for fewer chains or draws, or keep less of a draw (keep=)",
    )
