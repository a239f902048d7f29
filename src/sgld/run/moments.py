"""Weighted mean and variance of a run's draws, batch by batch, and their histograms, in memory that no draw adds to.

Every chain's draws x_1, x_2, ... of weights w_i fall into batches of equal number. Within a batch
and, over whole batches, for the batches' means, the updates are West's (1979):

    W' = W + w,   mean' = mean + (w / W') (x - mean),   M2' = M2 + w (x - mean)(x - mean')

and the sum of squares around the common mean is that within batches plus that between them, so
that batch means give the standard error without one more pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .histogram import MOST, Bins, begin_bins, with_values

__all__ = ["BatchMoments", "Batches", "begin_moments", "with_draw"]

PyTree = Any


class Batches(NamedTuple):
    """How many draws make a batch, and how many there are to be of each chain."""

    size: Int[Array, ""]
    draws: Int[Array, ""]


class BatchMoments(NamedTuple):
    """Sums over a run's draws; the leaves of the pytrees are [chain, ...]."""

    batch: PyTree  # mean of the draws of the batch that is not whole yet
    within: PyTree  # sum over all draws of w (x - the mean of its batch)^2
    center: PyTree  # mean over whole batches
    between: PyTree  # sum over whole batches of their weight times (mean - center)^2
    batch_weight: Float[Array, ""]
    weight: Float[Array, ""]  # of whole batches
    squared_weights: Float[Array, ""]  # sum of w^2 over all draws
    batch_draws: Int[Array, ""]
    num_batches: Int[Array, ""]
    bins: Bins | None = None  # of all numbers, where quantiles are kept too


def begin_moments(shapes: PyTree) -> BatchMoments:
    """No draw yet, of values [chain, ...] of these shapes and dtypes."""
    row = jax.eval_shape(_row, shapes)
    chains, m = row.shape
    zeros = lambda: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)  # noqa: E731
    number = lambda: jnp.zeros((), jnp.result_type(float))  # noqa: E731
    return BatchMoments(
        zeros(), zeros(), zeros(), zeros(), number(), number(), number(), jnp.int32(0), jnp.int32(0),
        begin_bins(chains, m, row.dtype) if m <= MOST else None,
    )  # fmt: skip


def _row(value: PyTree) -> Float[Array, "chain m"]:
    """All numbers of each chain's draw."""
    leaves = jax.tree.leaves(value)
    return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def with_draw(
    moments: BatchMoments, value: PyTree, weight: Float[Array, ""], size: Int[Array, ""]
) -> BatchMoments:
    """The moments with one more draw of every chain; a batch of `size` draws is whole."""
    m, w = moments, weight.astype(moments.weight.dtype)
    total = m.batch_weight + w
    batch, within = _moved(m.batch, m.within, value, w, total)
    m = m._replace(
        batch=batch, within=within, batch_weight=total, batch_draws=m.batch_draws + 1,
        squared_weights=m.squared_weights + w * w,
        bins=None if m.bins is None else with_values(m.bins, _row(value), w),
    )  # fmt: skip
    return jax.lax.cond(m.batch_draws >= size, _closed, lambda m: m, m)


def _closed(m: BatchMoments) -> BatchMoments:
    """The batch that is whole among the others, and an empty one begun."""
    total = m.weight + m.batch_weight
    center, between = _moved(m.center, m.between, m.batch, m.batch_weight, total)
    zero = jnp.zeros_like(m.batch_weight)
    return BatchMoments(
        jax.tree.map(jnp.zeros_like, m.batch), m.within, center, between, zero, total,
        m.squared_weights, jnp.zeros_like(m.batch_draws), m.num_batches + 1, m.bins,
    )  # fmt: skip


def _moved(mean: PyTree, squares: PyTree, value: PyTree, w: Array, total: Array) -> tuple:
    """Mean and sum of squares with one more value of weight w; `total` counts it."""
    share = w / jnp.where(total > 0, total, 1)
    new = jax.tree.map(lambda a, x: a + share.astype(x.dtype) * (x - a), mean, value)
    add = lambda s, a, b, x: s + w.astype(x.dtype) * (x - a) * (x - b)  # noqa: E731
    return new, jax.tree.map(add, squares, mean, new, value)
