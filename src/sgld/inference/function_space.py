"""Judge a run by its predictions: discard burn-in, measure layers, and return the verdict.

A run that would be trusted gets more checks (`confirmed`). The first compares chains at rows that are not probe
rows (diagnostics/function_space/other_chains.py). The second integrates gradients along lines between draws of a
chain and compares them with the log density (diagnostics/hidden_mass.py). Temperatures do not show that gradients
belong to another function, and chains that follow such gradients agree with one another.

The third check runs chains from other starts, because all chains of a run can miss a function. They use a plan
with automatic settings, whatever the settings of the run. Each begins where an optimiser ended, takes short stages
that tune metric and step, and then a few stretches (tuning/network_backend.py). As many chains run together as the
run has, so that nothing is compiled again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.devices import sent
from ..core.progress import Over, past, stage
from ..diagnostics.function_space.other_chains import ROWS_PER_CALL, OtherRows, OtherStarts, others
from ..diagnostics.function_space.predictions import Predictions, predictions_of
from ..diagnostics.function_space.temperature import Layers
from ..diagnostics.function_space.verdict import Seen, judge_predictions, sufficient, with_details
from ..diagnostics.hidden_mass import (
    MAX_KINK_SHARE,
    MAX_RISING_ROWS,
    PANELS_BETWEEN,
    WORST_LINES,
    lines_between,
    missed,
    quadrature,
    root_mean_square,
)
from ..model.problem import Problem, Request, is_auto
from ..model.sums import row_values
from ..results.draws import Draws
from ..results.plan import Plan
from ..results.verdict import Verdict
from ..samplers.baoa import BAOA
from ..samplers.gradients.full import Full
from .judge import summed_up
from .kept import Keep
from .outcome import kept_draws, only, reported_draws, sampling_only, where_held, within_support
from .sink import Raw
from .tuning import network_rules as rule
from .tuning.network import JaxBackend, optimiser_ends, other_starts_affordable
from .tuning.network_backend import finite_starts, followed, log_masses
from .tuning.network_rules import affordable, first_draw, most_kept
from .tuning.parts import plain_batches, prepared

# -- looked again --------------------------------------------------------------------------


POSITION_NUMBERS = 2**22  # numbers of positions that predict in one call


def other_rows(
    problem: Problem, z: Float[np.ndarray, "draw chain d"], gradients: int
) -> OtherRows | None:
    """Return rows that are not probe rows, with predictions of the draws at these positions.

    The result is None if the user named the rows that are judged, or if all rows are probe rows.

    Args:
      problem: the posterior and its rows.
      z: positions of draws.
      gradients: row gradients that a chain of the run took.
    """
    found = predictions_of(problem)
    rows = others(len(jax.tree.leaves(found.rows)[0]), problem.num_data, gradients)
    if problem.posterior.predict_at is not None:
        return None
    return OtherRows.of(found.kind, partial(_at_rows, problem, found), np.moveaxis(z, 0, 1), rows)


def _at_rows(
    problem: Problem,
    found: Predictions,
    z: Float[np.ndarray, "chain draw d"],
    rows: Int[np.ndarray, " m"],
) -> Float[np.ndarray, "chain draw m k"]:
    """Predict at rows of these numbers, some draws and some rows at a time."""
    flat = z.reshape(-1, z.shape[-1])
    size = int(np.clip(POSITION_NUMBERS // flat.shape[1], 1, len(flat)))
    pieces = []
    for first in range(0, len(rows), ROWS_PER_CALL):
        some = rows[first : first + ROWS_PER_CALL]
        # the last piece is padded, so that it compiles nothing
        full = np.resize(some, ROWS_PER_CALL) if first else some
        there = replace(found, rows=problem.source.take(sent(full, np.int32)))
        parts = []
        for begin in range(0, len(flat), size):
            part = flat[np.arange(begin, begin + size) % len(flat)]
            parts.append(np.asarray(_predicted(there, problem, problem.on_host(part))))
        pieces.append(np.concatenate(parts)[: len(flat), : len(some)])
    values = np.concatenate(pieces, axis=1)
    return values.reshape(*z.shape[:2], *values.shape[1:])


@jax.jit
def _predicted(
    found: Predictions, problem: Problem, zs: Float[Array, "n d"]
) -> Float[Array, "n m k"]:
    return jax.lax.map(lambda z: found.at(problem.target, z), zs)


def misses_of_gradients(
    problem: Problem, z: Float[np.ndarray, "draw chain d"], until: float = math.inf
) -> float | None:
    """Return the result of `gradient_misses` on some rows, in nats.

    The result is None if the density is computed in half precision, whose rounding is as large.
    """
    some = problem.first(min(problem.num_data, MAX_RISING_ROWS)) if problem.has_rows else problem
    some = some.as_one_batch() if some.has_rows else some
    if "f16[" in str(jax.make_jaxpr(_density)(some, some.start)):  # float16 or bfloat16
        return None

    def in_fours(
        f: Callable[..., Array], begins: np.ndarray, ends: np.ndarray, *nodes: np.ndarray
    ) -> np.ndarray:
        count, found = len(begins), []
        for first in range(0, count, WORST_LINES):  # always as many lines, to compile once
            lines = np.resize(np.arange(first, min(first + WORST_LINES, count)), WORST_LINES)
            arguments = map(some.on_host, (begins[lines], ends[lines], *nodes))
            found.append(np.asarray(f(some, *arguments), np.float64))
        return np.concatenate(found)[:count]

    rises, integrals = partial(in_fours, _rises), partial(in_fours, _integrals)
    return gradient_misses(z, problem.layout.dtype, rises, integrals, until)


def gradient_misses(
    z: Float[np.ndarray, "draw chain d"],
    dtype: Any,
    rises: Callable[..., np.ndarray],
    integrals: Callable[..., np.ndarray],
    until: float,
) -> float:
    """Return the root mean square of what integrated gradients miss along lines between draws.

    The result is 0 if no chain moves, and NaN if the time is up first.

    Args:
      z: positions of draws.
      dtype: of the positions at which the density is computed.
      rises: (begins, ends) -> the change in log density along each line.
      integrals: (begins, ends, nodes, weights) -> the quadrature of the gradient at these nodes.
      until: the time (of time.monotonic) at which the checks end.
    """
    begins, ends = lines_between(z)
    if not len(begins):
        return 0.0

    def integral(lines: np.ndarray, panels: int) -> np.ndarray:
        total = np.zeros(len(lines))
        for nodes in zip(*(part.reshape(panels, -1) for part in quadrature(panels)), strict=True):
            if time.monotonic() > until:
                raise Over
            total += integrals(begins[lines], ends[lines], *nodes)
        return total

    def rounding(lines: np.ndarray) -> float:
        begin, end = begins[lines], ends[lines]
        neighbour = np.nextafter(end.astype(dtype), np.inf)
        return 4 * root_mean_square(rises(begin, neighbour) - rises(begin, end))

    try:
        return missed(rises(begins, ends), integral, rounding, PANELS_BETWEEN, MAX_KINK_SHARE)
    except Over:
        return math.nan


@jax.jit
def _rises(
    some: Problem, begins: Float[Array, "n d"], ends: Float[Array, "n d"]
) -> Float[Array, " n"]:
    """Return log p(end) - log p(begin) as a sum of row differences, which loses no digits."""

    def one(pair: tuple[Array, Array]) -> Array:
        begin, end = pair
        rise = some.log_prior(end) - some.log_prior(begin)
        if not some.has_rows:
            return rise
        rows = some.source.take(jnp.arange(some.num_data, dtype=jnp.int32))
        return rise + jnp.sum(row_values(some, end, rows) - row_values(some, begin, rows))

    return jax.lax.map(one, (begins, ends))


def _density(some: Problem, z: Float[Array, " d"]) -> Float[Array, ""]:
    if not some.has_rows:
        return some.log_prior(z)
    rows = some.source.take(jnp.arange(some.num_data, dtype=jnp.int32))
    return some.log_prior(z) + some.log_likelihood(z, rows)


@jax.jit
def _integrals(
    some: Problem, begins: Float[Array, "n d"], ends: Float[Array, "n d"], at: Float[Array, " k"],
    share: Float[Array, " k"],
) -> Float[Array, " n"]:  # fmt: skip
    """Return the contribution of these nodes to int grad log p . dz from each begin to its end."""

    def one(pair: tuple[Array, Array]) -> Array:
        begin, end = pair
        away = end - begin
        slope = lambda t: jnp.vdot(jax.grad(partial(_density, some))(begin + t * away), away)  # noqa: E731
        return jnp.sum(share * jax.lax.map(slope, at))

    return jax.lax.map(one, (begins, ends))


# -- other starts --------------------------------------------------------------------------


_wanted: ContextVar[bool] = ContextVar("sgld_other_starts", default=True)


@contextmanager
def not_looked_for() -> Iterator[None]:
    """Skip restarts in runs that only serve to judge another run."""
    token = _wanted.set(False)
    try:
        yield
    finally:
        _wanted.reset(token)


def from_other_starts(
    problem: Problem,
    ask: Request,
    ends: Float[np.ndarray, "chain d"],
    temperature: float,
    run: Seen,
) -> OtherStarts | None:
    """Return chains from other starts, or None if too few are affordable or none stays finite.

    `ends` holds where the chains of the run ended, `run` what was seen of them.
    """
    whole = problem.as_one_batch()
    count, cheap = other_starts_affordable(whole, ask) if _wanted.get() else (0, False)
    if not count or problem.mesh is not None or not temperature > 0:
        return None
    together = min(count, max(ask.chains(), rule.MIN_OTHER_STARTS))
    with stage("other starts", whole=True):
        return _looked_for(whole, ask, ends, temperature, run, (count, together, cheap))


def _looked_for(
    whole: Problem, ask: Request, ends: np.ndarray, temperature: float, run: Seen,
    how: tuple[int, int, bool],
) -> OtherStarts | None:  # fmt: skip
    """Run the starts; `how` holds their number, how many run together, and whether all are followed to the end."""
    count, together, cheap = how
    ask = replace(
        ask, sampler="auto", step_size="auto", gradient="auto", preconditioner="auto", order="auto",
        batch_size="auto", always_in="auto", num_chains=count - count % together,
        seed=ask.seed + rule.OTHER_STARTS_SEED,
    )  # fmt: skip
    gradient, batched = plain_batches(whole, ask)
    starts, until = optimiser_ends(whole, ask, elsewhere=True), past(rule.TUNING_CLOCK_SHARE)
    if affordable(whole, len(ends)):
        gradient, batched = Full(), whole
    gradient = prepared(gradient, batched, starts[0])
    backend, found = JaxBackend(batched, ask, BAOA(), gradient, temperature), []
    for first in range(0, len(starts), together):
        asked = replace(ask, num_chains=together, seed=ask.seed + first)
        z = whole.array(starts[first : first + together])
        found.append(followed(replace(backend, ask=asked), z, run, until, to_the_end=cheap))
    return finite_starts(found, log_masses(backend, whole.array(ends)))


# -- judge predictions ---------------------------------------------------------------------


CONFIRMED_VERDICTS = ("trusted", "unknown")  # words of runs that are looked at again
MAX_CHECKED_DRAWS = 200  # draws of a chain, by whose positions they are


class Late(NamedTuple):
    """A run without its beginning, and no more draws of it than were planned, with a plan that says so."""

    late: Raw
    plan: Plan
    few: Raw


def without_beginning(plan: Plan, raw: Raw, most: int, *, from_ask: bool = False) -> Late:
    """Discard burn-in, which is a share of the steps that a run took.

    A run may have been prolonged, or stopped by the clock. A prolonged run returns `most` draws of a chain; a run
    with too many positions to hold returns those that are held.

    If the user gave the lengths, nothing more is discarded; `from_ask` says that burn-in was given.
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
    """Return draws of the run, or of what was kept of it, with the verdict in function space, if possible by `until`."""
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
    if verdict.word in CONFIRMED_VERDICTS:
        seen, verdict = _confirmed(problem, plan, ask, seen, raw, draws.healthy, until)
    z = None if raw.z is None else np.moveaxis(raw.z, 0, 1)
    if z is not None and len(draws.healthy) < len(z):
        z = z[draws.healthy]
    constrained = problem.posterior.transform is not None and problem.posterior.output is None
    if z is not None and keep is None and constrained:
        z = _as_reported(draws, seen.layers, z)
    return draws.with_verdict(with_details(verdict, seen, z))


