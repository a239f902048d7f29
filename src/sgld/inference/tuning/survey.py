"""Survey of a posterior before anything is chosen: mode, curvature, shape and other modes.

`survey_posterior` makes the survey once, from a Problem; tuning, verdict, reference and report read it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ...approximation.gradient_noise import TUNING_STREAM
from ...approximation.influential_rows import find_influential_rows
from ...approximation.known import MIN_UNUSABLE_NU, NOT_CONVERGED, NOT_SEARCHED, Doubt, Known
from ...approximation.laplace import Laplace
from ...approximation.low_rank import (  # fmt: skip
    LowRankLaplace,
    affordable,
    at_the_mean,
    departure,
    lowrank_laplace,
    lowrank_mode,
    lowrank_modes,
    squared_gradients,
)
from ...approximation.mode import (
    MAX_SCALES_DIM,
    NO_ROWS,
    USUAL_NEWTON_DIM,
    AtMode,
    dense_pays,
    gaussian_at_mode,
    more_modes,
    newton_mode,
    other_modes,
)
from ...approximation.modes import KnownModes, known_modes
from ...approximation.propriety import check_proper, named_direction
from ...core.progress import Over, share
from ...data.source import generator
from ...diagnostics.hidden_mass import check_tails_and_modes, unexplained
from ...model import sums
from ...model.problem import Problem

# rows of the first search, and the ratio of all rows to them from which it is made
PILOT_ROWS, MIN_PILOT_RATIO = 10_000, 10
MAX_VOLUME_ERROR = 1.0  # log volume between a mode and its image, due to rounding
# fall of the log density one sd away on both sides, larger than at any mode; a bent mode, as a banana's, loses a few
MAX_MODE_FALL = 100.0
MAX_MODE_SEARCHES = 3  # searches for other modes, each from a heavier mode that the last one found
# further searches among several modes, and number of modes from which no more are searched
MAX_MORE_SEARCHES, MAX_SEARCHED_MODES = 4, 8
MAX_SURVEY_SHARE = 0.4  # share of max_seconds; the rest is for draws
SADDLE_ESCAPES = (0.1, -0.1, 1.0, -1.0, 10.0, -10.0)  # moves along the flattest direction


def survey_posterior(problem: Problem, seed: int, temperature: float, *, by_hand: bool) -> Known:
    """Find mode, curvature, distance from a Gaussian and other modes, as far as d and N allow.

    With `by_hand`, a step size was given. Then an improper posterior is not refused, and searches
    that pass hundreds of times over the data are skipped.
    """
    if problem.dimension <= USUAL_NEWTON_DIM or (not by_hand and dense_pays(problem)):
        return _by_newton(problem, seed, temperature, check=not by_hand)
    if not by_hand and affordable(problem):
        return _by_lanczos(problem, seed, temperature)
    given = " and a manual step size" if by_hand else ""
    note = f"no curvature is computed for {problem.dimension} parameters{given}, so the sd is not certified."
    return Known(notes=(note,))


def _by_newton(problem: Problem, seed: int, T: float, *, check: bool) -> Known:
    """Survey with a dense curvature."""
    notes = []
    start = jnp.asarray(problem.start)
    if problem.num_data > MIN_PILOT_RATIO * PILOT_ROWS:
        # a mode of some rows is near that of all, so that one or two passes over all rows suffice
        pilot, _, _, found = newton_mode(problem.first(PILOT_ROWS), start)
        start = jnp.asarray(pilot) if found else start
    at = gaussian_at_mode(problem, start)
    if not at.gaussian.positive_definite and not _like_a_network(problem):
        at = _leave_saddle(problem, at)
    if not at.converged:
        notes.append(NOT_CONVERGED)
    modes, doubts = None, ()
    if at.gaussian.positive_definite:
        at, modes, doubts = surroundings(problem, at, seed, T)
    else:
        notes.append(_saddle_note(problem, at.gaussian))
    known = _with_center(problem, Known(at.gaussian, at.log_density), seed, T)
    known = replace(known, modes=modes, doubts=doubts)
    # a flat direction can look Gaussian from a centre far out, so nu at the mode counts too
    if check and (known.hopeless or not (known.nu_at_mode or 0.0) <= MIN_UNUSABLE_NU):
        check_proper(problem, at.gaussian)
    return known.telling(*notes)


def surroundings(
    problem: Problem, at: AtMode, seed: int, T: float
) -> tuple[AtMode, KnownModes | None, tuple[Doubt, ...]]:
    """Return the mode of most mass, all relevant modes if there are several, and the doubts left.

    It starts from a mode with a positive definite curvature. A log-concave posterior has no other
    mode, and no tail that its curvature's distance from a Gaussian does not show.
    """
    if problem.posterior.log_concave:
        return at, None, ()
    with suppress(Over), share(MAX_SURVEY_SHARE):
        return _surroundings(problem, at, seed, T)
    return at, None, (NOT_SEARCHED,)


def _surroundings(
    problem: Problem, at: AtMode, seed: int, T: float
) -> tuple[AtMode, KnownModes | None, tuple[Doubt, ...]]:
    apart = find_influential_rows(problem, at.gaussian, seed)
    beyond = check_tails_and_modes(
        problem, at.gaussian, generator(seed, TUNING_STREAM, 13), T, apart
    )
    found, modes = all_modes(problem, at, seed, T, beyond.tops, apart)
    if found is not at:
        beyond = check_tails_and_modes(
            problem, found.gaussian, generator(seed, TUNING_STREAM, 13), T, apart
        )
    return found, modes, unexplained(problem, beyond.doubts, modes, T)


def all_modes(
    problem: Problem,
    at: AtMode,
    seed: int,
    T: float,
    tops: Float[np.ndarray, "k d"] | None = None,
    apart: Int[np.ndarray, " m"] = NO_ROWS,
) -> tuple[AtMode, KnownModes | None]:
    """Return the mode of most mass, and all relevant modes if there are several.

    `tops` are additional starts. With many rows the search uses a sample, and the rows in `apart`.

    If a search finds a heavier mode than its first, another search begins there. Among several
    modes the search continues until it finds no other relevant mode, because no chain visits a
    missed mode.
    """
    found, searched = [at], 0
    while True:
        rng = generator(seed, TUNING_STREAM, 3 + 2**10 * searched)
        others = other_modes(problem, at, rng, found, None if searched else tops, apart)
        found += [other for other in others if not _exaggerates(problem, other, at, T)]
        kept, modes = known_modes(found, T)
        searched += 1
        if found[kept[0]] is at or searched == MAX_MODE_SEARCHES:
            break
        at = found[kept[0]]
    for number in range(MAX_MORE_SEARCHES):
        if not 2 <= len(modes) <= MAX_SEARCHED_MODES:
            break
        at, before = found[kept[0]], len(modes)
        rng = generator(seed, TUNING_STREAM, 11 + 2**10 * number)
        others = more_modes(problem, at, rng, found, modes.z, apart)
        found += [other for other in others if not _exaggerates(problem, other, at, T)]
        kept, modes = known_modes(found, T)
        if len(modes) == before:
            break
    at = found[kept[0]]
    return at, modes if len(modes) > 1 else None


def _exaggerates(problem: Problem, other: AtMode, at: AtMode, temperature: float) -> bool:
    """Return whether a point is `flat` and wider than the mode at `at`.

    The image of a bent mode is as bent as the mode.
    """
    if not other.gaussian.half_log_det > at.gaussian.half_log_det + MAX_VOLUME_ERROR:
        return False
    return flat(problem, other.gaussian, temperature)


def flat(problem: Problem, gaussian: Laplace, temperature: float) -> bool:
    """Return whether the curvature at a point is rounding error, on a plateau.

    A search may stop there.

    Laplace's mass then exceeds all others, with sds of 1e31: a plateau of .6% within 171 sds was
    taken for the mode. One sd to either side of a mode along its widest direction the density falls
    by e^.5; on a banana by e^5.
    """
    if not gaussian.positive_definite or temperature == 0:
        return False
    assert gaussian.factor is not None
    wide, size, _ = np.linalg.svd(gaussian.factor)
    away = np.sqrt(temperature) * size[0] * np.array([wide[:, 0], -wide[:, 0]])
    with np.errstate(over="ignore"):
        fall = sums.differences(problem, gaussian.center + away, gaussian.center) / temperature
    return not np.nanmax(np.nan_to_num(fall, nan=-np.inf)) > -MAX_MODE_FALL


def _by_lanczos(problem: Problem, seed: int, T: float) -> Known:
    """Survey with low-rank curvature, for more parameters than a dense curvature allows."""
    mode, value, converged = lowrank_mode(problem, np.asarray(problem.start, np.float64))
    notes, modes, doubts = [], None, ()
    if not converged:
        notes.append(NOT_CONVERGED)
    squares = np.asarray(squared_gradients(problem, problem.array(mode)))
    gaussian = lowrank_laplace(problem, mode, squares, generator(seed, TUNING_STREAM, 6))
    if gaussian.positive_definite:
        notes.append(
            f"the curvature of {mode.size} parameters is approximated as diagonal plus rank {gaussian.c.size}: the "
            "bias meter may exaggerate bias."
        )
        gaussian, value, modes, doubts = _around_lowrank(problem, gaussian, value, seed, T)
    else:
        notes.append(_saddle_note(problem, gaussian))
    known = _with_center(problem, Known(gaussian, value, modes=modes, doubts=doubts), seed, T)
    return known.telling(*notes)


def _around_lowrank(
    problem: Problem, gaussian: LowRankLaplace, value: float, seed: int, T: float
) -> tuple[LowRankLaplace, float, KnownModes | None, tuple[Doubt, ...]]:
    """Return the same as `surroundings`, with Gaussian and log density at the heaviest mode."""
    if problem.posterior.log_concave:
        return gaussian, value, None, ()
    with suppress(Over), share(MAX_SURVEY_SHARE):
        found, there, modes = _all_lowrank_modes(problem, gaussian, value, seed, T)
        beyond = check_tails_and_modes(problem, found, generator(seed, TUNING_STREAM, 13), T)
        return found, there, modes, beyond.doubts
    return gaussian, value, None, (NOT_SEARCHED,)


def _all_lowrank_modes(
    problem: Problem, gaussian: LowRankLaplace, value: float, seed: int, T: float
) -> tuple[LowRankLaplace, float, KnownModes | None]:
    """Return the same from one search; every mode has its own curvature."""
    found = [_Lanczos(gaussian, value)]
    for number, (z, density) in enumerate(
        lowrank_modes(problem, gaussian, generator(seed, TUNING_STREAM, 9))
    ):
        squares = np.asarray(squared_gradients(problem, problem.array(z)))
        rng = generator(seed, TUNING_STREAM, 6 + 2**10 * (1 + number))
        found.append(_Lanczos(lowrank_laplace(problem, z, squares, rng), density))
    kept, modes = known_modes(found, T)
    heaviest = found[kept[0]]
    if not heaviest.gaussian.positive_definite:
        heaviest = found[0]
    return heaviest.gaussian, heaviest.log_density, modes if len(modes) > 1 else None


class _Lanczos(NamedTuple):
    gaussian: LowRankLaplace
    log_density: float


def _with_center(problem: Problem, known: Known, seed: int, T: float) -> Known:
    """Return `known` with the Gaussian's centre at the mean (at T = 0 the mode), and nu there."""
    if not known.usable:
        return known
    assert known.gaussian is not None
    rng = generator(seed, TUNING_STREAM, 2)
    if T == 0:
        nu = departure(problem, known.gaussian, rng).nu
        return replace(known, nu=nu, nu_at_mode=nu)
    gaussian, nu, at_mode = at_the_mean(problem, known.gaussian, rng, T)
    return replace(known, gaussian=gaussian, nu=nu, nu_at_mode=at_mode)


def _like_a_network(problem: Problem) -> bool:
    """Return whether saddles are so many that a way off one leads to the next."""
    return problem.has_rows and problem.dimension > MAX_SCALES_DIM


def _leave_saddle(problem: Problem, at: AtMode) -> AtMode:
    """Return the mode down the flattest direction from a saddle, or `at` if there is none."""
    for move in SADDLE_ESCAPES:
        found = gaussian_at_mode(problem, at.gaussian.center + move * at.gaussian.flattest)
        rises = found.log_density > at.log_density
        if found.converged and found.gaussian.positive_definite and rises:
            return found
    return at


def _saddle_note(problem: Problem, gaussian: Laplace | LowRankLaplace) -> str:
    return (
        "the curvature at the mode is not positive definite (smallest relative eigenvalue "
        f"{gaussian.smallest:.2g}) along {named_direction(problem, gaussian.flattest)}: a "
        "Gaussian there does not describe the posterior."
    )
