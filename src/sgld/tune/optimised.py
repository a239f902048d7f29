"""Plans where there is no usable Gaussian at the mode."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..approximate.find_map import optimise
from ..data.source import Source, generator
from ..gaussian.dense import largest_eigenvalue
from ..gaussian.noise import TUNING
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..preconditioner.fixed import Diagonal
from ..problem.request import Request, is_auto
from ..problem.target import Target
from ..schedule import as_schedule
from . import parts
from .request import Plan, draft

__all__ = ["settled", "squared_gradients", "without_curvature"]

SEARCH, SEARCH_PASSES = 1000, 20  # least steps of an optimiser, and passes over the data


def without_curvature(
    target: Target, source: Source | None, ask: Request, z0: Any, laplace: Any
) -> Plan:
    """No usable curvature: reshuffled batches, a diagonal metric learnt where optimisers end, frozen.

    Every chain starts where an optimiser of its own ended, from a start of its own, so that chains
    in different modes are seen to disagree.
    """
    gradient: Any = ask.gradient
    if is_auto(gradient):
        gradient = Full() if source is None else Minibatch()
    if source is not None:
        size = (
            min(parts.DEFAULT_BATCH, source.num_data) if is_auto(ask.batch_size) else ask.batch_size
        )
        order = "reshuffle" if is_auto(ask.order) else ask.order
        source = parts.batches(source, size, order, gradient)
    center = z0 if laplace is None else laplace.mode
    starts, near = None, np.asarray(center)[None]
    if laplace is None or not laplace.positive_definite:
        starts = near = _optimised(target, source, ask, np.asarray(z0, np.float64))
    if is_auto(ask.preconditioner):
        squares = [
            np.asarray(squared_gradients(target, source, target.layout.array(z))) for z in near
        ]
        D = Diagonal(1 / (np.mean(squares, axis=0) + 1e-8)).prepare(target.layout)
    else:
        D = ask.preconditioner.prepare(target.layout)
    matrix = settled(D, target, source, near[0])
    stiffest = max(float(_stiffness(target, source, matrix, target.layout.array(z))) for z in near)
    h = ask.tolerance / max(1e-12, stiffest)
    return draft(
        sampler=parts.sampler(ask), gradient=parts.prepared(gradient, target, source, center),
        preconditioner=D, source=source, step_size=as_schedule(h, "step_size"), starts=starts,
    )  # fmt: skip


def _optimised(target: Target, source: Source | None, ask: Request, z0: np.ndarray) -> np.ndarray:
    """Where Adam ends, for every chain, from z0 with as much again of what varies within a leaf."""
    import optax

    rng = generator(ask.seed, TUNING, 7)
    spread = np.concatenate([
        np.full(math.prod(shape), np.std(np.asarray(leaf)) if math.prod(shape) > 1 else 0.0)
        for leaf, shape in zip(
            jax.tree.leaves(target.layout.unravel(target.layout.array(z0))), target.layout.shapes, strict=True
        )
    ])  # fmt: skip
    gradient = Full() if source is None else Minibatch()
    steps = (
        SEARCH
        if source is None
        else int(np.clip(SEARCH_PASSES * source.num_blocks, SEARCH, 10 * SEARCH))
    )
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, steps))
    ends = []
    for chain in range(ask.num_chains):
        start = z0 + spread * rng.standard_normal(z0.size) * (chain > 0)
        end, *_ = optimise(
            target,
            source,
            target.layout.array(start),
            optimizer,
            gradient,
            steps,
            None,
            ask.seed + chain,
        )
        ends.append(np.asarray(end, np.float64))
    return np.array(ends)


def settled(D: Any, target: Target, source: Source | None, mode: Any) -> Any:
    """The matrix itself; of an adaptive preconditioner, what it will be near the mode."""
    return _learnt(D, target, source, target.layout.array(mode)) if D.adapts else D


@jax.jit
def _learnt(D: Any, target: Target, source: Source | None, z: Any) -> Any:
    """What an adaptive preconditioner would be after 100 gradients at z."""
    estimator: Any = Full() if source is None else Minibatch()
    count = 1 if source is None else source.num_data
    blocks = 1 if source is None else source.num_blocks

    def learn(memory, k):
        g = estimator.at(target, source, k % blocks)(z)
        return D.after(memory, g / count), None

    return D.at(jax.lax.scan(learn, D.start(z), jnp.arange(100, dtype=jnp.int32))[0])


@jax.jit
def squared_gradients(target, source, z):
    """Diagonal of the empirical Fisher information plus the prior's curvature along each axis."""
    prior = -jax.jvp(jax.grad(target.log_prior), (z,), (jnp.ones_like(z),))[1]
    # a kink at z has no curvature to go by
    prior = jnp.where(jnp.isfinite(prior), jnp.maximum(prior, 1e-6), 1.0)
    if source is None:
        return jnp.maximum(prior, 1e-2 * jnp.max(prior))
    count = min(source.num_data, max(16, 2**22 // z.size))
    rows = jax.tree.map(lambda leaf: leaf[:count], source.rows)

    def one(row):
        return jax.grad(target.log_likelihood)(z, jax.tree.map(lambda leaf: leaf[None], row)) ** 2

    squares = jnp.sum(jax.lax.map(one, rows, batch_size=max(1, 2**20 // z.size)), 0)
    return prior + squares * (source.num_data / count)


@jax.jit
def _stiffness(target, source, D, z):
    """lambda_max of D^{1/2}^T J D^{1/2} by power iteration on a few thousand rows."""
    gradient = jax.grad(target.log_prior)
    if source is not None:
        count = min(source.num_data, 4096)
        rows = jax.tree.map(lambda leaf: leaf[:count], source.rows)
        scale = source.num_data / count
        gradient = jax.grad(lambda q: target.log_prior(q) + scale * target.log_likelihood(q, rows))
    return largest_eigenvalue(lambda v: -D.pullback(jax.jvp(gradient, (z,), (D.noise(v),))[1]), z)
