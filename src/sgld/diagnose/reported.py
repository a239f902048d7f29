"""The meter on the scale that is read: constrained parameters and `output=`.

A parameter phi = f(z) that bends over the width of the posterior is not judged by its linearisation: the
sd of exp(z), z of sd s, is off by the factor exp(s^2 (rho^2 - 1)) and more where that of z is off by
rho. So draws are moved to the corrected moments where these hold, in z,

    z' = m + (z - mean of the draws) / ratio,        m the corrected mean, for each coordinate,

and both go through f: ratio of phi = sd f(z) / sd f(z').
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Float

from ..model.problem import Problem
from ..results import statistics
from .stein import Corrected

__all__ = ["bends", "on_the_reported_scale", "through"]

STRAIGHT = 0.05  # sds (root mean square) from the linearisation within which it serves

Draws = Float[np.ndarray, "chain draw m"]
Weights = Float[np.ndarray, "chain draw"]


def bends(problem: Problem) -> bool:
    """Whether what is reported may be another function of z than z itself."""
    return problem.posterior.transform is not None or problem.posterior.output is not None


def on_the_reported_scale(
    problem: Problem,
    z: Float[np.ndarray, "chain draw d"],
    phi: Draws,
    weights: Weights,
    free: Corrected,
    linear: Corrected,
) -> Corrected:
    """`linear`, but by `free` through the map for the parameters that bend.

    `phi` are the draws in the linear approximation, `free` the corrected moments of the coordinates of z.
    """
    mean = statistics.mean(z, weights)

    def pushed(ratio: Float[np.ndarray, " d"]) -> Draws:
        return through(problem, mean + free.mean_shift + (z - mean) / ratio)

    values, moved = through(problem, z), pushed(free.ratio)
    sd = np.sqrt(statistics.var(values, weights))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        away = values - statistics.mean(values, weights) - (phi - statistics.mean(phi, weights))
        bent = ~(np.sqrt(statistics.mean(away**2, weights)) <= STRAIGHT * sd)
        true = np.sqrt(statistics.var(moved, weights))
        wider = pushed(free.ratio / (1 + free.ratio_se / free.ratio))
        se = np.abs(np.sqrt(statistics.var(wider, weights)) / true - 1)
        shift = statistics.mean(moved, weights) - statistics.mean(values, weights)
        return replace(
            linear,
            ratio=np.where(bent, sd / true, linear.ratio),
            ratio_se=np.where(bent, se * sd / true, linear.ratio_se),
            mean_shift=np.where(bent, shift, linear.mean_shift),
            sd=np.where(bent, true, linear.sd),
        )


def through(problem: Problem, z: Float[np.ndarray, "chain draw d"]) -> Draws:
    """What is reported at z, in one vector each."""
    with jax.enable_x64(problem.posterior.output is not None):
        position = problem.reported(problem.array(z))
    shape = z.shape[:2]
    leaves = [
        np.asarray(leaf, np.float64).reshape(*shape, -1) for leaf in jax.tree.leaves(position)
    ]
    return np.concatenate(leaves, axis=-1)
