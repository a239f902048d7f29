"""The compiled function of a run, which advances all chains by a number of noise blocks.

A block is a fixed number of steps B whose noise is drawn at once, addressed by
fold_in(fold_in(key, chain), block), with the step as its row. Burn-in, thinning and the number of
blocks are numbers, not shapes: changing them compiles nothing, and no bit of the result depends on
where chunks begin and end.

What is kept of a draw (its position, a function of it, or moments alone) is written when the draw
is due. A chunk has as many slots as it may keep draws, however many steps lie between them.

For runs that are judged by predictions, a probe measures predictions and temperatures at draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..core.pytrees import as_pytree
from ..diagnostics.function_space.predictions import predictions_of
from ..diagnostics.function_space.temperature import Layers, Probe, meter_of, stiffest
from ..model.problem import Problem
from ..results.plan import Setup
from ..samplers.confined_hmc import ConfinedHMC
from ..samplers.gradients.full import Estimate, goes_by_tiles
from ..samplers.hmc import HMC
from ..samplers.noise import draw_noise, once
from .kept import Batches, BatchMoments, begin_moments, with_draw
from .tuning.network_rules import curvature_rows, num_directions
from .tuning.parts import settled

MAX_BLOCK_STEPS = 512  # steps of noise drawn at once
# the same for long steps: a trajectory of many gradients, a gradient of a large table
MAX_LONG_BLOCK_STEPS = 8
MAX_BLOCK_NORMALS = 2**16  # normals drawn at once per chain, where more than one step fits


def block_steps(dimension: int) -> int:
    """Return B, a power of two that depends only on the dimension: a seed then fixes the noise."""
    return 2 ** (
        max(1, min(MAX_BLOCK_STEPS, MAX_BLOCK_NORMALS // max(1, dimension))).bit_length() - 1
    )


@as_pytree
@dataclass(frozen=True)
class Kernel:
    """Everything a step needs that does not change along the run.

    `keep` is the function of the reported position that is kept in addition to the position, or, if
    `positions` is False, instead of it; with `batches` only its moments are kept. `probe` is what
    runs that are judged by predictions measure at every draw.
    """

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
    keep: Any = None
    batches: Batches | None = None
    probe: Probe | None = None
    positions: bool = field(default=True, metadata={"static": True})
    noise: str = field(default="normal", metadata={"static": True})

    @property
    def block(self) -> int:
        """B, the steps of a noise block; small for long steps, as a run is whole blocks."""
        most = block_steps(self.problem.dimension)
        long = isinstance(self.sampler, (HMC, ConfinedHMC))
        long = long or goes_by_tiles(self.gradient, self.problem)
        return min(most, MAX_LONG_BLOCK_STEPS) if long else most

    def kept(self, z: Float[Array, "chain d"]) -> Any:
        """Return `keep` at every chain's position."""
        assert self.keep is not None
        return jax.vmap(lambda q: self.keep(self.problem.target.reported(q)))(z)

    def probed(
        self, z: Float[Array, "chain d"], moved: Any, h: Array, T: Array, draw: Int[Array, ""]
    ) -> tuple[Any, Any]:
        """Return predictions and temperatures at the draw number `draw`, None if not measured."""
        if self.probe is None:
            return None, None
        kinetic = None
        if moved is not None:
            kinetic = self.probe.kinetic(
                self.problem, self.sampler, self.preconditioner, z, moved, h, T, draw
            )
        return self.probe.predicted(self.problem, z), kinetic


class Carry(NamedTuple):
    """State of a run in a checkpoint: leading axis chain on every leaf but `step`."""

    state: Any
    gradient: Any  # what the estimator remembers, or None
    metric: Any  # the state of an adaptive preconditioner, or None
    step: Int[Array, ""]
    failed_at: Int[Array, " chain"]  # the step at which a chain became non-finite, or -1
    moments: BatchMoments | None = None  # moments of the draws so far, if only they are kept


class Kept(NamedTuple):
    """The draws of one chunk, one slot each, in order; None for what is not kept."""

    value: Any  # pytree of [slot, chain, ...]
    z: Float[Array, "slot chain d"] | None
    gradient: Float[Array, "slot chain d"] | None
    step_size: Float[Array, " slot"]
    temperature: Float[Array, " slot"]
    predicted: Float[Array, "slot chain m k"] | None = None
    kinetic: Float[Array, "slot chain layer"] | None = None


@jax.jit
def start(kernel: Kernel, zs: Float[Array, "chain d"]) -> Carry:
    """Return the carry at step 0 of chains that start at zs."""
    state = jax.vmap(kernel.sampler.init)(jnp.copy(zs))  # the carry is donated, zs is not
    gradient = metric = None
    if kernel.gradient.remembers:
        begin = lambda z: kernel.gradient.start(kernel.problem, z)  # noqa: E731
        gradient = jax.lax.map(begin, zs)
    if kernel.preconditioner.adapts:
        metric = jax.vmap(kernel.preconditioner.start)(zs)
    moments = None
    if kernel.batches is not None:
        moments = begin_moments(jax.eval_shape(kernel.kept, zs))
    failed_at = jnp.full(zs.shape[0], -1, jnp.int32)
    return Carry(state, gradient, metric, jnp.int32(0), failed_at, moments)


