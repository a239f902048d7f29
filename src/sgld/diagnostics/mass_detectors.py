"""Detectors of mass that the Gaussian at the mode does not show: narrow modes, shells and valleys.

**Modes narrower than the known one, in few parameters.** Rays and shells consist of a few lines,
and a mode a tenth as wide as the known one lies between them. In up to four dimensions, Sobol
points cover space itself. They are spread evenly over log |x| and over directions,

    z = m + r F v,  |v| = 1,  log r uniform on 0 ... log 400.

The distance to the nearest point grows with r. This is acceptable, since the known mode's log
density falls by r per sd at r sds. A point counts if its density is above the known mode's
Gaussian, and above all its neighbours on the cylinder (v, log r): where the density falls outwards
from the known mode, half of the neighbours are nearer to it, and denser. For modes of equal mass 4
to 12 sds away in random directions, with sds of a tenth, a fifth and .3 of the known one's, it
finds 10, 10, 10 of 10 (d = 1 and 2), 4, 10, 10 (d = 3) and 1, 6, 9 (d = 4).

**Shells.** The mass of shells around the Gaussian is estimated from rays in random directions. A
ray along one parameter sees a wide part of small weight w only by w over the volumes of all
parameters: for a halo ten times as wide in ten of them 1e-10 w. In polar coordinates around the
centre, z = m + t F v with |v| = 1,

    E[t^2; t > r] = int_r^inf t^{d+1} average over v of p(m + t F v) dt / (the same without the 2)

volumes count. Both averages over random directions are unbiased. They are inaccurate if one
direction in sixteen holds nearly all mass, as in a funnel, a ridge or the heaviest tail of many
parameters. The heaviest eighth is therefore left out, and the rays along parameters (`rays`) search
few directions.

The share is at most .005 on well-behaved reference posteriors, .09 on eight schools, non-centred
(.1 to .9 with all rays), and .07 on three Student-t with 5 degrees. It is .6 on a 2% halo eight to
twelve times as wide in ten dimensions, .14 to .24 where its widths are 3 to 10, and .11 to .25
where they are 5 to 15 in thirty dimensions (three seeds).

**Mass behind a valley.** The density may fall from the mode and rise again, along a parameter or
across several. Where a density steps up sharply, no gradient search converges, and a step across
two of thirty parameters lies on no ray of one. In units of the Gaussian, z = m + F x, the excess
over it

    e(x) = log p(m + F x) - log p(m) + |x|^2 / 2

is 0 for a Gaussian. Beyond a plane u.x = a on which log p steps up by h, the excess is h. Of points
drawn 1.4, 2 and 3 sds wide, some lie there: their mean points along u, or that of their squares if
there are planes on both sides. Points drawn around the crossing of that ray and the plane improve
u, and a ray over all rows measures the mass there.

The likelihood of some of many rows is wider than that of all rows, and hides a step of the prior
within the posterior. There the likelihood is replaced by its Gaussian, with the whole prior, and no
row is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

from ..approximation.laplace import Laplace
from ..approximation.rays import GAUSSIAN_SDS, MIN_RISE_SDS, Ray
from ..core.progress import stage
from ..model import sums
from ..model.cost import gradient_cost
from ..model.problem import Problem

# parameters; with five, points are as far apart as the known mode is wide
MAX_GRID_DIM, MAX_CLOUD_DIM = 4, 20
MAX_CLOUD_POINTS, MAX_CLOUD_WORK = 2**14, 2**23  # points; rows x points
MAX_CLOUD_SDS = 400.0  # sds
MIN_CLOUD_SDS = 1.3  # sds; nearer points are as close to the known mode as to each other
MIN_LOGP_EXCESS = 1.0  # log density above the known mode's Gaussian
NEIGHBOURS = 3  # for each of the 2^d corners of a cell
# densest points that are compared with their neighbours; tops that are returned
DENSEST_POINTS, MAX_CLOUD_TOPS = 1024, 8
CONE_COSINE = np.cos(np.pi / 6)

Values = Float[np.ndarray, " n"]
Numbers = Int[np.ndarray, " m"]


@stage("other modes", whole=True)
def tops_of_cloud(
    problem: Problem, gaussian, temperature: float = 1.0
) -> list[tuple[float, tuple[float, ...]]]:
    """Return the densest points that exceed all their neighbours, as (log density, free position).

    The log density is relative to the centre's. `gaussian` is that of `problem` itself, whose
    centre is a mode.
    """
    from scipy.stats import qmc  # half a second to import

    d = problem.dimension
    if d > MAX_CLOUD_DIM:
        return []
    count = 2 ** int(
        np.log2(min(2 ** (7 + 3 * d), MAX_CLOUD_POINTS, MAX_CLOUD_WORK // max(1, problem.num_data)))
    )
    u = qmc.Sobol(d + 1, rng=0).random(count)
    xi = ndtri(u[:, :d])
    v = xi / np.linalg.norm(xi, axis=1)[:, None]
    log_r = np.log(MAX_CLOUD_SDS) * u[:, d]
    z = gaussian.center + gaussian.tempered(temperature).spread(np.exp(log_r)[:, None] * v)
    with np.errstate(over="ignore"):  # far out, in float32
        value = sums.differences(problem, z, gaussian.center) / temperature
    value = np.where(np.isfinite(value), value, -np.inf)
    more = (log_r > np.log(MIN_CLOUD_SDS)) & (value > MIN_LOGP_EXCESS - np.exp(2 * log_r) / 2)
    more = np.flatnonzero(more)
    more = more[np.argsort(-value[more])][:DENSEST_POINTS]
    tops = _topping(v, log_r, value, more) if d <= MAX_GRID_DIM else _apart(v, more)
    return [(float(value[k]), tuple(z[k])) for k in tops]


def _topping(
    v: Float[np.ndarray, "n d"], log_r: Values, value: Values, more: Numbers
) -> Int[np.ndarray, " k"]:
    """Return those of `more` whose density is above that of all their neighbours."""
    from scipy.spatial import KDTree

    cylinder = np.column_stack([v, log_r])
    around = np.asarray(KDTree(cylinder).query(cylinder[more], NEIGHBOURS * 2 ** v.shape[1] + 1)[1])
    return more[value[more] > value[around[:, 1:]].max(axis=1)][:MAX_CLOUD_TOPS]


def _apart(v: Float[np.ndarray, "n d"], more: Numbers) -> list[int]:
    """Return the first of `more` in each cone of directions."""
    tops: list[int] = []
    for k in more:
        if len(tops) < MAX_CLOUD_TOPS and all(v[k] @ v[other] < CONE_COSINE for other in tops):
            tops.append(int(k))
    return tops


# -- shells --------------------------------------------------------------------------------


# share of the second moment beyond the edge that is suspicious: 5% of all sds
MIN_SHELL_SHARE = 0.1

SHELL_DIRECTIONS, IGNORED_RAYS = 32, 8  # directions, to both sides; heaviest rays to leave out
SHELL_INSIDE = 17
SHELL_OUTSIDE = np.append(1.3 ** np.arange(1, 17), 1.3**16 * 1.9 ** np.arange(1, 11))
REFINED_POINTS = 16  # new points around the outer top
REFINEMENT_ROUNDS = 2  # rounds of refinement
MAX_LOG_LOSS = 60.0  # log integrand below the inner top beyond which refinement is useless
SHELL_POINTS = 12  # points of integration per segment


class Shells(NamedTuple):
    """Share of the second moment beyond the whitened distance `edge`, and where most of it lies."""

    share: float
    edge: float
    at: Float[np.ndarray, " d"]
    distance: float


@stage("other modes", whole=True)
def shells(
    problem: Problem, gaussian, rng: np.random.Generator, temperature: float = 1.0
) -> Shells:
    """Estimate the mass of shells from random directions around the centre of `gaussian`.

    `gaussian` is that of `problem` itself. The edge is d^(1/2) + 4, since a normal vector's length
    is d^(1/2) +- .7.
    """
    d = problem.dimension
    v = rng.standard_normal((SHELL_DIRECTIONS, d))
    v = gaussian.tempered(temperature).spread(v / np.linalg.norm(v, axis=1)[:, None])
    v = np.concatenate([v, -v])
    edge = np.sqrt(d) + GAUSSIAN_SDS
    t = np.append(
        np.linspace(max(0.0, np.sqrt(d) - GAUSSIAN_SDS), edge, SHELL_INSIDE), edge * SHELL_OUTSIDE
    )
    log = _log_integrand(problem, gaussian.center, v, t, temperature)
    for _ in range(REFINEMENT_ROUNDS):
        outer = np.where(t > edge, log.max(axis=0), -np.inf)
        top = int(np.argmax(outer))
        if not outer[top] > log[:, t <= edge].max() - MAX_LOG_LOSS:
            break
        cut = np.linspace(t[top - 1], t[min(top + 1, len(t) - 1)], REFINED_POINTS + 2)[1:-1]
        more = _log_integrand(problem, gaussian.center, v, cut, temperature)
        order = np.argsort(t := np.append(t, cut), kind="stable")
        t, log = t[order], np.concatenate([log, more], axis=1)[:, order]
    return _found(t, log, v, edge, gaussian.center)


def _log_integrand(
    problem: Problem, center: np.ndarray, v: np.ndarray, t: np.ndarray, T: float
) -> Float[np.ndarray, "ray t"]:
    """Return (d + 1) log t + log p / T, relative to the log density at the centre.

    It is -inf where the density is not finite.
    """
    with np.errstate(over="ignore", divide="ignore"):  # far out, in float32, and t = 0
        points = center + (v[:, None] * t[:, None]).reshape(-1, center.size)
        values = sums.differences(problem, points, center).reshape(len(v), len(t)) / T
        log = (center.size + 1) * np.log(t) + values
    return np.where(np.isfinite(log), log, -np.inf)


def _found(
    t: np.ndarray, log: np.ndarray, v: np.ndarray, edge: float, center: np.ndarray
) -> Shells:
    """Compute both integrals, with a log integrand that is linear between the points."""
    step = np.linspace(0, 1, SHELL_POINTS, endpoint=False)
    fine = np.append((t[:-1, None] + np.diff(t)[:, None] * step).ravel(), t[-1])
    values = np.exp(
        np.array([np.interp(fine, t, np.maximum(ray, -1e30)) for ray in log]) - log.max()
    )
    mass = np.diff(fine) * (values[:, 1:] + values[:, :-1]) / 2
    far = (fine[1:] + fine[:-1]) / 2 > edge
    each, near = mass[:, far].sum(axis=1), mass[:, ~far].sum(axis=1).mean()
    order = np.argsort(-each)[IGNORED_RAYS:]
    outside, ray = each[order].mean(), order[0]
    below = np.cumsum(mass[ray, far])
    distance = float(fine[1:][far][np.searchsorted(below, below[-1] / 2)])
    share = float(outside / max(outside + near, 1e-300))
    return Shells(share, edge, center + distance * v[ray], distance)


# -- valleys -------------------------------------------------------------------------------


VALLEY_SDS, VALLEY_POINTS = (1.4, 2.0, 3.0), 1536  # sds of the points; their number
# least number of points; predicted seconds that more of them may take
MIN_VALLEY_POINTS, MAX_VALLEY_SECONDS = 192, 1.0
# excess of points that count; their least number
MIN_VALLEY_EXCESS, MIN_EXCESS_POINTS = 1.0, 8
# directions; share of the way to its edge beyond which a direction explains points
MAX_VALLEYS, MIN_WAY_SHARE = 4, 0.5
# least number of points, their sds around a point of a ray, and rounds of turning it
MIN_TURNING_POINTS, TURNING_SDS, VALLEY_ROUNDS = 1024, 0.5, 3
TURNED_RAY_SDS = np.arange(0.25, 12.01, 0.25)  # sds along the rays that are turned
MIN_SAME_COSINE = 0.8  # cosine from which two directions count as the same
MIN_HILL_LOGP = 1.0  # log density of a hill above the valley
# share of the second moment behind a valley that is suspicious: 5% of an sd, or .3 sds of a mean
MIN_VALLEY_SHARE = 0.1

Density = Callable[[Float[np.ndarray, "m d"]], Float[np.ndarray, " m"]]


class Behind(NamedTuple):
    """Distance of a valley in sds, share of the second moment beyond it, and its t."""

    edge: float
    share: float
    place: float


def behind(ray: Ray) -> list[Behind]:
    """Return what lies behind a ray's deepest valley on each side, unless it is small."""
    found = []
    for sign in (1.0, -1.0):
        side = sign * ray.t >= 0
        t, value = np.abs(ray.t[side]), ray.value[side]
        order = np.argsort(t)
        t, value = t[order], np.maximum(np.where(np.isposinf(value), -1e30, value)[order], -1e30)
        rise = value - np.minimum.accumulate(value)
        top = int(np.argmax(rise))
        if not (rise[top] > MIN_HILL_LOGP and t[top] > MIN_RISE_SDS):
            continue
        edge = float(t[: top + 1][np.argmin(value[: top + 1])])
        sides = [far for far in ray.sides(near=edge) if far.place * sign > 0]
        found += [
            Behind(edge, far.share, far.place) for far in sides if far.share > MIN_VALLEY_SHARE
        ]
    return found


