"""The posterior mode by Newton's method, and other modes from wide starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve

from ..core.progress import counted, stage
from ..model import sums
from ..model.cost import gradient_price
from ..model.problem import Problem
from .dense import Laplace, laplace_at
from .exchanged import exchanges
from .modes import SEPARATE
from .modes import apart as sds_between
from .unshown import SEARCHED, beside

__all__ = [
    "NEWTON_LIMIT",
    "AtMode",
    "dense_pays",
    "gaussian_at_mode",
    "more_modes",
    "newton_mode",
    "other_modes",
]

SEARCH_STEPS = 50
# then, where it has come to a density as draws near the mode have: with a robust law of 16 coefficients the second mode,
# 37 sds away and as dense as the first, was all but reached after 50
LAST_STEPS = 200
# sds of the starts: of two modes alike g sds apart in d parameters a start leads to the other where it is more than
# g / 2 out in its direction, a d^(-1/2)-th of its distance or so
SEARCH_SCALES = (3.0, 6.0, 12.0, 25.0, 50.0, 400.0, 3000.0)
CLIMB = 200  # steps of L-BFGS before Newton's, of more than FEW parameters
SAME = 0.3  # sds within which a search has come back to a mode that is known
FEW = 100  # parameters up to which all of these scales are searched
CONVERGED = 1e-6  # a Newton decrement
CHORDS = 20  # steps with one curvature
PATIENCE = 25  # steps; a path in time of 103 states found its mode after 18
EMPTY = np.zeros(0, np.int64)
NEWTON_LIMIT = 2000  # parameters up to which a dense curvature is formed
# and beyond so many, where nobody asked for it, in so many predicted seconds: 2,000 of 20,000 rows take 4 to
# 6 by the family; the whole run took 97 s of the clock so, and 178 by low rank
USUAL, AFFORDABLE = 1000, 20.0


def dense_pays(problem: Problem) -> bool:
    """Whether a dense curvature is formed without being asked for."""
    d = problem.dimension
    return d <= USUAL or (d <= NEWTON_LIMIT and d * gradient_price(problem).each <= AFFORDABLE)


@stage("mode")
@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # far starts, and steps refused
def newton_mode(
    problem: Problem,
    start: Any,
    max_steps: int = 100,
    arrived: Callable[[Float[np.ndarray, " d"]], bool] = lambda z: False,
) -> tuple[Float[np.ndarray, " d"], float, int, bool]:
    """Damped Newton ascent: (z, log density, steps, converged).

    Converged when the Newton decrement g^T J^{-1} g is below 1e-6: the mode is then
    within .001 posterior sd; or where a step has `arrived` at a place that the caller knows. Where the curvature J is not positive definite, or a step
    does not raise the density, J + mu diag|J| is used with growing mu. With rows and many parameters, as
    in a network, a curvature that is indefinite PATIENCE steps on end is a saddle's, and the search stops;
    one that is definite serves for further steps as long as they are good ones: it costs d gradients. `steps`
    are those with a curvature of their own; the last decrement may be by one of a place before.
    """
    array = problem.on_host
    at = lambda q: _Point(q, *sums.value_and_gradient(problem, array(q)))  # noqa: E731
    here = at(np.asarray(start, np.float64))
    damping, last, indefinite = 0.0, np.inf, 0
    many = problem.has_rows and here.z.size > FEW
    undamped = None
    for step in range(max_steps):
        J = np.asarray(sums.curvature(problem, array(here.z)), np.float64)
        if many:
            undamped = _damped_solve(J, np.asarray(here.gradient, np.float64), 0.0)
            indefinite = indefinite + 1 if undamped is None else 0
            if indefinite > PATIENCE:
                return here.z, float(here.value), step, False
        for _ in range(30):
            if damping > 0 or not many:
                move = _damped_solve(J, np.asarray(here.gradient, np.float64), damping)
            else:
                move = undamped
            there = None if move is None else at(here.z + move)
            if there is not None and there.improves(here):
                break
            damping = max(10 * damping, 1e-3)
        else:
            return here.z, float(here.value), step, False
        decrement = float(np.asarray(here.gradient, np.float64) @ (there.z - here.z))
        here, plain = there, damping == 0.0
        if not plain and decrement < 1e-6 * CONVERGED:  # on a saddle, which no step leaves
            return here.z, float(here.value), step + 1, False
        damping = 0.0 if damping < 1e-2 else damping / 10
        # in float32 the decrement stops falling before it is tiny
        still = plain and (decrement < CONVERGED or (decrement < 1e-3 and decrement > 0.3 * last))
        if still or arrived(here.z):
            return here.z, float(here.value), step + 1, True
        last = decrement if plain else np.inf
        if many and plain:
            here, last = _on(at, J, here, last)
            if last < CONVERGED:
                return here.z, float(here.value), step + 1, True
    return here.z, float(here.value), max_steps, False


def _on(
    at: Callable[[np.ndarray], _Point], J: np.ndarray, here: _Point, last: float
) -> tuple[_Point, float]:
    """Steps with a curvature of a place before, each of which makes the decrement a quarter: (where, decrement)."""
    factor = cho_factor(J)
    for _ in range(CHORDS):
        g = np.asarray(here.gradient, np.float64)
        move = cho_solve(factor, g)
        decrement = float(g @ move)
        if not decrement < last / 4 or not (there := at(here.z + move)).improves(here):
            break
        here, last = there, decrement
        if last < CONVERGED:
            break
    return here, last


class AtMode(NamedTuple):
    """Where a search ended: the Gaussian there, the log density, whether the search converged."""

    gaussian: Laplace
    log_density: float
    converged: bool


def gaussian_at_mode(problem: Problem, start: Any = None) -> AtMode:
    """Newton's search for the mode (from `problem.start`, where no start is given), and the curvature there."""
    mode, value, _, converged = newton_mode(problem, problem.start if start is None else start)
    return AtMode(laplace_at(problem, mode), value, converged)


