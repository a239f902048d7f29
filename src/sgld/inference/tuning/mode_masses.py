"""Mass of each of several modes, measured from exact chains confined to them.

Bridge sampling estimates the integral of a density over a region, from draws there and from a
Gaussian. With draws of p / Z, n_p effective ones, and n_q of a normal density q,

    Z = average_q[ p h ] / average_p[ q h ],     h = 1 / (s_p p / Z + s_q q),   s = n / (n_p + n_q),

is the estimator of least error (Meng & Wong 1996), solved by iteration. q has mean and covariance
of the first half of the chains' draws, and the second half estimates the averages: with the same
draws for both, Z would be too large. Both averages are of bounded functions, whatever the tails of
p, and p is 0 outside of the region. The relative squared error is (Fruehwirth-Schnatter 2004)

    Var_q(f) / (n_q E_q(f)^2) + Var_p(g) / (ESS(g) E_p(g)^2),     f = p h, g = q h,

with ESS over all chains, including the variance between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ...approximation.modes import KnownModes
from ...core.progress import stage
from ...data.source import generator
from ...model import sums
from ...model.problem import Problem
from ...results import mixing
from ...samplers.confined_hmc import Regions
from .ensemble import around

# -- bridge --------------------------------------------------------------------------------


# draws of p, and as many of q, at which log p is computed
FIRST_BRIDGE_DRAWS, MAX_BRIDGE_DRAWS = 2**11, 2**14
MAX_LOG_MASS_SE = 0.005  # standard error of log Z at which no more draws are used
MIN_BRIDGE_ESS = 100  # effective draws, by their weights, of an average
MAX_BRIDGE_ITERATIONS = 200


class Bridge(NamedTuple):
    """log Z and its standard error; inf if the draws of p and q do not overlap."""

    log_z: float
    se: float


def bridge(p: Float[np.ndarray, "chain draw"], q: Float[np.ndarray, " other"]) -> Bridge:
    """Estimate log Z from log p - log q at draws of p and at draws of q (-inf where p is 0)."""
    if not np.isfinite(p).all() or np.isnan(q).any() or not np.isfinite(q).any():
        return Bridge(float("nan"), float("inf"))
    middle, effective = float(np.median(p)), float(p.size)
    log_z = 0.0
    for _ in range(2):  # the second time with the effective number of draws
        s_p = effective / (effective + q.size)
        for _ in range(MAX_BRIDGE_ITERATIONS):
            f = _share(q - middle - log_z, s_p)
            g = _share_of_q(p - middle - log_z, s_p)
            with np.errstate(divide="ignore"):
                change = float(np.log(f.mean()) - np.log(g.mean()))
            if not np.isfinite(change):
                return Bridge(float("nan"), float("inf"))
            log_z += change
            if abs(change) < 1e-8:
                break
        ess = _effective(g)
        effective = min(max(ess, 1.0), float(p.size))
    rests_on = min(_counted(f), _counted(g.ravel()))
    if not rests_on >= MIN_BRIDGE_ESS:
        return Bridge(middle + log_z, float("inf"))
    variance = f.var() / (q.size * f.mean() ** 2) + g.var() / (effective * g.mean() ** 2)
    return Bridge(middle + log_z, float(np.sqrt(variance)))


def _share(log_ratio: np.ndarray, s_p: float) -> np.ndarray:
    """Return p / Z h for log(p / (Z q))."""
    with np.errstate(over="ignore", divide="ignore"):
        return 1 / (s_p + (1 - s_p) * np.exp(-log_ratio))


def _share_of_q(log_ratio: np.ndarray, s_p: float) -> np.ndarray:
    """Return q h for log(p / (Z q))."""
    with np.errstate(over="ignore"):
        return 1 / (s_p * np.exp(log_ratio) + (1 - s_p))


def _effective(g: Float[np.ndarray, "chain draw"]) -> float:
    """Return the effective draws of the mean of g; all draws if g does not vary."""
    if g.std() <= 1e-9 * abs(g.mean()):
        return float(g.size)
    return float(np.nan_to_num(mixing.ess(g[..., None], "mean")[0], nan=1.0))


def _counted(weights: np.ndarray) -> float:
    """Return how many equal weights would average as well."""
    return float(weights.sum() ** 2 / max(float((weights**2).sum()), 1e-300))


def integral(
    problem: Problem,
    inside: Callable[[np.ndarray], np.ndarray],
    z: Float[np.ndarray, "chain draw d"],
    center: Float[np.ndarray, " d"],
    rng: np.random.Generator,
) -> Bridge:
    """Estimate the log of the integral of p / p(center) over the region of the draws z.

    `inside` returns for positions [n, d] whether they lie in the region.
    """
    half, d = z.shape[1] // 2, z.shape[-1]
    first, second = z[:, :half].reshape(-1, d).astype(np.float64), z[:, half:]
    mean, local = first.mean(0), around(problem, center)
    at = np.asarray(local.target.center, np.float64)
    try:
        factor = np.linalg.cholesky(np.cov(first, rowvar=False).reshape(d, d))
    except np.linalg.LinAlgError:
        return Bridge(float("nan"), float("inf"))
    constant = -np.sum(np.log(np.diag(factor))) - d / 2 * np.log(2 * np.pi)

    def log_ratio(points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        white = np.linalg.solve(factor, (points - mean).T)
        q = constant - 0.5 * np.sum(white**2, axis=0)
        return sums.log_densities(local, points - at) - q

    count = FIRST_BRIDGE_DRAWS
    while True:
        each = np.unique(
            np.linspace(0, second.shape[1] - 1, -(-count // len(z))).round().astype(int)
        )
        p = log_ratio(second[:, each].reshape(-1, d)).reshape(len(z), -1)
        # rounded to the precision of the density
        points = mean + rng.standard_normal((count, d)) @ factor.T
        points = np.asarray(problem.array(points), np.float64)
        q = np.where(inside(points), log_ratio(points), -np.inf)
        found = bridge(p, np.where(np.isnan(q), -np.inf, q))
        if found.se <= MAX_LOG_MASS_SE or count >= MAX_BRIDGE_DRAWS or len(each) == second.shape[1]:
            return found
        count *= 2


# -- weigh ---------------------------------------------------------------------------------


BRIDGE_STREAM = 6  # the stream of the host's generator that the bridges use
UNKNOWN_SE = 10.0  # standard error of an unknown log mass


class Masses(NamedTuple):
    """Shares of the posterior's mass, [mode], and the covariance of their errors."""

    mass: Float[np.ndarray, " mode"]
    covariance: Float[np.ndarray, "mode mode"]


