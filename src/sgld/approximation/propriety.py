"""Checks for directions in which a posterior is improper, flat, or below float resolution."""

from __future__ import annotations

from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.pytrees import Layout
from ..errors import UsageError
from ..model import sums
from ..model.problem import Problem, Target
from .laplace import Laplace

TAIL_DISTANCES = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6)  # in units of the norm of the mode, or of 1
MIN_TAIL_FALL = 1.0  # a proper log density has fallen by more than this at one of these distances
MAX_ROUNDING_RATIO = 10.0  # times the curvature: the additional fall that rounding may cause
MAX_SPACING_SDS = 0.5  # sds between neighbouring floating-point numbers
MIN_FLOATS_PER_UNIT = 16  # floats of a constrained parameter per unit of the free one, at least
MAX_ROUNDED_SHARE, MAX_ROUNDING_DRAWS = 0.01, 4096  # share of draws with fewer, and draws used
MAX_NAMED_PARAMETERS = 3  # parameters of a direction that are named


def named_direction(problem: Problem, v: Float[np.ndarray, " d"]) -> str:
    """Describe a direction as "+0.9 'x[1]' -0.4 'x[2]'", the largest parts first."""
    v = v / np.abs(v).max()
    names = problem.layout.element_names()
    labels = problem.posterior.names
    if labels is not None and len(tuple(labels)) == v.size:
        names = list(labels)
    largest = [i for i in np.argsort(-np.abs(v))[:MAX_NAMED_PARAMETERS] if abs(v[i]) > 0.05]
    parts = [f"{v[i]:+.2g} {names[i]!r}" for i in largest]
    return " ".join(parts) + (" ..." if np.sum(np.abs(v) > 0.05) > MAX_NAMED_PARAMETERS else "")


def check_proper(problem: Problem, laplace: Laplace) -> None:
    """Raise UsageError where the density never falls along a line: separated data, flat prior.

    The lines are the path of the mode's search, the parameter that moved furthest, and the directions of least
    curvature at the mode, absolute and relative to each parameter's own. The start is tested too. With more
    columns than rows and a free scale, the search ends where that scale is 0. The curvature there does not show
    that coefficients with a flat prior are undetermined.
    """
    moved = laplace.center - np.asarray(problem.start, np.float64)
    lines = [moved, np.where(np.abs(moved) == np.abs(moved).max(), moved, 0.0), laplace.flattest]
    if np.isfinite(laplace.curvature).all():
        lines.append(np.linalg.eigh(laplace.curvature)[1][:, 0])
    begun, there = np.asarray(problem.start, np.float64), _curvature_at_start(problem)
    if there is not None:
        values, vectors = np.linalg.eigh(there)
        _refuse_flat(problem, begun, vectors[:, np.abs(values).argmin()], np.diag(there).max())
    lengths = [float(np.linalg.norm(line)) for line in lines]
    ways = [
        sign * line / length
        for line, length in zip(lines, lengths, strict=True)
        if np.isfinite(length) and length > 0
        for sign in (1, -1)
    ]
    for v, never in zip(ways, _never_fall(problem, laplace.center, ways, 0.0), strict=True):
        if never:
            raise _improper(problem, v)


def _improper(problem: Problem, v: Float[np.ndarray, " d"]) -> UsageError:
    return UsageError(
        f"the posterior is improper: its density does not fall along {named_direction(problem, v)}. Typical "
        "causes are a flat prior with separated data or with more columns than rows; give those parameters a "
        "proper prior, or leave a redundant one out."
    )


def _curvature_at_start(problem: Problem) -> Float[np.ndarray, "d d"] | None:
    found = np.asarray(sums.curvature(problem, problem.array(problem.start)), np.float64)
    return found if np.isfinite(found).all() else None


def _refuse_flat(
    problem: Problem, begun: Float[np.ndarray, " d"], v: Float[np.ndarray, " d"], steepest: float
) -> None:
    """Raise UsageError where the density falls to neither side of the start along v.

    A direction known in floating-point numbers deviates by eps L at distance L, and the density
    falls by that squared times the steepest curvature.
    """
    if all(_never_fall(problem, begun, [v, -v], steepest)):
        raise _improper(problem, v)


def _never_fall(
    problem: Problem, center: np.ndarray, ways: list[np.ndarray], steepest: float
) -> list[bool]:
    """Return for each direction whether the density never falls that way."""
    if not ways:
        return []
    size = max(1.0, float(np.linalg.norm(center)))
    far = size * np.array(TAIL_DISTANCES)
    points = center + (far[:, None] * np.stack(ways)[:, None]).reshape(-1, center.size)
    with np.errstate(over="ignore"):  # far out, in float32
        higher = sums.differences(problem, points, center).reshape(len(ways), len(far))
    strayed = float(np.finfo(problem.layout.dtype).eps) * far
    least = -MIN_TAIL_FALL - MAX_ROUNDING_RATIO * max(steepest, 0.0) * strayed**2
    return [bool(np.isfinite(each).all() and np.all(each >= least)) for each in higher]


