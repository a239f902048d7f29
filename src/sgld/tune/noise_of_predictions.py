"""What noise of batches does to a network's predictions, and the path without it.

    V_f = mean_i Var[f_i' D g] / |f_i' D^{1/2}|^2,      T_f = 1 + delta V_f / (2 gamma)

g a batch's gradient, f_i a prediction. A layer's mean, by which the step is chosen, hides it: of 199,210 weights whose
layers were at 1.01 predictions were at 20. As V_f goes as 1 / rows while a step's price goes as rows, no batch is a
way out; all rows are, at the step that curvature allows.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..device import sent
from ..gradient.full import Full
from ..probe.predictions import Predictions, predictions_of
from ..probe.probe import along
from ..problem.problem import Problem
from ..problem.request import Request
from . import network_rule as rule
from .network_price import step_price

__all__ = ["affordable_path", "heat_of_predictions", "warmed"]


def heat_of_predictions(
    problem: Problem, gradient: Any, D: Any, zs: Float[Array, "chain d"], seed: int, delta: float,
    friction: float,
) -> float:  # fmt: skip
    """T_f - 1 of BAOA's steps; `problem` holds the rows in the run's batches."""
    entries = sent(problem.source.chunk((seed, 2**31 - 5), 0, 2 * rule.PAIRS))
    V = _noise(problem, predictions_of(problem), gradient, D, zs, entries)
    return float(jnp.mean(V)) * delta / (2 * friction)


@jax.jit
def _noise(
    problem: Problem, predictions: Predictions, gradient: Any, D: Any, zs: Array, entries: Array
) -> Float[Array, " chain"]:
    """V_f at every z, from the differences of pairs of batches."""

    def one(z: Array) -> Array:
        def pair(turn: Array) -> Array:
            g = [gradient.at(problem, entries[2 * turn + i])(z) for i in (0, 1)]
            lengths, moves = along(predictions, problem, D, z, D.pullback(g[0] - g[1]), turn)
            felt = lengths > 0  # a row whose units are dead says nothing
            speeds = jnp.where(felt, moves**2 / jnp.where(felt, lengths, 1), 0)
            return jnp.sum(speeds) / 2 / jnp.maximum(jnp.sum(felt, dtype=z.dtype), 1)

        return jnp.mean(jax.lax.map(pair, jnp.arange(rule.PAIRS, dtype=jnp.int32)))

    return jax.lax.map(one, zs)


def affordable_path(problem: Problem, ask: Request, delta: float) -> bool:
    """Whether there is time for steps of all rows that take chains as far as predictions forget."""
    return _seconds(problem, ask, delta) <= rule.seconds_for_path(ask.max_seconds)


def warmed(problem: Problem, ask: Request, batch_size: int, heat: float, delta: float) -> str:
    """A note where they are not affordable."""
    seconds = math.ceil(_seconds(problem, ask, delta) / rule.PATH_SHARE / 10) * 10
    return (
        f"noise of batches of {batch_size} rows will warm predictions to a temperature of about {1 + heat:.3g}, where 1 is "
        f"right; with max_seconds={seconds} or more every step takes all rows, which have none."
    )


def _seconds(problem: Problem, ask: Request, delta: float) -> float:
    return rule.seconds_of_path(delta, ask.chains() * step_price(problem, Full(), None))
