"""From a run that is judged by predictions to draws: the part that has settled, layers, the verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from ..core.progress import stage
from ..diagnostics.function_space.temperature import Layers
from ..diagnostics.function_space.verdict import (
    Seen,
    judge_predictions,
    known_well,
    mixed,
    temperatures,
    with_details,
)
from ..model.problem import Problem, Request, is_auto
from ..results.draws import Draws
from ..results.plan import Plan
from ..results.verdict import Verdict
from ..tune.network_lengths import most_kept
from ..tune.network_rule import first_draw
from .judge_kept import summed_up
from .kept import Keep
from .looked_again import misses_of_gradients, other_rows
from .other_starts import from_other_starts
from .outcome import (
    kept_draws,
    only,
    reported_draws,
    sampling_only,
    where_held,
    within_support,
)
from .sink import Raw

__all__ = ["draws_suffice", "judged_by_predictions", "without_beginning"]

GOOD = ("trusted", "unknown")  # words of runs that are looked at again
MOST_LOOKED_AT = 200  # draws of a chain, by whose positions they are


class Late(NamedTuple):
    """A run without its beginning, and no more draws of it than were planned, with a plan that says so."""

    late: Raw
    plan: Plan
    few: Raw


def without_beginning(plan: Plan, raw: Raw, most: int, *, from_ask: bool = False) -> Late:
    """Burn-in is a share of what a run came to: it may have been prolonged, or stopped by the clock.

    Of a run that was prolonged, `most` draws of a chain are given back; of one whose positions are too many to be
    held, those that are.

    Where lengths were given, what was given is all there is; `from_ask`: burn-in was.
    """
    setup, burn_in, first = plan.setup, plan.setup.burn_in, 0
    if setup.starts is not None and not from_ask:
        first = first_draw(burn_in, setup.thin, raw.num_draws)
    elif raw.held is None:
        return Late(raw, plan, raw)
    held = raw.num_draws if raw.held is None else len(raw.held)
    late = held - (first if raw.held is None else int(np.searchsorted(raw.held, first)))
    every = -(-late // max(most, setup.num_draws))
    few, rows = where_held(raw, first, every)
    apart = int(rows[1] - rows[0]) if len(rows) > 1 else 1
    moved = replace(
        setup, burn_in=burn_in + int(rows[0]) * setup.thin, thin=setup.thin * apart,
        num_draws=len(rows),
    )  # fmt: skip
    return Late(only(raw, slice(first, None)), replace(plan, setup=moved), few)


def judged_by_predictions(
    problem: Problem, plan: Plan, raw: Raw, ask: Request, info: dict[str, Any], keep: Keep | None,
    until: float = math.inf,
) -> Draws:  # fmt: skip
    """Draws of the run, or of what was kept of it, with the verdict in function space, by the time `until` if it can be."""
    summed = keep is not None and keep.moments  # of all draws, so that all are judged
    late = raw
    if is_auto(ask.num_draws) and not summed:
        most, given = most_kept(problem, plan.setup.num_chains), not is_auto(ask.burn_in)
        late, plan, raw = without_beginning(plan, raw, most, from_ask=given)
    info = {**info, "plan": plan.describe()}
    if keep is None:
        draws = reported_draws(problem, plan, raw, ask.seed)
    elif summed:
        draws = summed_up(problem, plan, raw, keep, ask, info)
    else:
        draws = kept_draws(problem, plan, raw, ask.seed, keep)
    draws = replace(draws, info=info, plan=plan)
    raw, late = sampling_only(raw)[0], sampling_only(late)[0]
    assert raw.last is not None
    if raw.z is not None:
        draws = within_support(problem, draws, np.moveaxis(raw.z, 0, 1))
    elif not summed:
        draws = within_support(problem, draws, raw.last[:, None], np.array([draws.num_draws - 1]))
    if not draws.healthy.size:
        return draws.with_verdict(judge_predictions(_nothing_seen(problem, late, draws)))
    seen = _seen_by(problem, plan, late, draws.healthy, draws.failures)
    verdict = judge_predictions(seen)
    if verdict.word in GOOD:
        seen, verdict = _looked_again(problem, plan, ask, seen, raw, draws.healthy, until)
    z = None if raw.z is None else np.moveaxis(raw.z, 0, 1)
    if z is not None and len(draws.healthy) < len(z):
        z = z[draws.healthy]
    constrained = problem.posterior.transform is not None and problem.posterior.output is None
    if z is not None and keep is None and constrained:
        z = _as_reported(draws, seen.layers, z)
    return draws.with_verdict(with_details(verdict, seen, z))


def _looked_again(
    problem: Problem,
    plan: Plan,
    ask: Request,
    seen: Seen,
    raw: Raw,
    healthy: np.ndarray,
    until: float,
) -> tuple[Seen, Verdict]:
    """With what positions show of other rows and of gradients, and chains from other starts; the last where the rest is right."""
    rows = None
    if raw.z is not None and problem.mesh is None and problem.has_rows:
        with stage("verdict"):
            few = np.unique(np.linspace(0, len(raw.z) - 1, MOST_LOOKED_AT).astype(int))
            z = raw.z[np.ix_(few, healthy)]
            weights = np.broadcast_to(raw.step_size[few], z.shape[1::-1]).astype(np.float64)
            rows = other_rows(
                problem, z, raw.num_steps * (plan.setup.batch_size or problem.num_data)
            )
            if rows is not None:
                r_hat = rows.r_hat(weights / weights.sum())
                seen = replace(seen, rows_r_hat=r_hat, rows_allowed=rows.allowed)
            if not seen.exact:
                seen = replace(seen, misses=misses_of_gradients(problem, z, until))
    verdict = judge_predictions(seen)
    if verdict.word in GOOD:
        ends = np.asarray(raw.last, np.float64)[healthy]
        others = from_other_starts(problem, ask, ends, float(raw.temperature[-1]), seen)
        seen = replace(seen, others=others)
        if rows is not None and others is not None:
            with stage("verdict"):
                seen = replace(seen, rows_unlike=rows.unlike(others.z[others.matters]))
        verdict = judge_predictions(seen)
    return seen, verdict


def _as_reported(draws: Draws, layers: Layers, z: np.ndarray) -> np.ndarray:
    """Positions of healthy chains as they are given back: a scale is positive in the table of layers, too.

    A leaf that has other entries there, as a simplex has, stays as it is.
    """
    leaves = [leaf for leaf in jax.tree.leaves(draws.position) if leaf[0, 0].size]
    if len(leaves) != len(layers.sizes):
        return z
    found = z.copy()
    for size, begin, leaf in zip(layers.sizes, layers.starts, leaves, strict=True):
        if leaf[0, 0].size == size:
            found[..., begin : begin + size] = leaf[draws.healthy].reshape(*z.shape[:2], size)
    return found


def draws_suffice(problem: Problem, plan: Plan, ask: Request, raw: Raw) -> bool:
    """Whether predictions have mixed, and temperatures are known; True where all chains failed."""
    late = without_beginning(plan, raw, 1).late if is_auto(ask.burn_in) else raw
    healthy = np.isfinite(late.last).all(axis=1) if late.last is not None else np.ones(0, bool)
    if not healthy.any() or late.predicted is None:
        return True
    seen = _seen_by(problem, plan, late, np.flatnonzero(healthy), ())
    if len(seen.predicted) == 1:
        return known_well(temperatures(seen))  # R-hat will never be known
    return not mixed(seen).reasons and known_well(temperatures(seen))


def _seen_by(
    problem: Problem, plan: Plan, late: Raw, healthy: np.ndarray, failures: tuple[str, ...]
) -> Seen:
    """What the draws of these chains showed."""
    assert late.predicted is not None and late.kind is not None
    kinetic = None if late.kinetic is None else np.moveaxis(late.kinetic, 0, 1)[healthy]
    # a draw's weight is the step taken from it
    weights = np.broadcast_to(late.step_size, (len(healthy), late.num_draws)).astype(np.float64)
    return Seen(
        late.kind, np.moveaxis(late.predicted, 0, 1)[healthy], kinetic,
        weights / weights.sum(), Layers.of(problem.layout), failures, plan.by_hand,
        plan.setup.exact, one_place=plan.setup.starts is None,
    )  # fmt: skip


def _nothing_seen(problem: Problem, late: Raw, draws: Draws) -> Seen:
    assert late.kind is not None
    return Seen(
        late.kind, np.zeros((0, 0, 0, 0)), None, np.zeros((0, 0)),
        Layers.of(problem.layout), draws.failures,
    )  # fmt: skip
