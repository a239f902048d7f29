"""Random numbers that are JAX's own, written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgld.samplers import noise as threefry
from sgld.samplers.noise import draw_noise


def keys(impl=None):
    return jax.random.split(jax.random.key(2**31 + 5, impl=impl), 3)


def of_jax(draw, keys):
    return jax.vmap(draw)(keys)


@pytest.mark.parametrize("count", [1, 2, 1001, 70_000])
def test_words_and_normals_are_jax_s_to_the_bit(count):
    np.testing.assert_array_equal(
        jax.jit(lambda keys: threefry.bits(keys, count))(keys()),
        of_jax(lambda key: jax.random.bits(key, (count,), jnp.uint32), keys()),
    )
    np.testing.assert_array_equal(
        jax.jit(lambda keys: threefry.normal(keys, count, jnp.float32))(keys()),
        of_jax(lambda key: jax.random.normal(key, (count,), jnp.float32), keys()),
    )


@pytest.mark.parametrize("impl", [None, "rbg"])
def test_doubles_and_other_generators_are_jax_s(impl, monkeypatch):
    monkeypatch.setattr(threefry, "_words", None)  # not asked
    with jax.enable_x64(True), jax.threefry_partitionable(impl is not None):
        dtype = jnp.float64 if impl is None else jnp.float32
        np.testing.assert_array_equal(
            threefry.normal(keys(impl), 5, dtype),
            of_jax(lambda key: jax.random.normal(key, (5,), dtype), keys(impl)),
        )
        np.testing.assert_array_equal(
            threefry.bits(keys(impl), 5),
            of_jax(lambda key: jax.random.bits(key, (5,), jnp.uint32), keys(impl)),
        )


@pytest.mark.parametrize("noise", ["normal", "binomial"])
def test_numbers_are_made_once_whoever_reads_them(noise):
    """Where no branch is left every reader takes the generator's rounds again: eight times the price."""

    def of(keys):
        return draw_noise(noise, keys, jnp.int32(0), 64, jnp.float32)

    def read_often(keys, block):
        numbers = threefry.once(of, keys, block)
        return numbers, jnp.sort(numbers), numbers[::2] ** 2

    compiled = jax.jit(read_often).lower(keys(), jnp.int32(3)).compile().as_text()
    assert "conditional" in compiled
    np.testing.assert_array_equal(jax.jit(read_often)(keys(), jnp.int32(3))[0], of(keys()))
