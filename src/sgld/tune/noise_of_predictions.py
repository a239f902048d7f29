"""What noise of batches will do to a network's predictions.

    V_f = mean_i Var[f_i' D g] / |f_i' D^{1/2}|^2,      T_f = 1 + delta V_f / (2 gamma)

g a batch's gradient, f_i a prediction. A layer's mean, by which the step is chosen, hides it: of 199,210 weights whose
layers were at 1.01 predictions were at 20; where optimisers end, and rows fit, T_f is less (3.7 there). As V_f goes as 1 / rows while a step's price goes as rows, no batch is a
way out; all rows are, whose steps curvature alone limits.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.devices import sent
from ..diagnostics.function_space.predictions import Predictions, predictions_of
from ..diagnostics.function_space.temperature import along
from ..model.problem import Problem
from . import network_rule as rule

__all__ = ["heat_of_predictions", "warmed"]


def heat_of_predictions(
    problem: Problem, gradient: Any, D: Any, zs: Float[Array, "chain d"], seed: int, delta: float,
    friction: float,
) -> float:  # fmt: skip
    """T_f - 1 of BAOA's steps; `problem` holds the rows in the run's batches."""
    entries = sent(problem.source.chunk((seed, 2**31 - 5), 0, 2 * rule.PAIRS))
    V = _prediction_noise(problem, predictions_of(problem), gradient, D, zs, entries)
    return float(jnp.mean(V)) * delta / (2 * friction)


@jax.jit
def _prediction_noise(
    problem: Problem, predictions: Predictions, gradient: Any, D: Any, zs: Array, entries: Array
) -> Float[Array, " chain"]:
    """V_f at every z, from the differences of pairs of batches."""

    def one(z: Array) -> Array:
        def pair(turn: Array) -> tuple[Array, Array]:
            g = [gradient.at(problem, entries[2 * turn + i])(z) for i in (0, 1)]
            lengths, moves = along(predictions, problem, D, z, D.pullback(g[0] - g[1]), turn)
            felt = lengths > 0  # a row whose units are dead says nothing
            speeds = jnp.where(felt, moves**2 / jnp.where(felt, lengths, 1), 0)
            return jnp.sum(speeds) / 2, jnp.sum(felt, dtype=z.dtype)

        sums, counts = jax.lax.map(pair, jnp.arange(rule.PAIRS, dtype=jnp.int32))
        return jnp.sum(sums) / jnp.maximum(jnp.sum(counts), 1)

    return jax.lax.map(one, zs)


def warmed(batch_size: int, heat: float) -> str:
    """A note on what it will do."""
    return (
        f"noise of batches of {batch_size} rows will warm predictions to a temperature of {1 + heat:.3g} or more, where 1 "
        "is right, so that they spread too far; gradient=sgld.Full() has no such noise, and takes more time (max_seconds)."
    )
