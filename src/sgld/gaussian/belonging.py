"""Whether the gradient is that of the log density: a rise held against the line integral.

    log p(z) - log p(m) = int_0^1 grad log p(m + t (z - m)) . (z - m) dt

at draws z of the Gaussian around m, by Gauss-Legendre quadrature. Automatic differentiation knows
nothing of a jump (`where`, `round`, `argmax`, a penalty for leaving a box), takes `stop_gradient` at its
word and believes a custom rule; the density and its gradient are then of two functions, and every
sampler that goes by the gradient alone follows the wrong one. A kink (a Laplace prior, a hinge) is no
fault: there the quadrature errs, by the less the more panels the line is cut into. What a jump adds
stays.

Measured (8 points, one panel): 1e-9 to 1e-4 on smooth densities, .02 with one Laplace prior, .5 with 124,
.9 to 5300 on steps, boxes and rounded parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..core.progress import stage
from ..model import sums
from ..model.problem import Problem

__all__ = [
    "BETWEEN_DRAWS", "LARGEST", "OF_RISES", "PANELS", "ROWS_BETWEEN", "WORST", "Misfit", "lines_between", "misfit", "missed",
    "named_misfit", "quadrature", "size_of",
]  # fmt: skip

DRAWS, NODES = 32, 8
LARGEST = 0.05  # root mean square of the misfit in log density that is no fault
PANELS = (8, 64)  # of the lines that are looked at again
WORST = 4  # of the draws, which are
# of a line between two draws of a run; the last for a kink as sharp as that of sqrt(f^2 + 1e-6)
BETWEEN_DRAWS = (4, 16, 64)
ROWS_BETWEEN = 128  # whose log density rises there
# of rises there, that many kinks may leave: of networks with relu up to 3e-4 was left at the last, .3 of the weights of beta-NLL
OF_RISES = 0.01
LINES = (1 / 3, 2 / 3)  # where in a chain those draws are that lines to its last one begin with
FALLS = 0.5  # a kink's share falls by more from one to the next: about 1/8


class Misfit(NamedTuple):
    """Root mean square of the rises that gradients do not account for, 0 where only kinks were met; a
    draw at which the density is +inf, if there is one."""

    size: float
    infinite: Float[np.ndarray, " d"] | None = None


@stage("curvature")
def misfit(
    problem: Problem,
    gaussian: Any,
    rng: np.random.Generator,
    draws: int = DRAWS,
    panels: tuple[int, ...] = PANELS,
) -> Misfit:
    """Of draws of `gaussian`; where it is too large, of the worst lines cut into `panels`, one after another.

    Beside it stands what rounding may do: how much the density differs between neighbouring
    floating-point numbers.
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
    """Root mean square of what integrals of the gradient miss of rises of log density along lines; 0 for kinks.

    Args:
      integral: along the lines of these numbers, each cut into so many panels.
      rounding: what it may do to the rises of these.
      share: of their size, that is no fault.
    """
    lines = np.arange(len(rises))
    apart = rises - integral(lines, 1)
    inside = np.isfinite(apart)
    if np.count_nonzero(inside) < len(rises) // 4:  # outside the support nothing is to be compared
        return 0.0
    lines, apart = lines[inside], apart[inside]
    before = size_of(apart)
    if before <= LARGEST:
        return before
    worst = np.argsort(-np.abs(apart))[:WORST]
    lines, left = lines[worst], size_of(apart[worst])
    allowed = LARGEST + rounding(lines) + share * size_of(rises[lines])
    for count in panels:
        before, left = left, size_of(rises[lines] - integral(lines, count))
        if not left > allowed:
            return 0.0
    return left if left > FALLS * before else 0.0


def lines_between(
    z: Float[np.ndarray, "draw chain d"],
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"]]:
    """Where lines begin and end: at some draws of every chain, and at its last."""
    last = len(z) - 1
    numbers = [n for n in sorted({int(share * last) for share in LINES}) if n < last]
    pairs = [(z[n, c], z[last, c]) for c in range(z.shape[1]) for n in numbers]
    pairs = [(begin, end) for begin, end in pairs if (begin != end).any()]
    begins, ends = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(begins), np.array(ends)


def size_of(rises: Float[np.ndarray, " n"]) -> float:
    """Root mean square; what is infinite or no number is left out."""
    return float(np.sqrt(np.mean(np.nan_to_num(rises, posinf=0.0, neginf=0.0) ** 2)))


def named_misfit(size: float) -> str:
    """What is said of a misfit."""
    return (
        f"the gradient is not that of the log density: between points where the density differs, by up to {size:.2g} "
        "in its logarithm, integrated gradients miss it (a jump, as of where, round or a penalty; stop_gradient; "
        "a custom gradient)"
    )


def quadrature(panels: int) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Places on [0, 1] and their weights, of Gauss-Legendre in each of `panels`."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    at = ((nodes + 1) / 2 + np.arange(panels)[:, None]).ravel() / panels
    return at, np.tile(weights / 2, panels) / panels


def _integral(
    problem: Problem, center: Float[np.ndarray, " d"], zs: Float[np.ndarray, "n d"], panels: int
) -> Float[np.ndarray, " n"]:
    """int grad log p . dz along the lines from `center`, by Gauss-Legendre in each of `panels`."""
    at, share = quadrature(panels)
    away = zs - center
    points = center + at[:, None, None] * away
    slopes = sums.gradients(problem, points.reshape(-1, center.size)).reshape(points.shape)
    return np.einsum("k,knd,nd->n", share, slopes, away)


def _rounding(
    problem: Problem, zs: Float[np.ndarray, "n d"], center: Float[np.ndarray, " d"]
) -> float:
    """4 times what rounding does to a rise: by how much neighbouring numbers differ, and the terms' own."""
    dtype = problem.layout.dtype
    next_to = np.nextafter(zs.astype(dtype), np.inf).astype(np.float64)
    apart = sums.differences(problem, next_to, center) - sums.differences(problem, zs, center)
    z = problem.array(center)
    prior = abs(float(problem.log_prior(z)))
    rows = abs(float(sums.log_density(problem, z)) - prior) / np.sqrt(max(1, problem.num_data))
    terms = float(np.finfo(dtype).eps) * (prior + (rows if problem.has_rows else 0.0))
    return 4 * (size_of(apart) + terms)
