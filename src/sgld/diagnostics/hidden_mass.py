"""Checks of a posterior before sampling: gradients, tails, and modes that are out of reach.

With many rows, the checks use some of them. Whether a gradient belongs to its density is a property
of functions, and mass far out shows in a few thousand rows with the whole prior, if the influential
rows are among them (approximation/influential_rows.py). A suspicion is confirmed on all rows before
it is reported.

The module also decides which doubts a finished run leaves standing.

The gradient is checked by comparing a rise of the log density with the line integral

    log p(z) - log p(m) = int_0^1 grad log p(m + t (z - m)) . (z - m) dt

at draws z of the Gaussian around m, by Gauss-Legendre quadrature. Automatic differentiation ignores
jumps (`where`, `round`, `argmax`, a penalty for leaving a box), follows `stop_gradient`, and trusts
a custom rule. Density and gradient are then two different functions, and a sampler that uses only
the gradient follows the wrong one. A kink (a Laplace prior, a hinge) is not an error: there the
quadrature is inaccurate, the less so the more panels the line is cut into. The difference due to a
jump remains.

Typical differences (8 points, one panel): 1e-9 to 1e-4 on smooth densities, .02 with one Laplace
prior, .5 with 124, .9 to 5300 on steps, boxes and rounded parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..approximation import rays
from ..approximation import rays as profiles
from ..approximation.influential_rows import MAX_WHOLE_ROWS, uses_all_rows, with_influential_rows
from ..approximation.known import NOT_SEARCHED, Doubt, Known
from ..approximation.laplace import Laplace, laplace_at
from ..approximation.mode import NO_ROWS, gaussian_at_mode
from ..approximation.modes import KnownModes
from ..approximation.propriety import named_direction
from ..approximation.rays import GAUSSIAN_SDS, within
from ..core.progress import stage
from ..model import sums
from ..model.problem import Problem
from ..results import statistics
from . import mass_detectors

# -- doubted -------------------------------------------------------------------------------


# share of a ray's predicted mass that draws must hold; with one parameter the ray is the density
MIN_SEEN_SHARE = 0.5
MIN_SEEN_ALONE_SHARE = 0.8  # with one parameter; an sd is then right within 11%
# share of chains that must have been where a ray has its mass; a quarter began there
MIN_VISITING_SHARE = 0.5
# effective draws; their share is known within 14%, and an sd, of which it is a part, far better
MIN_VISITS = 50.0


def remaining_doubts(
    known: Known, z: Float[np.ndarray, "chain draw d"], **how: Any
) -> tuple[str, ...]:
    """Return the sentences, without a period, of the doubts that `unsettled` returns."""
    return tuple(doubt.sentence for doubt in unsettled(known, z, **how))


def unsettled(
    known: Known,
    z: Float[np.ndarray, "chain draw d"],
    *,
    exact: bool,
    weights: Float[np.ndarray, "chain draw"] | None = None,
    began_there: bool = False,
) -> tuple[Doubt, ...]:
    """Return the doubts that draws from a run do not settle.

    Chains that accept or refuse by the density itself (`exact`) need no gradient of it. Doubts
    about tails are settled if the chains have been far out as often as the rays say. They are also
    settled if the rays overestimate the mass: some chains began where a ray has its mass
    (`began_there`), and most chains have been there, often enough to estimate its share. By
    detailed balance, an obstacle that keeps the other chains from that mass would keep those chains
    in it.
    """
    share = np.ones(z.shape[:2]) if weights is None else weights
    settled = (
        exact and (_settled(d, known, z, share) or (began_there and _visited(d, known, z, share)))
        for d in known.doubts
    )
    return tuple(d for d, gone in zip(known.doubts, settled, strict=True) if not gone)


def remedy(doubt: str, otherwise: str) -> str:
    """Return what to do about a doubt; if modes were not searched for, give more time."""
    return "; raise it" if doubt == NOT_SEARCHED.sentence else otherwise


def _settled(
    doubt: Doubt,
    known: Known,
    z: Float[np.ndarray, "chain draw d"],
    weights: Float[np.ndarray, "chain draw"],
) -> bool:
    if doubt.kind == "gradient":
        return True
    if doubt.kind != "tails":
        return False
    if doubt.toward is None:
        assert doubt.edge is not None and known.gaussian is not None
        square = np.sum(known.gaussian.whiten(z) ** 2, axis=-1)
        far = np.sum(weights * np.where(square > doubt.edge**2, square, 0.0))
        return bool(far >= MIN_SEEN_SHARE * doubt.share * np.sum(weights * square))
    assert doubt.at is not None and known.gaussian is not None
    t = (z - known.gaussian.center) @ doubt.toward
    place = float((doubt.at - known.gaussian.center) @ doubt.toward)
    there = (np.sign(place) * t > (doubt.edge or GAUSSIAN_SDS)) & ~within(t, doubt.modes)
    square = weights * t**2
    seen = MIN_SEEN_SHARE if z.shape[-1] > 1 else MIN_SEEN_ALONE_SHARE
    # compare with the mass elsewhere: if the share is nearly 1, half of the far mass is nearly all too
    wanted = seen * doubt.share * np.sum(square, where=~there)
    outer = np.sum(square, where=there & (np.abs(t) > abs(place)))
    far = np.sum(square, where=there)
    # half of it lies farther out than its point, and may be separate from the nearer half
    return bool(far * (1 - doubt.share) >= wanted and 2 * outer * (1 - doubt.share) >= wanted)


def _visited(
    doubt: Doubt,
    known: Known,
    z: Float[np.ndarray, "chain draw d"],
    weights: Float[np.ndarray, "chain draw"],
) -> bool:
    """Return whether chains have explored the region beyond the point where a ray has its mass.

    With one parameter the ray is the density itself, so draws that hold less of it are wrong.
    """
    if doubt.start is None:
        return False
    assert doubt.toward is not None and known.gaussian is not None
    t = (z - known.gaussian.center) @ doubt.toward
    place = float((doubt.start - known.gaussian.center) @ doubt.toward)
    beyond = np.sign(place) * t > abs(place)
    if not np.mean(beyond.any(axis=1)) >= MIN_VISITING_SHARE:
        return False
    ess = statistics.ess(beyond[..., None].astype(float), weights, "mean")
    return bool(ess[0] * np.average(beyond, weights=weights) >= MIN_VISITS)


# -- belonging -----------------------------------------------------------------------------


CHECKED_DRAWS, QUADRATURE_NODES = 32, 8
MAX_GRADIENT_MISFIT = 0.05  # root mean square of the misfit in log density that is acceptable
PANELS = (8, 64)  # panels of the lines that are integrated again
WORST_LINES = 4  # lines that are integrated again
# panels of a line between two draws of a run; the last is for a kink as sharp as sqrt(f^2 + 1e-6)
PANELS_BETWEEN = (4, 16, 64)
MAX_RISING_ROWS = 128  # rows whose log density is integrated along those lines
# share of the rises that kinks may leave: at most 3e-4 for networks with relu, .3 for weights of beta-NLL
MAX_KINK_SHARE = 0.01
# positions in a chain at which lines to its last draw begin
LINE_STARTS = (1 / 3, 2 / 3)
MAX_KINK_RATIO = 0.5  # a kink's misfit falls by a larger factor per refinement: about 1/8


class Misfit(NamedTuple):
    """Size of the gradient's misfit, and a draw at which the density is +inf, if there is one.

    `size` is the root mean square of the rises that gradients do not explain, 0 if only kinks were
    found.
    """

    size: float
    infinite: Float[np.ndarray, " d"] | None = None


@stage("curvature")
def misfit(
    problem: Problem,
    gaussian: Any,
    rng: np.random.Generator,
    draws: int = CHECKED_DRAWS,
    panels: tuple[int, ...] = PANELS,
) -> Misfit:
    """Measure the gradient's misfit at draws of `gaussian`.

    If it is too large, the worst lines are cut into more and more `panels`. The misfit is compared
    with the effect of rounding: the difference of the density between neighbouring floating-point
    numbers.
    """
    center = np.asarray(problem.array(gaussian.center), np.float64)
    zs = np.asarray(problem.array(gaussian.draw(rng, draws)), np.float64)
    rises = sums.differences(problem, zs, center)
    infinite = zs[np.argmax(rises)] if np.isposinf(rises).any() else None
    size = missed(
        rises,
        lambda some, count: _integral(problem, center, zs[some], count),
        lambda some: _rounding(problem, zs[some], center),
        panels,
    )
    return Misfit(size, infinite)


def missed(
    rises: Float[np.ndarray, " n"],
    integral: Callable[[Int[np.ndarray, " m"], int], Float[np.ndarray, " m"]],
    rounding: Callable[[Int[np.ndarray, " m"]], float],
    panels: tuple[int, ...] = PANELS,
    share: float = 0.0,
) -> float:
    """Return the root mean square difference of rises and gradient integrals; 0 for kinks.

    Args:
      rises: rises of the log density along lines.
      integral: a function (indices of lines, panels) -> integrals of the gradient along them.
      rounding: a function of indices of lines -> the effect of rounding on their rises.
      panels: the numbers of panels for the worst lines, in turn.
      share: the share of the rises that is not an error.
    """
    lines = np.arange(len(rises))
    apart = rises - integral(lines, 1)
    inside = np.isfinite(apart)
    if np.count_nonzero(inside) < len(rises) // 4:  # most lines leave the support
        return 0.0
    lines, apart = lines[inside], apart[inside]
    before = root_mean_square(apart)
    if before <= MAX_GRADIENT_MISFIT:
        return before
    worst = np.argsort(-np.abs(apart))[:WORST_LINES]
    lines, left = lines[worst], root_mean_square(apart[worst])
    allowed = MAX_GRADIENT_MISFIT + rounding(lines) + share * root_mean_square(rises[lines])
    for count in panels:
        before, left = left, root_mean_square(rises[lines] - integral(lines, count))
        if not left > allowed:
            return 0.0
    return left if left > MAX_KINK_RATIO * before else 0.0


def lines_between(
    z: Float[np.ndarray, "draw chain d"],
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"]]:
    """Return where lines begin and end: at some draws of every chain, and at its last draw."""
    last = len(z) - 1
    numbers = [n for n in sorted({int(share * last) for share in LINE_STARTS}) if n < last]
    pairs = [(z[n, c], z[last, c]) for c in range(z.shape[1]) for n in numbers]
    pairs = [(begin, end) for begin, end in pairs if (begin != end).any()]
    begins, ends = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(begins), np.array(ends)


def root_mean_square(rises: Float[np.ndarray, " n"]) -> float:
    """Return the root mean square, without infinite and NaN values."""
    return float(np.sqrt(np.mean(np.nan_to_num(rises, posinf=0.0, neginf=0.0) ** 2)))


def named_misfit(size: float) -> str:
    """Return the text on a misfit of this size."""
    return (
        f"the gradient is not that of the log density: integrals of the gradient miss changes of up to {size:.2g} in the "
        "log density between two points (a jump, for example from where, round or a penalty; stop_gradient; "
        "a custom gradient)"
    )


def quadrature(panels: int) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return Gauss-Legendre nodes on [0, 1] in each of `panels`, and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    at = ((nodes + 1) / 2 + np.arange(panels)[:, None]).ravel() / panels
    return at, np.tile(weights / 2, panels) / panels


def _integral(
    problem: Problem, center: Float[np.ndarray, " d"], zs: Float[np.ndarray, "n d"], panels: int
) -> Float[np.ndarray, " n"]:
    """Integrate grad log p . dz along the lines from `center`, with Gauss-Legendre in `panels`."""
    at, share = quadrature(panels)
    away = zs - center
    points = center + at[:, None, None] * away
    slopes = sums.gradients(problem, points.reshape(-1, center.size)).reshape(points.shape)
    return np.einsum("k,knd,nd->n", share, slopes, away)


def _rounding(
    problem: Problem, zs: Float[np.ndarray, "n d"], center: Float[np.ndarray, " d"]
) -> float:
    """Return 4 times the effect of rounding on a rise.

    It consists of the difference between neighbouring numbers, and the rounding of the terms.
    """
    dtype = problem.layout.dtype
    next_to = np.nextafter(zs.astype(dtype), np.inf).astype(np.float64)
    apart = sums.differences(problem, next_to, center) - sums.differences(problem, zs, center)
    z = problem.array(center)
    prior = abs(float(problem.log_prior(z)))
    rows = abs(float(sums.log_density(problem, z)) - prior) / np.sqrt(max(1, problem.num_data))
    terms = float(np.finfo(dtype).eps) * (prior + (rows if problem.has_rows else 0.0))
    return 4 * (root_mean_square(apart) + terms)


# -- beyond --------------------------------------------------------------------------------


ALL_ROW_DRAWS = 4  # draws on all rows
# share of a profile. It is 1.0 on a saturating curve with a weak prior, and .27 and .37 on two posteriors
# that a limit of .5 trusted with sds of .83 and .47 of the truth. It is .03 for a network's predictions,
# and .36 for eight schools, where exact chains settle the doubt.
MAX_PLATEAU_EXCESS = 0.2
MAX_WHOLE_RAYS, MAX_FOLLOWED_TOPS = 8, 8  # rays on all rows; tops from which a search starts
MAX_EXPLAINED_LOGP = 3.0  # log density by which a mode may exceed its Gaussian


class Beyond(NamedTuple):
    """Doubts, and free positions [k, d] from which to search for other modes."""

    doubts: tuple[Doubt, ...] = ()
    tops: Float[np.ndarray, "k d"] | None = None


def check_tails_and_modes(
    problem: Problem,
    gaussian: Any,
    rng: np.random.Generator,
    T: float,
    apart: Int[np.ndarray, " m"] = NO_ROWS,
) -> Beyond:
    """Return doubts about a posterior with a positive definite `gaussian`.

    At T = 0 only the gradient is checked.
    With many rows, some of them are used, together with the rows `apart`.
    """
    some, near = _some(problem, gaussian, apart)
    if near is None:
        return Beyond()
    doubts = _function_doubts(problem, gaussian, some, near, rng)
    if T == 0:
        return Beyond(tuple(doubts))
    seen = rays.rays(some, near, rng, T)
    around = mass_detectors.shells(some, near, rng, T) if problem.dimension > 1 else None
    doubts += _confirmed_doubts(problem, gaussian, some, near, seen, around, rng, T)
    doubts += _behind_valleys(problem, gaussian, some, near, seen, rng, T)
    tops = [(value, near.center + t * ray.direction) for ray in seen for t, value in ray.tops]
    tops = sorted(tops, key=lambda top: -top[0])[:MAX_FOLLOWED_TOPS]
    tops += mass_detectors.tops_of_cloud(some, near, T)
    places = np.array([place for _, place in tops])
    return Beyond(tuple(doubts), places if len(places) else None)


def _confirmed_doubts(
    problem: Problem, gaussian: Any, some: Problem, near: Any, seen: list[rays.Ray],
    around: mass_detectors.Shells | None, rng: np.random.Generator, T: float,
) -> list[Doubt]:  # fmt: skip
    """Return every suspicion of straight rays, shells and profiles that all rows confirm.

    Each is another region that may hold mass, and chains that settle one say nothing about the
    others. Only the first `MAX_WHOLE_RAYS` rays are evaluated on all rows; the rest are reported if
    these were confirmed.
    """
    infinite = [ray for ray in seen if ray.infinite is not None][:1]  # one is enough
    heavy = [ray for ray in seen if ray.infinite is None and ray.share > rays.MIN_SUSPECT_SHARE]
    heavy = infinite + sorted(heavy, key=lambda ray: -ray.share)
    confirmed: list[Doubt] = []
    for k, ray in enumerate(heavy):
        if some is not problem and k < MAX_WHOLE_RAYS:
            (ray,) = rays.rays(problem, gaussian, rng, T, [ray.parameter])
        if some is problem or k < MAX_WHOLE_RAYS or confirmed:
            confirmed += _doubts(problem, gaussian, ray)
    shell = None if around is None else _shell_doubt(problem, gaussian, some, around, rng, T)
    confirmed += [] if shell is None else [shell]
    for ray in profiles.followed(some, near, seen, T):
        found = [ray]
        if some is not problem and ray.share > MAX_PLATEAU_EXCESS:
            straight = rays.rays(problem, gaussian, rng, T, [ray.parameter])
            found = profiles.followed(problem, gaussian, straight, T)
        if found and found[0].share > MAX_PLATEAU_EXCESS:
            confirmed += _doubts(problem, gaussian, found[0])
    return confirmed


def _behind_valleys(
    problem: Problem, gaussian: Any, some: Problem, near: Any, seen: list[rays.Ray],
    rng: np.random.Generator, T: float,
) -> list[Doubt]:  # fmt: skip
    """Return doubts about mass that rays have behind a valley.

    The valley is within `rays.GAUSSIAN_SDS` sds along a parameter, or lies across parameters.
    """
    if not isinstance(gaussian, Laplace):
        return []

    def near_by(ray: rays.Ray) -> bool:
        return any(found.edge < rays.GAUSSIAN_SDS for found in mass_detectors.behind(ray))

    looked = list(filter(near_by, seen))[:MAX_WHOLE_RAYS]
    if looked and some is not problem:
        looked = rays.rays(problem, gaussian, rng, T, [ray.parameter for ray in looked])
    ways = _across(problem, gaussian, some, near, rng, T) if problem.dimension > 1 else []
    if ways:
        looked += rays.rays(problem, gaussian, rng, T, along=np.array(ways))
    found = [
        _valley(problem, gaussian, ray, one, T)
        for ray in looked
        for one in mass_detectors.behind(ray)
    ]
    confirmed: list[Doubt] = []
    there: list[np.ndarray] = []
    for doubt in sorted(found, key=lambda doubt: -doubt.share):
        assert doubt.at is not None
        way = gaussian.whiten(doubt.at) / np.linalg.norm(gaussian.whiten(doubt.at))
        if not any(way @ other > mass_detectors.MIN_SAME_COSINE for other in there):
            confirmed.append(doubt)
            there.append(way)
    return confirmed


def _across(
    problem: Problem, gaussian: Laplace, some: Problem, near: Laplace, rng: np.random.Generator, T: float,
) -> list[Float[np.ndarray, " d"]]:  # fmt: skip
    """Return unit vectors of whitened x along which some rows, or the whole prior, have a valley.

    x is whitened by `gaussian`.
    """
    hot, own = gaussian.tempered(T), near.tempered(T)
    density = lambda x: rays.density(some, near.center, T, own.spread(x))  # noqa: E731
    points = mass_detectors.affordable(some)
    ways = mass_detectors.directions(density, problem.dimension, rng, points)
    if some is not problem:
        ways = [hot.whiten(hot.center + own.spread(u)) for u in ways]
        ways += mass_detectors.directions(
            mass_detectors.of_prior(problem, gaussian, T), problem.dimension, rng
        )
    return [u / np.linalg.norm(u) for u in ways]


def _valley(
    problem: Problem, gaussian: Laplace, ray: rays.Ray, found: mass_detectors.Behind, T: float
) -> Doubt:
    """Return the doubt about the mass behind a valley."""
    at = gaussian.center + found.place * ray.direction
    sentence = (
        "possible hidden mass: along "
        f"{named_direction(problem, ray.direction)} the density rises again beyond a valley {found.edge:.2g} sds from the mode, "
        f"and {100 * found.share:.0f}% of the second moment lies there, near {abs(found.place):.3g}"
    )
    toward = gaussian.curvature @ ray.direction / T
    return Doubt("tails", sentence, found.share, at, toward, start=at, edge=found.edge)


def _shell_doubt(
    problem: Problem,
    gaussian: Any,
    some: Problem,
    found: mass_detectors.Shells,
    rng: np.random.Generator,
    T: float,
) -> Doubt | None:
    """Return the doubt that shells raise; with one parameter its ray covers everything."""
    if found.share > mass_detectors.MIN_SHELL_SHARE and some is not problem:
        found = mass_detectors.shells(problem, gaussian, rng, T)
    if not found.share > mass_detectors.MIN_SHELL_SHARE:
        return None
    return Doubt(
        "tails",
        "possible hidden mass: in all directions "
        f"{100 * found.share:.0f}% of the second moment lies more than {found.edge:.3g} sds from the mode, near {found.distance:.3g}",
        found.share, found.at, edge=found.edge,
    )  # fmt: skip


def unexplained(
    problem: Problem, doubts: tuple[Doubt, ...], modes: KnownModes | None, T: float
) -> tuple[Doubt, ...]:
    """Return the doubts about tails without those that other modes explain.

    A mode explains mass within 5 of its sds that is about as dense as its Gaussian says. A plateau
    that surrounds modes, or mass next to a mode, remains a doubt.
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
            left += _left_by_modes(doubt, modes.z[0], others, T)
        elif not any(_holds(gaussian, doubt.at) for gaussian, _ in others):
            left.append(doubt)
    return tuple(left)


