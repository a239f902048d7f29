"""Posteriors of new functions in a loop: what was compiled for them is given back."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core import pytrees
from sgld.model.prepare import prepare

DATA = np.linspace(-1.0, 3.0, 40, dtype=np.float32)


def functions():
    return (lambda t: -0.5 * t**2 / 100), (lambda t, x: -0.5 * (x - t) ** 2)


def compiled():
    """Functions that the device holds."""
    gc.collect()
    return len(jax.devices()[0].client.live_executables())


@pytest.mark.slow
def test_what_was_compiled_for_posteriors_that_are_gone_is_given_back():
    pytrees.release()
    before = compiled()
    for _ in range(pytrees.MAX_POSTERIORS):
        prepare(sgld.Posterior(*functions()), DATA, 0.0)
    once = compiled() - before
    assert once >= pytrees.MAX_POSTERIORS, "nothing was compiled: the test sees nothing"
    for _ in range(3 * pytrees.MAX_POSTERIORS):
        prepare(sgld.Posterior(*functions()), DATA, 0.0)
    assert compiled() - before <= once + pytrees.MAX_POSTERIORS, (
        "compiled functions are held for ever"
    )
    pytrees.release()
    assert compiled() - before <= 4


def test_what_the_user_compiled_and_a_posterior_of_late_are_kept():
    traced = []

    @jax.jit
    def mine(x):
        traced.append(x)
        return x + 1

    def log_density(t):
        traced.append(t)
        return -0.5 * jnp.sum(t**2)

    mine(jnp.float32(1.0))
    posterior = sgld.Posterior(log_density)
    prepare(posterior, None, jnp.zeros(3))
    before = len(traced)
    for _ in range(pytrees.MAX_POSTERIORS // 2):
        log_prior, log_likelihood = functions()
        prepare(sgld.Posterior(log_prior, log_likelihood), DATA, 0.0)
    at = len(traced)
    pytrees.release()
    mine(jnp.float32(2.0))
    assert len(traced) == at == before, "the user's own function was compiled again"