def check_resolved(problem: Problem, laplace: Laplace, temperature: float) -> None:
    """Raise UsageError where a parameter's posterior sd is below floating-point resolution.

    Both the mode and the curvature at the start must show this. A spike, as for a scale that goes to 0,
    is narrow at the mode only.
    """
    apart = np.spacing(np.abs(laplace.center).astype(problem.layout.dtype)).astype(np.float64)

    def share(curvature: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # in conditional sds
            return np.nan_to_num(apart * np.sqrt(np.diag(curvature) / (temperature or 1.0)))

    here = share(laplace.curvature)
    if here.max() <= MAX_SPACING_SDS:
        return
    there = share(np.asarray(sums.curvature(problem, problem.array(problem.start)), np.float64))
    worst = int(np.argmax(np.minimum(here, there)))
    if min(here[worst], there[worst]) > MAX_SPACING_SDS:
        name = problem.layout.element_names()[worst]
        sd = apart[worst] / here[worst]
        raise UsageError(
            f"the posterior sd of {name!r} is about {sd:.2g}, but neighbouring {problem.layout.dtype} numbers around "
            f"{laplace.center[worst]:.6g} are {apart[worst]:.2g} apart; subtract an offset from the data, or use "
            'jax.config.update("jax_enable_x64", True) and data in float64.'
        )


def unresolved(problem: Problem, z: Float[np.ndarray, "chain draw d"]) -> str | None:
    """Return a sentence where a parameter's draws lie on a few neighbouring floats, or on one.

    In such a spike, or on a bound (`rounded`), the density that the chains evaluate is determined by rounding,
    not by the model.
    """
    flat = z.reshape(-1, z.shape[-1])
    sd, middle = flat.std(0, dtype=np.float64), flat.mean(0, dtype=np.float64)
    apart = np.spacing(np.abs(middle).astype(problem.layout.dtype)).astype(np.float64)
    worst = int(np.argmax(apart / np.maximum(sd, 1e-300)))
    if apart[worst] < MAX_SPACING_SDS * sd[worst]:
        return rounded(problem, z)
    return (
        f"{problem.layout.element_names()[worst]!r} has an sd of {sd[worst]:.2g} around {middle[worst]:.6g}, where "
        f"neighbouring {problem.layout.dtype} numbers are {apart[worst]:.2g} apart; use a prior that keeps scales "
        'away from 0, or jax.config.update("jax_enable_x64", True).'
    )


def rounded(problem: Problem, z: Float[np.ndarray, "chain draw d"]) -> str | None:
    """Return a sentence where draws lie so near a bound that the parameter has few floats there.

    A share of 1 - 1e-7 is 1 in float32. Whatever the model computes from 1 - p, free coordinates beyond are
    cut off or identical.
    """
    if problem.posterior.transform is None:
        return None
    flat = z.reshape(-1, z.shape[-1])
    value, slope = _position(
        problem.target, problem.array(flat[:: -(-len(flat) // MAX_ROUNDING_DRAWS)])
    )
    value = np.asarray(value)
    few = np.abs(np.asarray(slope)) < MIN_FLOATS_PER_UNIT * np.spacing(np.abs(value))
    share = np.where(np.ptp(value, axis=0) > 0, few.mean(axis=0), 0.0)
    worst = int(np.argmax(share))
    if share[worst] <= MAX_ROUNDED_SHARE:
        return None
    names = Layout.of(problem.target.position(problem.array(flat[0]))).element_names()
    at = value[few[:, worst], worst][-1]
    return (
        f"{100 * share[worst]:.0f}% of the draws of {names[worst]!r} lie so near to {at:.6g} that {value.dtype} rounds "
        "them to it, which makes the density inaccurate; use a prior that keeps the parameter away from it, or "
        'jax.config.update("jax_enable_x64", True).'
    )


@jax.jit
def _position(target: Target, zs: Float[Array, "m d"]) -> Any:
    """Return flat constrained positions, and their change when all free coordinates move."""
    flat = lambda z: jax.flatten_util.ravel_pytree(target.position(z))[0]  # noqa: E731
    return jax.vmap(lambda z: jax.jvp(flat, (z,), (jnp.ones_like(z),)))(zs)
