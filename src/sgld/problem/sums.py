"""Sums over all rows, in pieces of bounded memory: log density, gradients, curvature."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..data.source import Source
from .target import Target

__all__ = [
    "block_gradients",
    "curvature",
    "gradients",
    "likelihood_gradient",
    "log_density",
    "value_and_gradient",
]

PIECE = 2**21  # numbers that one piece of rows may hold times the positions it is evaluated at
GROUP = 32  # positions whose gradients are taken together


def _pieces(source: Source, width: int) -> Source:
    """The same rows in blocks small enough for `width` numbers a row."""
    size = max(1, min(source.num_data, PIECE // max(1, width)))
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


@jax.jit
def value_and_gradient(
    target: Target, source: Source | None, z: Float[Array, " d"]
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """Log posterior density at z and its gradient."""
    value, gradient = jax.value_and_grad(target.log_prior)(z)
    if source is None:
        return value, gradient
    piece = lambda b: jax.value_and_grad(target.log_likelihood)(z, b.rows, b.weight)  # noqa: E731
    likelihood, slope = _over_pieces(source, _row_width(source), piece)
    return value + likelihood, gradient + slope


def log_density(target: Target, source: Source | None, z: Float[Array, " d"]) -> Float[Array, ""]:
    """Log posterior density at z."""
    return value_and_gradient(target, source, z)[0]


@jax.jit
def likelihood_gradient(
    target: Target, source: Source, z: Float[Array, " d"]
) -> Float[Array, " d"]:
    """sum_i grad log_likelihood_i(z)."""
    piece = lambda b: jax.grad(target.log_likelihood)(z, b.rows, b.weight)  # noqa: E731
    return _over_pieces(source, _row_width(source), piece)


def gradients(
    target: Target, source: Source | None, zs: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, "m d"]:
    """The full-data gradient of the log posterior at each of m positions, on the host in float64.

    In groups of one size, so that any m runs the same compiled function.
    """
    source = None if source is None else source.with_batches(source.num_data, "reshuffle")
    count = len(zs)
    padded = np.concatenate([zs, np.repeat(zs[-1:], -count % GROUP, axis=0)])
    groups = padded.reshape(-1, GROUP, zs.shape[1])
    parts = [np.asarray(_gradients(target, source, target.layout.array(g))) for g in groups]
    return np.concatenate(parts)[:count].astype(np.float64)


@jax.jit
def _gradients(target, source, zs):
    prior = jax.vmap(jax.grad(target.log_prior))(zs)
    if source is None:
        return prior
    piece = lambda b: jax.vmap(  # noqa: E731
        lambda z: jax.grad(target.log_likelihood)(z, b.rows, b.weight)
    )(zs)
    return prior + _over_pieces(source, max(zs.shape[0], _row_width(source)), piece)


@jax.jit
def curvature(target: Target, source: Source | None, z: Float[Array, " d"]) -> Float[Array, "d d"]:
    """-(d/dz)^2 of the log posterior at z: d Hessian-vector products a row, in pieces."""
    prior = jax.hessian(target.log_prior)(z)
    if source is None:
        return -prior
    piece = lambda b: jax.hessian(target.log_likelihood)(z, b.rows, b.weight)  # noqa: E731
    return -(prior + _over_pieces(source, 4 * max(z.size, _row_width(source)), piece))


@partial(jax.jit, static_argnames=("batch_rows",))
def block_gradients(
    target: Target, source: Source, z: Float[Array, " d"], *, batch_rows: int = 2**16
) -> Float[Array, "K d"]:
    """The blocks' sums of grad log_likelihood_i(z), unscaled, one row per block."""
    one = lambda k: jax.grad(target.log_likelihood)(  # noqa: E731
        z, *_rows_and_weight(source, k)
    )
    ks = jnp.arange(source.num_blocks, dtype=jnp.int32)
    return jax.lax.map(one, ks, batch_size=max(1, batch_rows // source.block_size))


def _rows_and_weight(source: Source, k: Int[Array, ""]):
    batch = source.fetch(k)
    return batch.rows, batch.weight


def _row_width(source: Source) -> int:
    return sum(leaf[0].size for leaf in jax.tree.leaves(source.rows))
