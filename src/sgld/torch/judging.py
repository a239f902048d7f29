"""From what was kept of a module's chains to a verdict, by the rule of diagnose/predictions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..diagnostics.function_space.verdict import (
    SMALLER,
    Change,
    Seen,
    compared,
    judge_predictions,
    known_well,
    mixed,
    temperatures,
    with_details,
)
from ..inference.tuning import network_rules as rule
from ..results.verdict import Verdict
from .chains import MOST_KEPT, Chains, Lengths, most_draws
from .looked_again import misses_of_gradients, other_rows
from .other_starts import from_other_starts
from .tuning import Asked

__all__ = ["draws_wanted", "first_draw", "half_the_step", "judged", "looked_further", "smaller"]

GOOD = ("trusted", "unknown")  # words that are looked at again


def first_draw(chains: Chains, asked: Asked) -> int:
    """The draw from which a run counts; where lengths were given, what was given is all there is."""
    if asked.burn_in is not None or asked.num_draws is not None:
        return 0
    planned = chains.lengths
    return rule.first_draw(planned.burn_in, planned.thin, chains.record.count)


def draws_wanted(chains: Chains, asked: Asked) -> int:
    """Twice the draws, until predictions have mixed and temperatures are known, where lengths were left open."""
    done = chains.record.count
    if asked.num_draws is not None or not chains.healthy.size:
        return done
    found = seen(chains, asked)
    if not mixed(found).reasons and known_well(temperatures(found)):
        return done
    width = int(np.prod(chains.record.predicted[0].shape[1:]))
    motion = chains.motion
    most = most_draws(motion.target, asked, chains.lengths, motion.order.batch_size, width)
    return max(done, min(2 * done, most))


def seen(chains: Chains, asked: Asked) -> Seen:
    """What the draws of the chains that did not fail showed."""
    predicted = _predicted(chains, first_draw(chains, asked))
    kinetic = np.stack(chains.record.kinetic[first_draw(chains, asked) :], 1)[chains.healthy]
    target, shape = chains.motion.target, predicted.shape[:2]
    return Seen(
        target.kind, predicted, kinetic.astype(np.float64) if len(kinetic) else None,
        np.full(shape, 1 / max(1, np.prod(shape))), target.weights.layers,
        _failures(chains.record.failed_at, asked), asked.step_size is not None,
        halving="ensemble.step_halving()", by_density="",
    )  # fmt: skip


def judged(chains: Chains, asked: Asked) -> Verdict:
    """The verdict by what was seen at draws alone."""
    return judge_predictions(seen(chains, asked))


def looked_further(chains: Chains, asked: Asked, first: Verdict, until: float) -> Verdict:
    """The verdict, of a run that would be trusted by more looks, with layers and pictured predictions in `extra`."""
    found, verdict = seen(chains, asked), first
    if not chains.healthy.size:
        return verdict
    target = chains.motion.target
    _, z = chains.record.kept_from(first_draw(chains, asked), MOST_KEPT)
    z, rows = z[chains.healthy], None
    if verdict.word in GOOD:
        gradients = chains.step * (chains.motion.order.batch_size or target.rows.num_data)
        rows = other_rows(target, chains.probe, z, gradients)
        found = replace(found, misses=misses_of_gradients(target, z, until))
        if rows is not None:
            r_hat = rows.r_hat(np.full(z.shape[:2], 1 / z[..., 0].size))
            found = replace(found, rows_r_hat=r_hat, rows_allowed=rows.allowed)
        verdict = judge_predictions(found)
    if verdict.word in GOOD:
        others = from_other_starts(chains, asked, until, found.predicted)
        unlike = 0 if rows is None or others is None else rows.unlike(others.z[others.matters])
        found = replace(found, others=others, rows_unlike=unlike)
        verdict = judge_predictions(found)
    return with_details(verdict, found, z)


def smaller(chains: Chains, verdict: Verdict) -> float | None:
    """The step to try next, where it is chains that failed, or a temperature that is too high, that keep a run from being trusted."""
    found = verdict.extra["predictions"]
    if found["failed"]:
        return rule.CAUTION * chains.motion.h
    return None if found["too_warm"] is None else chains.motion.h / 2


def half_the_step(chains: Chains, asked: Asked) -> tuple[Change, bool]:
    """What half the step changes in predictions; whether a chain failed there.

    Every chain goes on from where it ended, so that each stays among its modes. It is the step in
    time, sqrt(h), that is halved: the heat of noisy gradients goes as that.
    """
    first = first_draw(chains, asked)
    planned = chains.lengths
    half = Lengths(max(2 * planned.burn_in // 3, 1), 2 * planned.thin, chains.record.count - first)
    healthy = chains.healthy
    other = chains.again(half, chains.motion.h / 4)
    other.run(lambda run: run.record.count, float("inf"), lambda run, now: None)
    both = [chain for chain in other.healthy if chain in healthy]
    one, two = (np.stack(run.record.predicted[start:], 1) for run, start in ((chains, first), (other, 0)))  # fmt: skip
    even = lambda values: np.full(values.shape[:2], 1 / np.prod(values.shape[:2]))  # noqa: E731
    one, two = one[healthy], two[both]
    change = compared(chains.motion.target.kind, one, two, even(one), even(two))
    return change, len(both) < len(healthy)


def _predicted(chains: Chains, first: int) -> np.ndarray:
    return np.stack(chains.record.predicted[first:], 1)[chains.healthy]


def _failures(failed_at: np.ndarray, asked: Asked) -> tuple[str, ...]:
    return tuple(
        f"chain {chain} ran away, beyond a million scales of its prior, by step {step}; use {SMALLER[asked.step_size is not None]}."
        for chain, step in enumerate(failed_at)
        if step >= 0
    )