@stage("other modes", whole=True)
def other_modes(
    problem: Problem,
    base: AtMode,
    rng: np.random.Generator,
    known: Sequence[AtMode] = (),
    tops: Float[np.ndarray, "k d"] | None = None,
    apart: Int[np.ndarray, " m"] = EMPTY,
) -> list[AtMode]:
    """Modes other than `base` and those already `known` that Newton finds from wide starts.

    Starts lie 3 to 3000 sds of the Gaussian at the mode away, on both sides; two more are the mode
    with its sign turned and with the entries of each leaf moved on by one, as components nearly
    exchangeable are; its exchanges (`gaussian.exchanged`) are starts too, and so are `tops`. With many
    rows the search is made on some of them, those `apart` among them (`gaussian.unshown`), and only
    what it finds is taken to all rows.
    """

    def starts(some: Problem, near: Laplace) -> list[np.ndarray]:
        given = [] if tops is None else list(tops)
        return [*_wide_starts(problem, near, rng), *exchanges(some, near), *given]

    return _searched(problem, base, starts, known, apart)


@stage("other modes", whole=True)
def more_modes(
    problem: Problem,
    base: AtMode,
    rng: np.random.Generator,
    known: Sequence[AtMode],
    places: Float[np.ndarray, "k d"],
    apart: Int[np.ndarray, " m"] = EMPTY,
) -> list[AtMode]:
    """Modes besides those `known`, where there are several at `places`, the first of them `base`.

    Modes come in lattices (a phase, an angle) and in mirror images: starts are every mode moved by the shortest way
    between two to both sides, every mode's image in the first and the first's in every one, and a new
    round of wide starts.
    """
    ways = places[1:] - places[0]
    lengths = np.linalg.norm(base.gaussian.whiten(places[1:]), axis=1)
    step = ways[int(np.argmin(lengths))]
    moved = [*(places + step), *(places - step), *(places[0] - ways), *(places[1:] + ways)]

    def starts(_: Problem, near: Laplace) -> list[np.ndarray]:
        fresh = [z for z in moved if min(_differ(o.gaussian, z, near) for o in known) > SAME]
        return [*fresh, *_wide_starts(problem, near, rng)[2:]]

    return _searched(problem, base, starts, known, apart)


