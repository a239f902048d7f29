"""How far a posterior is from its Gaussian, and the Gaussian's centre: from the mode to the mean.

With draws theta = m + F z of the Gaussian N(m, T J^{-1}), F F^T = T J^{-1}, and g the whitened
gradient F^T grad U(theta) / T of U = -log posterior,

    nu = max_i average((g_i - z_i)^2),     m <- m - J^{-1} average(grad U).

nu is 0 on a Gaussian posterior. At the mode nearly all of it is the distance to the mean, which
grows with the number of parameters, and the gradients that nu is measured with tell that distance:
the step above is one natural-gradient step of a Gaussian variational fit (Khan & Rue 2023), with
the curvature kept. Draws come in antithetic pairs, so that on a Gaussian nothing moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from ..core.progress import stage
from ..model import sums
from ..model.problem import Problem
from .dense import Laplace
from .lowrank import LowRankLaplace

__all__ = ["Departure", "at_the_mean", "departure"]

DRAWS, MANY_ROWS = 128, 10**5  # with more rows, a quarter of the draws says enough
ACCEPTED = 0.5  # largest nu at a new centre: where a gradient vanishes, nu tends to 1
SMALL = 0.1  # sds (Euclidean) within which what a step does to nu need not be measured
SHARES = (1.0, 0.5, 0.25)  # of the step that are tried

Gaussian = TypeVar("Gaussian", bound=Laplace | LowRankLaplace)


class Departure(NamedTuple):
    """nu at a centre; what is left of it when the centre moves by `slope`; the draws' mean gradient of U."""

    nu: float
    around: float
    slope: Float[np.ndarray, " d"]


@stage("curvature")
def departure(
    problem: Problem, gaussian: Any, rng: np.random.Generator, temperature: float = 1.0
) -> Departure:
    """How far the posterior is from `gaussian` at its centre; nu is inf where a gradient is not finite."""
    gaussian = gaussian.tempered(temperature)
    count = DRAWS if problem.num_data <= MANY_ROWS else DRAWS // 4
    xi = rng.standard_normal((count // 2, gaussian.center.size))
    away = gaussian.spread(np.concatenate([xi, -xi]))
    thetas = gaussian.center + away
    slopes = -sums.gradients(problem, thetas)
    slope = slopes.mean(0)
    if not np.isfinite(slopes).all():
        return Departure(float("inf"), float("inf"), slope)
    apart = (gaussian.pull(slopes) - gaussian.linear(problem, thetas)) / temperature
    nu, around = np.mean(apart**2, axis=0), np.var(apart, axis=0)
    return Departure(float(np.max(nu)), float(np.max(around)), slope)


def at_the_mean(
    problem: Problem, gaussian: Gaussian, rng: np.random.Generator, temperature: float
) -> tuple[Gaussian, float, float]:
    """The Gaussian with its centre at the mean, nu there, and nu at the mode.

    The step can hurt, so it, half or a quarter of it is taken only where nu comes out smaller, at
    most `ACCEPTED`, and the density no lower than a draw's might be; else the centre stays.
    """
    here = departure(problem, gaussian, rng, temperature)
    if not np.isfinite(here.nu):
        return gaussian, here.nu, here.nu
    step = -gaussian.solve(problem, here.slope)
    tempered = gaussian.tempered(temperature)
    if np.linalg.norm(tempered.whiten(gaussian.center + step)) <= SMALL:
        return gaussian.moved(step), here.around, here.nu
    half = gaussian.center.size / 2
    density = lambda at: float(sums.log_density(problem, problem.array(at.center)))  # noqa: E731
    least = density(gaussian) - temperature * (half + 3 * np.sqrt(half))
    for share in SHARES:
        there = gaussian.moved(share * step)
        if not density(there) >= least:
            continue
        nu = departure(problem, there, rng, temperature).nu
        if nu <= min(ACCEPTED, here.nu):
            return there, nu, here.nu
    return gaussian, here.nu, here.nu
