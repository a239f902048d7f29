"""Plans from an ensemble of exact chains, for posteriors far from the Gaussian at their mode.

If the gradient over all rows is cheap, the run continues with the chains that adapted metric, step
and length: Hamiltonian Monte Carlo, without a step-size bias. If there are more rows, the chains
use a sample of them, in which each row counts N / n times. Their stationary distribution has the
scales of the posterior at a centre a few sds off, which suffices for a metric. The run then uses
batches of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...approximation.gradient_noise import TUNING_STREAM, dense_levels, row_noise, rows_of
from ...approximation.known import Known
from ...approximation.laplace import Laplace, laplace_at
from ...approximation.low_rank import squared_gradients
from ...approximation.mode import dense_pays
from ...data.source import generator
from ...model import sums
from ...model.cost import gradient_cost
from ...model.problem import Problem, Request, is_auto
from ...results.mixing import CHAIN_GROUPS
from ...results.plan import Plan, Setup
from ...samplers.gradients.control_variates import ControlVariates
from ...samplers.gradients.full import Full
from ...samplers.hmc import HMC
from ...samplers.preconditioners.fixed import Dense
from ...samplers.schedules import as_schedule
from ...samplers.stationary import Law, largest_step
from .cost import EXACT_SECONDS, MAX_CHEAP_SECONDS, Exact, cheapest_choice, exact_chains
from .ensemble import ENSEMBLE_CHAINS, Ensemble, matched_step, warmed_up
from .parts import in_batches, prepared, sampler_of, shuffled_period
from .several_modes import in_modes, too_many_modes
from .surrogate import (
    MAX_GUIDE_ROWS,
    MAX_GUIDED_DIM,
    SETTLING_TRAJECTORIES,
    follow_guide,
    guide_note,
    guide_rows,
    influential_rows,
    make_guide,
    on_sample,
)


def from_chains(
    problem: Problem, ask: Request, known: Known, T: float, *, first: bool
) -> Plan | None:
    """Return a plan of exact chains, or None if they cost too much and some rows give no metric.

    It requires that everything is left to the library, and T = 1. In a `first` attempt, a posterior
    that its Gaussian describes partly is left to the Gaussian unless the chains are cheap. If the
    Gaussian is useless and all rows are too many, the plan uses batches, with a metric from chains
    on some rows.
    """
    given = (ask.sampler, ask.gradient, ask.preconditioner, ask.batch_size, ask.order)
    open_ = all(is_auto(value) for value in given)
    if not (open_ and ask.noise != "binomial" and dense_pays(problem) and T == 1):
        return None
    if any(doubt.kind not in ("tails", "unseen") for doubt in known.doubts):
        return None  # if a jump costs trajectories, no step is short enough: adaptation never ends
    if too_many_modes(problem, known):
        return None  # each chain would stay where it began, at the cost of all
    alone = known.hopeless or known.elsewhere or not first
    price, some = gradient_cost(problem), guide_rows(problem)
    exact = exact_chains(price, problem.dimension)
    if exact.seconds <= (EXACT_SECONDS if alone else MAX_CHEAP_SECONDS):
        return _on_all(problem, ask, known, exact)
    if some is not None and alone:
        exact = exact_chains(price, problem.dimension, some / problem.num_data)
        plan = (
            _on_all_guided(problem, ask, known, exact) if exact.seconds <= EXACT_SECONDS else None
        )
        if plan is not None:
            return plan
    if (
        first
        and known.hopeless
        and problem.num_data > MAX_GUIDE_ROWS
        and problem.dimension <= MAX_GUIDED_DIM
    ):
        return _in_batches(problem, ask, known)
    return None


class _Center(NamedTuple):
    """Point around which chains start, and a factor of their initial covariance."""

    z: Float[np.ndarray, " d"]
    factor: Float[np.ndarray, "d d"]


def _ensemble(
    problem: Problem,
    known: Known,
    seed: int,
    chains: int = ENSEMBLE_CHAINS,
    far: Sequence[Float[np.ndarray, " d"]] = (),
) -> Ensemble:
    """Return warmed-up chains from every centre, guided if a guide pays."""
    begun = _begin(problem, known, seed, chains, far)
    found = _guided(problem, known, seed, begun)
    if found is None:
        gradient = Full.around(problem, problem.array(begun.centers[0].z))
        found = warmed_up(problem, gradient, begun.zs, begun.centers[0].factor, seed)
    return _in_order(found, begun)


class _Begun(NamedTuple):
    """Starts of chains; the last `far` of them lie far from all centres."""

    zs: Float[np.ndarray, "chain d"]
    centers: list[_Center]
    far: int


def _begin(
    problem: Problem,
    known: Known,
    seed: int,
    chains: int,
    far: Sequence[Float[np.ndarray, " d"]] = (),
) -> _Begun:
    """Return starts near every centre, and for the last group at the points `far`, if any."""
    centers = _centers(problem, known)[:chains]
    last = chains // CHAIN_GROUPS if far else 0
    zs = np.concatenate([
        _starts(problem, center, len(rows), seed, number)
        for number, (center, rows) in enumerate(
            zip(centers, np.array_split(np.arange(chains - last), len(centers)), strict=True)
        )
    ] + [far[k % len(far)][None] for k in range(last)])  # fmt: skip
    return _Begun(zs, centers, last)


def _guided(problem: Problem, known: Known, seed: int, begun: _Begun) -> Ensemble | None:
    """Return chains that follow a guide around the Gaussian's centre.

    None if there is another centre, or no guide is accurate.
    """
    gaussian = known.gaussian
    if gaussian is None or begun.far or [c.z is gaussian.center for c in begun.centers] != [True]:
        return None
    guide = make_guide(problem, known, seed)
    if guide is None:
        return None
    return follow_guide(problem, guide, begun.zs, begun.centers[0].factor, seed)


def _in_order(found: Ensemble, begun: _Begun) -> Ensemble:
    """Order chains by the centre nearest to their end, then by their log density.

    Neighbouring groups then differ as much as possible at the start. If they still differ at the
    end, the chains have not mixed.
    """
    chains, d = found.zs.shape
    away = found.zs[:, None] - np.array([center.z for center in begun.centers])
    white = np.linalg.solve(found.factor, away.reshape(-1, d).T)
    nearest = np.sum(white**2, axis=0).reshape(away.shape[:2]).argmin(axis=1)
    order = np.lexsort((found.log_density, nearest, np.arange(chains) >= chains - begun.far))
    return found._replace(zs=found.zs[order], log_density=found.log_density[order])


def _centers(problem: Problem, known: Known) -> list[_Center]:
    """Return every known mode with its Gaussian, or the start if the Gaussians are useless."""
    gaussian = known.gaussian
    if isinstance(gaussian, Laplace) and _holds_mass(problem, gaussian):
        assert gaussian.factor is not None
        centers = [_Center(gaussian.center, gaussian.factor)]
        for mode in () if known.modes is None else known.modes.z[1:]:
            factor = laplace_at(problem, mode).factor
            centers.append(_Center(mode, gaussian.factor if factor is None else factor))
        return centers
    center = np.asarray(problem.start, np.float64)
    squares = squared_gradients(problem, problem.array(center))
    return [_Center(center, np.diag(1 / np.sqrt(np.asarray(squares, np.float64) + 1e-8)))]


def _starts(
    problem: Problem, center: _Center, count: int, seed: int, number: int
) -> Float[np.ndarray, "count d"]:
    """Return center + 2 factor xi, moved inwards while far less dense than the centre."""
    xi = generator(seed, TUNING_STREAM, 5 + 2**8 * number).standard_normal((count, center.z.size))
    away = 2 * xi @ center.factor.T
    values = lambda zs: np.array(  # noqa: E731
        [float(sums.log_density(problem, problem.array(z))) for z in zs]
    )
    least = values(center.z[None])[0] - 4 * center.z.size - 10
    thin = np.ones(count, bool)
    for _ in range(20):
        thin[thin] = ~(values(center.z + away[thin]) >= least)
        if not thin.any():
            break
        away[thin] /= 2
    return center.z + away


def _on_all(problem: Problem, ask: Request, known: Known, exact: Exact) -> Plan:
    """Return a plan in which chains continue with exact gradients, confined to distant modes."""

    def dispersed(gaussian: Laplace, count: int, number: int) -> np.ndarray:
        assert gaussian.factor is not None
        return _starts(problem, _Center(gaussian.center, gaussian.factor), count, ask.seed, number)

    setup = in_modes(problem, known, ask.seed, dispersed)
    if setup is not None:
        notes = guide_note(problem, setup.gradient.guide)
        return Plan(setup, known, problem.num_data, notes=notes)
    far = [doubt.start for doubt in known.doubts if doubt.start is not None]
    return _going_on(problem, known, exact, _ensemble(problem, known, ask.seed, exact.chains, far))


def _on_all_guided(problem: Problem, ask: Request, known: Known, exact: Exact) -> Plan | None:
    """Return a plan in which all rows accept what a guide proposes; None if it is inaccurate."""
    far = [doubt.start for doubt in known.doubts if doubt.start is not None]
    begun = _begin(problem, known, ask.seed, exact.chains, far)
    found = _guided(problem, known, ask.seed, begun)
    return None if found is None else _going_on(problem, known, exact, _in_order(found, begun))


def _going_on(problem: Problem, known: Known, exact: Exact, found: Ensemble) -> Plan:
    center = problem.start if known.gaussian is None else known.gaussian.center
    gradient = replace(Full.around(problem, problem.array(center)), guide=found.guide)
    setup = Setup(
        HMC(found.leapfrogs), gradient, _metric(found, problem), as_schedule(found.step_size, "step_size"),
        *problem.as_one_batch().batches, num_draws=exact.draws, num_chains=exact.chains, starts=found.zs,
        burn_in=SETTLING_TRAJECTORIES if found.guide is not None else 0,
    )  # fmt: skip
    return Plan(setup, known, problem.num_data, notes=guide_note(problem, found.guide))


def _in_batches(problem: Problem, ask: Request, known: Known) -> Plan:
    """Return a plan of batches whose noise, measured at chains on some rows, is tolerable."""
    some = on_sample(problem, influential_rows(problem, known, ask.seed))
    found = _ensemble(some, known, ask.seed)
    D, bias = _metric(found, problem), ask.tolerance / 2
    step = matched_step(some, found.zs, D, bias, ask.seed)
    precision = np.linalg.inv(found.factor @ found.factor.T)
    around = Laplace(found.zs.mean(0), precision, found.factor, 1.0, np.zeros(len(precision)))
    survey = row_noise(problem, around, ask.seed)
    centred = partial(dense_levels, survey.centred, found.factor, 1.0)
    # the noise of plain gradients depends on the position, and far from a Gaussian no number describes
    # it: with 3 events in 100,000 rows it made the intercept's sd 30 times too wide
    ask = replace(ask, gradient=ControlVariates())
    choice = cheapest_choice(problem.source, (centred, centred), ask, False, bias, 1.0, step)
    problem, always = in_batches(problem, choice.batch_size, choice.order, choice.gradient), None
    if choice.always:
        always = problem.called(rows_of(survey, choice.gradient, choice.always), ask.seed)
    gradient = prepared(choice.gradient, problem.with_always(always, ask.seed), around.center)
    one = np.ones((1, 1))
    law = Law(np.ones(1), one, choice.noise * one, one, shuffled_period(problem))
    h = min(choice.longest, largest_step(law, bias))
    note = f"metric and step were estimated on {MAX_GUIDE_ROWS} of {problem.num_data} rows, weighted to represent all."
    setup = Setup(
        sampler_of(ask), gradient, D, as_schedule(h, "step_size"), *problem.batches, starts=found.zs,
        always=always,
    )  # fmt: skip
    return Plan(setup, known, problem.num_data, rate=h / 2, notes=(note,))


def _metric(found: Ensemble, problem: Problem) -> Dense:
    return Dense(found.factor @ found.factor.T, found.factor).prepare(problem.layout)


def _holds_mass(problem: Problem, laplace: Laplace) -> bool:
    """Return whether the Gaussian at the mode is near the bulk of the posterior's mass.

    An unbounded density (a scale that goes to 0) attracts the search for the mode into a spike.
    There the Gaussian's own draws have no finite density, or are far less dense than the start.
    """
    if laplace.factor is None:
        return False
    near = laplace.draw(np.random.default_rng(0), 16)
    values = np.array([float(sums.log_density(problem, problem.array(z))) for z in near])
    start = float(sums.log_density(problem, problem.array(problem.start)))
    return bool(
        np.isfinite(values).mean() > 0.5 and np.nanmedian(values) > start - 10 * laplace.center.size
    )