def of_prior(problem: Problem, gaussian: Laplace, T: float) -> Density:
    """Return log p / T of whitened x with the whole prior, and the likelihood as its Gaussian.

    The Gaussian is that at the mode; no row is read.
    """
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
    """Return unit vectors u of whitened x along which `density` rises behind a valley."""
    scale = np.repeat(VALLEY_SDS, points // len(VALLEY_SDS))[:, None]
    x = scale * rng.standard_normal((len(scale), d))
    excess = density(x) + np.sum(x**2, 1) / 2
    left = np.isfinite(excess) & (excess > MIN_VALLEY_EXCESS)
    found: list[np.ndarray] = []
    while left.sum() >= MIN_EXCESS_POINTS and len(found) < MAX_VALLEYS:
        xi = (x / scale)[left]
        starts = (xi.mean(0), np.linalg.eigh(xi.T @ xi)[1][:, -1])
        turned = (_turned(density, u / np.linalg.norm(u), rng) for u in starts)
        u = next((u for u in turned if u is not None), None)
        edge = None if u is None else _climbs(density, u)
        if u is None or edge is None or any(abs(u @ other) > MIN_SAME_COSINE for other in found):
            break
        found.append(u)
        left &= np.abs(x @ u) < MIN_WAY_SHARE * abs(edge)
    return found


def affordable(problem: Problem) -> int:
    """Return the number of points to evaluate: fewer for a slow density."""
    return int(
        np.clip(MAX_VALLEY_SECONDS / gradient_cost(problem).each, MIN_VALLEY_POINTS, VALLEY_POINTS)
    )


def _turned(
    density: Density, u: Float[np.ndarray, " d"], rng: np.random.Generator
) -> Float[np.ndarray, " d"] | None:
    """Turn u towards the mass behind the valley of its ray; return None if there is no valley.

    Points are drawn around the place where the ray climbs out of the valley, half of them behind
    it. The new direction goes from the mean of the others to the mean of these.
    """
    ways = np.zeros_like(u)
    for _ in range(VALLEY_ROUNDS):
        edge = _climbs(density, u)
        if edge is None:
            return None
        xi = rng.standard_normal((max(MIN_TURNING_POINTS, 4 * len(u)), len(u)))
        x = edge * u + TURNING_SDS * xi
        beyond = density(x) + np.sum(x**2, 1) / 2 > MIN_VALLEY_EXCESS
        if not MIN_EXCESS_POINTS <= beyond.sum() <= len(xi) - MIN_EXCESS_POINTS:
            break
        ways += xi[beyond].mean(0) - xi[~beyond].mean(0)
        u = ways / np.linalg.norm(ways)
    return u if _climbs(density, u) is not None else None


def _climbs(density: Density, u: Float[np.ndarray, " d"]) -> float | None:
    """Return the t at which a ray climbs fastest out of its deepest valley; None without one."""
    best, at = MIN_HILL_LOGP, None
    for sign in (1.0, -1.0):
        value = np.append(0.0, density(sign * TURNED_RAY_SDS[:, None] * u))
        value = np.where(np.isfinite(value), value, -1e30)
        rise = value - np.minimum.accumulate(value)
        top = int(np.argmax(rise))
        if rise[top] > best:
            steepest = int(np.argmax(np.diff(value[: top + 1])))
            best, at = float(rise[top]), sign * float(TURNED_RAY_SDS[steepest])
    return at
