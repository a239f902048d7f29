"""Judge a run of a module by what was kept of its chains.

The rule is that of diagnostics/function_space/verdict.py. A run that would be trusted gets the further checks of
inference/function_space.py, among them chains from other starts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ..core.progress import stage
from ..diagnostics.function_space.other_chains import ROWS_PER_CALL, OtherRows, OtherStarts, others
from ..diagnostics.function_space.verdict import (
    SMALLER_STEP_REMEDY,
    Change,
    Seen,
    compared,
    judge_predictions,
    sufficient,
    with_details,
)
from ..diagnostics.hidden_mass import MAX_RISING_ROWS
from ..inference.function_space import CONFIRMED_VERDICTS, confirmed, gradient_misses
from ..inference.tuning import network_rules as rule
from ..inference.tuning.network_backend import finite_starts, followed, log_masses
from ..results.verdict import Verdict
from .chains import MAX_KEPT_DRAWS, Chains, Lengths, most_draws
from .rows import Inputs, named_leaves, num_rows
from .target import Target
from .tuning import Asked, optimised_chains, price

# -- looked again --------------------------------------------------------------------------


def other_rows(target: Target, probe: Inputs, z: np.ndarray, gradients: int) -> OtherRows | None:
    """Return rows that are not probe rows, with predictions of draws z [chain, draw, d]; None if the user chose the probe rows."""
    probed = num_rows(probe)
    if probed > target.num_data or not _is_own(target, probe, probed):
        return None
    rows = others(probed, target.num_data, gradients)
    return OtherRows.of(target.kind, partial(_predicted_again, target), z, rows)


def _is_own(target: Target, probe: Inputs, probed: int) -> bool:
    own, given = named_leaves(target.rows.first(probed).inputs), named_leaves(probe)
    return all(torch.equal(leaf, given[name]) for name, leaf in own.items())


def _predicted_again(target: Target, z: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Predict at rows of these numbers, [chain, draw, m, k], one draw and some rows at a time."""
    scale, pieces = target.prior.scale, []
    for part in np.split(rows, range(ROWS_PER_CALL, len(rows), ROWS_PER_CALL)):
        inputs = target.rows.at(torch.from_numpy(part).to(scale.device)).inputs
        each = (target.predicted(torch.from_numpy(z[:, s]).to(scale), inputs) for s in range(z.shape[1]))  # fmt: skip
        pieces.append(np.stack([one.cpu().numpy() for one in each], 1))
    return np.concatenate(pieces, axis=2)