def _searched(
    problem: Problem,
    base: AtMode,
    starts: Callable[[Problem, Laplace], Sequence[np.ndarray]],
    known: Sequence[AtMode],
    apart: Int[np.ndarray, " m"],
) -> list[AtMode]:
    """Where Newton's method ends from each start, if that is a mode besides `base` and those `known`.

    Starts are made from the Gaussian of the rows on which they are taken.
    """
    near, some, dense = base.gaussian, problem, base.log_density
    if problem.num_data > SEARCHED:
        some = beside(problem, SEARCHED, apart)
        near, dense, converged = gaussian_at_mode(some, near.center)
        if not (converged and near.positive_definite):
            return []
    assert near.factor is not None
    found: list[AtMode] = []
    back = lambda z: bool(np.linalg.norm(near.whiten(z)) <= SAME)  # noqa: E731
    places, many = starts(some, near), problem.dimension > FEW
    for tried, start in enumerate(places):
        counted(tried, len(places), "starts")
        if many:
            start = _climbed(some, near, start)
            if back(start):
                continue
        z, value, _, converged = newton_mode(some, start, SEARCH_STEPS, back)
        if not converged and not many and value < dense - 4 * z.size - 10:
            z = _climbed(some, near, start)
            value = sums.value_and_gradient(some, some.on_host(z))[0]
        if not converged and value >= dense - 4 * z.size - 10:
            z, value, _, converged = newton_mode(some, z, LAST_STEPS, back)
        if not converged or back(z):
            continue
        if some is not problem:
            z, value, _, converged = newton_mode(problem, z, SEARCH_STEPS)
        others = (base, *known, *found)
        if converged and all(_differ(other.gaussian, z, near) > SAME for other in others):
            there = AtMode(laplace_at(problem, z), value, True)
            if all(_separate(there.gaussian, other.gaussian, near) for other in others):
                found.append(there)
    return found


@np.errstate(over="ignore", invalid="ignore")  # far starts
def _climbed(problem: Problem, near: Laplace, start: np.ndarray) -> np.ndarray:
    """Where gradients alone lead, in units of the Gaussian: of many parameters a curvature costs hundreds of them."""

    from scipy.optimize import minimize

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = near.center + near.spread(x)
        value, slope = sums.value_and_gradient(problem, problem.on_host(z))
        return -float(value), -near.pull(np.asarray(slope, np.float64))

    def arrived(x: np.ndarray) -> None:
        if np.linalg.norm(x) <= SAME:
            raise StopIteration

    x = near.whiten(start)
    if not np.isfinite(loss(x)[0]):
        return start
    options = {"maxiter": CLIMB, "maxcor": 20, "ftol": 1e-9, "gtol": 0.0}
    found = minimize(loss, x, jac=True, method="L-BFGS-B", callback=arrived, options=options)
    return near.center + near.spread(found.x) if np.isfinite(found.fun) else start


def _differ(one: Laplace, z: np.ndarray, near: Laplace) -> float:
    """Distance of z from a mode, in its sds; where it has none, in those of another."""
    measure = one if one.positive_definite else near.moved(one.center - near.center)
    return float(np.linalg.norm(measure.whiten(z)))


def _separate(one: Laplace, other: Laplace, near: Laplace) -> bool:
    if one.positive_definite and other.positive_definite:
        return sds_between(one, other) > SEPARATE
    return _differ(other, one.center, near) > SEPARATE


def _wide_starts(
    problem: Problem, near: Laplace, rng: np.random.Generator
) -> list[Float[np.ndarray, " d"]]:
    d = near.center.size
    starts = [-near.center]
    starts.append(
        np.concatenate(
            [np.roll(leaf, 1) for leaf in np.split(near.center, problem.layout.ends[:-1])]
        )
    )
    for scale in SEARCH_SCALES if d <= FEW else SEARCH_SCALES[:1]:
        xi = rng.standard_normal(d)
        away = near.spread(scale * np.sqrt(d) / np.linalg.norm(xi) * xi)
        starts += [near.center + away, near.center - away]
    return starts


class _Point(NamedTuple):
    z: np.ndarray
    value: Any
    gradient: Any

    def improves(self, before: _Point) -> bool:
        """Finite, and not below by more than rounding."""
        slack = 1e-6 * max(1.0, abs(float(before.value)))
        finite = np.isfinite(self.value) and np.isfinite(np.asarray(self.gradient)).all()
        return bool(finite and float(self.value) >= float(before.value) - slack)


def _damped_solve(J: np.ndarray, g: np.ndarray, damping: float) -> np.ndarray | None:
    """(J + damping diag|J|)^{-1} g, or None where that matrix is not positive definite."""
    floor = max(1e-8 * float(np.abs(np.diag(J)).max()), 1e-12)
    damped = J + damping * np.diag(np.maximum(np.abs(np.diag(J)), floor))
    try:
        return cho_solve(cho_factor(damped), g)
    except (np.linalg.LinAlgError, ValueError):  # not positive definite, or not finite
        return None
