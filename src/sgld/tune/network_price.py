"""Prices of a network's steps, predicted in counted operations."""

from __future__ import annotations

from typing import Any

from ..model.cost import gradient_price, row_price
from ..model.problem import Problem
from ..samplers.gradients.full import Full
from . import network_rule as rule

__all__ = ["UPDATED", "affordable", "batch_price", "step_price"]

UPDATED = 7e-9  # seconds of a number that an optimiser or a sampler moves, noise included


def affordable(problem: Problem, chains: int) -> bool:
    """Whether full gradients are, for long enough chains."""
    return chains * rule.FULL_STEPS * gradient_price(problem).each <= rule.FULL_SECONDS


def step_price(problem: Problem, gradient: Any, batch_size: int | None) -> float:
    """Predicted seconds of one chain's step; the problem may hold its rows in any batches."""
    return batch_price(problem, gradient, batch_size) + UPDATED * problem.dimension


def batch_price(problem: Problem, gradient: Any, batch_size: int | None) -> float:
    """Predicted seconds of a step's gradient alone."""
    if isinstance(gradient, Full) or batch_size is None:
        return gradient_price(problem).each
    return batch_size * row_price(problem)
