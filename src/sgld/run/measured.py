"""What a run that is judged by predictions measures at its draws."""

from __future__ import annotations

from typing import Any

from ..diagnostics.function_space.predictions import predictions_of
from ..diagnostics.function_space.temperature import Layers, Probe, meter_of, stiffest
from ..model.problem import Problem
from ..results.plan import Setup
from ..tune.metric import settled
from ..tune.network_rule import curvature_rows, num_directions

__all__ = ["make_probe"]


def make_probe(problem: Problem, setup: Setup, starts: Any) -> Probe | None:
    """Predictions at probe rows, and the stiffest directions where the chains start."""
    if not setup.predictions or starts is None:
        return None
    meter = None if setup.preconditioner.adapts else meter_of(setup.sampler)
    D = settled(setup.preconditioner, problem, starts[0])
    rows = curvature_rows(problem.num_data, problem.dimension)
    steps = setup.burn_in + setup.thin * setup.num_draws
    gradients = steps * (setup.batch_size or problem.num_data)
    count = num_directions(gradients, rows, problem.dimension)
    directions, _ = stiffest(problem, D, starts, count=count, rows=rows)
    return Probe(predictions_of(problem), directions, Layers.of(problem.layout), meter)
