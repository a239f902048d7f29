"""The one compiled function of a run: a number of noise blocks for all chains.

A block is a fixed number of steps B whose noise is drawn at once, addressed by
fold_in(fold_in(key, chain), block), the step being its row. Burn-in, thinning and the
number of blocks are numbers, not shapes: changing them compiles nothing, and no bit of
the result depends on where chunks begin and end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..gradient.estimate import Estimate
from ..problem.problem import Problem

__all__ = ["Carry", "Kept", "Kernel", "block_steps", "run_chunk", "start"]

MAX_BLOCK = 512  # steps of noise drawn at once
MAX_NUMBERS = 2**16  # normals drawn at once per chain, where more than one step fits


def block_steps(dimension: int) -> int:
    """B: a power of two that depends on the dimension alone, so that a seed means one thing."""
    return 2 ** (max(1, min(MAX_BLOCK, MAX_NUMBERS // max(1, dimension))).bit_length() - 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Kernel:
    """Everything a step needs that does not change along the run."""

    problem: Problem
    gradient: Any
    preconditioner: Any
    sampler: Any
    step_size: Any
    temperature: Any
    key: Any
    burn_in: Int[Array, ""]
    thin: Int[Array, ""]
    record_gradient: bool = field(metadata={"static": True})

    @property
    def block(self) -> int:
        """B, the number of steps of a noise block."""
        return block_steps(self.problem.dimension)


class Carry(NamedTuple):
    """What a checkpoint holds: leading axis chain on every leaf but `step`."""

    state: Any
    gradient: Any  # what the estimator remembers, or None
    metric: Any  # what the preconditioner has learnt, or None
    step: Int[Array, ""]
    failed_at: Int[Array, " chain"]  # the step at which a chain became non-finite, or -1


class Kept(NamedTuple):
    """Draws of one chunk; the last row takes what is not kept."""

    z: Float[Array, "slot chain d"]
    gradient: Float[Array, "slot chain d"] | None
    step_size: Float[Array, " slot"]
    temperature: Float[Array, " slot"]


@jax.jit
def start(kernel: Kernel, zs: Float[Array, "chain d"]) -> Carry:
    """The carry at step 0 of chains that start at zs."""
    state = jax.vmap(kernel.sampler.init)(jnp.copy(zs))  # the carry is donated, zs is not
    gradient = metric = None
    if kernel.gradient.remembers:
        begin = lambda z: kernel.gradient.start(kernel.problem, z)  # noqa: E731
        gradient = jax.lax.map(begin, zs)
    if kernel.preconditioner.adapts:
        metric = jax.vmap(kernel.preconditioner.start)(zs)
    return Carry(state, gradient, metric, jnp.int32(0), jnp.full(zs.shape[0], -1, jnp.int32))


@partial(jax.jit, static_argnames=("slots",), donate_argnames=("carry",))
def run_chunk(
    kernel: Kernel,
    carry: Carry,
    entries: Int[Array, "steps chain ..."] | None,
    num_blocks: Int[Array, ""],
    first_draw: Int[Array, ""],
    *,
    slots: int,
) -> tuple[Carry, Kept]:
    """Advance every chain by num_blocks * B steps; keep the draws from first_draw on.

    A draw is the position BEFORE the step, with the gradient at it and the size of the
    step taken from it, which is its weight (Teh, Thiery & Vollmer 2016).
    """
    size, d = kernel.block, kernel.problem.dimension
    chains = jnp.arange(carry.failed_at.shape[0], dtype=jnp.int32)
    dtype = kernel.problem.layout.dtype
    shape = (slots + 1, chains.size, d)
    kept = Kept(
        jnp.zeros(shape, dtype),
        jnp.zeros(shape, dtype) if kernel.record_gradient else None,
        jnp.zeros(slots + 1),
        jnp.zeros(slots + 1),
    )

    def block(i, loop):
        carry, kept = loop
        steps = carry.step + jnp.arange(size, dtype=jnp.int32)
        after = jnp.maximum(steps - kernel.burn_in, 0)
        h = jax.vmap(kernel.step_size)(after).astype(dtype)
        T = jax.vmap(kernel.temperature)(after).astype(dtype)
        noise = _noise(kernel, chains, carry.step // size)
        xs = None
        if entries is not None:
            xs = jax.lax.dynamic_slice_in_dim(entries, i * size, size)
        moving = (carry.state, carry.gradient, carry.metric)
        moving, (z, g) = jax.lax.scan(
            partial(_step, kernel), moving, (xs, h, T, noise, steps), length=size
        )
        draw = (steps - kernel.burn_in) // kernel.thin - first_draw
        keep = (steps >= kernel.burn_in) & ((steps - kernel.burn_in) % kernel.thin == 0)
        slot = jnp.where(keep & (draw >= 0) & (draw < slots), draw, slots)
        put = lambda buffer, rows: buffer.at[slot].set(rows, mode="promise_in_bounds")  # noqa: E731
        kept = Kept(
            put(kept.z, z),
            None if g is None else put(kept.gradient, g),
            put(kept.step_size, h),
            put(kept.temperature, T),
        )
        bad = ~jnp.all(jnp.isfinite(z), axis=-1)
        fresh = jnp.any(bad, 0) & (carry.failed_at < 0)
        failed_at = jnp.where(fresh, steps[jnp.argmax(bad, 0)], carry.failed_at)
        state, memory, learnt = moving
        return Carry(state, memory, learnt, carry.step + size, failed_at), kept

    return jax.lax.fori_loop(0, num_blocks, block, (carry, kept))


def _step(kernel: Kernel, moving: tuple, inputs: tuple) -> tuple[tuple, tuple]:
    """One step of every chain; emits the position before it and, on request, its gradient."""
    xs, h, T, noise, step = inputs

    def one(state, memory, learnt, x, xi):
        z = state.position
        estimate = kernel.gradient.at(kernel.problem, x, memory)
        matrix, grad = kernel.preconditioner, estimate
        if kernel.preconditioner.adapts:
            matrix, learnt, grad = _adapted(kernel, estimate, learnt, z, T, step)
        new = kernel.sampler.step(state, grad, h, xi, preconditioner=matrix, temperature=T)
        if kernel.gradient.remembers:
            memory = kernel.gradient.after(kernel.problem, x, memory, z, step)
        return (new, memory, learnt), (z, estimate(z) if kernel.record_gradient else None)

    in_axes = (0, 0, 0, None if xs is None else 0, 0)
    state, memory, learnt = moving
    return jax.vmap(one, in_axes=in_axes)(state, memory, learnt, xs, noise)


def _adapted(
    kernel: Kernel, estimate: Estimate, learnt: Any, z: Array, T: Array, step: Array
) -> tuple[Any, Any, Callable[[Array], Array]]:
    """This step's matrix, what was learnt, and the gradient with Gamma in it.

    theta' = theta + h (D grad + T Gamma) + noise is a step with grad + T D^{-1} Gamma, so that
    samplers need not know. Gamma is the diagonal of dD/dtheta, by d forward derivatives.
    """
    D = kernel.preconditioner
    count = max(1, kernel.problem.num_data)
    update = lambda q: D.after(learnt, estimate(q) / count)  # noqa: E731
    adapting = (step < kernel.burn_in) | (not D.freeze)
    fresh = jax.tree.map(partial(jnp.where, adapting), update(z), learnt)
    matrix = D.at(fresh)
    if not D.gamma:
        return matrix, fresh, estimate
    gamma = jnp.diag(jax.jacfwd(lambda q: D.at(update(q)).array)(z))
    shift = jnp.where(adapting, T * gamma / matrix.array, 0.0)
    return matrix, fresh, lambda q: estimate(q) + shift


def _noise(kernel: Kernel, chains: Array, block: Array) -> Float[Array, "B chain ..."]:
    """The standard normals of one block, [B, chain, d] or [B, chain, num_noises, d]."""
    count, d = kernel.sampler.num_noises, kernel.problem.dimension
    shape = (kernel.block, d) if count == 1 else (kernel.block, count, d)

    def one(chain):
        key = jax.random.fold_in(jax.random.fold_in(kernel.key, chain), block)
        return jax.random.normal(key, shape, kernel.problem.layout.dtype)

    return jax.vmap(one, out_axes=1)(chains)
