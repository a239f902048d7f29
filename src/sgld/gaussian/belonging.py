"""Whether the gradient is that of the log density: a rise held against the line integral.

    log p(z) - log p(m) = int_0^1 grad log p(m + t (z - m)) . (z - m) dt

at draws z of the Gaussian around m, by Gauss-Legendre quadrature. Automatic differentiation knows
nothing of a jump (`where`, `round`, `argmax`, a penalty for leaving a box), takes `stop_gradient` at its
word and believes a custom rule; the density and its gradient are then of two functions, and every
sampler that goes by the gradient alone follows the wrong one. A kink (a Laplace prior, a hinge) is no
fault: there the quadrature errs, by the less the more panels the line is cut into. What a jump adds
stays.

Measured (8 points, one panel): 1e-9 to 1e-4 on smooth densities, .02 with one Laplace prior, .5 with 124,
.9 to 5300 on steps, boxes and rounded parameters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..problem import sums
from ..problem.problem import Problem
from ..stages import stage

__all__ = ["LARGEST", "PANELS", "Misfit", "misfit", "named_misfit"]

DRAWS, NODES = 32, 8
LARGEST = 0.05  # root mean square of the misfit in log density that is no fault
PANELS = (8, 64)  # of the lines that are looked at again
WORST = 4  # of the draws, which are
FALLS = 0.5  # a kink's share falls by more from one to the next: about 1/8


class Misfit(NamedTuple):
    """Root mean square of the rises that gradients do not account for, 0 where only kinks were met; a
    draw at which the density is +inf, if there is one."""

    size: float
    infinite: Float[np.ndarray, " d"] | None = None


@stage("curvature")
def misfit(
    problem: Problem,
    gaussian: Any,
    rng: np.random.Generator,
    draws: int = DRAWS,
    panels: tuple[int, ...] = PANELS,
) -> Misfit:
    """Of draws of `gaussian`; where it is too large, of the worst lines cut into `panels`, one after another.

    Beside it stands what rounding may do: how much the density differs between neighbouring
    floating-point numbers.
    """
    center = np.asarray(problem.array(gaussian.center), np.float64)
    zs = np.asarray(problem.array(gaussian.draw(rng, draws)), np.float64)
    rises = sums.differences(problem, zs, center)
    infinite = zs[np.argmax(rises)] if np.isposinf(rises).any() else None
    apart = rises - _integral(problem, center, zs, 1)
    inside = np.isfinite(apart)
    if np.count_nonzero(inside) < draws // 4:  # outside the support nothing is to be compared
        return Misfit(0.0, infinite)
    zs, rises, apart = zs[inside], rises[inside], apart[inside]
    before = _size(apart)
    if before <= LARGEST:
        return Misfit(before, infinite)
    worst = np.argsort(-np.abs(apart))[:WORST]
    zs, rises, before = zs[worst], rises[worst], _size(apart[worst])
    allowed, left = LARGEST + _rounding(problem, zs, center), before
    for count in panels:
        before, left = left, _size(rises - _integral(problem, center, zs, count))
        if not left > allowed:
            return Misfit(0.0, infinite)
    return Misfit(left if left > FALLS * before else 0.0, infinite)


def _size(apart: Float[np.ndarray, " n"]) -> float:
    return float(np.sqrt(np.mean(apart**2)))


def named_misfit(size: float) -> str:
    """What is said of a misfit."""
    return (
        f"the gradient is not that of the log density: between points where the density differs, by up to {size:.2g} "
        "in its logarithm, integrated gradients miss it (a jump, as of where, round or a penalty; stop_gradient; "
        "a custom gradient)"
    )


def _integral(
    problem: Problem, center: Float[np.ndarray, " d"], zs: Float[np.ndarray, "n d"], panels: int
) -> Float[np.ndarray, " n"]:
    """int grad log p . dz along the lines from `center`, by Gauss-Legendre in each of `panels`."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    at = ((nodes + 1) / 2 + np.arange(panels)[:, None]).ravel() / panels
    share = np.tile(weights / 2, panels) / panels
    away = zs - center
    points = center + at[:, None, None] * away
    slopes = sums.gradients(problem, points.reshape(-1, center.size)).reshape(points.shape)
    return np.einsum("k,knd,nd->n", share, slopes, away)


def _rounding(
    problem: Problem, zs: Float[np.ndarray, "n d"], center: Float[np.ndarray, " d"]
) -> float:
    """4 times what rounding does to a rise: by how much neighbouring numbers differ, and the terms' own."""
    dtype = problem.layout.dtype
    next_to = np.nextafter(zs.astype(dtype), np.inf).astype(np.float64)
    apart = sums.differences(problem, next_to, center) - sums.differences(problem, zs, center)
    z = problem.array(center)
    prior = abs(float(problem.log_prior(z)))
    rows = abs(float(sums.log_density(problem, z)) - prior) / np.sqrt(max(1, problem.num_data))
    terms = float(np.finfo(dtype).eps) * (prior + (rows if problem.has_rows else 0.0))
    return 4 * (_size(np.nan_to_num(apart, posinf=0.0, neginf=0.0)) + terms)