@stage("verdict")
def weigh(
    problem: Problem,
    known: KnownModes,
    regions: Regions,
    z: Float[np.ndarray, "chain draw d"],
    chain: Int[np.ndarray, " chain"],
    seed: int,
) -> Masses:
    """Measure the mass of each mode: by bridge sampling per region, by counts within a region.

    `chain` is the region of each chain. If the bridge fails in a region, it gets Laplace's mass,
    with an error of UNKNOWN_SE.
    """
    group = np.asarray(regions.group)
    count = int(group.max()) + 1
    leaders = np.array([int(np.argmax(group == g)) for g in range(count)])
    heights, slips = _heights(problem, known.z[leaders])
    log_z, se = np.zeros(count), np.zeros(count)
    for g in range(count):

        def inside(points: np.ndarray, g: int = g) -> np.ndarray:
            return group[modes_at(problem, regions, points)] == g

        own = np.flatnonzero(chain == g)
        found = None
        if len(own):
            rng = generator(seed, BRIDGE_STREAM, g)
            found = integral(problem, inside, z[own], known.z[leaders[g]], rng)
        if found is not None and np.isfinite(found.log_z):
            log_z[g], se[g] = (
                found.log_z + heights[g],
                np.hypot(min(found.se, UNKNOWN_SE), slips[g]),
            )
        else:
            # (2 pi)^{d/2} is in every Z and in none of Laplace's masses
            own_modes = known.log_mass[group == g] + known.z.shape[1] / 2 * np.log(2 * np.pi)
            log_z[g] = np.logaddexp.reduce(own_modes) - known.log_density[leaders[0]]
            se[g] = UNKNOWN_SE
    mass = np.exp(log_z - log_z.max())
    mass /= mass.sum()
    slope = np.diag(mass) - np.outer(mass, mass)
    return _within(problem, regions, z, chain, Masses(mass, slope @ np.diag(se**2) @ slope))


def modes_at(
    problem: Problem, regions: Regions, points: Float[np.ndarray, "n d"]
) -> Int[np.ndarray, " n"]:
    """Return the mode that each position belongs to."""
    return np.asarray(_modes(regions, problem.array(points)))


@jax.jit
def _modes(regions: Regions, points: jax.Array) -> jax.Array:
    return jax.vmap(regions.mode)(points)


def counted(
    problem: Problem, regions: Regions, z: Float[np.ndarray, "chain draw d"]
) -> Masses | None:
    """Measure masses by the draws of free chains in each mode; None if chains do not move.

    The errors are those of the shares' means, including the variance between chains.
    """
    places = modes_at(problem, regions, z.reshape(-1, z.shape[-1])).reshape(z.shape[:2])
    there = (places[..., None] == np.arange(len(regions.group))).astype(np.float64)
    mass, ess = there.mean((0, 1)), mixing.ess(there, "mean")
    if not np.nanmin(ess, initial=np.inf) >= MIN_BRIDGE_ESS or np.isnan(ess).all():
        return None
    part = np.diag(mass) - np.outer(mass, mass)
    return Masses(mass, part / np.nanmin(ess))


def _heights(
    problem: Problem, modes: Float[np.ndarray, "k d"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return log p at each mode minus that at the first, and the possible rounding error of it.

    Differences are computed row by row from both ends; their disagreement is the rounding error.
    """
    first = around(problem, modes[0])

    def relative(problem: Problem, z: np.ndarray) -> float:
        at = np.asarray(problem.target.center, np.float64)
        return float(sums.log_densities(problem, (z - at)[None])[0])

    there = np.array([relative(first, z) for z in modes])
    back = np.array([relative(around(problem, z), modes[0]) for z in modes])
    return (there - back) / 2, np.abs(there + back) / 2


def _within(
    problem: Problem, regions: Regions, z: np.ndarray, chain: np.ndarray, of: Masses
) -> Masses:
    """Split the masses of regions among their modes, by the share of draws in each."""
    group = np.asarray(regions.group)
    share, spread = np.ones(len(group)), np.zeros((len(group), len(group)))
    for g in np.flatnonzero(np.bincount(group) > 1):
        own, draws = np.flatnonzero(group == g), z[chain == g]
        if not draws.size:
            share[own] = 1 / len(own)
            continue
        places = modes_at(problem, regions, draws.reshape(-1, z.shape[-1]))
        share[own] = [(places == k).mean() for k in own]
        effective = len(draws) * draws.shape[1] / 10  # about 10 trajectories per independent draw
        part = np.diag(share[own]) - np.outer(share[own], share[own])
        spread[np.ix_(own, own)] = of.mass[g] ** 2 * part / effective
    mass = share * of.mass[group]
    return Masses(mass, np.outer(share, share) * of.covariance[np.ix_(group, group)] + spread)
