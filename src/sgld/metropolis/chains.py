"""Stretches of Metropolis-adjusted Langevin chains (MALA), with exact gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .energy import mala_move

__all__ = ["adjusted_steps"]

STEPS, EVERY = 200, 4  # of one stretch, and between positions that are kept
ACCEPTED = 0.6  # MALA's best acceptance rate is about this


@jax.jit
def adjusted_steps(local, D, us, h, key, adapting):
    """STEPS of MALA for every chain: (us, h, every EVERY-th position [draw, chain, d]).

    h goes towards the best acceptance rate where `adapting` is 1, and stays where it is 0.
    """

    def one(u, xi, log_uniform, h):
        ratio, new = mala_move(local, D, u, xi, h)
        accepted = log_uniform < ratio
        return jnp.where(accepted, new, u), jnp.exp(jnp.minimum(ratio, 0.0))

    def step(carry, k):
        us, h = carry
        noise, uniform = jax.random.split(jax.random.fold_in(key, k))
        xi = jax.random.normal(noise, us.shape, us.dtype)
        log_uniform = jnp.log(jax.random.uniform(uniform, us.shape[:1], us.dtype))
        us, rate = jax.vmap(one, (0, 0, 0, None))(us, xi, log_uniform, h)
        gain = adapting * 2.0 / jnp.sqrt(10.0 + k.astype(h.dtype))
        h = jnp.clip(h * jnp.exp(gain * (jnp.mean(rate) - ACCEPTED)), 1e-8, 2.0)
        return (us, h), us

    def stretch(carry, ks):
        carry, path = jax.lax.scan(step, carry, ks)
        return carry, path[-1]

    ks = jnp.arange(STEPS, dtype=jnp.int32).reshape(-1, EVERY)
    (us, h), path = jax.lax.scan(stretch, (us, h), ks)
    return us, h, path
