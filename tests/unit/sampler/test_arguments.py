"""A sampler's wrong numbers are answered when it is made; its right ones are pytree leaves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import UsageError
from sgld.samplers.ubu import _minus_tanh


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: sgld.SGHMC(friction=0.0),
            "SGHMC's friction must be above 0 and below 1. Got 0.0.",
        ),
        (lambda: sgld.SGHMC(friction=1.0), "below 1. Got 1.0"),
        (lambda: sgld.SGHMC(friction=np.nan), "Got nan"),
        (lambda: sgld.SGHMC(noise_estimate=-0.1), "zero or positive. Got -0.1"),
        (lambda: sgld.SGHMC(0.1, 0.2), "friction - noise_estimate must be positive. Got -0.1"),
        (lambda: sgld.BAOA(friction=-1), "BAOA's friction must be positive. Got -1."),
        (lambda: sgld.BAOA("auto"), "BAOA's friction must be positive. Got 'auto'."),
        (lambda: sgld.UBU(friction=0.0), "UBU's friction must be positive. Got 0.0."),
        (lambda: sgld.SGNHT(diffusion=0.0), "SGNHT's diffusion must be positive. Got 0.0."),
        (lambda: sgld.ReplicaExchange((1.0, 3.0, 2.0)), r"increase from 1. Got \(1.0, 3.0, 2.0\)."),
        (lambda: sgld.ReplicaExchange((2.0, 3.0)), "increase from 1"),
        (lambda: sgld.ReplicaExchange((1.0,)), "increase from 1"),
        (lambda: sgld.ReplicaExchange(energy_noise=-1.0), "energy_noise must be at least 0"),
    ],
)
def test_wrong_numbers(make, words):
    with pytest.raises(UsageError, match=words):
        make()


@pytest.mark.parametrize(
    "sampler",
    [sgld.SGHMC(), sgld.BAOA(), sgld.UBU(), sgld.SGNHT(), sgld.ReplicaExchange()],
    ids=repr,
)
def test_numbers_are_leaves(sampler):
    leaves, treedef = jax.tree.flatten(sampler)
    assert leaves and all(isinstance(leaf, float) for leaf in leaves)
    assert treedef.unflatten(leaves) == sampler
    treedef.unflatten([object()] * len(leaves))
    jax.tree.map(jnp.zeros_like, sampler)
    count = jax.jit(lambda s: jax.tree.map(lambda leaf: 2 * leaf, s))
    count(sampler)
    count(jax.tree.map(lambda leaf: leaf, sampler))
    assert count._cache_size() == 1


def test_a_sweep_over_frictions_is_a_vmap():
    frictions = jnp.array([0.5, 1.0, 2.0])

    def one(friction):
        sampler = sgld.BAOA(friction)
        return sampler.step(sampler.init(jnp.ones(2)), jnp.negative, 0.1, jnp.ones(2)).position

    loop = [one(friction) for friction in frictions]
    np.testing.assert_allclose(jax.vmap(one)(frictions), np.stack(loop), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_y_minus_tanh_keeps_its_digits(dtype, x64):
    exact = lambda y: y**3 / 3 - 2 * y**5 / 15 + 17 * y**7 / 315 - 62 * y**9 / 2835  # noqa: E731
    digits = 4 * np.finfo(dtype).eps
    for y in (1e-6, 1e-3, 1e-2):
        found = np.asarray(_minus_tanh(jnp.asarray(y, dtype)), np.float64)
        np.testing.assert_allclose(found, exact(float(dtype(y))), rtol=max(digits, 1e-14))
    ys = np.array([0.5, 0.999, 1.001, 3.0, 50.0])
    np.testing.assert_allclose(
        _minus_tanh(jnp.asarray(ys, dtype)), ys - np.tanh(ys), rtol=10 * digits
    )


def test_the_run_refuses_to_choose_a_step_for_a_thermostat():
    posterior = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    with pytest.raises(UsageError, match="step_size must be given with SGNHT"):
        sgld.sample(posterior, None, np.zeros(2, np.float32), sampler=sgld.SGNHT(), progress=False)
