"""From a run that is judged by its parameters to draws: what they report, their weights, the verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..diagnostics.evidence import assess
from ..model.problem import Problem, Request
from ..results.draws import Draws
from ..results.plan import Plan
from .outcome import reported_draws, sampling_only, within_support
from .several import weighed
from .sink import Raw

__all__ = ["judged_by_parameters"]


def judged_by_parameters(
    problem: Problem, plan: Plan, raw: Raw, ask: Request, info: dict[str, Any]
) -> Draws:
    """Draws of the positions, which are there, with their verdict."""
    draws = replace(reported_draws(problem, plan, raw, ask.seed), info=info, plan=plan)
    raw, _ = sampling_only(raw)
    assert raw.z is not None
    z = np.moveaxis(raw.z, 0, 1)
    gradient = None if raw.gradient is None else np.moveaxis(raw.gradient, 0, 1)
    draws = weighed(problem, plan, within_support(problem, draws, z), z, ask.seed)
    verdict = assess(problem, plan, draws, z, gradient, ask.tolerance, ask.seed, raw.trajectories)
    return draws.with_verdict(verdict)