@partial(jax.jit, static_argnames=("slots",), donate_argnames=("carry",))
def run_chunk(
    kernel: Kernel,
    carry: Carry,
    entries: tuple[Int[Array, "steps chain ..."], Int[Array, ""]] | None,
    num_blocks: Int[Array, ""],
    first_draw: Int[Array, ""],
    *,
    slots: int,
) -> tuple[Carry, Kept]:
    """Advance every chain by num_blocks * B steps; keep the draws from first_draw on.

    `entries` is a window of the data order, and the position in it of the first of these steps.

    A draw is the position BEFORE the step, with the gradient at it and the size of the step taken
    from it. The step size is its weight (Teh, Thiery & Vollmer 2016).
    """
    size = kernel.block
    chains = jnp.arange(carry.failed_at.shape[0], dtype=jnp.int32)
    dtype = kernel.problem.layout.dtype

    def block(i, loop):
        carry, kept = loop
        steps = carry.step + jnp.arange(size, dtype=jnp.int32)
        after = jnp.maximum(steps - kernel.burn_in, 0)
        h = jax.vmap(kernel.step_size)(after).astype(dtype)
        T = jax.vmap(kernel.temperature)(after).astype(dtype)
        noise = _noise(kernel, chains, carry.step // size)
        xs = None
        if entries is not None:
            order, begin = entries
            xs = jax.lax.dynamic_slice_in_dim(order, begin + i * size, size)
        moving = (carry.state, carry.gradient, carry.metric)
        moving, (z, g, moved) = jax.lax.scan(
            partial(_step, kernel), moving, (xs, h, T, noise, steps), length=size
        )
        rows = (z, g, moved, h, T)
        kept, moments = _put(kernel, (kept, carry.moments), rows, carry.step, first_draw)
        bad = _lost(z)
        fresh = jnp.any(bad, 0) & (carry.failed_at < 0)
        failed_at = jnp.where(fresh, steps[jnp.argmax(bad, 0)], carry.failed_at)
        state, memory, adapted = moving
        return Carry(state, memory, adapted, carry.step + size, failed_at, moments), kept

    empty = room(kernel, carry, slots)
    return jax.lax.fori_loop(0, num_blocks, block, (carry, empty))


def _lost(z: Float[Array, "B chain d"]) -> Bool[Array, "B chain"]:
    """Return whether a position has an entry that is not finite."""
    if len(z) > 1:
        return ~jnp.all(jnp.isfinite(z), axis=-1)
    # many parameters: 0 x is NaN where x is not finite, and a product costs a third
    return ~jnp.isfinite(z @ jnp.zeros(z.shape[-1], z.dtype))


def room(kernel: Kernel, carry: Carry, count: int) -> Kept:
    """Return empty slots for `count` draws."""
    z, dtype = carry.state.position, kernel.problem.layout.dtype
    empty = lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype)  # noqa: E731
    value = None
    if kernel.keep is not None and kernel.batches is None:
        value = jax.tree.map(empty, jax.eval_shape(kernel.kept, z))
    one = jnp.zeros((), dtype)
    moved = None if kernel.probe is None or kernel.probe.meter is None else z
    probed = jax.eval_shape(kernel.probed, z, moved, one, one, jnp.int32(0))
    return Kept(
        value,
        empty(z) if kernel.positions else None,
        empty(z) if kernel.record_gradient else None,
        jnp.zeros(count, dtype),
        jnp.zeros(count, dtype),
        *jax.tree.map(empty, probed),
    )


