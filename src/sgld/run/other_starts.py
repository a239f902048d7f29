"""Chains from other starts, for a run whose own chains agree: have all of them missed a function?

They go the way of a plan that is left to the library, whatever the run's own is: where an optimiser
ends from a start of its own, some short stages that learn metric and step, and then a few
stretches, after each of which predictions are looked at (diagnose/other_starts.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Array, Float

from ..device import sent
from ..diagnose.other_starts import OtherStarts
from ..gradient.full import Full
from ..probe.predictions import Predictions, predictions_of
from ..problem import sums
from ..problem.problem import Problem
from ..problem.request import Request
from ..sampler.baoa import BAOA
from ..tune import network_rule as rule
from ..tune.estimator import plain_batches, prepared
from ..tune.from_network import (
    fisher,
    moved,
    optimiser_ends,
    other_starts_affordable,
    tuned,
)
from ..tune.network_price import affordable

__all__ = ["from_other_starts", "not_looked_for"]

_wanted: ContextVar[bool] = ContextVar("sgld_other_starts", default=True)


@contextmanager
def not_looked_for() -> Iterator[None]:
    """Of runs that only serve to judge another one."""
    token = _wanted.set(False)
    try:
        yield
    finally:
        _wanted.reset(token)


def from_other_starts(
    problem: Problem, ask: Request, ends: Float[np.ndarray, "chain d"], temperature: float
) -> OtherStarts | None:
    """What they predict; None where too few are affordable, or none stayed finite.

    `ends` is where the chains of the run ended.
    """
    whole = problem.as_one_batch()
    count = other_starts_affordable(whole, ask) if _wanted.get() else 0
    if not count or problem.mesh is not None or not temperature > 0:
        return None
    ask = replace(
        ask, sampler="auto", step_size="auto", gradient="auto", preconditioner="auto", order="auto",
        batch_size="auto", always_in="auto", num_chains=count, seed=ask.seed + rule.OTHERS_SEED,
    )  # fmt: skip
    gradient, batched = plain_batches(whole, ask)
    starts = optimiser_ends(whole, ask)
    if affordable(whole, len(ends)):
        gradient, batched = Full(), whole
    gradient = prepared(gradient, batched, starts[0])
    found = tuned(batched, ask, BAOA(), gradient, starts, temperature)
    z, seen, predictions = found.z, [], predictions_of(whole)
    stretches, steps = rule.STRETCHES, rule.STRETCH_STEPS
    for number in range(stretches):
        at = (number + 2 * stretches, steps, stretches)  # past the stages, of 250 steps each
        z = moved(batched, ask, BAOA(), gradient, found.D, z, found.h, temperature, at)
        if number >= stretches // 2:
            seen.append(np.asarray(_predicted(predictions, whole, z)))
    predicted, last = np.stack(seen, axis=1), np.asarray(z, np.float64)
    good = np.isfinite(predicted).all(axis=(1, 2, 3)) & np.isfinite(last).all(axis=1)
    if not good.any():
        return None
    mass = lambda zs: np.array([_log_mass(whole, z, temperature) for z in zs])  # noqa: E731
    own = float(np.mean(mass(ends)))
    return OtherStarts(predicted[good], mass(last[good]), own, problem.dimension)


@jax.jit
def _predicted(
    found: Predictions, problem: Problem, zs: Float[Array, "chain d"]
) -> Float[Array, "chain m k"]:
    return jax.vmap(lambda z: found.at(problem.target, z))(zs)


def _log_mass(problem: Problem, z: Float[np.ndarray, " d"], temperature: float) -> float:
    """log p / T + (log det D) / 2, D as the plan's metric, at this place alone."""
    place, rows = problem.array(z), min(problem.num_data, rule.FISHER_ROWS)
    squares = np.asarray(fisher(problem, place, sent(0, np.int32), rows=rows), np.float64)
    value = float(sums.log_density(problem, place)) / temperature
    return value - 0.5 * float(np.sum(np.log(np.maximum(squares, 1e-8))))
