"""JAX's random bits and normals, to the bit, made in one pass where XLA would take five.

On a CPU JAX leaves the rounds of its generator, threefry-2x32 (Salmon, Moraes, Dror and Shaw, Parallel
Random Numbers: As Easy as 1, 2, 3, 2011), in a loop over arrays. Written out here they are one
expression of each counter: one loop, which compiles in less time, too. Other devices, other types
of numbers and other generators have JAX's own functions, and the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

__all__ = ["bits", "normal", "once"]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
COUNTERS = 2**32  # of one word; JAX goes on in the other
PARITY = 0x1BD11BDA  # Skein's, of the third word of the key


def bits(keys: Array, count: int) -> UInt32[Array, "key count"]:
    """`jax.random.bits(key, (count,), uint32)` of every key."""
    return _of_each(
        keys, count, jnp.uint32,
        lambda key: _words(key, count), lambda key: jax.random.bits(key, (count,), jnp.uint32),
    )  # fmt: skip


def normal(keys: Array, count: int, dtype: Any) -> Float[Array, "key count"]:
    """`jax.random.normal(key, (count,), dtype)` of every key."""
    return _of_each(
        keys, count, dtype,
        lambda key: _normals(_words(key, count)), lambda key: jax.random.normal(key, (count,), dtype),
    )  # fmt: skip


def once(make: Callable[[Array], Array], keys: Array, block: Array) -> Array:
    """`make(keys)`, kept in memory: XLA would make a number anew for each that reads it.

    Not so the result of a branch of which XLA does not see that it is always taken. `block`, no
    less than 0, is not of the keys, which a mesh lays over its devices.
    """

    def kept(keys: Array, block: Array) -> Array:
        like = jax.eval_shape(make, keys)
        return jax.lax.cond(block >= 0, make, lambda _: jnp.zeros(like.shape, like.dtype), keys)

    return jax.lax.platform_dependent(keys, block, cpu=kept, default=lambda keys, _: make(keys))


def _of_each(
    keys: Array,
    count: int,
    dtype: Any,
    ours: Callable[[Array], Array],
    theirs: Callable[[Array], Array],
) -> Array:
    """Of every key, by `ours` where those are JAX's: it can be told to number its words in another way."""
    threefry = str(jax.random.key_impl(keys)) == "threefry2x32" and jax.threefry_partitionable.value
    if not threefry or count > COUNTERS or jnp.dtype(dtype).itemsize != 4:
        return jax.vmap(theirs)(keys)
    return jax.lax.platform_dependent(keys, cpu=jax.vmap(ours), default=jax.vmap(theirs))


def _normals(words: UInt32[Array, " n"]) -> Float[Array, " n"]:
    """The 23 upper bits are a number in [1, 2), which less 1 is stretched over (-1, 1)."""
    one = np.float32(1)
    mantissa = (words >> np.uint32(9)) | one.view(np.uint32)
    unit = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - one
    low = np.nextafter(-one, np.float32(0))
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(jnp.maximum(low, unit * (one - low) + low))


def _words(key: Array, count: int) -> UInt32[Array, " count"]:
    """Both halves of threefry of (0, i), i < count, together."""
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
