"""Plans for posteriors of several modes: exact chains confined to each mode.

One metric does not suit modes of different scales, and chains that stay where they start do not
show the mass of each mode. So every mode has its own chains, metric and step, and its chains do not
leave its region (`samplers.confined_hmc`). The mass of a region is measured from them
(`mode_masses.weigh`). Modes between which chains would move, such as neighbours with a shallow
valley, form one region; if all do, no regions are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...approximation.known import Known
from ...approximation.laplace import Laplace, laplace_at
from ...approximation.modes import apart
from ...model.problem import Problem
from ...results.plan import Setup
from ...samplers.confined_hmc import ConfinedHMC, Regions
from ...samplers.gradients.control_variates import Guide
from ...samplers.gradients.full import Full
from ...samplers.preconditioners.fixed import Dense
from ...samplers.schedules import as_schedule
from .ensemble import ENSEMBLE_CHAINS, Ensemble, warmed_up
from .mode_masses import modes_at
from .surrogate import SETTLING_TRAJECTORIES, follow_guide, make_guide

MAX_MODES_WITH_CHAINS = 8  # modes with their own chains, 8 each
# share of trajectories that would leave a region for another, above which the two are merged: modes 4 sds
# apart; with a smaller share free chains would move between them too seldom to weight them
MAX_CROSSING_SHARE = 0.02

MIN_ISOLATION_SDS = 10.0  # sds to the next mode, beyond which no free chain moves
# depth in nats of a valley that no free chain crosses: 5 for a network, 80 for modes 30 sds apart
MIN_ISOLATION_NATS = 10.0

Starts = Callable[[Laplace, int, int], Float[np.ndarray, "count d"]]


def in_modes(problem: Problem, known: Known, seed: int, starts: Starts) -> Setup | None:
    """Return a setup of chains in every mode.

    None if the modes are too many, have no Gaussian, or form one region. `starts(gaussian, count,
    number)` returns dispersed positions around a mode.
    """
    modes = known.modes
    if modes is None or not 2 <= len(modes) <= MAX_MODES_WITH_CHAINS:
        return None
    at = [laplace_at(problem, z) for z in modes.z]
    if not all(gaussian.positive_definite for gaussian in at):
        return None
    guide = make_guide(problem, known, seed)
    regions = regions_of(problem, at, modes.log_density)
    while True:
        found = _warmed_up(problem, at, regions, seed, starts, guide)
        group = _merged(regions.group, np.stack([_left(own) for own in found]))
        if group.max() == 0:
            return None
        if group.max() == np.max(regions.group):
            return _setup(problem, at, regions, found)
        regions = _grouped(regions, group)


def too_many_modes(problem: Problem, known: Known) -> bool:
    """Return whether there are too many modes for chains, and none moves between them.

    Distances are in sds of the Gaussians at the modes. They are no evidence if the density
    continues without a valley far out on the way to other modes, as for a network whose units may
    swap: chains move through there.
    """
    modes = known.modes
    if modes is None or len(modes) <= MAX_MODES_WITH_CHAINS:
        return False
    if any(doubt.valley(modes.z) < MIN_ISOLATION_NATS for doubt in known.doubts):
        return False
    at = [laplace_at(problem, z) for z in modes.z]
    if not all(gaussian.positive_definite for gaussian in at):
        return False
    nearest = [
        min(apart(one, other) for other in at if other is not one)
        for one in at[:MAX_MODES_WITH_CHAINS]
    ]
    return min(nearest) > MIN_ISOLATION_SDS


def regions_of(
    problem: Problem, at: list[Laplace], log_density: Float[np.ndarray, " k"]
) -> Regions:
    """Return regions by the Gaussians at the modes, one region per mode."""
    array = problem.array
    inverse = np.stack([np.linalg.inv(_factor(gaussian)) for gaussian in at])
    return Regions(
        array(np.stack([gaussian.center for gaussian in at])), array(inverse),
        array(log_density - log_density[0]), np.arange(len(at), dtype=np.int32),
    )  # fmt: skip


def _factor(gaussian: Laplace) -> Float[np.ndarray, "d d"]:
    assert gaussian.factor is not None
    return gaussian.factor


def _grouped(regions: Regions, group: Int[np.ndarray, " k"]) -> Regions:
    return Regions(regions.center, regions.inverse, regions.height, group.astype(np.int32))


def _left(found: Ensemble) -> Float[np.ndarray, " region"]:
    assert found.left is not None
    return found.left


def _merged(
    group: Int[np.ndarray, " k"], left: Float[np.ndarray, "region region"]
) -> Int[np.ndarray, " k"]:
    """Return the modes' regions with leaking regions merged, numbered in order of appearance."""
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(left > MAX_CROSSING_SHARE, directed=False)
    _, first, numbers = np.unique(label[group], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[numbers]


class _Begun(NamedTuple):
    """Starts of a region's chains, and the Gaussian at its first mode."""

    zs: Float[np.ndarray, "n d"]
    mode: Laplace


def _warmed_up(
    problem: Problem, at: list[Laplace], regions: Regions, seed: int, starts: Starts, guide: Guide | None
) -> list[Ensemble]:  # fmt: skip
    """Return ensembles of equally many chains, one per region, from all of its modes.

    They follow the guide if it is accurate in all regions.
    """
    group = np.asarray(regions.group)
    count, begun = ENSEMBLE_CHAINS // (int(group.max()) + 1), list[_Begun]()
    for g in range(int(group.max()) + 1):
        own = np.flatnonzero(group == g)
        shares = [len(part) for part in np.array_split(np.arange(count), len(own))]
        zs = np.concatenate([
            _inside(problem, regions, g, at[k].center, starts(at[k], share, int(k)))
            for k, share in zip(own, shares, strict=True)
        ])  # fmt: skip
        begun.append(_Begun(zs, at[own[0]]))
    led = None if guide is None else _led_by_guide(problem, guide, begun, regions, seed)
    if led is not None:
        return led
    around = lambda z: Full.around(problem, problem.array(z))  # noqa: E731
    return [
        warmed_up(problem, around(mode.center), zs, _factor(mode), seed, regions)
        for zs, mode in begun
    ]


def _led_by_guide(
    problem: Problem, guide: Guide, begun: list[_Begun], regions: Regions, seed: int
) -> list[Ensemble] | None:
    """Return the ensembles that follow the guide; None if it is inaccurate in a region."""
    found = []
    for zs, mode in begun:
        led = follow_guide(problem, guide, zs, _factor(mode), seed, regions)
        if led is None:
            return None
        found.append(led)
    return found


def _inside(
    problem: Problem, regions: Regions, g: int, center: np.ndarray, zs: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, "n d"]:
    """Return starts, each moved towards the mode until it lies in the region."""
    group, away = np.asarray(regions.group), zs - center
    for _ in range(20):
        outside = group[modes_at(problem, regions, center + away)] != g
        if not outside.any():
            break
        away[outside] /= 2
    return center + away


def _setup(problem: Problem, at: list[Laplace], regions: Regions, found: list[Ensemble]) -> Setup:
    """Return the setup with one step size for all; a region's own step is in its metric.

    Chains are in the order of their regions and within these of their log density, as in
    `from_chains`.
    """
    h = found[0].step_size
    factors = np.stack([own.factor * np.sqrt(own.step_size / h) for own in found])
    order = [np.argsort(own.log_density, kind="stable") for own in found]
    zs = np.concatenate([own.zs[rows] for own, rows in zip(found, order, strict=True)])
    sampler = ConfinedHMC(max(own.leapfrogs for own in found), regions, problem.array(factors))
    metric = Dense(factors[0] @ factors[0].T, factors[0]).prepare(problem.layout)
    guide = found[0].guide
    gradient = replace(Full.around(problem, problem.array(at[0].center)), guide=guide)
    return Setup(
        sampler, gradient, metric, as_schedule(h, "step_size"), *problem.as_one_batch().batches,
        starts=zs, burn_in=0 if guide is None else SETTLING_TRAJECTORIES,
    )  # fmt: skip
