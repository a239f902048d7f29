"""Plans whose metric and step pilot chains chose: posteriors far from the Gaussian at their mode.

Of few rows the pilot's chains see all, and so does the run. Of many they see some, which stand for
all (each counts N / n times): their law has the scales of the posterior at a centre a few sds off,
which is what a metric needs; the run then takes batches of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jax.tree_util import Partial
from jaxtyping import Int

from ..data.memory import InMemory
from ..draws.plan import Plan
from ..draws.setup import Setup
from ..gaussian import noise
from ..gaussian.dense import Laplace
from ..gaussian.diagonal import squared_gradients
from ..gaussian.known import Known
from ..gaussian.row_noise import row_noise
from ..gradient.full import Full
from ..law.overdamped import Law, largest_step
from ..metropolis.pilot import MOST_DIMENSIONS, MOST_ROWS, Pilot, pilot
from ..preconditioner.fixed import Dense
from ..problem import sums
from ..problem.problem import Problem
from ..problem.request import Request, is_auto
from ..sampler.baoa import BAOA
from ..schedule import as_schedule
from .always import rows_of
from .estimator import in_batches, prepared, sampler_of, shuffled_period
from .levels import Level, dense_levels
from .price import priced_choice

__all__ = ["from_chains"]


def from_chains(
    problem: Problem, ask: Request, known: Known, T: float, *, many_rows: bool = False
) -> Plan | None:
    """Pilot chains choose metric and step; None where they would cost too much, or find nothing.

    For what is wholly left to the library, at T = 1; with many rows only where `many_rows` allows.
    """
    given = (ask.sampler, ask.gradient, ask.preconditioner, ask.batch_size, ask.order)
    open_ = all(is_auto(value) for value in given)
    if not (open_ and problem.dimension <= MOST_DIMENSIONS and T == 1):
        return None
    if problem.num_data <= MOST_ROWS:
        found = _found(problem, ask, known)
        return None if found is None else _on_all(problem, ask, known, found)
    if not many_rows:
        return None
    found = _found(on_some(problem, _apart(problem, known, ask.seed)), ask, known)
    return None if found is None else _in_batches(problem, ask, known, found)


def _found(problem: Problem, ask: Request, known: Known) -> Pilot | None:
    """The pilot chains, from the Gaussian at the mode where that is of any use."""
    center, factor, gaussian = np.asarray(problem.start, np.float64), None, known.gaussian
    if isinstance(gaussian, Laplace) and _holds_mass(problem, gaussian):
        center, factor = gaussian.center, gaussian.factor
    if factor is None:
        squares = squared_gradients(problem, problem.array(center))
        factor = np.diag(1 / np.sqrt(np.asarray(squares, np.float64) + 1e-8))
    return pilot(problem, center, factor, ask.tolerance / 2, ask.seed)


def on_some(problem: Problem, apart: Int[np.ndarray, " m"]) -> Problem:
    """Some rows, each counting for as many as there are, and those that stand `apart`, which count once."""
    few = np.arange(min(problem.num_data, MOST_ROWS + len(apart)))
    others = np.setdiff1d(few, apart)[: MOST_ROWS - len(apart)]
    share = (problem.num_data - len(apart)) / len(others)
    weight = np.append(np.ones(len(apart)), np.full(len(others) + 1, share))  # and a spare one
    some = InMemory.some(problem.source, np.append(apart, others))
    some = replace(some, rows=(some.rows, problem.array(weight)))
    likelihood = Partial(_weighted, problem.posterior.log_likelihood)
    posterior = replace(problem.posterior, log_likelihood=likelihood)
    return replace(problem, data=some, target=replace(problem.target, posterior=posterior))


def _weighted(log_likelihood: Any, position: Any, datum: Any) -> Any:
    row, weight = datum
    return weight * log_likelihood(position, row)


def _apart(problem: Problem, known: Known, seed: int) -> Int[np.ndarray, " m"]:
    """Rows whose gradients, or differences of them, are the largest: a sample would not stand for them."""
    gaussian = known.gaussian
    if not isinstance(gaussian, Laplace) or not gaussian.positive_definite:
        return np.zeros(0, np.int64)
    survey = row_noise(problem, gaussian, seed)
    return np.union1d(*(rows.numbers[: MOST_ROWS // 8] for rows in survey[:2]))


def _on_all(problem: Problem, ask: Request, known: Known, found: Pilot) -> Plan:
    """Exact gradients; kinetic dynamics where nothing is too stiff for them."""
    # delta = sqrt(2 h) in the kinetic case; a Gaussian would forget itself at twice the rates
    h, rate, sampler = found.step_size, found.step_size / 2, sampler_of(ask)
    if found.kinetic:
        h, rate, sampler = 2 * h, np.sqrt(2 * h) / 4, BAOA()
    setup = Setup(
        sampler, Full(), _metric(found, problem), as_schedule(h, "step_size"),
        *problem.as_one_batch().batches, starts=found.zs,
    )  # fmt: skip
    return Plan(setup, known, problem.num_data, rate=float(rate), adjustable=True)


def _in_batches(problem: Problem, ask: Request, known: Known, found: Pilot) -> Plan:
    """Batches whose noise, measured where the pilot's chains ended, the tolerance allows."""
    V = noise.noise_around(problem, found.zs, found.factor, ask.seed)
    precision = np.linalg.inv(found.factor @ found.factor.T)
    around = Laplace(found.zs.mean(0), precision, found.factor, 1.0, np.zeros(len(precision)))
    survey = row_noise(problem, around, ask.seed)
    plain, centred = (
        partial(dense_levels, rows, found.factor, 1.0) for rows in (survey.plain, survey.centred)
    )

    def anywhere() -> Iterator[Level]:
        """Plain gradients vary by where they are taken, and in rows that no sample shows."""
        for level in plain():
            yield level._replace(variance=max(V, level.variance))

    bias = ask.tolerance / 2
    levels = anywhere, centred
    choice = priced_choice(problem.source, levels, ask, False, bias, 1.0, found.step_size)
    problem, always = in_batches(problem, choice.batch_size, choice.order, choice.gradient), None
    if choice.always:
        always = problem.called(rows_of(survey, choice.gradient, choice.always), ask.seed)
    gradient = prepared(choice.gradient, problem.with_always(always, ask.seed), around.center)
    one = np.ones((1, 1))
    law = Law(np.ones(1), one, choice.noise * one, one, shuffled_period(problem))
    h = min(choice.longest, largest_step(law, bias))
    note = f"metric and step were learnt on {MOST_ROWS} of {problem.num_data} rows, which stood for all."
    setup = Setup(
        sampler_of(ask), gradient, _metric(found, problem), as_schedule(h, "step_size"),
        *problem.batches, starts=found.zs, always=always,
    )  # fmt: skip
    return Plan(setup, known, problem.num_data, rate=h / 2, notes=(note,))


def _metric(found: Pilot, problem: Problem) -> Dense:
    return Dense(found.factor @ found.factor.T, found.factor).prepare(problem.layout)


def _holds_mass(problem: Problem, laplace: Laplace) -> bool:
    """Whether the Gaussian at the mode is near where the posterior's mass can be.

    A density without a bound (a scale that goes to 0) draws the mode's search into a spike:
    there the Gaussian's own draws have no finite density, or are far less dense than the start.
    """
    if laplace.factor is None:
        return False
    near = laplace.draw(np.random.default_rng(0), 16)
    values = np.array([float(sums.log_density(problem, problem.array(z))) for z in near])
    start = float(sums.log_density(problem, problem.array(problem.start)))
    return bool(
        np.isfinite(values).mean() > 0.5 and np.nanmedian(values) > start - 10 * laplace.center.size
    )