def _left_by_modes(
    doubt: Doubt, center: Float[np.ndarray, " d"], others: list[tuple[Laplace, float]], T: float
) -> list[Doubt]:
    """Return the doubt about mass on its side of the ray that modes leave; none if small."""
    ray = doubt.ray
    assert ray is not None and doubt.at is not None and doubt.toward is not None
    known = _intervals(ray, center, doubt.toward, others, T)
    sides, here = ray.sides(known), (doubt.at - center) @ doubt.toward
    if not sum(far.share for far in sides) > rays.MIN_SUSPECT_SHARE:
        return []
    found = []
    for far in sides:
        if far.place * here > 0 and far.share > rays.MIN_ONE_SIDED_SHARE:
            at = center + far.place * ray.direction
            start = None if doubt.start is None else ray.position(center, far.place)
            found.append(replace(doubt, share=far.share, at=at, modes=known, start=start))
    return found


def _intervals(
    ray: rays.Ray, center: Float[np.ndarray, " d"], toward: Float[np.ndarray, " d"],
    others: list[tuple[Laplace, float]], T: float,
) -> tuple[tuple[float, float], ...]:  # fmt: skip
    """Return intervals of t on the ray where modes explain the mass."""
    z = center + ray.t[:, None] * ray.direction if ray.bent is None else ray.bent
    explained = np.zeros(len(ray.t), bool)
    for gaussian, height in others:
        predicted = (height - np.sum(gaussian.whiten(z) ** 2, axis=-1) / 2) / T
        near = float((gaussian.center - center) @ toward)
        sd = float(np.linalg.norm(gaussian.pull(toward))) * np.sqrt(T)
        own = np.abs(ray.t - near) < rays.TOP_WINDOW_SDS * sd
        explained |= own & (predicted > ray.value - MAX_EXPLAINED_LOGP)
    ends = np.concatenate([[-np.inf], (ray.t[1:] + ray.t[:-1]) / 2, [np.inf]])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], explained, [0]])))
    return tuple((float(ends[a]), float(ends[b])) for a, b in edges.reshape(-1, 2))


