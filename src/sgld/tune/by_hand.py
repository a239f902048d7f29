"""The textbook algorithm around a step size given by hand."""

from __future__ import annotations

import numpy as np

from ..approximation.known import Known
from ..approximation.laplace import Laplace
from ..model.problem import Problem, Request, is_auto
from ..results.plan import Plan, Setup
from ..samplers.preconditioners.fixed import Scalar, given
from ..samplers.schedules import as_schedule
from .estimator import measure, plain_batches, prepared, sampler_of, stationary_law
from .metric import factor_of, settled

__all__ = ["by_hand"]


def by_hand(problem: Problem, ask: Request, known: Known, T: float) -> Plan:
    """D = I, plain minibatches, reshuffled, no noise correction, in whatever is left open."""
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
