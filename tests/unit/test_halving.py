"""Half the step, extrapolated to step 0, against the closed form of SGLD's bias."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import UsageError

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum((t - 1.0) ** 2))


@pytest.fixture(scope="module")
def found():
    draws = sgld.sample(
        GAUSSIAN,
        None,
        jnp.ones(2),
        step_size=0.5,
        thin=6,
        num_draws=8000,
        burn_in=40,
        progress=False,
    )
    return sgld.step_halving(GAUSSIAN, None, draws)


def test_richardson_takes_the_first_order_away(found):
    variance = lambda h: 1 / (1 - h / 2)  # noqa: E731
    np.testing.assert_allclose(found.sd_ratio, np.sqrt(variance(0.5) / variance(0.25)), rtol=0.02)
    # what is left is of second order: 2 v(h/2) - v(h) = .952, where v(h) = 1.333
    np.testing.assert_allclose(found.sd**2, 2 * variance(0.25) - variance(0.5), rtol=0.06)
    np.testing.assert_allclose(found.mean, 1, atol=0.05)
    assert not found.agrees and "differs" in str(found)


def test_a_small_step_agrees():
    draws = sgld.sample(
        GAUSSIAN,
        None,
        jnp.ones(2),
        step_size=0.05,
        thin=30,
        num_draws=2000,
        burn_in=200,
        progress=False,
    )
    found = sgld.step_halving(GAUSSIAN, None, draws)
    assert found.agrees and "agrees" in str(found)


def test_a_loaded_run_has_no_plan(found, tmp_path):
    with pytest.raises(UsageError, match="hold no plan"):
        sgld.step_halving(GAUSSIAN, None, sgld.load(found.draws.save(tmp_path / "run")))
