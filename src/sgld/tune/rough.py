"""Plans where there is no usable Gaussian at the mode."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..data.source import Source
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..posterior import Target
from ..preconditioner.fixed import Diagonal
from ..schedule import as_schedule
from . import parts
from .request import Plan, Request, draft, is_auto

__all__ = ["settled", "without_curvature"]


def without_curvature(target: Target, source: Source | None, ask: Request, mode: Any) -> Plan:
    """No usable curvature: a diagonal metric from squared gradients, a cautious step."""
    z = target.layout.array(mode)
    gradient: Any = ask.gradient
    if is_auto(gradient):
        gradient = Full() if source is None else Minibatch()
    if is_auto(ask.preconditioner):
        D = Diagonal(1 / (_squared_gradients(target, source, z) + 1e-8)).prepare(target.layout)
    else:
        D = ask.preconditioner.prepare(target.layout)
    if source is not None:
        size = (
            min(parts.DEFAULT_BATCH, source.num_data) if is_auto(ask.batch_size) else ask.batch_size
        )
        order = "reshuffle" if is_auto(ask.order) else ask.order
        source = parts.batches(source, size, order, gradient)
    matrix = settled(D, target, source, mode)
    h = ask.tolerance / max(1e-12, float(_stiffness(target, source, matrix, z)))
    return draft(
        sampler=parts.sampler(ask), gradient=parts.prepared(gradient, target, source, mode),
        preconditioner=D, source=source, step_size=as_schedule(h, "step_size"),
    )  # fmt: skip


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
def _squared_gradients(target, source, z):
    """Diagonal of the empirical Fisher information plus the prior's curvature along each axis."""
    prior = -jax.jvp(jax.grad(target.log_prior), (z,), (jnp.ones_like(z),))[1]
    prior = jnp.maximum(prior, 1e-6)
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
    times = lambda v: -D.pullback(jax.jvp(gradient, (z,), (D.noise(v),))[1])  # noqa: E731

    def iterate(v, _):
        v = times(v)
        size = jnp.linalg.norm(v)
        return v / jnp.maximum(size, 1e-30), size

    start = jax.random.normal(jax.random.key(0), z.shape, z.dtype)
    return jax.lax.scan(iterate, start / jnp.linalg.norm(start), length=30)[1][-1]
