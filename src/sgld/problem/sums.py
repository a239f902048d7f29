"""Sums over all rows, in pieces of bounded memory: log density, gradients, curvature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.progress import check_time
from ..data.memory import AlwaysIn
from ..data.source import Source
from .problem import Problem
from .rows import row_values
from .spread import spread

__all__ = [
    "block_gradients",
    "curvature",
    "differences",
    "directions",
    "gradients",
    "likelihood_gradient",
    "log_densities",
    "log_density",
    "prior_curvature",
    "row_directions",
    "value",
    "value_and_gradient",
]

PIECE = 2**21  # numbers that one piece of rows may hold times the positions it is evaluated at
GROUP = 32  # positions whose gradients are taken together
POINTS = 64  # and densities
MANY = 256  # positions whose log densities are
ROWS = 2**16  # of blocks that are looked at together


def _pieces(source: Source, width: int) -> Source:
    """The same rows in blocks of which a device's part is small enough for `width` numbers a row."""
    size = max(1, min(source.num_data, source.shards * PIECE // max(1, width)))
    return source.with_batches(size, "reshuffle")


def _over_pieces(source: Source, width: int, piece):
    """The sum of piece(batch) over all rows, with compensated summation between the pieces."""
    pieces = _pieces(source, width)
    if pieces.num_blocks == 1:
        return piece(pieces.fetch(jnp.int32(0)))

    def add(carry, k):
        total, lost = carry
        values = jax.tree.map(jnp.subtract, piece(pieces.fetch(k)), lost)
        new = jax.tree.map(jnp.add, total, values)
        lost = jax.tree.map(lambda n, t, v: (n - t) - v, new, total, values)
        return (new, lost), None

    shape = jax.eval_shape(piece, jax.eval_shape(pieces.fetch, jnp.int32(0)))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)
    (total, _), _ = jax.lax.scan(add, (zero, zero), jnp.arange(pieces.num_blocks, dtype=jnp.int32))
    return total


@spread(prior=True)
@jax.jit
def value_and_gradient(
    problem: Problem, z: Float[Array, " d"]
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """Log posterior density at z and its gradient."""
    value, gradient = jax.value_and_grad(problem.log_prior)(z)
    if not problem.has_rows:
        return value, gradient
    piece = lambda b: jax.value_and_grad(problem.log_likelihood)(z, b.rows, b.weight)  # noqa: E731
    likelihood, slope = _over_pieces(problem.source, problem.source.row_width, piece)
    return value + likelihood, gradient + slope


@spread(prior=True)
@jax.jit
def value(problem: Problem, z: Float[Array, " d"]) -> Float[Array, ""]:
    """Log posterior density at z, without the gradient: a third of the price."""
    prior = problem.log_prior(z)
    if not problem.has_rows:
        return prior
    piece = lambda b: problem.log_likelihood(z, b.rows, b.weight)  # noqa: E731
    return prior + _over_pieces(problem.source, problem.source.row_width, piece)


def log_density(problem: Problem, z: Float[Array, " d"]) -> Float[Array, ""]:
    """Log posterior density at z."""
    return value_and_gradient(problem, z)[0]


def differences(
    problem: Problem, zs: Float[np.ndarray, "m d"], center: Float[np.ndarray, " d"]
) -> Float[np.ndarray, " m"]:
    """log p(z) - log p(center) at each of m positions, on the host in float64.

    Each row's difference is taken before they are summed, so that a sum of thousands loses no digits.
    NaN where either is not finite in a way that has no difference. In groups of one size, so that
    any m runs the same compiled function.
    """
    problem, count = problem.as_one_batch(), len(zs)
    padded = np.concatenate([zs, np.repeat(zs[-1:], -count % POINTS, axis=0)])
    at = problem.array(center)
    groups = problem.on_host(padded).reshape(-1, POINTS, zs.shape[1])
    # one after the other: of several at once, two processes may wait for each other's sums for ever
    parts = []
    for group in groups:
        check_time()
        parts.append(np.asarray(_differences(problem, group, at), np.float64))
    return np.concatenate(parts)[:count]


@spread(prior=True)
@jax.jit
def _differences(problem, zs, center):
    prior = jax.vmap(problem.log_prior)(zs) - problem.log_prior(center)
    if not problem.has_rows:
        return prior

    # the centre among them: beside a second call for it, XLA makes what depends on the row alone (log y!) anew at
    # each position, and negative binomial rows took 215 ns each for 10
    together = jnp.concatenate([center[None], zs])

    def piece(b):
        values = jax.vmap(lambda z: row_values(problem, z, b.rows))(together)
        moved = values[1:] - values[:1]
        if b.weight is not None:  # what only fills a block up may be anything
            weight = b.weight[None]
            moved = jnp.where(weight > 0, weight * moved, 0.0)
        return jnp.sum(moved, axis=1)

    return prior + _over_pieces(problem.source, max(POINTS, problem.source.row_width), piece)


@spread(prior=False)
@jax.jit
def likelihood_gradient(problem: Problem, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """sum_i grad log_likelihood_i(z)."""
    piece = lambda b: jax.grad(problem.log_likelihood)(z, b.rows, b.weight)  # noqa: E731
    return _over_pieces(problem.source, problem.source.row_width, piece)


def log_densities(problem: Problem, zs: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
    """The log posterior density at each of m positions, on the host in float64; groups as in `gradients`."""
    problem = problem.as_one_batch()
    count = len(zs)
    padded = np.concatenate([zs, np.repeat(zs[-1:], -count % MANY, axis=0)])
    groups = padded.reshape(-1, MANY, zs.shape[1])
    parts = [np.asarray(_log_densities(problem, problem.array(g))) for g in groups]
    return np.concatenate(parts)[:count].astype(np.float64)


@spread(prior=True)
@jax.jit
def _log_densities(problem, zs):
    prior = jax.vmap(problem.log_prior)(zs)
    if not problem.has_rows:
        return prior
    piece = lambda b: jax.vmap(  # noqa: E731
        lambda z: problem.log_likelihood(z, b.rows, b.weight)
    )(zs)
    return prior + _over_pieces(problem.source, max(zs.shape[0], problem.source.row_width), piece)


def gradients(problem: Problem, zs: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d"]:
    """The full-data gradient of the log posterior at each of m positions, on the host in float64.

    In groups of one size, so that any m runs the same compiled function.
    """
    problem = problem.as_one_batch()
    count = len(zs)
    padded = np.concatenate([zs, np.repeat(zs[-1:], -count % GROUP, axis=0)])
    groups = padded.reshape(-1, GROUP, zs.shape[1])
    parts = [np.asarray(_gradients(problem, problem.array(g))) for g in groups]
    return np.concatenate(parts)[:count].astype(np.float64)


@spread(prior=True)
@jax.jit
def _gradients(problem, zs):
    prior = jax.vmap(jax.grad(problem.log_prior))(zs)
    if not problem.has_rows:
        return prior
    piece = lambda b: jax.vmap(  # noqa: E731
        lambda z: jax.grad(problem.log_likelihood)(z, b.rows, b.weight)
    )(zs)
    return prior + _over_pieces(problem.source, max(zs.shape[0], problem.source.row_width), piece)


@spread(prior=True)
@jax.jit
def curvature(problem: Problem, z: Float[Array, " d"]) -> Float[Array, "d d"]:
    """-(d/dz)^2 of the log posterior at z: d Hessian-vector products a row, in pieces."""
    prior = jax.hessian(problem.log_prior)(z)
    if not problem.has_rows:
        return -prior
    piece = lambda b: jax.hessian(problem.log_likelihood)(z, b.rows, b.weight)  # noqa: E731
    width = 4 * max(z.size, problem.source.row_width)
    return -(prior + _over_pieces(problem.source, width, piece))


@spread(prior=False)
@jax.jit
def directions(
    problem: Problem, z: Float[Array, " d"], factor: Float[Array, "d d"]
) -> Float[Array, "d d"]:
    """sum_i v_i v_i^T of the rows' `row_directions`: how many rows point where."""

    def piece(b):
        v = row_directions(problem, z, factor, b.rows)
        return v.T @ (v if b.weight is None else b.weight[:, None] * v)

    return _over_pieces(problem.source, 2 * max(z.size, problem.source.row_width), piece)


def row_directions(problem: Problem, z: Array, factor: Array, rows: Any) -> Float[Array, "n d"]:
    """v_i = F^T g_i / |F^T g_i| of some rows' gradients g_i, leaves [n, ...], inside compiled code; 0 where that is 0.

    Divided by the largest entry first, so that the square of a tiny gradient is not lost.
    """
    each = jax.tree.map(lambda leaf: leaf[:, None], rows)
    slope = jax.vmap(lambda row: jax.grad(problem.log_likelihood)(z, row))(each) @ factor
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    largest = jnp.max(jnp.abs(slope), axis=1, keepdims=True)
    slope = slope / jnp.where(largest > 0, largest, 1.0)
    return slope / jnp.maximum(jnp.linalg.norm(slope, axis=1, keepdims=True), 1.0)


def prior_curvature(problem: Problem, z: Float[Array, " d"]) -> Float[Array, "d d"]:
    """-(d/dz)^2 of the log prior at z."""
    return curvature(replace(problem, data=None), z)


@jax.jit
def block_gradients(problem: Problem, z: Float[Array, " d"]) -> Float[Array, "K d"]:
    """The blocks' sums of grad log_likelihood_i(z), unscaled, one row per block.

    Rows that are in every batch count once per block, each time by their share of 1 / K.
    """
    source, always = problem.of_others().source, problem.source

    def one(k):
        batch = source.fetch(k)
        return jax.grad(problem.log_likelihood)(z, batch.rows, batch.weight)

    ks = jnp.arange(source.num_blocks, dtype=jnp.int32)
    table = jax.lax.map(one, ks, batch_size=max(1, ROWS // source.block_size))
    if isinstance(always, AlwaysIn):
        table += jax.grad(problem.log_likelihood)(z, always.held)[None] / source.num_blocks
    return table
