"""The stiffest directions of a posterior in a metric D, by block power iteration.

    V <- orthonormal basis of  D^{1/2}^T J D^{1/2} V,     J = - Hessian of the log posterior

on some rows. There a step that is too long, or noise that is too large, shows first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.problem import Problem

__all__ = ["ITERATIONS", "density_by", "stiffest"]

ITERATIONS = 8
FLOOR = 1e-6  # of the eigenvalues of unit rows' products


def stiffest(
    problem: Problem, D: Any, zs: Float[Array, "chain d"], *, count: int, rows: int
) -> tuple[Float[Array, "chain count d"], Float[Array, " chain"]]:
    """Orthonormal directions at every z, in the coordinates of D^{1/2}, and the largest eigenvalue there."""
    found = [_stiffest(problem, D, z, count=count, rows=rows) for z in zs]
    bases, values = zip(*found, strict=True)
    return jnp.stack(bases), jnp.stack(values)


@partial(jax.jit, static_argnames=("count", "rows"))
def _stiffest(
    problem: Problem, D: Any, z: Float[Array, " d"], *, count: int, rows: int
) -> tuple[Float[Array, "count d"], Float[Array, ""]]:
    _, products = jax.linearize(jax.grad(density_by(problem, rows)), z)
    times = lambda v: -D.pullback(products(D.noise(v)))  # noqa: E731

    def iterate(basis: Array, _: None) -> tuple[Array, Array]:
        moved = jax.vmap(times)(basis)
        return _orthonormal(moved), jnp.linalg.eigvalsh(basis @ moved.T)[-1]

    start = jax.random.normal(jax.random.key(0), (count, z.size), z.dtype)
    basis, values = jax.lax.scan(iterate, _orthonormal(start), length=ITERATIONS)
    return basis, values[-1]


def density_by(problem: Problem, rows: int) -> Callable[[Float[Array, " d"]], Float[Array, ""]]:
    """log p of a position as the first rows give it, scaled up to all."""
    if not problem.has_rows:
        return problem.log_prior
    some = problem.source.take(jnp.arange(min(rows, problem.num_data), dtype=jnp.int32))
    scale = problem.num_data / min(rows, problem.num_data)
    return lambda z: problem.log_prior(z) + scale * problem.log_likelihood(z, some)


def _orthonormal(rows: Float[Array, "count d"]) -> Float[Array, "count d"]:
    """A basis of the rows' span, from their products: many times as fast as QR of long rows.

    Rows that rounding errors leave of next to nothing are no longer orthogonal, but of length 1.
    """
    unit = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    values, vectors = jnp.linalg.eigh(unit @ unit.T)
    basis = vectors.T @ unit / jnp.sqrt(jnp.maximum(values, FLOOR))[:, None]
    return basis / jnp.linalg.norm(basis, axis=1, keepdims=True)
