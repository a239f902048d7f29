"""How many draws a run goes on to: until there are enough effective ones."""

from __future__ import annotations

import math

import numpy as np

from ..diagnostics import exact_rule, tails
from ..diagnostics.rule import least_ess, separate
from ..model.problem import Problem, Request, is_auto
from ..results import statistics
from ..results.draws import Draws
from ..results.mixing import pareto_k
from ..results.plan import Plan
from ..tune.network_lengths import most_draws
from . import loop
from .judge_predictions import draws_suffice
from .kept import Keep
from .outcome import as_thin, kept_draws, reported_draws, where_held
from .several import regions_of_chains

__all__ = ["draws_for_tails", "draws_needed", "draws_to_go_on_to"]

MAX_GROWTH = 50  # `ess=` goes on to at most this many times the planned draws
GROWTH_BY_ITSELF, MOST_STEPS = 8, 10**6  # and the library by itself to this many, and steps
GROWTH_FOR_R_HAT = 4  # or this many, for chains that may disagree,
SUSPICIOUS = 0.1  # which by chance alone so many runs seem to
GROWTH_FOR_TAILS = 4  # or this many, where tails may only seem too heavy
# E-BFMI from which on more draws are no use: of 300 volatilities in time .01, whose run took 78 seconds instead of 22 for
# the same word
TOO_SLOW = exact_rule.MIN_ENERGY / 2


def draws_to_go_on_to(
    problem: Problem, plan: Plan, ask: Request, ess: float | None, keep: Keep | None, raw: loop.Raw
) -> int:
    """Draws per chain; those there are, where they suffice or nothing was left to the library.

    Until the smallest bulk ESS reaches `ess`; where lengths were left to the library, until ESS
    and R-hat of every parameter suffice for the verdict.
    """
    plan = as_thin(plan, raw)
    done, setup = raw.num_draws, plan.setup
    if keep is not None and keep.moments:  # in batches of the draws that were planned
        return done
    if setup.predictions and ess is None and raw.predicted is not None:
        return _until_predictions_mix(problem, plan, ask, raw)
    by_itself = is_auto(ask.num_draws) and is_auto(ask.step_size)
    if ess is None and not by_itself:
        return done
    if ess is None and raw.trajectories is not None and raw.trajectories.energy < TOO_SLOW:
        return (
            done  # the verdict is decided: it is a property of the posterior, which no draws change
        )
    seen = [] if raw.z is None else [reported_draws(problem, plan, where_held(raw)[0], ask.seed)]
    if raw.value and keep is not None:
        seen.append(kept_draws(problem, plan, raw, ask.seed, keep))
    if not seen or seen[0].healthy.size == 0:
        return done
    found = [own for draws in seen for own in _by_region(problem, plan, draws, raw)]
    if ess is not None:
        share = min(float(np.nanmin(own.ess)) for own in found) / ess
        wanted = _grown(share, done, max(done, MAX_GROWTH * setup.num_draws // raw.every))
    else:
        wanted = max(draws_needed(own, ask.tolerance, setup.num_draws) for own in found)
        if wanted <= done and setup.exact:
            wanted = max(draws_for_tails(own, setup.num_draws) for own in found)
        wanted = min(wanted, MOST_STEPS // setup.thin)
    if ask.max_steps is not None:
        wanted = min(wanted, 1 + (ask.max_steps - setup.burn_in - 1) // setup.thin)
    return max(done, wanted)


def _until_predictions_mix(problem: Problem, plan: Plan, ask: Request, raw: loop.Raw) -> int:
    """Twice the draws, as long as they are few and lengths were left to the library.

    With a limit on time they go on until it is up.
    """
    done, setup = raw.num_draws, plan.setup
    if not (is_auto(ask.num_draws) and is_auto(ask.step_size)) or draws_suffice(
        problem, plan, ask, raw
    ):
        return done
    wanted = 2 * done
    if ask.max_seconds is None:
        wanted = min(wanted, max(done, most_draws(plan, problem) // raw.every))
    if ask.max_steps is not None:
        wanted = min(wanted, 1 + (ask.max_steps - setup.burn_in - 1) // setup.thin)
    return max(done, wanted)


def _by_region(
    problem: Problem, plan: Plan, draws: Draws, raw: loop.Raw
) -> list[statistics.Estimates]:
    """Of every region by itself, where chains are kept in modes."""
    values, weights = draws.flat()[0], draws.weights
    region = None if raw.z is None else regions_of_chains(problem, plan, np.moveaxis(raw.z, 0, 1))
    if region is None:
        return [statistics.Estimates(values, weights)]
    region = region[draws.healthy]
    return [
        statistics.Estimates(values[region == g], weights[region == g]) for g in np.unique(region)
    ]


def draws_needed(found: statistics.Estimates, tolerance: float, planned: int) -> int:
    """Draws per chain to go on to, by the worst parameter; those there are, where they suffice.

    Of effective draws the verdict's least, and for squares (kurtosis - 1) / tolerance^2: then the
    Monte Carlo error of every sd is tolerance / 2 of it. Where R-hat is suspicious the run is
    prolonged as far as R-hat^2 - 1, which falls as draws are added, is beyond that: the limit of
    the verdict is for draws that had this chance. Chains that stay apart are left: each has seen
    enough of where it is.
    """
    m, (chains, done, count) = found.mixing, found.values.shape
    limit = statistics.max_r_hat(m.ess_alone, chains, count, SUSPICIOUS)
    least = 1.1 * least_ess(chains)
    needed = np.fmax(least, (found.kurtosis - 1) / tolerance**2)
    effective = np.fmin(m.ess / least, np.fmin(m.ess_square / least, found.ess_sd / needed))
    with np.errstate(divide="ignore", invalid="ignore"):
        agreeing = np.where(m.r_hat > limit, (limit**2 - 1) / (m.r_hat**2 - 1), 1.0)
    free = ~separate(m.r_hat, limit, m.ess_alone, m.gap, chains)
    return max(
        _grown(np.min(share, initial=1.0, where=free & np.isfinite(share)), done, most * planned)
        for share, most in ((effective, GROWTH_BY_ITSELF), (agreeing, GROWTH_FOR_R_HAT))
    )


def draws_for_tails(found: statistics.Estimates, planned: int) -> int:
    """Draws per chain to go on to, by the heaviest tail; those there are, where they can say no more.

    From a Pareto k of .25 on the error of an sd is infinite, and more draws are no remedy. Below, and over the
    limit of exact chains, k may be so by chance: it is an estimate from some hundred draws, fewer
    effective ones. A tail with no fourth moment (Student's t with 3 degrees of freedom) seems
    heavier the longer it is watched, not lighter.
    """
    done = found.values.shape[1]
    k = float(np.max(np.nan_to_num(pareto_k(found.values))))
    uncertain = exact_rule.HEAVY <= k < tails.HEAVY
    return max(done, GROWTH_FOR_TAILS * planned) if uncertain else done


def _grown(share: float, done: int, most: int) -> int:
    """Draws for 1.1 times what is needed, at most 4 times those there are and `most`."""
    if not share < 1:
        return done
    return max(done, min(most, math.ceil(done * min(4.0, max(1.1, 1.1 / max(share, 0.01))))))
