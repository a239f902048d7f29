"""The memory that a run takes, predicted from what was asked before anything is computed, and from its plan.

    bytes = KEPT draws chains d + CARRIED chains d

A draw's number is held as a position, a gradient and what is reported, and again in float64 where
the verdict looks at it: of more than a thousand parameters at some at a time. Measured at the peak.
"""

from __future__ import annotations

from ..core.devices import check_memory
from ..model.problem import Problem, Request, is_auto

__all__ = ["check_asked", "check_planned", "draws_bytes"]

KEPT, KEPT_OF_MANY, MANY = 112, 40, 1000  # bytes of each number of a draw, and beyond so many
CARRIED = 80.0  # of each number of a chain's position: starts, carry, what is sent of it
LEAST_DRAWS = 20  # of a chain, whatever was left open
FEWEST_CHAINS = 4


def draws_bytes(num_chains: int, num_draws: int, width: int) -> int:
    """Bytes of the draws at the peak, of `width` kept numbers each."""
    return (KEPT if width <= MANY else KEPT_OF_MANY) * num_chains * num_draws * width


def check_asked(problem: Problem, ask: Request, kept: int | None = None) -> None:
    """UsageError where what was asked takes more memory than there is, whatever the plan will be."""
    chains = FEWEST_CHAINS if is_auto(ask.num_chains) else ask.num_chains
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
        draws_bytes(num_chains, num_draws, dimension if kept is None else kept)
        + CARRIED * num_chains * dimension,
        f"{num_chains:,} chains with {num_draws:,} draws each of {width}",
        "ask for fewer chains or draws, or keep less of a draw (keep=)",
    )
