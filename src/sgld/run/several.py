"""Draws of chains that were kept in modes, weighed by what each mode holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from ..approximation.laplace import laplace_at
from ..approximation.modes import KnownModes
from ..metropolis.weigh import counted, places_of, weigh
from ..model import sums
from ..model.problem import Problem
from ..results.draws import Draws
from ..results.plan import Plan
from ..results.verdict import Modes
from ..samplers.confined_hmc import ConfinedHMC, Regions
from ..tune.from_modes import regions_of
from .outcome import modes_told

__all__ = ["regions_of_chains", "weighed"]


def regions_of_chains(
    problem: Problem, plan: Plan, z: Float[np.ndarray, "chain draw d"]
) -> Int[np.ndarray, " chain"] | None:
    """The region that each chain is kept in; None where chains are free."""
    sampler = plan.setup.sampler
    if not isinstance(sampler, ConfinedHMC):
        return None
    return np.asarray(sampler.regions.group)[places_of(problem, sampler.regions, z[:, 0])]


def weighed(
    problem: Problem, plan: Plan, draws: Draws, z: Float[np.ndarray, "chain draw d"], seed: int
) -> Draws:
    """With measured masses in `draws.modes`, and weights by them.

    Chains that are free weigh the modes by themselves, and are counted where they are exact.
    The draws of a region have its mass together. A region in which no chain is left keeps Laplace's
    mass, of which nothing is known, and no draws.
    """
    chain, healthy = regions_of_chains(problem, plan, z), draws.healthy
    sampler = plan.setup.sampler
    if not healthy.size:
        return draws
    if chain is None or not isinstance(sampler, ConfinedHMC):
        return _counted(problem, plan, draws, z[healthy])
    regions = sampler.regions
    known = _known(problem, regions)
    found = weigh(problem, known, regions, z[healthy], chain[healthy], seed)
    told = replace(
        modes_told(problem, known), mass=found.mass, covariance=found.covariance,
        group=np.asarray(regions.group), chain=chain,
    )  # fmt: skip
    info = {**draws.info, "modes": told.to_dict()}
    return replace(draws, info=info, log_weight=draws.log_weight + _log_weights(draws, told))


def _counted(problem: Problem, plan: Plan, draws: Draws, z: np.ndarray) -> Draws:
    """The masses by how many draws of free chains lie near each mode, where that is something to go by."""
    modes, known = draws.modes, plan.known.modes
    if modes is None or known is None or not plan.setup.exact:
        return draws
    at = [laplace_at(problem, place) for place in known.z]
    if not all(gaussian.positive_definite for gaussian in at):
        return draws
    regions = regions_of(problem, at, known.log_density)
    found = counted(problem, regions, z)
    if found is None:
        return draws
    told = replace(modes, mass=found.mass, covariance=found.covariance)
    return replace(draws, info={**draws.info, "modes": told.to_dict()})


def _known(problem: Problem, regions: Regions) -> KnownModes:
    """The modes of the regions: those that the run was planned with, whatever is found another time."""
    z = np.asarray(regions.center, np.float64)
    first = float(sums.log_density(problem, problem.array(z[0])))
    height = np.asarray(regions.height, np.float64)
    volume = -np.linalg.slogdet(np.asarray(regions.inverse, np.float64))[1]
    return KnownModes(z, first + height, height + volume)


def _log_weights(draws: Draws, modes: Modes) -> Float[np.ndarray, "chain 1"]:
    """log of each region's mass over its chains."""
    assert modes.group is not None and modes.chain is not None
    count = int(modes.group.max()) + 1
    mass = np.bincount(modes.group, modes.mass, count)
    chains = np.bincount(modes.chain[draws.healthy], minlength=count)
    return np.log(np.maximum(mass / np.maximum(chains, 1), 1e-300))[modes.chain, None]
