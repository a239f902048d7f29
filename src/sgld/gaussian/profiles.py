"""Profiles: rays that bend, with the other parameters maximised anew at each point.

A straight ray leaves a curved plateau at once: of a curve a (1 - exp(-r x)) that is flat from some rate r on, log r
and a follow a line together near the mode, and far out log r alone is free. Where the gradient at 4 and 14 sds
of a ray says that the others would gain by moving, or their curvature that they are wider there than at the mode, as in
a halo of some of many parameters, they are:

    p(t) ~ max over the others of the density at theta_i = m_i + t sd_i, times det(J_others)^{-1/2},

the marginal by Laplace's approximation (Tierney & Kadane 1986).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ..model import sums
from ..model.problem import Problem
from .dense import Laplace
from .rays import OUTSIDE, Ray

__all__ = ["followed"]

MOST = 60  # parameters
LOOKED_AT = OUTSIDE[[0, 2]]  # 4 and 14 sds
GAIN = 1.0  # in log density, from which a ray is followed
AT_ONCE = 4  # sides of rays, the most promising ones,
FEW, OF_MANY = 20, 2  # and of more parameters than this so many
STEPS, ENOUGH = 12, 1e-2  # of Newton's method at each point, and a gain that is none
NO_SECOND_MOMENT = -40.0  # log density below which no second moment lies, however far out
FINEST = 1.9**0.25  # from one point to the next


def followed(problem: Problem, gaussian: Any, seen: list[Ray], T: float) -> list[Ray]:
    """The rays with a bend in them, as profiles; the others are left out."""
    if not isinstance(gaussian, Laplace) or not 2 <= problem.dimension <= MOST:
        return []
    found: dict[int, Ray] = {}
    sides = AT_ONCE if problem.dimension <= FEW else OF_MANY
    for k, side in _bent(problem, gaussian, seen, T)[:sides]:
        ray = found.get(k, seen[k])
        t, value, zs = _profile(problem, gaussian, ray, side, T)
        kept = side * ray.t < t[0]
        before = [ray.position(gaussian.center, at) for at in ray.t[kept]]
        order = np.argsort(t := np.append(ray.t[kept], side * t))
        value = np.append(ray.value[kept], value)[order]
        bent = np.concatenate([before, zs])[order]
        found[k] = replace(ray, t=t[order], value=value, tops=(), bent=bent)
    return list(found.values())


def _bent(
    problem: Problem, gaussian: Laplace, seen: list[Ray], T: float
) -> list[tuple[int, float]]:
    """Rays and sides whose others would gain most, by moving and by their width.

    Those that gain `GAIN`, at a point that then has a density to speak of. Of many parameters widths cost too much.
    """
    sides = [(k, s) for k in range(len(seen)) for s in (-1.0, 1.0)]
    points = np.array([
        gaussian.center + s * t * seen[k].direction for k, s in sides for t in LOOKED_AT
    ])  # fmt: skip
    slopes = sums.gradients(problem, points).reshape(len(sides), len(LOOKED_AT), -1) / T
    gains = []
    places = points.reshape(len(sides), len(LOOKED_AT), -1)
    for (k, side), slope, around in zip(sides, slopes, places, strict=True):
        others = np.arange(problem.dimension) != seen[k].parameter
        inverse = np.linalg.inv(gaussian.curvature[np.ix_(others, others)] / T)
        each = np.einsum("ti,ij,tj->t", slope[:, others], inverse, slope[:, others]) / 2
        there = np.interp(side * LOOKED_AT, seen[k].t, np.nan_to_num(seen[k].value, neginf=-1e30))
        if problem.dimension <= FEW:
            each = each + [
                _wider(problem, gaussian, z, others) if value > NO_SECOND_MOMENT else 0.0
                for z, value in zip(around, there, strict=True)
            ]
        gains.append(float(np.max(np.where(there + each > NO_SECOND_MOMENT, each, 0.0))))
    order = np.argsort(-np.array(gains))
    return [sides[k] for k in order if gains[k] > GAIN]


def _wider(
    problem: Problem, gaussian: Laplace, z: Float[np.ndarray, " d"], others: np.ndarray
) -> float:
    """log of the width of the others at z over that at the mode; 0 where they are narrower, or bend upwards."""
    J = np.asarray(sums.curvature(problem, problem.array(z)), np.float64)[np.ix_(others, others)]
    if not np.isfinite(J).all() or np.linalg.eigvalsh((J + J.T) / 2)[0] <= 0:
        return 0.0
    at_mode = _half_log_det(gaussian.curvature[np.ix_(others, others)])
    return max(0.0, at_mode - _half_log_det(J))


def _profile(
    problem: Problem, gaussian: Laplace, ray: Ray, side: float, T: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, "n d"]]:
    """(|t|, log p, z): from the mode outwards, each point from the one before, as far as there is a curvature."""
    i, d = ray.parameter, problem.dimension
    others = np.arange(d) != i
    sd, base = ray.direction[i], _half_log_det(gaussian.curvature[np.ix_(others, others)])
    z, ts, values, zs = gaussian.center.copy(), [], [], []
    for t in np.geomspace(1.0, OUTSIDE[-1], 1 + int(np.log(OUTSIDE[-1]) / np.log(FINEST))):
        z[i] = gaussian.center[i] + side * t * sd
        z, J = _maximised(problem, z, others)
        value = sums.differences(problem, z[None], gaussian.center)[0] / T
        if not (np.isfinite(value) and np.isfinite(J).all()):
            break
        ts.append(float(t))
        zs.append(z.copy())
        values.append(float(value + base - _half_log_det(J)))
        if value < NO_SECOND_MOMENT:
            break
    if not ts:
        return np.ones(1), np.full(1, -np.inf), z[None]
    return np.array(ts), np.array(values), np.array(zs)


def _maximised(
    problem: Problem, z: Float[np.ndarray, " d"], others: np.ndarray
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "e e"]]:
    """Newton's method in the `others`, with their curvature's eigenvalues made positive; and it, NaN where it is none."""
    z = z.copy()
    for _ in range(STEPS):
        _, slope = sums.value_and_gradient(problem, problem.array(z))
        slope = np.asarray(slope, np.float64)[others]
        J = np.asarray(sums.curvature(problem, problem.array(z)), np.float64)
        J = J[np.ix_(others, others)]
        if not (np.isfinite(J).all() and np.isfinite(slope).all()):
            return z, np.full_like(J, np.nan)
        values, vectors = np.linalg.eigh((J + J.T) / 2)
        values = np.maximum(np.abs(values), 1e-8 * max(float(np.abs(values).max()), 1e-30))
        move = vectors @ ((slope @ vectors) / values)
        if not slope @ move > 2 * ENOUGH:
            break
        trials = np.repeat(z[None], 8, axis=0)
        trials[:, others] += 0.5 ** np.arange(8)[:, None] * move
        gains = np.nan_to_num(sums.differences(problem, trials, z), nan=-np.inf)
        best = int(np.argmax(gains))
        if not gains[best] > 0:
            break
        z = trials[best]
    return z, J


def _half_log_det(J: Float[np.ndarray, "e e"]) -> float:
    """Half the log determinant of a curvature; eigenvalues that are not positive count as the least."""
    values = np.linalg.eigvalsh((J + J.T) / 2)
    floor = 1e-8 * max(float(np.abs(values).max()), 1e-30)
    return float(np.sum(np.log(np.maximum(values, floor))) / 2)
