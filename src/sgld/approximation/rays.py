"""Tail and mode checks: the density along rays from the centre, far beyond the Gaussian.

The ray of parameter i is m + t Sigma e_i / sd_i, with t in sds. Where the posterior is Gaussian, its
density there is that parameter's marginal, exp(-t^2 / 2). It is evaluated on both sides at 1, 2, 3
and 4, 4 x 1.9, ... 1e5 sds. Where that costs little, the points are .5 apart up to 12 sds, 1 up to 40 and 3
up to 400. Wherever the density rises outwards, the maximum is located. Then

    share = int_{|t| > 4} t^2 p(t) dt / int t^2 p(t) dt

is .001 for a Gaussian, up to .03 on well-behaved posteriors and .2 for a Student-t with 5 degrees of
freedom. It is near 1 where a halo, a shoulder, a plateau or another mode holds mass that the Gaussian does
not represent. A sampler that starts within the Gaussian may never reach that mass, and a meter based on the
Gaussian does not detect it.

Profiles are bent rays, with the other parameters maximised at each point.

A straight ray leaves a curved plateau at once. An example is a curve a (1 - exp(-r x)) that is flat above some
rate r: near the mode log r and a follow a line together, but far out log r alone is free. The others are
maximised where the gradient at 4 and 14 sds shows that they would gain by moving. They are also maximised where
their curvature shows that they are wider than at the mode, as in a halo of some of many parameters:

    p(t) ~ max over the others of the density at theta_i = m_i + t sd_i, times det(J_others)^{-1/2},

the marginal by Laplace's approximation (Tierney & Kadane 1986).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..core.progress import stage
from ..model import sums
from ..model.problem import Problem
from .laplace import Laplace

GAUSSIAN_SDS = 4.0  # sds up to which the Gaussian is trusted
MIN_RISE_SDS = 1.5  # sds beyond which a rise may belong to another mode
INSIDE_SDS, OUTSIDE_SDS = (1.0, 2.0, 3.0), GAUSSIAN_SDS * 1.9 ** np.arange(17)
MIN_SUSPECT_SHARE = 0.2  # share of the second moment beyond: an sd off by 11%
# share on one side that is reported separately where both sides together are suspicious
MIN_ONE_SIDED_SHARE = 0.1
# rises that are followed, and how often a bracket is divided into 63 parts
MAX_BRACKETS, BRACKET_ZOOMS = 24, 4
TOP_WINDOW_SDS = 5.0  # half-width of the window around a maximum, in its own sds
RAY_SEGMENT_POINTS = 24  # integration points of a segment
MIN_LOGP = -1e3  # log density below which the density counts as 0
# a mode as narrow as the known one, on a plateau with an e^5 times lower density, rises over 6 sds: outliers in a
# likelihood with occasional errors cause such modes; a likelihood with a step at t sds causes one that is 1 / t sds wide
FINE_SDS = np.concatenate([
    np.arange(GAUSSIAN_SDS, 12, 0.5), np.arange(12, 40, 1.0), np.arange(40, 400, 3.0), 400 * 1.9 ** np.arange(10),
])  # fmt: skip
FINE_INSIDE_SDS = np.arange(0.5, GAUSSIAN_SDS, 0.5)
MAX_FINE_WORK = 2**29  # rows x parameters x points of all rays up to which the fine grid is used
MAX_RAY_WORK = 2**34  # rows x parameters x points; above it, only some parameters have rays
MAX_POINT_NUMBERS = 2**22  # numbers of the points that are evaluated together
NO_SINGLE_PARAMETER = -1  # the parameter of a ray along several parameters

Values = Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Ray:
    """The density along one ray: t in sds, log density relative to that at the centre, over T.

    Attributes:
      parameter: the parameter's index.
      direction: Sigma e_i / sd_i, in free coordinates.
      t, value: ascending.
      tops: (t, value) of the maxima beyond `MIN_RISE_SDS` sds.
      bent: free positions [n, d] at t, where the ray is not a straight line.
    """

    parameter: int
    direction: Float[np.ndarray, " d"]
    t: Values
    value: Values
    tops: tuple[tuple[float, float], ...] = ()
    bent: Float[np.ndarray, "n d"] | None = None

    def position(self, center: Float[np.ndarray, " d"], t: float) -> Float[np.ndarray, " d"]:
        """Return the point at t sds on the ray from `center`; the nearest known one if bent."""
        if self.bent is None:
            return center + t * self.direction
        return self.bent[np.argmin(np.abs(self.t - t))]

    @property
    def share(self) -> float:
        """The share of the second moment beyond `GAUSSIAN_SDS` sds."""
        return sum(far.share for far in self.sides())

    def sides(
        self, known: Sequence[tuple[float, float]] = (), near: float = GAUSSIAN_SDS
    ) -> list[Far]:
        """Return for each side the mass beyond `near` sds, outside the `known` intervals of modes.

        The side with more mass comes first; negligible masses are included.
        """
        masses = self._masses(near)
        total = max(masses.far.sum() + masses.near, 1e-300)
        kept = ~within(masses.t, known)
        found = []
        for sign in (1.0, -1.0):
            own = kept & (sign * masses.t > 0)
            far, t = masses.far[own], masses.t[own]
            if far.sum() > 0:
                order = np.argsort(np.abs(t))
                below = np.cumsum(far[order])
                place = float(t[order][np.searchsorted(below, below[-1] / 2)])
                found.append(Far(float(below[-1] / total), place))
        return sorted(found, key=lambda far: -far.share)

    @property
    def infinite(self) -> float | None:
        """The nearest t at which the density is +inf, or None.

        Points beyond a density of nothing are ignored: functions overflow there, as at a scale of 0.
        """
        order = np.argsort(np.abs(self.t), kind="stable")
        for sign in (1, -1):
            t, value = (a[order][sign * self.t[order] >= 0] for a in (self.t, self.value))
            at = int(np.argmax(np.isposinf(value)))
            if np.isposinf(value[at]) and value[:at].min(initial=0.0) > MIN_LOGP:
                return float(t[at])
        return None

    def beyond(self, edge: float, order: int) -> float:
        """Return the share of the central moment of this order beyond `edge` sds."""
        mass, middle = self._moments(order)
        return float(np.sum(mass, where=np.abs(middle) > edge) / max(np.sum(mass), 1e-300))

    def _masses(self, near: float) -> _Masses:
        mass, middle = self._moments(2)
        far = np.abs(middle) > near
        return _Masses(float(mass[~far].sum()), mass[far], middle[far])

    def _moments(self, order: int) -> tuple[Values, Values]:
        """Return t^order p dt on a finer grid, and the t of each piece.

        log p is linear between the points.
        """
        step = np.linspace(0, 1, RAY_SEGMENT_POINTS, endpoint=False)
        t = np.append((self.t[:-1, None] + np.diff(self.t)[:, None] * step).ravel(), self.t[-1])
        finite = np.maximum(np.where(np.isfinite(self.value), self.value, -1e30), -1e30)
        value = np.interp(t, self.t, finite)
        moment = t**order * np.exp(value - value.max())
        return np.diff(t) * (moment[1:] + moment[:-1]) / 2, (t[1:] + t[:-1]) / 2


def within(t: np.ndarray, intervals: Sequence[tuple[float, float]]) -> np.ndarray:
    """Return which t lie in one of the intervals."""
    inside = np.zeros(np.shape(t), bool)
    for low, high in intervals:
        inside |= (t > low) & (t < high)
    return inside


class Far(NamedTuple):
    """One side's share of the second moment, and the t with half of that share farther out."""

    share: float
    place: float