def misses_of_gradients(target: Target, z: np.ndarray, until: float = math.inf) -> float | None:
    """Return the result of `gradient_misses` on some rows, in nats.

    The result is None if the module computes in half precision, whose rounding is as large.
    """
    if target.narrow:
        return None
    batch = target.rows.first(MAX_RISING_ROWS)
    to = lambda values: torch.from_numpy(np.ascontiguousarray(values)).to(target.prior.scale)  # noqa: E731

    def rises(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        one, other = (target.value(to(side), batch).double() for side in (begins, ends))
        return (other - one).cpu().numpy()

    def integrals(begins: np.ndarray, ends: np.ndarray, at: Any, shares: Any) -> np.ndarray:
        begin, away, total = to(begins), to(ends - begins), np.zeros(len(begins))
        for place, share in zip(at, shares, strict=True):
            slope = (target.gradient(begin + place * away, batch, 1.0) * away).sum(1)
            total += share * slope.double().cpu().numpy()
        return total

    return gradient_misses(np.moveaxis(z, 0, 1), z.dtype, rises, integrals, until)


# -- other starts --------------------------------------------------------------------------


MIN_START_SECONDS = 1e-6  # predicted, of a further start


@stage("other starts", whole=True)
def from_other_starts(chains: Chains, asked: Asked, until: float, run: Seen) -> OtherStarts | None:
    """Return chains from other starts, or None if too few are affordable or none stays finite.

    Optimisers and stages are cut short at the time `until`; `run` is what was seen of the run.
    """
    target = chains.motion.target
    whole = chains.motion.order.batch_size is None
    count, cheap = _affordable(target, asked, whole)
    if not count or not chains.healthy.size:
        return None
    asked = replace(
        asked, chains=count, seed=asked.seed + rule.OTHER_STARTS_SEED, step_size=None,
        batch_size=None if whole else min(rule.BATCH_SIZE, target.num_data),
    )  # fmt: skip
    backend, z = optimised_chains(target, asked, until, chains.probe, elsewhere=True)
    found = followed(backend, z, run, until, to_the_end=cheap)
    return finite_starts([found], log_masses(backend, chains.state.z[chains.healthy]))


def _affordable(target: Target, asked: Asked, whole: bool) -> tuple[int, bool]:
    """Return how many starts are affordable, and whether following all of them is cheap."""
    size = min(rule.BATCH_SIZE, target.num_data)
    passes = rule.MAX_OPTIMISER_PASSES * math.ceil(target.num_data / size)
    fewest, usual = rule.MIN_OTHER_STARTS, rule.USUAL_OTHER_STARTS
    low, high = (
        max(rule.MIN_TRAINING_STEPS, passes) * price(target, count, size)
        + rule.restart_steps() * price(target, count, None if whole else size)
        for count in (fewest, usual)
    )
    # an operation that is not counted, such as a look-up, costs the same for any number
    each = max((high - low) / (usual - fewest), MIN_START_SECONDS)
    return rule.num_restarts(low - fewest * each, each, asked.max_seconds)


# -- judging -------------------------------------------------------------------------------


def first_draw(chains: Chains, asked: Asked) -> int:
    """Return the first draw after burn-in; if the user gave lengths, nothing more is discarded."""
    if asked.burn_in is not None or asked.num_draws is not None:
        return 0
    planned = chains.lengths
    return rule.first_draw(planned.burn_in, planned.thin, chains.record.count)


def draws_wanted(chains: Chains, asked: Asked) -> int:
    """Return twice the draws until predictions mix and temperatures are known, unless lengths are given."""
    done = chains.record.count
    if asked.num_draws is not None or not chains.healthy.size:
        return done
    if sufficient(seen(chains, asked)):
        return done
    width = int(np.prod(chains.record.predicted[0].shape[1:]))
    motion = chains.motion
    most = most_draws(motion.target, asked, chains.lengths, motion.order.batch_size, width)
    return max(done, min(2 * done, most))


def seen(chains: Chains, asked: Asked) -> Seen:
    """Return what the draws of the chains that did not fail show."""
    predicted = _predicted(chains, first_draw(chains, asked))
    kinetic = np.stack(chains.record.kinetic[first_draw(chains, asked) :], 1)[chains.healthy]
    target = chains.motion.target
    return Seen(
        target.kind, predicted, kinetic.astype(np.float64) if len(kinetic) else None,
        even_weights(predicted), target.weights.layers,
        _failures(chains.record.failed_at, asked), asked.step_size is not None,
        halving="ensemble.step_halving()", by_density="",
    )  # fmt: skip


def judged(chains: Chains, asked: Asked) -> Verdict:
    """Return the verdict from what was measured at draws alone."""
    return judge_predictions(seen(chains, asked))


def looked_further(chains: Chains, asked: Asked, first: Verdict, until: float) -> Verdict:
    """Return the verdict after further checks of a run that would be trusted, with layers and predictions in `extra`."""
    found, verdict = seen(chains, asked), first
    if not chains.healthy.size:
        return verdict
    target = chains.motion.target
    _, z = chains.record.kept_from(first_draw(chains, asked), MAX_KEPT_DRAWS)
    z = z[chains.healthy]
    if verdict.word in CONFIRMED_VERDICTS:
        gradients = chains.step * (chains.motion.order.batch_size or target.num_data)
        rows = other_rows(target, chains.probe, z, gradients)
        misses = partial(misses_of_gradients, target, z, until)
        restarts = partial(from_other_starts, chains, asked, until)
        found, verdict = confirmed(found, rows, even_weights(z), misses, restarts)
    return with_details(verdict, found, z)


def smaller(chains: Chains, verdict: Verdict) -> float | None:
    """Return the step to try next if chains failed or a temperature is too high, otherwise None."""
    found = verdict.extra["predictions"]
    if found["failed"]:
        return rule.STEP_CUT * chains.motion.h
    return None if found["too_warm"] is None else chains.motion.h / 2


def half_the_step(chains: Chains, asked: Asked) -> tuple[Change, bool]:
    """Return what step halving changes in predictions, and whether a chain failed at the smaller step.

    Every chain continues from where it ended, so that each stays among its modes. The step in time, sqrt(h), is
    halved, because the variance that noisy gradients add is proportional to it.
    """
    first = first_draw(chains, asked)
    planned = chains.lengths
    half = Lengths(max(2 * planned.burn_in // 3, 1), 2 * planned.thin, chains.record.count - first)
    healthy = chains.healthy
    other = chains.again(half, chains.motion.h / 4)
    other.run(lambda run: run.record.count, float("inf"), lambda run, now: None)
    both = [chain for chain in other.healthy if chain in healthy]
    one, two = _predicted(chains, first), np.stack(other.record.predicted, 1)[both]
    change = compared(chains.motion.target.kind, one, two, even_weights(one), even_weights(two))
    return change, len(both) < len(healthy)


def even_weights(values: np.ndarray) -> np.ndarray:
    """Return equal weights [chain, draw] of values [chain, draw, ...]."""
    return np.full(values.shape[:2], 1 / max(1, math.prod(values.shape[:2])))


def _predicted(chains: Chains, first: int) -> np.ndarray:
    return np.stack(chains.record.predicted[first:], 1)[chains.healthy]


def _failures(failed_at: np.ndarray, asked: Asked) -> tuple[str, ...]:
    return tuple(
        f"chain {chain} ran away, beyond a million scales of its prior, by step {step}; use {SMALLER_STEP_REMEDY[asked.step_size is not None]}."
        for chain, step in enumerate(failed_at)
        if step >= 0
    )
