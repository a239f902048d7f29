"""BlackJAX's transitions, in pieces sized by time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.work import Work
from ..model import sums
from ..model.problem import Problem
from . import adaptation

__all__ = ["Trace", "run"]

BLOCK = 256  # transitions that one call of the compiled function may make
NUMBERS = 2**22  # and numbers that it may hand back
STREAMS = (4, 5)  # of the seed: transitions, starts


class Trace(NamedTuple):
    """What the chains leave: draws [chain, draw, d] in u, and their bookkeeping."""

    u: np.ndarray
    acceptance: np.ndarray
    divergences: np.ndarray
    gradients: np.ndarray
    step_size: np.ndarray


def _density(local: Problem) -> Callable:
    """u -> log density, whose gradient costs one pass over the rows and no memory beyond it."""
    both = partial(sums.value_and_gradient, local)
    value = jax.custom_vjp(lambda u: both(u)[0])
    value.defvjp(both, lambda gradient, cotangent: (cotangent * gradient,))
    return value


def _kernel(method: str, limit: int) -> tuple[Callable, Callable]:
    """`init(u, density)` and `step(key, state, density, step size, inverse mass)`.

    A step gives the state, the acceptance probability, whether it diverged, and its gradients.
    """
    import blackjax
    from blackjax.mcmc import random_walk as walk

    if method == "nuts":
        nuts = blackjax.nuts.build_kernel()

        def nuts_step(key, state, density, size, mass):
            state, info = nuts(key, state, density, size, mass, max_num_doublings=limit)
            return state, info.acceptance_rate, info.is_divergent, info.num_integration_steps

        return blackjax.nuts.init, nuts_step
    if method == "hmc":
        hmc = blackjax.hmc.build_kernel()

        def hmc_step(key, state, density, size, mass):
            key, other = jax.random.split(key)
            count = jax.random.randint(other, (), 1, limit + 1)
            state, info = hmc(key, state, density, size, mass, count)
            return state, info.acceptance_rate, info.is_divergent, count

        return blackjax.hmc.init, hmc_step
    if method == "mala":
        mala = blackjax.mala.build_kernel()

        def mala_step(key, state, density, size, mass):
            state, info = mala(key, state, density, size)
            return state, info.acceptance_rate, False, 1

        return blackjax.mala.init, mala_step
    metropolis = walk.build_additive_step()

    def walk_step(key, state, density, size, mass):
        move = lambda key, u: size * jax.random.normal(key, u.shape, u.dtype)  # noqa: E731
        state, info = metropolis(key, state, density, move)
        return state, info.acceptance_rate, False, 1

    return walk.init, walk_step


@partial(jax.jit, static_argnames=("method", "limit"))
def _begin(method: str, limit: int, local: Problem, u: Array) -> Any:
    init, _ = _kernel(method, limit)
    one = _density(local)
    return jax.vmap(lambda q: (init(q, one), adaptation.begin(q)))(u)


@partial(jax.jit, static_argnames=("method", "limit", "block"))
def _advance(
    method: str, limit: int, block: int, local: Problem, keys: Array, aim: Array,
    stages: Array, carry: Any, first: Array, count: Array, num_warmup: Array, thin: Array,
) -> Any:  # fmt: skip
    """`count` entries from entry `first`: one transition each in warm-up, then `thin`."""
    _, step = _kernel(method, limit)
    one = _density(local)

    def chain(key, carry, entry, stage):
        state, adapt = carry
        warm = entry < num_warmup
        key = jax.random.fold_in(key, entry)
        size = jnp.where(warm, adapt.step_size, adaptation.settled(adapt).step_size)

        def transition(j, carry):
            state, *total = carry
            state, *new = step(jax.random.fold_in(key, j), state, one, size, adapt.inverse_mass)
            return state, *(t + jnp.asarray(n, t.dtype) for t, n in zip(total, new, strict=True))

        zero = (jnp.zeros_like(size), jnp.int32(0), jnp.int32(0))
        repeat = jnp.where(warm, 1, thin)
        state, *total = jax.lax.fori_loop(0, repeat, transition, (state, *zero))
        total[0] /= repeat
        updated = adaptation.update(
            adapt, state.position, total[0], aim, stage[0] > 0, stage[1] > 0
        )
        adapt = jax.tree.map(partial(jnp.where, warm), updated, adapt)
        return (state, adapt), (state.position, *total, size)

    def body(i, both):
        carry, kept = both
        chains = jax.vmap(chain, (0, 0, None, None))
        carry, new = chains(keys, carry, first + i, stages[i])
        return carry, tuple(old.at[i].set(row) for old, row in zip(kept, new, strict=True))

    u = carry[0].position
    one_number, whole = jnp.zeros((block, len(u)), u.dtype), jnp.zeros((block, len(u)), jnp.int32)
    kept = (jnp.zeros((block, *u.shape), u.dtype), one_number, whole, whole, one_number)
    return jax.lax.fori_loop(0, count, body, (carry, kept))


def run(
    method: str, limit: int, aim: float, local: Problem, modes: Float[np.ndarray, "modes d"],
    lengths: tuple[int, int, int, int], seed: int,
) -> Trace:  # fmt: skip
    """Warm-up and draws; a chain's draws do not depend on how the entries fall into calls.

    Chains start around `modes` (in the problem's coordinates), which take turns.
    """
    num_chains, num_warmup, num_draws, thin = lengths
    d, dtype = local.target.center.size, local.target.center.dtype
    root = jax.random.key(seed)
    fold, chains = jax.vmap(jax.random.fold_in, (None, 0)), jnp.arange(num_chains)
    keys, starts = (fold(jax.random.fold_in(root, stream), chains) for stream in STREAMS)
    spread = 1.0 if local.target.factor is None else 2.0
    own = jnp.asarray(modes[np.arange(num_chains) % len(modes)], dtype)
    u = own + spread * jax.vmap(lambda key: jax.random.normal(key, (d,), dtype))(starts)
    for _ in range(20):  # a start of no density is drawn in towards its mode
        carry = _begin(method, limit, local, u)
        bad = ~jnp.isfinite(carry[0].logdensity)
        if not bool(bad.any()):
            break
        u = jnp.where(bad[:, None], (own + u) / 2, u)
    block = int(np.clip(NUMBERS // (num_chains * d), 1, BLOCK))
    total = num_warmup + num_draws
    stages = np.zeros((total + block, 2), np.int32)
    if method in ("nuts", "hmc"):
        stages[:num_warmup] = adaptation.windows(num_warmup)
    parts = []
    with Work("sampling", units="transitions") as work:
        for done, now in work.pieces(0, total, most=block):
            carry, kept = _advance(
                method, limit, block, local, keys, jnp.asarray(aim, dtype),
                jnp.asarray(stages[done : done + block]), carry, jnp.int32(done),
                jnp.int32(now), jnp.int32(num_warmup), jnp.int32(thin),
            )  # fmt: skip
            parts.append(jax.tree.map(lambda leaf: np.array(np.asarray(leaf)[:now]), kept))  # noqa: B023
            work.said = f"h {float(parts[-1][-1][-1, 0]):.3g}"
    joined = [np.swapaxes(np.concatenate(leaf)[num_warmup:], 0, 1) for leaf in zip(*parts)]  # noqa: B905
    u, acceptance, divergences, gradients, step_size = joined
    return Trace(u, acceptance, divergences, gradients, step_size[:, -1])
