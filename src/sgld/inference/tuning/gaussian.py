"""Plans from the known Gaussian: choices that its curvature and the rows' noise determine.

The module also detects a model that does not fit its data, by the spread of the rows' scores.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Float

from ...approximation.gradient_noise import (
    Levels,
    dense_levels,
    marginal_levels,
    no_noise,
    row_noise,
    rows_note,
    rows_of,
)
from ...approximation.known import Known
from ...approximation.laplace import Laplace
from ...approximation.low_rank import LowRankLaplace
from ...model import sums
from ...model.problem import Problem, Request, is_auto
from ...results.plan import Plan, Setup
from ...results.verdict import MISFIT, TOO_SMALL
from ...samplers.gradients.full import Full
from ...samplers.preconditioners.fixed import Dense, given
from ...samplers.schedules import as_schedule
from ...samplers.stationary import Law, of_sampler
from .cost import MAX_CORRECTED_STEP, Choice, cheapest_choice, corrected_step, together
from .parts import (
    DEFAULT_BATCH_ROWS,
    allows_correction,
    factor_of,
    finite,
    in_batches,
    largest_within,
    measure,
    no_step,
    prepared,
    sampler_of,
    settled,
    shuffled_period,
    stationary_law,
)

# -- misfit --------------------------------------------------------------------------------


MIN_PARAMETER_ROWS = 5  # rows per parameter that they determine, to judge the model
MAX_MISFIT_SE = 0.15  # largest relative standard error of a reported misfit
# reported ratios of the scores' variance to the implied one: from sds that are 1.2 times too small, and up to half
MIN_REPORTED_MISFIT = 1.44
MAX_REPORTED_MISFIT = 0.5
# the same if a few rows dominate: in a right model one such row's share is a squared normal variable
MIN_FEW_ROWS_MISFIT = 10.0


def misfit(problem: Problem, laplace: Laplace, mean: float, variance: float) -> float | None:
    """Return tr F^T (N V_S) F over tr F^T J_lik F, about 1 in a well-specified model.

    It uses mean and variance of all rows' (N ||F^T g_i||)^2. The denominator is the number of
    parameters that the data determine; fitting them uses up as many of N squared scores. None if
    too few rows are left, or if a few rows dominate and could do so by chance.
    """
    N = problem.num_data
    prior = np.asarray(sums.prior_curvature(problem, problem.array(laplace.center)), np.float64)
    determined = float(np.trace(laplace.pull(laplace.pull(laplace.curvature - prior).T)))
    if not 0 < MIN_PARAMETER_ROWS * determined < N:
        return None
    spread = mean / N
    found = spread / determined / (1 - determined / N)
    by_chance = variance / N**2 > N * (MAX_MISFIT_SE * spread) ** 2 and found < MIN_FEW_ROWS_MISFIT
    return None if by_chance else found


def misfit_notes(misfit: float | None, num_data: int) -> tuple[str, ...]:
    """Return the note on a misfit, if it is large enough to report."""
    if misfit is None or MAX_REPORTED_MISFIT < misfit < MIN_REPORTED_MISFIT:
        return ()
    spread = f"row scores vary {misfit:.2g} times as much as implied"
    if 0.5 < misfit * num_data < 2:
        return (
            f"log_likelihood seems to be divided by the number of rows, {num_data}: {spread}. Return the log "
            "likelihood of one datum as it is; the library sums over rows.",
        )
    if misfit > 1:
        return (
            f"{MISFIT}{spread}; sds may be {np.sqrt(misfit):.2g} {TOO_SMALL}. "
            "Try negative binomial, Student-t, sgld.sandwich or sgld.loo.",
        )
    return (f"{MISFIT}{spread}. Try a likelihood with less variance, or sgld.sandwich.",)


# -- from gaussian -------------------------------------------------------------------------


MAX_CORRECTABLE_NU = 0.3  # nu below which the injected noise may be corrected
_UNIT = Law(np.ones(1), np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)))


def from_curvature(problem: Problem, ask: Request, known: Known, T: float) -> Plan:
    """Choose estimator, batch, order and step by their predicted cost per effective draw."""
    if of_sampler(_UNIT, sampler_of(ask)) is None:
        raise no_step(ask)
    laplace, nu = known.gaussian, known.nu
    assert isinstance(laplace, Laplace) and nu is not None
    dense = is_auto(ask.preconditioner)
    D = None if dense else given(ask.preconditioner, problem.layout)
    factor = laplace.factor
    if D is not None:
        small = problem.with_batches(min(DEFAULT_BATCH_ROWS, problem.num_data), "reshuffle")
        factor = factor_of(settled(D, small, laplace.center), problem)
    assert factor is not None
    bias = ask.tolerance / 2
    correctable = dense and nu < MAX_CORRECTABLE_NU and allows_correction(ask)
    correctable = correctable and (is_auto(ask.gradient) or not ask.gradient.remembers)
    misfitting, always, notes = None, None, ()
    if not problem.has_rows:
        gradient = Full() if is_auto(ask.gradient) else ask.gradient
        longest = MAX_CORRECTED_STEP if correctable else np.inf
        choice = Choice(gradient, 0, "independent", correctable, 0.0, longest=longest)
    else:
        levels: tuple[Levels, Levels] = (no_noise, no_noise)
        survey = None
        if not isinstance(ask.gradient, Full):
            survey = row_noise(problem, laplace.tempered(T), ask.seed)
            mean, variance = survey.at_center
            misfitting = misfit(problem, laplace, mean / T, variance / T**2)
            thrown = 1 / T if dense else 0.0
            levels = (
                partial(dense_levels, survey.plain, factor, thrown),
                partial(dense_levels, survey.centred, factor, thrown),
            )
        whole = together(problem, ask, nu, bias)
        choice = cheapest_choice(problem.source, levels, ask, correctable, bias, T, whole=whole)
        if survey is not None:
            rows = rows_of(survey, choice.gradient, choice.always)
            notes = rows_note(problem, laplace, choice.gradient, rows)
            always = problem.called(rows, ask.seed) if len(rows) else None
        problem = in_batches(problem, choice.batch_size, choice.order, choice.gradient)
        problem = problem.with_always(always, ask.seed)
    gradient = prepared(choice.gradient, problem, laplace.center)
    measured = finite(measure(problem, gradient, laplace, T, ask.seed))
    correction = None
    if choice.corrected:
        values, turn = _variances(factor.T @ measured @ factor)
        h = min(choice.longest, corrected_step(values[-1], T))
        factor, correction = factor @ turn, problem.array(values)
    law = stationary_law(problem, laplace, factor, measured, sampler_of(ask))
    if not choice.corrected:
        h = min(choice.longest, largest_within(law, bias, T, ask)) / _caution(nu)
    if D is None:
        D = Dense(laplace.covariance, factor).prepare(problem.layout)
    schedule = as_schedule(h, "step_size")
    setup = Setup(
        sampler_of(ask, correction), gradient, D, schedule, *problem.batches, num_chains=choice.chains,
        always=always,
    )  # fmt: skip
    surveyed = not isinstance(gradient, Full)
    return Plan(
        setup, known, problem.num_data, law, surveyed=surveyed, misfit=misfitting, notes=notes
    )


def _variances(noise: Float[np.ndarray, "d d"]) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues, none below 0, and eigenvectors; at once for exact gradients."""
    if not noise.any():
        return np.zeros(len(noise)), np.eye(len(noise))
    values, turn = np.linalg.eigh(noise)
    return np.maximum(values, 0.0), turn