def _holds(other: Laplace, z: np.ndarray | None) -> bool:
    """Return whether z is where the mode has its mass."""
    if z is None or not other.positive_definite:
        return False
    return bool(np.linalg.norm(other.whiten(z)) <= np.sqrt(z.size) + rays.GAUSSIAN_SDS)


def _some(problem: Problem, gaussian: Any, apart: Int[np.ndarray, " m"]) -> tuple[Problem, Any]:
    """Return a random subset of rows with the rows `apart`, and the Gaussian at the subset's mode.

    If there are few rows, all of them are used.
    """
    if uses_all_rows(problem) or not isinstance(gaussian, Laplace):
        return problem, gaussian
    some = with_influential_rows(problem, MAX_WHOLE_ROWS, apart)
    at = gaussian_at_mode(some, gaussian.center)
    return some, at.gaussian if at.converged and at.gaussian.positive_definite else None


def _function_doubts(
    problem: Problem, gaussian: Any, some: Problem, near: Any, rng: np.random.Generator
) -> list[Doubt]:
    """Return doubts about the density and gradient as functions, near the mode."""
    size, infinite = misfit(some, near, rng)
    if size > MAX_GRADIENT_MISFIT and some is not problem:
        size, _ = misfit(problem, gaussian, rng, ALL_ROW_DRAWS, PANELS[:1])
    doubts = []
    if infinite is not None:
        doubts.append(_infinite(problem, infinite))
    if size > MAX_GRADIENT_MISFIT:
        doubts.append(Doubt("gradient", named_misfit(size)))
    return doubts


def _doubts(problem: Problem, gaussian: Any, ray: rays.Ray) -> list[Doubt]:
    """Return the doubts that a ray over all rows raises, one for each side."""
    if ray.infinite is not None:
        return [_infinite(problem, gaussian.center + ray.infinite * ray.direction)]
    if not ray.share > rays.MIN_SUSPECT_SHARE:
        return []
    i, name = ray.parameter, problem.layout.element_names()[ray.parameter]
    toward = np.zeros(problem.dimension)
    toward[i] = 1 / ray.direction[i]
    found = []
    for far in ray.sides():
        if not far.share > rays.MIN_ONE_SIDED_SHARE:
            continue
        at = gaussian.center + far.place * ray.direction
        start = ray.position(gaussian.center, far.place) if problem.dimension > 1 else None
        where = f"{abs(far.place):.3g} sds {'above' if far.place > 0 else 'below'} it"
        sentence = (
            f"possible hidden mass: along {name!r} "
            f"{100 * far.share:.0f}% of the second moment lies more than {rays.GAUSSIAN_SDS:.0f} sds from the mode, near {where}"
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
        f"the log density is +inf at the free position {position}{more}, but a density must be finite",
        at=np.asarray(z, np.float64),
    )
