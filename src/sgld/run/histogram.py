"""Histograms of a run's draws whose bins widen as draws fall outside: quantiles, in memory that no draw adds to.

Every number of every chain has BINS bins of one width, a power of 2, from `low` on, that begin no wider than a few
of its roundings. A draw beyond them doubles the width: two bins become one, and the half that is free
lies on the side of the draw, until it is inside. No draw is left out or moved to another place, and bins
end no wider than about 4 / BINS of the range of the draws.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["BINS", "MOST", "Bins", "begin_bins", "with_values"]

BINS = 256
MOST = 2**14  # numbers of a draw, of which histograms are kept: 16 MB a chain
ROUNDINGS = 2.0**-20  # of a number's size, that its bins begin as wide as: 8 of single precision
LEAST = 1e-30  # width that they begin with at 0


class Bins(NamedTuple):
    """The histograms of all numbers of a draw, in one row."""

    low: Float[Array, "chain m"]
    width: Float[Array, "chain m"]  # 0 before the first draw
    weight: Float[Array, "chain m bin"]


def begin_bins(chains: int, numbers: int, dtype: Any) -> Bins:
    """No draw yet."""
    zeros = jnp.zeros((chains, numbers), dtype)
    return Bins(zeros, zeros, jnp.zeros((chains, numbers, BINS), dtype))


def with_values(bins: Bins, x: Float[Array, "chain m"], w: Float[Array, ""]) -> Bins:
    """With one more draw of every chain, of weight w; what is not finite, or weighs nothing, is left out."""
    counts = jnp.isfinite(x) & (w > 0)
    first = counts & (bins.width == 0)
    exponent = jnp.frexp(jnp.maximum(jnp.abs(x) * ROUNDINGS, LEAST))[1]
    width = jnp.where(first, jnp.ldexp(jnp.ones_like(x), exponent), bins.width)
    low = jnp.where(first, x - BINS // 2 * width, bins.low)
    beyond = lambda b: counts & ((x < b.low) | (x >= b.low + BINS * b.width))  # noqa: E731
    bins = jax.lax.while_loop(
        lambda b: jnp.any(beyond(b)),
        lambda b: _widened(b, beyond(b), x < b.low),
        Bins(low, width, bins.weight),
    )
    at = jnp.where(counts, (x - bins.low) / jnp.where(bins.width > 0, bins.width, 1), 0)
    at = jnp.clip(at.astype(jnp.int32), 0, BINS - 1)  # x / width may be rounded up
    chain, number = jnp.indices(x.shape)
    added = jnp.where(counts, w.astype(x.dtype), 0)
    return bins._replace(weight=bins.weight.at[chain, number, at].add(added))


def _widened(bins: Bins, which: Array, below: Array) -> Bins:
    """Twice the width where `which` says so, with room `below` or above."""
    pairs = bins.weight.reshape(*bins.low.shape, BINS // 2, 2).sum(axis=-1)
    free = jnp.zeros_like(pairs)
    up, down = jnp.concatenate([pairs, free], -1), jnp.concatenate([free, pairs], -1)
    moved = jnp.where(below[..., None], down, up)
    return Bins(
        jnp.where(which & below, bins.low - BINS * bins.width, bins.low),
        jnp.where(which, 2 * bins.width, bins.width),
        jnp.where(which[..., None], moved, bins.weight),
    )