def from_lowrank(problem: Problem, ask: Request, known: Known, T: float) -> Plan:
    """Return a plan for low rank plus diagonal curvature, whose parameters share one distribution.

    It is that of one parameter with the noise of the noisiest and the curvature of the stiffest.
    """
    if of_sampler(_UNIT, sampler_of(ask)) is None:
        raise no_step(ask)
    laplace, nu = known.gaussian, known.nu
    assert isinstance(laplace, LowRankLaplace) and nu is not None
    bias, V, longest, always, chains = ask.tolerance / 2, 0.0, np.inf, None, 0
    stiffest = 1 + laplace.departure
    gradient = Full() if is_auto(ask.gradient) else ask.gradient
    if problem.has_rows:
        levels: tuple[Levels, Levels] = (no_noise, no_noise)
        survey = None
        if not isinstance(ask.gradient, Full):
            survey = row_noise(problem, laplace.tempered(T), ask.seed)
            levels = marginal_levels(problem, survey, laplace.tempered(T), T)
        whole, most = together(problem, ask, nu, bias), 1 / stiffest
        choice = cheapest_choice(problem.source, levels, ask, False, bias, T, most, whole)
        gradient, V, longest = choice.gradient, finite(choice.noise), choice.longest
        chains = choice.chains
        if survey is not None and choice.always:
            always = problem.called(rows_of(survey, gradient, choice.always), ask.seed)
        problem = in_batches(problem, choice.batch_size, choice.order, gradient)
        problem = problem.with_always(always, ask.seed)
    gradient = prepared(gradient, problem, laplace.center)
    out = np.ones((laplace.marginals(problem).variance.size, 1))
    one = Law(np.ones(1), np.ones((1, 1)), np.array([[V]]), out, shuffled_period(problem))
    law = of_sampler(one, sampler_of(ask))
    h = min(largest_within(law, bias, T, ask), 1 / stiffest, longest) / _caution(nu)
    D, schedule = laplace.metric.prepare(problem.layout), as_schedule(h, "step_size")
    setup = Setup(
        sampler_of(ask), gradient, D, schedule, *problem.batches, num_chains=chains, always=always
    )
    surveyed = not isinstance(gradient, Full)
    return Plan(setup, known, problem.num_data, law, surveyed=surveyed)


def _caution(nu: float) -> float:
    """Return the factor that shortens the step of a Gaussian if the posterior is far from it."""
    return 1 + nu / MAX_CORRECTABLE_NU if nu >= MAX_CORRECTABLE_NU else 1.0