def _put(kernel: Kernel, sofar: tuple, rows: tuple, step: Array, first_draw: Array) -> tuple:
    """Write the due draws of a block of steps from `step` on to kept draws and moments."""
    due = lambda s: jnp.maximum(0, (s - kernel.burn_in + kernel.thin - 1) // kernel.thin)  # noqa: E731

    def put(draw, sofar):
        kept, moments = sofar
        row = kernel.burn_in + draw * kernel.thin - step
        at = lambda values: jax.lax.dynamic_index_in_dim(values, row, keepdims=False)  # noqa: E731
        z, g, moved, h, T = jax.tree.map(at, rows)
        value = None if kernel.keep is None else kernel.kept(z)
        if moments is not None:
            assert kernel.batches is not None
            moments = with_draw(moments, value, jnp.where(T > 0, h, 0), kernel.batches.size)
            value = None
        probed = kernel.probed(z, moved, h, T, draw)
        new = Kept(value, z if kernel.positions else None, g, h, T, *probed)
        write = partial(jax.lax.dynamic_update_index_in_dim, index=draw - first_draw, axis=0)
        return jax.tree.map(write, kept, new), moments

    end = due(step + kernel.block)
    if kernel.batches is not None:  # a chunk ends with a block, and draws must end before it
        end = jnp.minimum(end, kernel.batches.draws)
    if kernel.block > 1:
        return jax.lax.fori_loop(due(step), end, put, sofar)
    # one step has at most one draw; XLA would hoist the loop's invariant body out of the loop
    return jax.lax.cond(end > due(step), partial(put, due(step)), lambda sofar: sofar, sofar)


def _step(kernel: Kernel, moving: tuple, inputs: tuple) -> tuple[tuple, tuple]:
    """Take one step of every chain; emit the position before it and, on request, its gradient.

    For the probe it also emits the momentum before the step, or the gradient, to measure
    temperatures.
    """
    xs, h, T, noise, step = inputs
    meter = None if kernel.probe is None else kernel.probe.meter

    def one(state, memory, adapted, x, xi):
        z = state.position
        estimate = _estimate(kernel, x, memory, T)
        if isinstance(estimate, Estimate) and (kernel.record_gradient or meter == "step"):
            estimate = estimate.knowing(z)
        matrix, grad = kernel.preconditioner, estimate
        if kernel.preconditioner.adapts:
            matrix, adapted, grad = _adapted(kernel, estimate, adapted, z, T, step)
        new = kernel.sampler.step(state, grad, h, xi, preconditioner=matrix, temperature=T)
        if kernel.gradient.remembers:
            memory = kernel.gradient.after(kernel.problem, x, memory, z, step)
        moved = state.momentum if meter == "momentum" else None
        moved = estimate(z) if meter == "step" else moved
        return (new, memory, adapted), (z, estimate(z) if kernel.record_gradient else None, moved)

    state, memory, adapted = moving
    if len(state.position) == 1:  # vmap over one chain is slower than none
        alone = one(*jax.tree.map(lambda leaf: leaf[0], (state, memory, adapted, xs, noise)))
        return jax.tree.map(lambda leaf: leaf[None], alone)
    in_axes = (0, 0, 0, None if xs is None else 0, 0)
    return jax.vmap(one, in_axes=in_axes)(state, memory, adapted, xs, noise)


def _estimate(kernel: Kernel, x: Any, memory: Any, T: Array) -> Estimate:
    """Return this step's estimate of the target at temperature T, which also gives others."""
    at = lambda T: kernel.gradient.at(kernel.problem.at_temperature(T), x, memory)  # noqa: E731
    found = at(T)
    if kernel.problem.posterior.transform is None:
        return found
    return replace(found, tempered=at)


def _adapted(
    kernel: Kernel, estimate: Estimate, adapted: Any, z: Array, T: Array, step: Array
) -> tuple[Any, Any, Callable[[Array], Array]]:
    """Return this step's matrix, the adapted state, and the gradient that includes Gamma.

    theta' = theta + h (D grad + T Gamma) + noise is a step with grad + T D^{-1} Gamma, so that
    samplers need no change. Gamma is the diagonal of dD/dtheta, by d forward derivatives.
    """
    D = kernel.preconditioner
    count = max(1, kernel.problem.num_data)
    update = lambda q: D.after(adapted, estimate(q) / count)  # noqa: E731
    adapting = (step < kernel.burn_in) | (not D.freeze)
    fresh = jax.tree.map(partial(jnp.where, adapting), update(z), adapted)
    matrix = D.at(fresh)
    if not D.gamma:
        return matrix, fresh, estimate
    gamma = jnp.diag(jax.jacfwd(lambda q: D.at(update(q)).array)(z))
    shift = jnp.where(adapting, T * gamma / matrix.array, 0.0)
    return matrix, fresh, lambda q: estimate(q) + shift


def _noise(kernel: Kernel, chains: Array, block: Array) -> Float[Array, "B chain ..."]:
    """Return the injected numbers of one block, [B, chain, d] or [B, chain, num_noises, d]."""
    count, d = kernel.sampler.num_noises, kernel.problem.dimension
    shape = (kernel.block, d) if count == 1 else (kernel.block, count, d)

    keyed = lambda chain: jax.random.fold_in(jax.random.fold_in(kernel.key, chain), block)  # noqa: E731
    # one long vector per chain: the same numbers drawn in `shape` take XLA longer to compile
    count, dtype = math.prod(shape), kernel.problem.layout.dtype
    of = lambda keys: draw_noise(kernel.noise, keys, block, count, dtype)  # noqa: E731
    keys = jax.vmap(keyed)(chains)
    # numbers of a single step are part of the step's own expressions
    numbers = once(of, keys, block) if kernel.block == 1 else of(keys)
    return jnp.moveaxis(numbers.reshape(len(chains), *shape), 0, 1)


# -- probe ---------------------------------------------------------------------------------


def make_probe(problem: Problem, setup: Setup, starts: Any) -> Probe | None:
    """Return predictions at probe rows, and the stiffest directions where the chains start."""
    if not setup.predictions or starts is None:
        return None
    meter = None if setup.preconditioner.adapts else meter_of(setup.sampler)
    D = settled(setup.preconditioner, problem, starts[0])
    rows = curvature_rows(problem.num_data, problem.dimension)
    steps = setup.burn_in + setup.thin * setup.num_draws
    gradients = steps * (setup.batch_size or problem.num_data)
    count = num_directions(gradients, rows, problem.dimension)
    directions, _ = stiffest(problem, D, starts, count=count, rows=rows)
    return Probe(predictions_of(problem), directions, Layers.of(problem.layout), meter)
