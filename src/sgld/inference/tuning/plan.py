"""The plan of a run: everything that was left to the library, chosen and explained.

A plan is a function of data, model, seed and versions, never of the clock. Manual settings are
never changed. With a manual step size everything else left open follows the textbook algorithm: D =
I, plain minibatches, reshuffled, no noise correction. A step size has a meaning only together with
its preconditioner.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Array, Float

from ...approximation.known import MAX_GAUSSIAN_NU, NOT_CONVERGED, Known
from ...approximation.laplace import Laplace
from ...approximation.low_rank import LowRankLaplace
from ...approximation.propriety import check_resolved
from ...core.progress import stage
from ...diagnostics.function_space.predictions import check_labels
from ...model.problem import Problem, Request, is_auto
from ...results.plan import Plan, Setup
from ...samplers.preconditioners.fixed import Scalar, given
from ...samplers.schedules import as_schedule
from ...typing import Schedule
from .cost import with_lengths
from .exact_chains import from_chains
from .gaussian import from_curvature, from_lowrank, misfit_notes
from .network import from_network, from_optimisers, has_rule, is_like_one, is_network
from .network_rules import network_lengths
from .noise import check_exchange, with_noise
from .parts import factor_of, measure, plain_batches, prepared, sampler_of, settled, stationary_law
from .survey import survey_posterior

# -- manual step size ----------------------------------------------------------------------


def by_hand(problem: Problem, ask: Request, known: Known, T: float) -> Plan:
    """Return a plan around a manual step size.

    What is left open is D = I, plain minibatches, reshuffled, without noise correction.
    """
    D = given(Scalar(1.0) if is_auto(ask.preconditioner) else ask.preconditioner, problem.layout)
    gradient, problem = plain_batches(problem, ask)
    always = None if is_auto(ask.always_in) else np.sort(np.asarray(ask.always_in, np.int64))
    problem = problem.with_always(always, ask.seed)
    laplace = known.gaussian
    center = np.asarray(problem.start) if laplace is None else laplace.center
    gradient = prepared(gradient, problem, center)
    sampler, law = sampler_of(ask), None
    if isinstance(laplace, Laplace) and laplace.positive_definite:
        measured = measure(problem, gradient, laplace, T, ask.seed)
        factor = factor_of(settled(D, problem, laplace.center), problem)
        law = stationary_law(problem, laplace, factor, measured, sampler)
    setup = Setup(
        sampler, gradient, D, as_schedule(ask.step_size, "step_size"), *problem.batches, always=always
    )  # fmt: skip
    return Plan(setup, known, problem.num_data, law, by_hand=True)


# -- plan ----------------------------------------------------------------------------------


@stage("plan")
def make_plan(problem: Problem, ask: Request) -> Plan:
    """Choose the step size and its companions, then the run lengths.

    It first finds what is known of the posterior. `problem` holds all rows as one batch.
    """
    temperature = as_schedule(ask.temperature, "temperature", zero=True)
    T = float(temperature(0))
    if is_network(problem):
        return _network_plan(problem, ask, temperature)
    known = survey_posterior(problem, ask.seed, T, by_hand=not is_auto(ask.step_size))
    if isinstance(known.gaussian, Laplace):
        check_resolved(problem, known.gaussian, T)
    plan = _choose(problem, ask, known, T)
    notes = (
        *problem.posterior.notes,
        *plan.notes,
        *(() if plan.setup.predictions else _of_matter(known, plan)),
        *misfit_notes(plan.misfit, problem.num_data),
    )
    setup = replace(plan.setup, temperature=temperature)
    plan = replace(plan, setup=setup, notes=notes)
    check_exchange(problem, plan, ask)
    plan = with_noise(plan, problem, ask)
    return network_lengths(plan, problem, ask) if setup.predictions else with_lengths(plan, ask)


def _network_plan(problem: Problem, ask: Request, temperature: Schedule) -> Plan:
    """Return the plan of a run judged by predictions, without curvature or a mode search."""
    check_labels(problem, ask.seed)
    by_itself = is_auto(ask.step_size)
    if by_itself:
        plan = from_network(problem, ask)
    else:
        plan = by_hand(problem, ask, Known(), float(temperature(0)))
    setup = replace(plan.setup, temperature=temperature, predictions=True)
    own = plan.notes if by_itself else ()
    notes = (*problem.posterior.notes, *own, *_predict_note(problem), *_prior_note(problem))
    plan = replace(plan, setup=setup, notes=notes)
    check_exchange(problem, plan, ask)
    plan = with_noise(plan, problem, ask)
    return network_lengths(plan, problem, ask) if by_itself else with_lengths(plan, ask)


def _predict_note(problem: Problem) -> tuple[str, ...]:
    """Return a note if a network is recognised only by the names of its parameters."""
    if problem.posterior.predict is not None:
        return ()
    return (
        "init looks like the layers of a network, but the posterior does not say what it predicts; give "
        "predict=lambda params, row: ... to sgld.Posterior, so that the verdict judges predictions.",
    )


def _prior_note(problem: Problem) -> tuple[str, ...]:
    """Return a note if the prior of a network is flat at two points.

    A search for the mode, which would show that the weights are unbounded, is not made.
    """
    here = problem.start
    if problem.posterior.transform is not None or np.any(_slope(problem, here)) or np.any(_slope(problem, here + 1)):  # fmt: skip
        return ()
    return (
        "log_prior is the same everywhere: unless log_likelihood includes a prior, weights can go to infinity, and "
        "the posterior is improper; use a prior such as sgld.networks.normal_prior(1.0).",
    )


@jax.jit
def _slope(problem: Problem, z: Float[Array, " d"]) -> Float[Array, " d"]:
    return jax.grad(problem.log_prior)(z)


def _of_matter(known: Known, plan: Plan) -> tuple[str, ...]:
    """Return the notes on what is known, without a failed search if the run does not depend on it.

    Exact chains depend on the points they have visited, and a Gaussian that fits does not depend on
    where its search stopped.
    """
    fits = known.nu is not None and known.nu <= MAX_GAUSSIAN_NU
    if not (plan.setup.exact or fits):
        return known.notes
    return tuple(note for note in known.notes if note != NOT_CONVERGED)


def _choose(problem: Problem, ask: Request, known: Known, T: float) -> Plan:
    """Choose the plan: manual, by exact chains, by the known Gaussian, or from optimisers."""
    if not is_auto(ask.step_size):
        return by_hand(problem, ask, known, T)
    if is_like_one(problem, known) and has_rule(ask):
        return from_network(problem, ask)
    gaussian, nu = known.gaussian, known.nu
    dense = isinstance(gaussian, Laplace)
    if dense and (nu is None or nu > MAX_GAUSSIAN_NU or known.elsewhere):
        plan = from_chains(problem, ask, known, T, first=True)
        if plan is not None:
            return plan
    if isinstance(gaussian, Laplace) and nu is not None and T > 0:
        return from_curvature(problem, ask, known, T)
    lowrank = isinstance(gaussian, LowRankLaplace) and not known.hopeless
    if lowrank and T > 0 and is_auto(ask.preconditioner):
        return from_lowrank(problem, ask, known, T)
    return from_optimisers(problem, ask, known)
