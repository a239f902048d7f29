"""How much of the mass each of several modes holds, measured from exact chains that were kept in them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ..approximation.modes import KnownModes
from ..core.progress import stage
from ..data.source import generator
from ..model import sums
from ..model.problem import Problem
from ..results import mixing
from ..samplers.confined_hmc import Regions
from .bridge import FEWEST, integral
from .energy import around

__all__ = ["Masses", "counted", "places_of", "weigh"]

WEIGHING = 6  # the stream of the host's generator that the bridges use
UNCERTAIN = 10.0  # standard error of a log mass of which nothing is known


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
    """Bridge sampling in every region; within a region of several modes, by how many draws each has.

    `chain` is the region of each chain. A region that the bridge says nothing of has Laplace's mass,
    and an error that says so.
    """
    group = np.asarray(regions.group)
    count = int(group.max()) + 1
    leaders = np.array([int(np.argmax(group == g)) for g in range(count)])
    heights, slips = _heights(problem, known.z[leaders])
    log_z, se = np.zeros(count), np.zeros(count)
    for g in range(count):

        def inside(points: np.ndarray, g: int = g) -> np.ndarray:
            return group[places_of(problem, regions, points)] == g

        own = np.flatnonzero(chain == g)
        found = None
        if len(own):
            rng = generator(seed, WEIGHING, g)
            found = integral(problem, inside, z[own], known.z[leaders[g]], rng)
        if found is not None and np.isfinite(found.log_z):
            log_z[g], se[g] = found.log_z + heights[g], np.hypot(min(found.se, UNCERTAIN), slips[g])
        else:
            # (2 pi)^{d/2} is in every Z and in none of Laplace's masses
            own_modes = known.log_mass[group == g] + known.z.shape[1] / 2 * np.log(2 * np.pi)
            log_z[g] = np.logaddexp.reduce(own_modes) - known.log_density[leaders[0]]
            se[g] = UNCERTAIN
    mass = np.exp(log_z - log_z.max())
    mass /= mass.sum()
    slope = np.diag(mass) - np.outer(mass, mass)
    return _within(problem, regions, z, chain, Masses(mass, slope @ np.diag(se**2) @ slope))


def places_of(
    problem: Problem, regions: Regions, points: Float[np.ndarray, "n d"]
) -> Int[np.ndarray, " n"]:
    """The mode that each position belongs to."""
    return np.asarray(_modes(regions, problem.array(points)))


@jax.jit
def _modes(regions: Regions, points: jax.Array) -> jax.Array:
    return jax.vmap(regions.mode)(points)


def counted(
    problem: Problem, regions: Regions, z: Float[np.ndarray, "chain draw d"]
) -> Masses | None:
    """By how many draws of chains that move freely lie in each mode; None where they do not move.

    The errors are those of the shares' means, the variance between chains included.
    """
    places = places_of(problem, regions, z.reshape(-1, z.shape[-1])).reshape(z.shape[:2])
    there = (places[..., None] == np.arange(len(regions.group))).astype(np.float64)
    mass, ess = there.mean((0, 1)), mixing.ess(there, "mean")
    if not np.nanmin(ess, initial=np.inf) >= FEWEST or np.isnan(ess).all():
        return None
    part = np.diag(mass) - np.outer(mass, mass)
    return Masses(mass, part / np.nanmin(ess))


def _heights(
    problem: Problem, modes: Float[np.ndarray, "k d"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """log p at each mode, less that at the first, and by how much rounding may have put it wrong.

    Differences are taken row by row, from here and from there: what they do not agree on is rounding.
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
    """Masses of modes from those of regions: by the share of a region's draws that lie in each."""
    group = np.asarray(regions.group)
    share, spread = np.ones(len(group)), np.zeros((len(group), len(group)))
    for g in np.flatnonzero(np.bincount(group) > 1):
        own, draws = np.flatnonzero(group == g), z[chain == g]
        if not draws.size:
            share[own] = 1 / len(own)
            continue
        places = places_of(problem, regions, draws.reshape(-1, z.shape[-1]))
        share[own] = [(places == k).mean() for k in own]
        effective = len(draws) * draws.shape[1] / 10  # trajectories that forget
        part = np.diag(share[own]) - np.outer(share[own], share[own])
        spread[np.ix_(own, own)] = of.mass[g] ** 2 * part / effective
    mass = share * of.mass[group]
    return Masses(mass, np.outer(share, share) * of.covariance[np.ix_(group, group)] + spread)
