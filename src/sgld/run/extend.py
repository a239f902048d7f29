"""How many draws a run goes on to: until there are enough effective ones."""

from __future__ import annotations

import math

import numpy as np

from ..diagnose.rule import least_ess
from ..draws import weighted
from ..draws.plan import Plan
from ..problem.problem import Problem
from ..problem.request import Request, is_auto
from . import loop
from .kept import Keep
from .outcome import kept_draws, reported_draws

__all__ = ["draws_to_go_on_to"]

MAX_GROWTH = 50  # `ess=` goes on to at most this many times the planned draws
GROWTH_BY_ITSELF, MOST_STEPS = 8, 10**6  # and the library by itself to this many, and steps


def draws_to_go_on_to(
    problem: Problem, plan: Plan, ask: Request, ess: float | None, keep: Keep | None, raw: loop.Raw
) -> int:
    """Draws per chain; those there are, where they suffice or nothing was left to the library.

    Until the smallest bulk ESS reaches `ess`; where lengths were left to the library, until
    those of theta and theta^2 suffice for the verdict.
    """
    done, setup = raw.num_draws, plan.setup
    seen = [] if raw.z is None else [reported_draws(problem, plan, raw, ask.seed)]
    if raw.value and keep is not None:
        seen.append(kept_draws(problem, plan, raw, ask.seed, keep))
    if not seen or seen[0].healthy.size == 0:
        return done
    found = [weighted.Estimates(draws.flat()[0], draws.weights) for draws in seen]
    if ess is not None:
        share, longest = min(float(np.nanmin(own.ess)) for own in found) / ess, MAX_GROWTH
    elif is_auto(ask.num_draws) and is_auto(ask.step_size):
        share, longest = min(_precision(own, ask.tolerance) for own in found), GROWTH_BY_ITSELF
    else:
        return done
    if not share < 1:
        return done
    growth = min(4.0, max(1.1, 1.1 / max(share, 0.01)))
    most = longest * setup.num_draws
    if ess is None:
        most = min(most, MOST_STEPS // setup.thin)
    if ask.max_steps is not None:
        most = min(most, 1 + (ask.max_steps - setup.burn_in - 1) // setup.thin)
    return max(done, min(most, math.ceil(done * growth)))


def _precision(found: weighted.Estimates, tolerance: float) -> float:
    """Effective draws over those needed, in the worst parameter.

    The verdict's least ESS, and for squares (kurtosis - 1) / tolerance^2: then the Monte Carlo
    error of every sd is tolerance / 2 of it.
    """
    least = 1.1 * least_ess(len(found.values))
    needed = np.fmax(least, (found.kurtosis - 1) / tolerance**2)
    shares = (found.ess / least, found.ess_square / needed)
    return float(np.min(shares, initial=np.inf, where=np.isfinite(shares)))
