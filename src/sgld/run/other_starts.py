"""Chains from other starts, for a run whose own chains agree: have all of them missed a function?

They go the way of a plan that is left to the library, whatever the run's own is: where an optimiser
ends from a start of its own, some short stages that learn metric and step, and then a few
stretches, after each of which predictions are looked at (diagnostics/function_space/other_chains.py). Those that
predict what the run does after two stages have shown what they can, unless the whole way is cheap. As
many go together as the run has chains: nothing is compiled anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ..core.devices import sent
from ..core.progress import stage
from ..diagnostics.function_space.other_chains import OtherStarts, met, settled
from ..diagnostics.function_space.predictions import Predictions, predictions_of
from ..diagnostics.function_space.verdict import Seen
from ..model import sums
from ..model.problem import Problem, Request
from ..samplers.baoa import BAOA
from ..samplers.gradients.full import Full
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
    problem: Problem,
    ask: Request,
    ends: Float[np.ndarray, "chain d"],
    temperature: float,
    run: Seen,
) -> OtherStarts | None:
    """What they predict; None where too few are affordable, or none stayed finite.

    `ends` is where the chains of the run ended, `run` what was seen of them.
    """
    whole = problem.as_one_batch()
    count, cheap = other_starts_affordable(whole, ask) if _wanted.get() else (0, False)
    if not count or problem.mesh is not None or not temperature > 0:
        return None
    together = min(count, max(ask.chains(), rule.FEWEST_STARTS))
    with stage("other starts", whole=True):
        return _looked_for(whole, ask, ends, temperature, run, (count, together, cheap))


def _looked_for(
    whole: Problem, ask: Request, ends: np.ndarray, temperature: float, run: Seen,
    how: tuple[int, int, bool],
) -> OtherStarts | None:  # fmt: skip
    """`how` has how many starts there are, of how many together, and whether all are followed to their ends."""
    count, together, cheap = how
    ask = replace(
        ask, sampler="auto", step_size="auto", gradient="auto", preconditioner="auto", order="auto",
        batch_size="auto", always_in="auto", num_chains=count - count % together,
        seed=ask.seed + rule.OTHERS_SEED,
    )  # fmt: skip
    gradient, batched = plain_batches(whole, ask)
    starts = optimiser_ends(whole, ask, elsewhere=True)
    if affordable(whole, len(ends)):
        gradient, batched = Full(), whole
    gradient = prepared(gradient, batched, starts[0])
    found = [
        _followed(
            whole, batched, replace(ask, num_chains=together, seed=ask.seed + first), gradient,
            starts[first : first + together], temperature, run, cheap,
        )
        for first in range(0, len(starts), together)
    ]  # fmt: skip
    predicted, last = (np.concatenate(part) for part in zip(*found, strict=True))
    good = np.isfinite(predicted).all(axis=(1, 2)) & np.isfinite(last).all(axis=1)
    if not good.any():
        return None
    mass = lambda zs: np.array([_log_mass(whole, z, temperature) for z in zs])  # noqa: E731
    own = float(np.mean(mass(ends)))
    return OtherStarts(predicted[good], mass(last[good]), own, last[good])


def _followed(
    whole: Problem, batched: Problem, ask: Request, gradient: Any, starts: np.ndarray, T: float,
    run: Seen, to_the_end: bool,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """What these starts come to predict, averaged, [start, m, k], and where they end."""
    predictions, seen, stretches = predictions_of(whole), [], rule.STRETCHES
    there = lambda z: np.asarray(_predicted_of_others(predictions, whole, z))  # noqa: E731
    looks: list[bool] = []

    def known(z: Array) -> bool:  # twice, since one draw of a wide function may be among the run's
        looks.append(met(run.kind, there(z), run.predicted))
        return not to_the_end and looks[-2:] == [True, True]

    found = tuned(batched, ask, BAOA(), gradient, starts, T, known)
    z = found.z
    if not to_the_end and looks[-2:] == [True, True]:
        return there(z), np.asarray(z, np.float64)
    for number in range(stretches):
        at = (number + 2 * stretches, rule.STRETCH_STEPS, stretches)  # past the stages, of 250 each
        z = moved(batched, ask, BAOA(), gradient, found.D, z, found.h, T, at)
        if number >= stretches // 2:
            seen.append(there(z))
    return settled(run.kind, np.array(seen), run.predicted), np.asarray(z, np.float64)


@jax.jit
def _predicted_of_others(
    found: Predictions, problem: Problem, zs: Float[Array, "chain d"]
) -> Float[Array, "chain m k"]:
    return jax.vmap(lambda z: found.at(problem.target, z))(zs)


def _log_mass(problem: Problem, z: Float[np.ndarray, " d"], temperature: float) -> float:
    """log p / T + (log det D) / 2, D as the plan's metric, at this place alone."""
    place, rows = problem.array(z), min(problem.num_data, rule.FISHER_ROWS)
    squares = np.asarray(fisher(problem, place, sent(0, np.int32), rows=rows), np.float64)
    value = float(sums.log_density(problem, place)) / temperature
    return value - 0.5 * float(np.sum(np.log(np.maximum(squares, 1e-8))))
