"""What is injected at a step: standard normals, or counts of random bits with their mean and variance.

    normal     xi ~ N(0, 1)
    binomial   xi = (ones among 4 random bits) - 2

Of the noise only mean, variance and third moment enter the weak error of a step's order (Milstein &
Tretyakov, Stochastic Numerics for Mathematical Physics, 2004, ch. 2). On a Gaussian the stationary
law keeps mean and covariance; what differs is the fourth moment. Where the noise of k steps ago stands
in a coordinate with the factor c_k, its excess kurtosis is

    kappa sum_k c_k^4 / (sum_k c_k^2)^2,    kappa = -1/2 of 4 bits,

for SGLD's step of curvature l that is kappa (1 - a^2) / (1 + a^2) with a = 1 - h l.
"""

from __future__ import annotations

from typing import Any, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from ..preconditioner.fixed import Scalar
from ..typing import Noise
from . import threefry

__all__ = ["BITS", "LAWS", "counted", "drawn", "excess_kurtosis"]

LAWS: tuple[str, ...] = get_args(Noise)
BITS = 4  # of a number; 8 numbers of a word
EXCESS = -2 / BITS  # kappa
RESPONSE = 2**12  # steps after which a coordinate has forgotten its noise


def drawn(law: str, keys: Array, block: Array, count: int, dtype: Any) -> Float[Array, "key count"]:
    """Of every key, of this block of steps, `count` independent numbers of mean 0 and variance 1."""
    if law == "normal":
        return threefry.normal(keys, count, dtype)
    words = threefry.once(lambda keys: threefry.bits(keys, -(-count * BITS // 32)), keys, block)
    return jax.vmap(lambda words: counted(words, dtype)[:count])(words)


def counted(words: UInt32[Array, " w"], dtype: Any) -> Float[Array, " numbers"]:
    """The number of ones in each 4 bits, less 2: word by word, the lowest bits first."""
    shifts = jnp.arange(0, 32, BITS, dtype=jnp.uint32)
    bits = (words[:, None] >> shifts[None, :]) & jnp.uint32(2**BITS - 1)
    ones = jax.lax.population_count(bits).astype(jnp.int32)
    return ones.reshape(-1).astype(dtype) - BITS / 2


@jax.jit
def excess_kurtosis(
    sampler: Any, step_size: Float[Array, ""], curvature: Float[Array, ""]
) -> Float[Array, ""]:
    """Of the position under binomial noise, where the log density is -curvature q^2 / 2 and D = 1.

    Of samplers whose step is linear in position, momentum and noise; RESPONSE steps are looked at.
    """
    count, zero = sampler.num_noises, jnp.zeros(1, step_size.dtype)

    def step(state: Any, xi: Float[Array, " count"]) -> tuple[Any, Float[Array, ""]]:
        noise = xi if count == 1 else xi[:, None]
        new = sampler.step(
            state, lambda q: -curvature * q, step_size, noise,
            preconditioner=Scalar(1.0), temperature=jnp.ones_like(step_size),
        )  # fmt: skip
        return new, jnp.ravel(getattr(new, "position", new))[0]

    def response(first: Float[Array, " count"]) -> Float[Array, " steps"]:
        pulse = jnp.zeros((RESPONSE, count), step_size.dtype).at[0].set(first)
        return jax.lax.scan(step, sampler.init(zero), pulse)[1]

    c = jax.vmap(response)(jnp.eye(count, dtype=step_size.dtype))
    return EXCESS * jnp.sum(c**4) / jnp.sum(c**2) ** 2
