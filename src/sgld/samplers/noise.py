"""Noise for the steps: standard normals, or counts of random bits with their mean and variance.

    normal     xi ~ N(0, 1)
    binomial   xi = (ones among 4 random bits) - 2

Only the mean, variance and third moment of the noise enter the weak error at a step's order (Milstein &
Tretyakov, Stochastic Numerics for Mathematical Physics, 2004, ch. 2). On a Gaussian the stationary
distribution keeps its mean and covariance; its fourth moment differs. If the noise of k steps ago enters
a coordinate with the factor c_k, the excess kurtosis of that coordinate is

    kappa sum_k c_k^4 / (sum_k c_k^2)^2,    kappa = -1/2 for 4 bits;

for SGLD's step with curvature l this is kappa (1 - a^2) / (1 + a^2), where a = 1 - h l.

The module also generates JAX's random bits and normals, bit for bit, in one pass instead of five.

On a CPU JAX runs the rounds of its generator, threefry-2x32 (Salmon, Moraes, Dror and Shaw, Parallel
Random Numbers: As Easy as 1, 2, 3, 2011), as a loop over arrays. Written out they form one expression
per counter, which is one loop and compiles faster. Other devices, dtypes and generators use JAX's own
functions and produce the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from ..typing import Noise
from .preconditioners.fixed import Scalar

# -- threefry ------------------------------------------------------------------------------


ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
COUNTERS_PER_WORD = 2**32  # counters that fit in one word; JAX continues in the other word
PARITY = 0x1BD11BDA  # Skein's constant for the third word of the key


def bits(keys: Array, count: int) -> UInt32[Array, "key count"]:
    """Return `jax.random.bits(key, (count,), uint32)` for every key."""
    return _map_keys(
        keys, count, jnp.uint32,
        lambda key: _words(key, count), lambda key: jax.random.bits(key, (count,), jnp.uint32),
    )  # fmt: skip


def normal(keys: Array, count: int, dtype: Any) -> Float[Array, "key count"]:
    """Return `jax.random.normal(key, (count,), dtype)` for every key."""
    return _map_keys(
        keys, count, dtype,
        lambda key: _normals(_words(key, count)), lambda key: jax.random.normal(key, (count,), dtype),
    )  # fmt: skip


def once(make: Callable[[Array], Array], keys: Array, block: Array) -> Array:
    """Return `make(keys)` stored in memory, so that XLA does not recompute it for every reader.

    XLA stores the result of a branch if it cannot prove that the branch is always taken. `block`, at
    least 0, does not depend on the keys, which a mesh distributes over its devices.
    """

    def kept(keys: Array, block: Array) -> Array:
        like = jax.eval_shape(make, keys)
        return jax.lax.cond(block >= 0, make, lambda _: jnp.zeros(like.shape, like.dtype), keys)

    return jax.lax.platform_dependent(keys, block, cpu=kept, default=lambda keys, _: make(keys))


def _map_keys(
    keys: Array,
    count: int,
    dtype: Any,
    ours: Callable[[Array], Array],
    theirs: Callable[[Array], Array],
) -> Array:
    """Apply `ours` to every key, or `theirs` where JAX's configuration makes them differ."""
    threefry = str(jax.random.key_impl(keys)) == "threefry2x32" and jax.threefry_partitionable.value
    if not threefry or count > COUNTERS_PER_WORD or jnp.dtype(dtype).itemsize != 4:
        return jax.vmap(theirs)(keys)
    return jax.lax.platform_dependent(keys, cpu=jax.vmap(ours), default=jax.vmap(theirs))


def _normals(words: UInt32[Array, " n"]) -> Float[Array, " n"]:
    """Map the upper 23 bits to [1, 2), then to (-1, 1), then to a standard normal."""
    one = np.float32(1)
    mantissa = (words >> np.uint32(9)) | one.view(np.uint32)
    unit = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - one
    low = np.nextafter(-one, np.float32(0))
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(jnp.maximum(low, unit * (one - low) + low))


def _words(key: Array, count: int) -> UInt32[Array, " count"]:
    """Combine both halves of threefry of (0, i), i < count."""
    first, second = jax.random.key_data(key)
    keys = (first, second, first ^ second ^ np.uint32(PARITY))
    low = jax.lax.iota(jnp.uint32, count)
    a, b = jnp.zeros_like(low) + keys[0], low + keys[1]
    for turn in range(5):
        for rotation in ROTATIONS[turn % 2]:
            a = a + b
            b = a ^ ((b << np.uint32(rotation)) | (b >> np.uint32(32 - rotation)))
        a = a + keys[(turn + 1) % 3]
        b = b + keys[(turn + 2) % 3] + np.uint32(turn + 1)
    return a ^ b


# -- injected ------------------------------------------------------------------------------


NOISE_DISTRIBUTIONS: tuple[str, ...] = get_args(Noise)
NOISE_BITS = 4  # bits per number; a word gives 8 numbers
EXCESS_KURTOSIS = -2 / NOISE_BITS  # kappa
MAX_RESPONSE_STEPS = 2**12  # steps after which the effect of a noise on a coordinate has decayed


def draw_noise(
    law: str, keys: Array, block: Array, count: int, dtype: Any
) -> Float[Array, "key count"]:
    """Draw `count` independent numbers of mean 0 and variance 1 for every key, in this block."""
    if law == "normal":
        return normal(keys, count, dtype)
    words = once(lambda keys: bits(keys, -(-count * NOISE_BITS // 32)), keys, block)
    return jax.vmap(lambda words: counted(words, dtype)[:count])(words)


def counted(words: UInt32[Array, " w"], dtype: Any) -> Float[Array, " numbers"]:
    """Return the number of ones in each 4 bits, minus 2: word by word, the lowest bits first."""
    shifts = jnp.arange(0, 32, NOISE_BITS, dtype=jnp.uint32)
    bits = (words[:, None] >> shifts[None, :]) & jnp.uint32(2**NOISE_BITS - 1)
    ones = jax.lax.population_count(bits).astype(jnp.int32)
    return ones.reshape(-1).astype(dtype) - NOISE_BITS / 2


@jax.jit
def excess_kurtosis(
    sampler: Any, step_size: Float[Array, ""], curvature: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the position's excess kurtosis under binomial noise.

    The log density is -curvature q^2 / 2, D = 1, and the step must be linear in position, momentum and noise.
    The sums cover MAX_RESPONSE_STEPS steps.
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
        pulse = jnp.zeros((MAX_RESPONSE_STEPS, count), step_size.dtype).at[0].set(first)
        return jax.lax.scan(step, sampler.init(zero), pulse)[1]

    c = jax.vmap(response)(jnp.eye(count, dtype=step_size.dtype))
    return EXCESS_KURTOSIS * jnp.sum(c**4) / jnp.sum(c**2) ** 2
