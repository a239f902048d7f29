"""What a run that is judged by predictions measures at its draws."""

from __future__ import annotations

from typing import Any

from ..draws.setup import Setup
from ..probe.directions import stiffest
from ..probe.layers import Layers
from ..probe.predictions import predictions_of
from ..probe.probe import Probe, meter_of
from ..problem.problem import Problem
from ..tune.from_network import curvature_rows
from ..tune.metric import settled

__all__ = ["make_probe"]

DIRECTIONS = 16


def make_probe(problem: Problem, setup: Setup, starts: Any) -> Probe | None:
    """Predictions at probe rows, and the stiffest directions where the chains start."""
    if not setup.predictions or starts is None:
        return None
    meter = None if setup.preconditioner.adapts else meter_of(setup.sampler)
    D = settled(setup.preconditioner, problem, starts[0])
    count = min(DIRECTIONS, problem.dimension)
    directions, _ = stiffest(problem, D, starts, count=count, rows=curvature_rows(problem))
    return Probe(predictions_of(problem), directions, Layers.of(problem.layout), meter)
