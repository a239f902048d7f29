"""Plans where there is no usable Gaussian at the mode."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..data.source import Source
from ..gradient import sums
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..posterior import Target
from ..preconditioner.fixed import Dense, Diagonal
from ..sampler.baoa import BAOA
from ..schedule import as_schedule
from . import parts
from .curvature import Laplace, largest_eigenvalue
from .pilot import MOST_DIMENSIONS, MOST_ROWS, pilot
from .request import Plan, Request, draft, is_auto

__all__ = ["from_pilot", "settled", "without_curvature"]


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


def from_pilot(
    target: Target, source: Source | None, ask: Request, laplace: Laplace | None, z0: Any, T: float
) -> Plan | None:
    """Pilot chains choose metric and step; None where they would cost too much, or find nothing.

    For what is wholly left to the library, at T = 1, with few rows, so that gradients are exact.
    """
    d = target.layout.dimension
    open_ = all(is_auto(v) for v in (ask.sampler, ask.gradient, ask.preconditioner))
    few = source is None or source.num_data <= MOST_ROWS
    if not (open_ and few and d <= MOST_DIMENSIONS and T == 1):
        return None
    if laplace is not None and laplace.factor is not None:
        center, factor = laplace.mode, laplace.factor
        if not _holds_mass(target, source, center, factor, z0):
            center, factor = np.asarray(z0, np.float64), None
    else:
        center, factor = np.asarray(z0, np.float64), None
    if factor is None:
        squares = _squared_gradients(target, source, target.layout.array(center))
        factor = np.diag(1 / np.sqrt(np.asarray(squares, np.float64) + 1e-8))
    found = pilot(target, source, center, factor, ask.tolerance / 2, ask.seed)
    if found is None:
        return None
    D = Dense(found.factor @ found.factor.T, found.factor).prepare(target.layout)
    if source is not None:
        source = source.with_batches(source.num_data, "reshuffle")
    # delta = sqrt(2 h) in the kinetic case; a Gaussian would forget itself at twice the rates
    h, rate, sampler = found.step_size, found.step_size / 2, parts.sampler(ask)
    if found.kinetic:
        h, rate, sampler = 2 * h, np.sqrt(2 * h) / 4, BAOA()
    return draft(
        sampler=sampler, gradient=Full(), preconditioner=D, source=source,
        step_size=as_schedule(h, "step_size"), rate=rate, starts=found.zs,
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
    return largest_eigenvalue(lambda v: -D.pullback(jax.jvp(gradient, (z,), (D.noise(v),))[1]), z)


def _holds_mass(target: Target, source: Source | None, mode: Any, factor: Any, z0: Any) -> bool:
    """Whether the Gaussian at the mode is near where the posterior's mass can be.

    A density without a bound (a scale that goes to 0) draws the mode's search into a spike:
    there the Gaussian's own draws have no finite density, or are far less dense than the start.
    """
    rng = np.random.default_rng(0)
    near = mode + rng.standard_normal((16, mode.size)) @ factor.T
    array = target.layout.array
    values = np.array([float(sums.log_density(target, source, array(z))) for z in near])
    start = float(sums.log_density(target, source, array(z0)))
    return bool(np.isfinite(values).mean() > 0.5 and np.nanmedian(values) > start - 10 * mode.size)
