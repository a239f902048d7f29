"""A Cholesky factor inside the model that is not finite: in float32 a nearly singular matrix has none.

JAX answers with NaN, in every parameter at once; which parameter leads there is found by moving one
at a time.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from . import sums
from .problem import Problem

__all__ = ["without_a_factor"]

MOVES = (1.0, 2.0, 4.0, 8.0, 16.0)  # of the scale, on either side
MOST = 200  # parameters that are moved one by one


def without_a_factor(
    problem: Problem, z: Float[np.ndarray, " d"], scale: Float[np.ndarray, " d"], unit: str
) -> str:
    """What is said of a Cholesky factor that is not finite at z, or near it; "" where none is taken.

    Names the parameter that, moved alone by the fewest scales, makes the density finite where it is
    not, or the other way round.
    """
    if not _takes_one(problem):
        return ""
    name = ""
    if z.size <= MOST:
        name = _moved_alone(problem, np.asarray(z, np.float64), scale, unit)
    return (
        f"the model takes a Cholesky factor, which is not finite in {problem.layout.dtype} where the matrix is "
        f"nearly singular{name}; add to the matrix's diagonal, or set jax_enable_x64"
    )


def _takes_one(problem: Problem) -> bool:
    return "cholesky" in str(jax.make_jaxpr(sums.log_density)(problem, problem.start))


def _moved_alone(problem: Problem, z: np.ndarray, scale: np.ndarray, unit: str) -> str:
    finite = bool(_finite(problem, problem.array(z[None]))[0])
    for size in MOVES:
        away = size * np.diag(scale)
        changed = _finite(problem, problem.array(z + np.concatenate([away, -away]))) != finite
        if changed.any():
            name = problem.layout.element_names()[int(np.argmax(changed)) % z.size]
            becomes = "no longer finite" if finite else "finite"
            return f" (it is {becomes} with {name!r} moved by {size:g}{unit})"
    return ""


def _finite(problem: Problem, zs: Float[Array, "m d"]) -> np.ndarray:
    return np.isfinite(np.asarray(_values(problem, zs)))


@jax.jit
def _values(problem: Problem, zs: Any) -> Any:
    return jax.lax.map(lambda z: sums.log_density(problem, z), zs)