class _Masses(NamedTuple):
    near: float
    far: Values
    t: Values


@stage("other modes", whole=True)
def rays(
    problem: Problem,
    gaussian,
    rng: np.random.Generator,
    temperature: float = 1.0,
    parameters: list[int] | None = None,
    along: Float[np.ndarray, "k d"] | None = None,
) -> list[Ray]:
    """Return the rays of `parameters`, or of all; if they are too many, of a random sample.

    With `along`, unit vectors of whitened x, return the rays along these instead. `gaussian` is that of
    `problem` itself: in the units of a narrower one, all tails look heavy.
    """
    d, center = problem.dimension, gaussian.center
    t = _points(np.asarray(INSIDE_SDS), OUTSIDE_SDS)
    if along is not None:
        chosen = np.full(len(along), NO_SINGLE_PARAMETER)
    elif parameters is None:
        most = max(1, MAX_RAY_WORK // (len(t) * max(1, problem.num_data) * d))
        chosen = np.arange(d) if d <= most else np.sort(rng.choice(d, most, replace=False))
    else:
        chosen = np.asarray(parameters)
    if max(1, problem.num_data) * d * len(chosen) * 2 * len(FINE_SDS) <= MAX_FINE_WORK:
        t = _points(FINE_INSIDE_SDS, FINE_SDS)
    of = partial(density, problem, center, temperature)
    hot = gaussian.tempered(temperature)
    directions = _directions(hot, chosen) if along is None else hot.spread(along)
    at_once = max(1, MAX_POINT_NUMBERS // (len(t) * d))
    values = [
        of((t[:, None] * some[:, None]).reshape(-1, d)).reshape(-1, len(t))
        for some in np.split(directions, range(at_once, len(directions), at_once))
    ]
    found = [
        Ray(int(i), direction, t, value)
        for i, direction, value in zip(chosen, directions, np.concatenate(values), strict=True)
    ]
    rises = [(k, at) for k, ray in enumerate(found) for at in _rises(ray)]
    # the highest first: a noisy density has many
    rises.sort(key=lambda rise: -found[rise[0]].value[rise[1]])
    for k, at in rises[:MAX_BRACKETS]:
        found[k] = _refine_top(found[k], of, t[_bracket(at, len(t))])
    return found


def _points(
    inside: Float[np.ndarray, " near"], outside: Float[np.ndarray, " far"]
) -> Float[np.ndarray, " both_sides"]:
    t = np.append(inside, outside)
    return np.concatenate([-t[::-1], [0.0], t])


def _directions(gaussian, chosen: np.ndarray) -> Float[np.ndarray, "k d"]:
    units = np.zeros((len(chosen), gaussian.center.size))
    units[np.arange(len(chosen)), chosen] = 1.0
    columns = gaussian.spread(gaussian.pull(units))
    sds = np.sqrt(np.maximum(columns[np.arange(len(chosen)), chosen], 1e-300))
    return columns / sds[:, None]


def density(
    problem: Problem, center: np.ndarray, temperature: float, away: Float[np.ndarray, "m d"]
) -> Values:
    """Return (log p(center + away) - log p(center)) / T, or -inf where it is NaN."""
    with np.errstate(over="ignore"):  # far out, in float32
        values = sums.differences(problem, center + away, center) / temperature
    return np.where(np.isnan(values), -np.inf, values)


def _rises(ray: Ray) -> list[int]:
    """Return indices of points beyond `MIN_RISE_SDS` sds that are denser than the one before."""
    t, value = ray.t, np.where(np.isposinf(ray.value), -np.inf, ray.value)
    before = np.where(t > 0, np.roll(value, 1), np.roll(value, -1))
    with np.errstate(invalid="ignore"):
        rising = value > before + 1e-3 + 1e-5 * np.abs(before)
    rising &= np.isfinite(value) & (np.abs(t) >= MIN_RISE_SDS)
    # one per maximum: skip points from which the density rises further
    after = np.where(t > 0, np.roll(value, -1), np.roll(value, 1))
    edge = (np.arange(len(t)) == 0) | (np.arange(len(t)) == len(t) - 1)
    return [int(at) for at in np.flatnonzero(rising & (edge | (after <= value)))]


def _bracket(at: int, count: int) -> list[int]:
    return [max(at - 1, 0), min(at + 1, count - 1)]


def _refine_top(ray: Ray, density, ends: Values) -> Ray:
    """Return the ray with the maximum between two ends, and points around it at its width."""
    low, high = ends
    t, value = ray.t, ray.value
    for _ in range(BRACKET_ZOOMS):
        grid = np.linspace(low, high, sums.ROW_DENSITY_GROUP)
        values = density(grid[:, None] * ray.direction)
        t, value = np.append(t, grid), np.append(value, values)
        top = int(np.argmax(np.where(np.isposinf(values), -np.inf, values)))
        low, high = grid[max(top - 1, 0)], grid[min(top + 1, len(grid) - 1)]
        inner = values[max(top - 1, 0) : top + 2]
        if np.ptp(inner[np.isfinite(inner)]) < 1:  # resolved
            break
    at, wide = grid[top], np.inf
    if 0 < top < len(grid) - 1 and np.isfinite(values[top - 1 : top + 2]).all():
        bend = -np.diff(values[top - 1 : top + 2], 2)[0] / (grid[1] - grid[0]) ** 2
        wide = 1 / np.sqrt(bend) if bend > 0 else np.inf
    wide = min(wide, np.abs(ends - at).max() / TOP_WINDOW_SDS)
    window = at + np.linspace(-TOP_WINDOW_SDS, TOP_WINDOW_SDS, sums.ROW_DENSITY_GROUP) * wide
    t, value = np.append(t, window), np.append(value, density(window[:, None] * ray.direction))
    t, first = np.unique(t, return_index=True)
    tops = ray.tops if abs(at) < MIN_RISE_SDS else (*ray.tops, (float(at), float(values[top])))
    return Ray(ray.parameter, ray.direction, t, value[first], tops)


# -- profiles ------------------------------------------------------------------------------


MAX_FOLLOWED_DIM = 60  # parameters
SLOPE_SDS = OUTSIDE_SDS[[0, 2]]  # 4 and 14 sds
MIN_LOGP_GAIN = 1.0  # gain in log density from which a ray is followed
FOLLOWED_SIDES = 4  # sides of rays that are followed, the most promising ones
MAX_WIDTHS_DIM, FOLLOWED_SIDES_WIDE = 20, 2  # sides with more parameters than this
# steps of Newton's method at each point, and the largest negligible gain
MAX_RAY_STEPS, MIN_NEWTON_GAIN = 12, 1e-2
MIN_MOMENT_LOGP = -40.0  # log density below which the second moment is negligible at any distance
MIN_POINT_RATIO = 1.9**0.25  # ratio of t between neighbouring points


def followed(problem: Problem, gaussian: Any, seen: list[Ray], T: float) -> list[Ray]:
    """Return the bent rays as profiles; straight ones are omitted."""
    if not isinstance(gaussian, Laplace) or not 2 <= problem.dimension <= MAX_FOLLOWED_DIM:
        return []
    found: dict[int, Ray] = {}
    sides = FOLLOWED_SIDES if problem.dimension <= MAX_WIDTHS_DIM else FOLLOWED_SIDES_WIDE
    for k, side in _bent_sides(problem, gaussian, seen, T)[:sides]:
        ray = found.get(k, seen[k])
        t, value, zs = _profile(problem, gaussian, ray, side, T)
        kept = side * ray.t < t[0]
        before = [ray.position(gaussian.center, at) for at in ray.t[kept]]
        order = np.argsort(t := np.append(ray.t[kept], side * t))
        value = np.append(ray.value[kept], value)[order]
        bent = np.concatenate([before, zs])[order]
        found[k] = replace(ray, t=t[order], value=value, tops=(), bent=bent)
    return list(found.values())


def _bent_sides(
    problem: Problem, gaussian: Laplace, seen: list[Ray], T: float
) -> list[tuple[int, float]]:
    """Return the rays and sides whose other parameters gain most, by moving and by their width.

    They gain at least `MIN_LOGP_GAIN`, at a point whose density then matters. With many parameters, widths are
    not computed because they cost too much.
    """
    sides = [(k, s) for k in range(len(seen)) for s in (-1.0, 1.0)]
    points = np.array([
        gaussian.center + s * t * seen[k].direction for k, s in sides for t in SLOPE_SDS
    ])  # fmt: skip
    slopes = sums.gradients(problem, points).reshape(len(sides), len(SLOPE_SDS), -1) / T
    gains = []
    places = points.reshape(len(sides), len(SLOPE_SDS), -1)
    for (k, side), slope, around in zip(sides, slopes, places, strict=True):
        others = np.arange(problem.dimension) != seen[k].parameter
        inverse = np.linalg.inv(gaussian.curvature[np.ix_(others, others)] / T)
        each = np.einsum("ti,ij,tj->t", slope[:, others], inverse, slope[:, others]) / 2
        there = np.interp(side * SLOPE_SDS, seen[k].t, np.nan_to_num(seen[k].value, neginf=-1e30))
        if problem.dimension <= MAX_WIDTHS_DIM:
            each = each + [
                _width_gain(problem, gaussian, z, others) if value > MIN_MOMENT_LOGP else 0.0
                for z, value in zip(around, there, strict=True)
            ]
        gains.append(float(np.max(np.where(there + each > MIN_MOMENT_LOGP, each, 0.0))))
    order = np.argsort(-np.array(gains))
    return [sides[k] for k in order if gains[k] > MIN_LOGP_GAIN]


def _width_gain(
    problem: Problem, gaussian: Laplace, z: Float[np.ndarray, " d"], others: np.ndarray
) -> float:
    """Return the log width of the others at z over that at the mode.

    It is 0 where they are narrower, or the density is convex.
    """
    J = np.asarray(sums.curvature(problem, problem.array(z)), np.float64)[np.ix_(others, others)]
    if not np.isfinite(J).all() or np.linalg.eigvalsh((J + J.T) / 2)[0] <= 0:
        return 0.0
    at_mode = _half_log_det(gaussian.curvature[np.ix_(others, others)])
    return max(0.0, at_mode - _half_log_det(J))


def _profile(
    problem: Problem, gaussian: Laplace, ray: Ray, side: float, T: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, "n d"]]:
    """Return (|t|, log p, z) outwards from the mode, as far as a curvature exists.

    Each point starts from the one before.
    """
    i, d = ray.parameter, problem.dimension
    others = np.arange(d) != i
    sd, base = ray.direction[i], _half_log_det(gaussian.curvature[np.ix_(others, others)])
    z, ts, values, zs = gaussian.center.copy(), [], [], []
    for t in np.geomspace(
        1.0, OUTSIDE_SDS[-1], 1 + int(np.log(OUTSIDE_SDS[-1]) / np.log(MIN_POINT_RATIO))
    ):
        z[i] = gaussian.center[i] + side * t * sd
        z, J = _maximise(problem, z, others)
        value = sums.differences(problem, z[None], gaussian.center)[0] / T
        if not (np.isfinite(value) and np.isfinite(J).all()):
            break
        ts.append(float(t))
        zs.append(z.copy())
        values.append(float(value + base - _half_log_det(J)))
        if value < MIN_MOMENT_LOGP:
            break
    if not ts:
        return np.ones(1), np.full(1, -np.inf), z[None]
    return np.array(ts), np.array(values), np.array(zs)


def _maximise(
    problem: Problem, z: Float[np.ndarray, " d"], others: np.ndarray
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "e e"]]:
    """Maximise over the `others` by Newton's method with positive eigenvalues.

    Returns the position and their curvature, NaN where it is not finite.
    """
    z = z.copy()
    for _ in range(MAX_RAY_STEPS):
        _, slope = sums.value_and_gradient(problem, problem.array(z))
        slope = np.asarray(slope, np.float64)[others]
        J = np.asarray(sums.curvature(problem, problem.array(z)), np.float64)
        J = J[np.ix_(others, others)]
        if not (np.isfinite(J).all() and np.isfinite(slope).all()):
            return z, np.full_like(J, np.nan)
        values, vectors = np.linalg.eigh((J + J.T) / 2)
        values = np.maximum(np.abs(values), 1e-8 * max(float(np.abs(values).max()), 1e-30))
        move = vectors @ ((slope @ vectors) / values)
        if not slope @ move > 2 * MIN_NEWTON_GAIN:
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
    """Return half the log determinant of a curvature, with nonpositive eigenvalues at a floor."""
    values = np.linalg.eigvalsh((J + J.T) / 2)
    floor = 1e-8 * max(float(np.abs(values).max()), 1e-30)
    return float(np.sum(np.log(np.maximum(values, floor))) / 2)
