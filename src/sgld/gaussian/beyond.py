"""What is doubted of a posterior before anything is chosen: gradients, tails, modes out of reach.

Held on some rows, where there are many: whether a gradient belongs to its density is a property of
functions, and what lies far out is seen from a few thousand rows and the whole prior, if those rows are among them that
alone know a parameter (`gaussian.unshown`). A suspicion is looked
at on all rows before it is told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..approximation import rays
from ..approximation import rays as profiles
from ..approximation.influential_rows import SHOWN, beside, shown_whole
from ..approximation.known import Doubt
from ..approximation.laplace import Laplace, laplace_at
from ..approximation.mode import EMPTY, gaussian_at_mode
from ..approximation.modes import KnownModes
from ..approximation.propriety import named_direction
from ..model.problem import Problem
from . import belonging, cloud, shells, valleys

__all__ = ["Beyond", "look_beyond", "unexplained"]

FEW_DRAWS = 4  # on all rows
# share of a profile: 1.0 on a saturating curve with a weak prior, .27 and .37 on two that were trusted at a limit of
# .5 with sds of .83 and .47 of the truth; .03 of a network's predictions, .36 of eight schools, whose exact
# chains have been there
PLATEAU = 0.2
LOOKED_AT, FOLLOWED = 8, 8  # rays on all rows, and tops that a search begins at
EXPLAINED = 3.0  # in log density, by which a mode may be denser than its Gaussian says


class Beyond(NamedTuple):
    """The doubts, and where other modes are to be looked for, free positions [k, d]."""

    doubts: tuple[Doubt, ...] = ()
    tops: Float[np.ndarray, "k d"] | None = None


def look_beyond(
    problem: Problem,
    gaussian: Any,
    rng: np.random.Generator,
    T: float,
    apart: Int[np.ndarray, " m"] = EMPTY,
) -> Beyond:
    """Doubts about a posterior with a positive definite `gaussian`; at T = 0 of its gradient alone.

    Of many rows some are looked at, and those `apart`.
    """
    some, near = _some(problem, gaussian, apart)
    if near is None:
        return Beyond()
    doubts = _of_functions(problem, gaussian, some, near, rng)
    if T == 0:
        return Beyond(tuple(doubts))
    seen = rays.rays(some, near, rng, T)
    around = shells.shells(some, near, rng, T) if problem.dimension > 1 else None
    doubts += _told(problem, gaussian, some, near, seen, around, rng, T)
    doubts += _behind_valleys(problem, gaussian, some, near, seen, rng, T)
    tops = [(value, near.center + t * ray.direction) for ray in seen for t, value in ray.tops]
    tops = sorted(tops, key=lambda top: -top[0])[:FOLLOWED]
    tops += cloud.tops_of_cloud(some, near, T)
    places = np.array([place for _, place in tops])
    return Beyond(tuple(doubts), places if len(places) else None)


def _told(
    problem: Problem, gaussian: Any, some: Problem, near: Any, seen: list[rays.Ray],
    around: shells.Shells | None, rng: np.random.Generator, T: float,
) -> list[Doubt]:  # fmt: skip
    """Every suspicion of straight rays, shells and profiles that all rows confirm.

    Each is another place where mass may be, and one that chains settle says nothing of the others. Beyond
    `LOOKED_AT` rays all rows are not asked, and the rest is told where these were right.
    """
    infinite = [ray for ray in seen if ray.infinite is not None][:1]  # one is enough
    heavy = [ray for ray in seen if ray.infinite is None and ray.share > rays.SUSPICIOUS]
    heavy = infinite + sorted(heavy, key=lambda ray: -ray.share)
    told: list[Doubt] = []
    for k, ray in enumerate(heavy):
        if some is not problem and k < LOOKED_AT:
            (ray,) = rays.rays(problem, gaussian, rng, T, [ray.parameter])
        if some is problem or k < LOOKED_AT or told:
            told += _doubts(problem, gaussian, ray)
    shell = None if around is None else _around(problem, gaussian, some, around, rng, T)
    told += [] if shell is None else [shell]
    for ray in profiles.followed(some, near, seen, T):
        found = [ray]
        if some is not problem and ray.share > PLATEAU:
            straight = rays.rays(problem, gaussian, rng, T, [ray.parameter])
            found = profiles.followed(problem, gaussian, straight, T)
        if found and found[0].share > PLATEAU:
            told += _doubts(problem, gaussian, found[0])
    return told


def _behind_valleys(
    problem: Problem, gaussian: Any, some: Problem, near: Any, seen: list[rays.Ray],
    rng: np.random.Generator, T: float,
) -> list[Doubt]:  # fmt: skip
    """Mass that rays have behind a valley within `rays.NEAR` sds, and what lies behind one across parameters."""
    if not isinstance(gaussian, Laplace):
        return []
    near_by = lambda ray: any(found.edge < rays.NEAR for found in valleys.behind(ray))  # noqa: E731
    looked = list(filter(near_by, seen))[:LOOKED_AT]
    if looked and some is not problem:
        looked = rays.rays(problem, gaussian, rng, T, [ray.parameter for ray in looked])
    ways = _across(problem, gaussian, some, near, rng, T) if problem.dimension > 1 else []
    if ways:
        looked += rays.rays(problem, gaussian, rng, T, along=np.array(ways))
    found = [
        _valley(problem, gaussian, ray, one, T) for ray in looked for one in valleys.behind(ray)
    ]
    told: list[Doubt] = []
    there: list[np.ndarray] = []
    for doubt in sorted(found, key=lambda doubt: -doubt.share):
        assert doubt.at is not None
        way = gaussian.whiten(doubt.at) / np.linalg.norm(gaussian.whiten(doubt.at))
        if not any(way @ other > valleys.ALIKE for other in there):
            told.append(doubt)
            there.append(way)
    return told


def _across(
    problem: Problem, gaussian: Laplace, some: Problem, near: Laplace, rng: np.random.Generator, T: float,
) -> list[Float[np.ndarray, " d"]]:  # fmt: skip
    """Unit vectors of x, whitened by `gaussian`, along which some rows, or the whole prior, have a valley."""
    hot, own = gaussian.tempered(T), near.tempered(T)
    density = lambda x: rays.density(some, near.center, T, own.spread(x))  # noqa: E731
    points = valleys.affordable(some)
    ways = valleys.directions(density, problem.dimension, rng, points)
    if some is not problem:
        ways = [hot.whiten(hot.center + own.spread(u)) for u in ways]
        ways += valleys.directions(valleys.of_prior(problem, gaussian, T), problem.dimension, rng)
    return [u / np.linalg.norm(u) for u in ways]


def _valley(
    problem: Problem, gaussian: Laplace, ray: rays.Ray, found: valleys.Behind, T: float
) -> Doubt:
    """The doubt about what is behind it."""
    at = gaussian.center + found.place * ray.direction
    sentence = (
        "far from the mode there is more than the Gaussian there shows: along "
        f"{named_direction(problem, ray.direction)} the density rises again behind a valley {found.edge:.2g} sds away, "
        f"and {100 * found.share:.0f}% of the second moment lie there, around {abs(found.place):.3g}"
    )
    toward = gaussian.curvature @ ray.direction / T
    return Doubt("tails", sentence, found.share, at, toward, start=at, edge=found.edge)


def _around(
    problem: Problem,
    gaussian: Any,
    some: Problem,
    found: shells.Shells,
    rng: np.random.Generator,
    T: float,
) -> Doubt | None:
    """What shells say; of one parameter its ray says all."""
    if found.share > shells.HEAVY and some is not problem:
        found = shells.shells(problem, gaussian, rng, T)
    if not found.share > shells.HEAVY:
        return None
    return Doubt(
        "tails",
        "far from the mode there is more than the Gaussian there shows: on all sides "
        f"{100 * found.share:.0f}% of the second moment lie beyond {found.edge:.3g} sds, around {found.distance:.3g}",
        found.share, found.at, edge=found.edge,
    )  # fmt: skip


def unexplained(
    problem: Problem, doubts: tuple[Doubt, ...], modes: KnownModes | None, T: float
) -> tuple[Doubt, ...]:
    """Doubts about tails less what other modes explain, that were seen from the first one: where these have their mass.

    A mode explains what is within 5 of its sds, and about as dense as its Gaussian says; a foot that modes
    stand on, or that lies beside a mode, is still doubted.
    """
    if modes is None or not any(doubt.kind == "tails" for doubt in doubts):
        return doubts
    others = [
        (laplace_at(problem, z), float(value - modes.log_density[0]))
        for z, value in zip(modes.z[1:], modes.log_density[1:], strict=True)
    ]
    others = [(gaussian, height) for gaussian, height in others if gaussian.positive_definite]
    left = []
    for doubt in doubts:
        if doubt.ray is not None:
            left += _beside(doubt, modes.z[0], others, T)
        elif not any(_holds(gaussian, doubt.at) for gaussian, _ in others):
            left.append(doubt)
    return tuple(left)


def _beside(
    doubt: Doubt, center: Float[np.ndarray, " d"], others: list[tuple[Laplace, float]], T: float
) -> list[Doubt]:
    """The doubt about what modes leave of its ray on its side; none where that is little."""
    ray = doubt.ray
    assert ray is not None and doubt.at is not None and doubt.toward is not None
    known = _intervals(ray, center, doubt.toward, others, T)
    sides, here = ray.sides(known), (doubt.at - center) @ doubt.toward
    if not sum(far.share for far in sides) > rays.SUSPICIOUS:
        return []
    found = []
    for far in sides:
        if far.place * here > 0 and far.share > rays.ONE_SIDE:
            at = center + far.place * ray.direction
            start = None if doubt.start is None else ray.position(center, far.place)
            found.append(replace(doubt, share=far.share, at=at, modes=known, start=start))
    return found


def _intervals(
    ray: rays.Ray, center: Float[np.ndarray, " d"], toward: Float[np.ndarray, " d"],
    others: list[tuple[Laplace, float]], T: float,
) -> tuple[tuple[float, float], ...]:  # fmt: skip
    """Of t on the ray, where modes explain what is there."""
    z = center + ray.t[:, None] * ray.direction if ray.bent is None else ray.bent
    explained = np.zeros(len(ray.t), bool)
    for gaussian, height in others:
        predicted = (height - np.sum(gaussian.whiten(z) ** 2, axis=-1) / 2) / T
        near = float((gaussian.center - center) @ toward)
        sd = float(np.linalg.norm(gaussian.pull(toward))) * np.sqrt(T)
        own = np.abs(ray.t - near) < rays.WINDOW * sd
        explained |= own & (predicted > ray.value - EXPLAINED)
    ends = np.concatenate([[-np.inf], (ray.t[1:] + ray.t[:-1]) / 2, [np.inf]])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], explained, [0]])))
    return tuple((float(ends[a]), float(ends[b])) for a, b in edges.reshape(-1, 2))


def _holds(other: Laplace, z: np.ndarray | None) -> bool:
    """Whether z is where the mode has its mass."""
    if z is None or not other.positive_definite:
        return False
    return bool(np.linalg.norm(other.whiten(z)) <= np.sqrt(z.size) + rays.NEAR)


def _some(problem: Problem, gaussian: Any, apart: Int[np.ndarray, " m"]) -> tuple[Problem, Any]:
    """A random choice of rows with those `apart`, and the Gaussian at their own mode; all of them, where they are few."""
    if shown_whole(problem) or not isinstance(gaussian, Laplace):
        return problem, gaussian
    some = beside(problem, SHOWN, apart)
    at = gaussian_at_mode(some, gaussian.center)
    return some, at.gaussian if at.converged and at.gaussian.positive_definite else None


def _of_functions(
    problem: Problem, gaussian: Any, some: Problem, near: Any, rng: np.random.Generator
) -> list[Doubt]:
    """What is wrong with density and gradient as functions, near the mode."""
    size, infinite = belonging.misfit(some, near, rng)
    if size > belonging.LARGEST and some is not problem:
        size, _ = belonging.misfit(problem, gaussian, rng, FEW_DRAWS, belonging.PANELS[:1])
    doubts = []
    if infinite is not None:
        doubts.append(_infinite(problem, infinite))
    if size > belonging.LARGEST:
        doubts.append(Doubt("gradient", belonging.named_misfit(size)))
    return doubts


def _doubts(problem: Problem, gaussian: Any, ray: rays.Ray) -> list[Doubt]:
    """What a ray over all rows says, if anything: of each side by itself."""
    if ray.infinite is not None:
        return [_infinite(problem, gaussian.center + ray.infinite * ray.direction)]
    if not ray.share > rays.SUSPICIOUS:
        return []
    i, name = ray.parameter, problem.layout.element_names()[ray.parameter]
    toward = np.zeros(problem.dimension)
    toward[i] = 1 / ray.direction[i]
    found = []
    for far in ray.sides():
        if not far.share > rays.ONE_SIDE:
            continue
        at = gaussian.center + far.place * ray.direction
        start = ray.position(gaussian.center, far.place) if problem.dimension > 1 else None
        where = f"{abs(far.place):.3g} sds {'above' if far.place > 0 else 'below'} the mode"
        sentence = (
            f"far from the mode there is more than the Gaussian there shows: along {name!r} "
            f"{100 * far.share:.0f}% of the second moment lie beyond {rays.NEAR:.0f} sds, around {where}"
        )
        found.append(Doubt("tails", sentence, far.share, at, toward, ray, start=start))
    return found


def _infinite(problem: Problem, z: Float[np.ndarray, " d"]) -> Doubt:
    position = ", ".join(
        f"{name} = {value:.4g}"
        for name, value in zip(problem.layout.element_names()[:3], z[:3], strict=True)
    )
    more = ", ..." if z.size > 3 else ""
    return Doubt(
        "infinite",
        f"the log density is +inf at the free position {position}{more}, where no density can be",
        at=np.asarray(z, np.float64),
    )
