"""Mass behind a valley: where the density falls from the mode and rises again, along a parameter or across several.

Where a density steps up sharply, no search by gradients comes to rest; and a step across two of thirty parameters lies
on no ray of one. In units of the Gaussian, z = m + F x, the excess over it

    e(x) = log p(m + F x) - log p(m) + |x|^2 / 2

is 0 for a Gaussian. Beyond a plane u.x = a on which log p steps up by h it is h, and of points drawn 1.4, 2 and 3 sds
wide some are there: their mean points along u, and that of their squares where there are planes on both sides. Points
drawn around the place where that ray meets the plane bring u nearer, and a ray over all rows says how much is there.

Of some of many rows the likelihood is wider than of all, and where a prior steps up within the posterior is not to be
seen: there the likelihood is looked at as its Gaussian, with the whole prior, and no row is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..approximation.laplace import Laplace
from ..approximation.rays import CLOSE, Ray
from ..core.progress import stage
from ..model import sums
from ..model.cost import gradient_price
from ..model.problem import Problem

__all__ = ["Behind", "affordable", "behind", "directions", "of_prior"]

SCALES, VALLEY_POINTS = (1.4, 2.0, 3.0), 1536  # sds of the points, and how many in all
LEAST, SECONDS = 192, 1.0  # of them at least, and the predicted seconds that the others may take
VALLEY_EXCESS, FEWEST = 1.0, 8  # excess of points that count, and how many there must be
MOST, EXPLAINED = 4, 0.5  # directions; of the way to its edge, from which one explains points
# points at least, so many sds around a place on a ray, and how often it is turned
DRAWS, AROUND, VALLEY_ROUNDS = 1024, 0.5, 3
REACH = np.arange(0.25, 12.01, 0.25)  # sds of the rays that are turned
ALIKE = 0.8  # cosine of two directions from which they are one
RISE = 1.0  # in log density, by which a hill stands above the valley
# of the second moment behind a valley that is suspicious: 5% of an sd, or .3 sds of a mean
SHARE = 0.1

Density = Callable[[Float[np.ndarray, "m d"]], Float[np.ndarray, " m"]]


class Behind(NamedTuple):
    """How many sds away a valley is, a share of the second moment beyond it, and the t around which that lies."""

    edge: float
    share: float
    place: float


def behind(ray: Ray) -> list[Behind]:
    """What a ray has behind its deepest valley, of each side where that is not little."""
    found = []
    for sign in (1.0, -1.0):
        side = sign * ray.t >= 0
        t, value = np.abs(ray.t[side]), ray.value[side]
        order = np.argsort(t)
        t, value = t[order], np.maximum(np.where(np.isposinf(value), -1e30, value)[order], -1e30)
        rise = value - np.minimum.accumulate(value)
        top = int(np.argmax(rise))
        if not (rise[top] > RISE and t[top] > CLOSE):
            continue
        edge = float(t[: top + 1][np.argmin(value[: top + 1])])
        sides = [far for far in ray.sides(near=edge) if far.place * sign > 0]
        found += [Behind(edge, far.share, far.place) for far in sides if far.share > SHARE]
    return found


def of_prior(problem: Problem, gaussian: Laplace, T: float) -> Density:
    """log p / T of whitened x: the whole prior, and the likelihood as its Gaussian at the mode; no row is read."""
    alone, m = replace(problem, data=None), gaussian.center
    slope = sums.gradients(alone, m[None])[0]
    curvature = np.asarray(sums.prior_curvature(problem, problem.array(m)), np.float64)
    hot = gaussian.tempered(T)

    def density(x: np.ndarray) -> np.ndarray:
        away = hot.spread(x)
        with np.errstate(over="ignore", invalid="ignore"):
            prior = sums.differences(alone, m + away, m) - away @ slope
            return (prior + np.sum((away @ curvature) * away, 1) / 2) / T - np.sum(x**2, 1) / 2

    return density


@stage("other modes", whole=True)
def directions(
    density: Density, d: int, rng: np.random.Generator, points: int = VALLEY_POINTS
) -> list[Float[np.ndarray, " d"]]:
    """Unit vectors u of whitened x along which `density` rises behind a valley."""
    scale = np.repeat(SCALES, points // len(SCALES))[:, None]
    x = scale * rng.standard_normal((len(scale), d))
    excess = density(x) + np.sum(x**2, 1) / 2
    left = np.isfinite(excess) & (excess > VALLEY_EXCESS)
    found: list[np.ndarray] = []
    while left.sum() >= FEWEST and len(found) < MOST:
        xi = (x / scale)[left]
        starts = (xi.mean(0), np.linalg.eigh(xi.T @ xi)[1][:, -1])
        turned = (_turned(density, u / np.linalg.norm(u), rng) for u in starts)
        u = next((u for u in turned if u is not None), None)
        edge = None if u is None else _climbs(density, u)
        if u is None or edge is None or any(abs(u @ other) > ALIKE for other in found):
            break
        found.append(u)
        left &= np.abs(x @ u) < EXPLAINED * abs(edge)
    return found


def affordable(problem: Problem) -> int:
    """How many points are looked at: fewer of a density that takes long."""
    return int(np.clip(SECONDS / gradient_price(problem).each, LEAST, VALLEY_POINTS))


def _turned(
    density: Density, u: Float[np.ndarray, " d"], rng: np.random.Generator
) -> Float[np.ndarray, " d"] | None:
    """u turned to what is behind the valley of its ray; None where it has none.

    Of points around the place where the ray climbs out of the valley half are behind it: the way from the mean of the
    others to theirs.
    """
    ways = np.zeros_like(u)
    for _ in range(VALLEY_ROUNDS):
        edge = _climbs(density, u)
        if edge is None:
            return None
        xi = rng.standard_normal((max(DRAWS, 4 * len(u)), len(u)))
        x = edge * u + AROUND * xi
        beyond = density(x) + np.sum(x**2, 1) / 2 > VALLEY_EXCESS
        if not FEWEST <= beyond.sum() <= len(xi) - FEWEST:
            break
        ways += xi[beyond].mean(0) - xi[~beyond].mean(0)
        u = ways / np.linalg.norm(ways)
    return u if _climbs(density, u) is not None else None


def _climbs(density: Density, u: Float[np.ndarray, " d"]) -> float | None:
    """t at which a ray climbs fastest out of its deepest valley, of both sides; None where it has none."""
    best, at = RISE, None
    for sign in (1.0, -1.0):
        value = np.append(0.0, density(sign * REACH[:, None] * u))
        value = np.where(np.isfinite(value), value, -1e30)
        rise = value - np.minimum.accumulate(value)
        top = int(np.argmax(rise))
        if rise[top] > best:
            steepest = int(np.argmax(np.diff(value[: top + 1])))
            best, at = float(rise[top]), sign * float(REACH[steepest])
    return at
