"""Gradients of single rows."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from ..data.source import Source
from .target import Target

__all__ = ["scores"]

NUMBERS = 2**20  # of the rows' gradients that are taken together


@jax.jit
def scores(target: Target, source: Source, z: Array, rows: Array) -> Float[Array, "m d"]:
    """grad log_likelihood_i + grad log_prior / N of the given rows."""
    prior = jax.grad(target.log_prior)(z) / source.num_data

    def one(row):
        datum = jax.tree.map(lambda leaf: leaf[row][None], source.rows)
        return prior + jax.grad(target.log_likelihood)(z, datum)

    return jax.lax.map(one, rows, batch_size=max(1, NUMBERS // z.size))