def confirmed(
    seen: Seen,
    rows: OtherRows | None,
    weights: Float[np.ndarray, "chain draw"],
    misses: Callable[[], float | None],
    restarts: Callable[[Seen], OtherStarts | None],
) -> tuple[Seen, Verdict]:
    """Return `seen` and the verdict after the checks of a run that would otherwise be trusted.

    Args:
      seen: the run.
      rows: rows that are not probe rows, with predictions of draws there.
      weights: of the draws that predict `rows`; they sum to 1.
      misses: measures what gradients miss of changes in log density.
      restarts: returns chains from other starts; it is called only if the other checks pass.
    """
    with stage("verdict"):
        if rows is not None:
            seen = replace(seen, rows_r_hat=rows.r_hat(weights), rows_allowed=rows.allowed)
        seen = replace(seen, misses=misses())
        verdict = judge_predictions(seen)
    if verdict.word not in CONFIRMED_VERDICTS:
        return seen, verdict
    found = restarts(seen)
    with stage("verdict"):
        unlike = 0 if rows is None or found is None else rows.unlike(found.z[found.matters])
        seen = replace(seen, others=found, rows_unlike=unlike)
    return seen, judge_predictions(seen)


def _confirmed(
    problem: Problem,
    plan: Plan,
    ask: Request,
    seen: Seen,
    raw: Raw,
    healthy: np.ndarray,
    until: float,
) -> tuple[Seen, Verdict]:
    """Return the result of `confirmed`; without positions, only restarts are checked."""
    rows, misses, weights = None, lambda: None, np.empty((0, 0))
    if raw.z is not None and problem.mesh is None and problem.has_rows:
        few = np.unique(np.linspace(0, len(raw.z) - 1, MAX_CHECKED_DRAWS).astype(int))
        z = raw.z[np.ix_(few, healthy)]
        gradients = raw.num_steps * (plan.setup.batch_size or problem.num_data)
        with stage("verdict"):
            rows = other_rows(problem, z, gradients)
        weights = np.broadcast_to(raw.step_size[few], z.shape[1::-1]).astype(np.float64)
        weights /= weights.sum()
        if not seen.exact:
            misses = partial(misses_of_gradients, problem, z, until)
    ends = np.asarray(raw.last, np.float64)[healthy]
    restarts = partial(from_other_starts, problem, ask, ends, float(raw.temperature[-1]))
    return confirmed(seen, rows, weights, misses, restarts)


def _as_reported(draws: Draws, layers: Layers, z: np.ndarray) -> np.ndarray:
    """Return positions of healthy chains on the reported scale, where for example a scale is positive.

    A leaf with another number of entries there, such as a simplex, stays unconstrained.
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
    """Return whether predictions have mixed and temperatures are known; True if all chains failed."""
    late = without_beginning(plan, raw, 1).late if is_auto(ask.burn_in) else raw
    healthy = np.isfinite(late.last).all(axis=1) if late.last is not None else np.ones(0, bool)
    if not healthy.any() or late.predicted is None:
        return True
    return sufficient(_seen_by(problem, plan, late, np.flatnonzero(healthy), ()))


def _seen_by(
    problem: Problem, plan: Plan, late: Raw, healthy: np.ndarray, failures: tuple[str, ...]
) -> Seen:
    """Return what the draws of these chains show."""
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
