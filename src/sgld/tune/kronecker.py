"""The factors of a Kronecker preconditioner, from gradients of single rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.devices import sent
from ..errors import UsageError
from ..model.problem import Problem
from ..model.sums import row_gradient
from ..samplers.preconditioners.kronecker import Kronecker, matrix_of

__all__ = ["learnt_factors"]

MOST_SIDE = 2048  # of a matrix that is rotated: its eigenvectors take seconds
PIECE = 2**20  # numbers of gradients of single rows that are held together

Shapes = tuple[tuple[int, int] | None, ...]


def learnt_factors(
    problem: Problem, zs: Float[Array, "chain d"], prior: Float[np.ndarray, " d"], rows: int
) -> Kronecker:
    """The inverse of the rows' Fisher information plus the prior's curvature, in the basis that rows share.

    Of so many rows at every z, each z its own. Of a leaf W with row gradients G:

        U, V   eigenvectors of E G G^T and E G^T G
        s      1 / (N E (U^T G V)^2 + prior's curvature), that being the leaf's mean in another basis
    """
    shapes = tuple(matrix_of(shape, MOST_SIDE) for shape in problem.layout.shapes)
    turns = tuple(
        None if pair is None else tuple(_eigenvectors(problem, moment) for moment in pair)
        for pair in _mean(problem, zs, rows, None, shapes)
    )
    squares = _mean(problem, zs, rows, turns, shapes)
    scale = []
    for square, own, shape in zip(
        squares, np.split(prior, problem.layout.ends[:-1]), shapes, strict=True
    ):
        curvature = own if shape is None else own.mean()
        scale.append(1 / np.maximum(problem.num_data * np.asarray(square) + curvature, 1e-8))
    left, right = zip(*((None, None) if pair is None else pair for pair in turns), strict=True)
    return Kronecker(left, right, tuple(scale)).prepare(problem.layout)


def _eigenvectors(problem: Problem, moment: Array) -> Array:
    found = np.asarray(moment, np.float64)
    if not np.isfinite(found).all():
        raise UsageError(
            "the rows' gradients are so large that their squares are not finite; scale inputs and outcomes to sds near 1."
        )
    return problem.array(np.linalg.eigh(found)[1])


def _mean(problem: Problem, zs: Array, rows: int, turns: Any, shapes: Shapes) -> list[Any]:
    """Of every leaf's gradients over rows, those of each z being its own: moments, or squares where there are turns."""
    share = max(1, -(-min(rows, problem.num_data) // len(zs)))
    together = max(1, min(share, PIECE // problem.dimension))
    total, count = None, 0
    for k, z in enumerate(zs):
        for begin in range(0, share, together):
            numbers = (k * share + begin + np.arange(together)) % problem.num_data
            found = _summed(problem, z, sent(numbers, np.int32), turns, shapes=shapes)
            total = found if total is None else jax.tree.map(jnp.add, total, found)
            count += together
    return jax.tree.map(lambda part: part / count, total)


@partial(jax.jit, static_argnames=("shapes",))
def _summed(problem: Problem, z: Array, numbers: Array, turns: Any, *, shapes: Shapes) -> list[Any]:
    g = jax.vmap(lambda row: row_gradient(problem, z, row))(numbers)
    found: list[Any] = []
    for k, (G, shape) in enumerate(
        zip(jnp.split(g, problem.layout.ends[:-1], axis=1), shapes, strict=True)
    ):
        if shape is None:
            found.append(None if turns is None else jnp.sum(G**2, axis=0))
            continue
        G = G.reshape(-1, *shape)
        if turns is None:
            found.append((jnp.einsum("rij,rkj->ik", G, G), jnp.einsum("rij,rik->jk", G, G)))
        else:
            U, V = turns[k]
            turned = jnp.einsum("ik,rij,jl->rkl", U, G, V, optimize=True)
            found.append(jnp.sum(turned**2, axis=0))
    return found
