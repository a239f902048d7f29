"""The second run of a step-halving: the same schedule at half the speed, and what it extrapolates."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
X = np.random.default_rng(2).normal(1.0, 1.0, 40).astype(np.float32)
MEAN_OF_ROWS = sgld.Posterior(lambda t: 0.0 * t, lambda t, x: -0.5 * (x - t) ** 2)


def moments(draws):
    mean = float(draws.mean())
    return mean, float(draws.var()) + mean**2


def test_half_the_step_goes_through_the_same_schedule_in_twice_the_steps():
    h = sgld.polynomial_between(0.4, 0.02, 300, 0.8)
    first = sgld.sample(
        GAUSSIAN, None, jnp.ones(2), step_size=h, thin=3, num_draws=100, burn_in=9, progress=False
    )
    half = sgld.step_halving(GAUSSIAN, None, first).draws
    np.testing.assert_allclose(half.step_size, first.step_size / 2, rtol=1e-5)
    np.testing.assert_array_equal(np.diff(half.step), 2 * np.diff(first.step))
    np.testing.assert_array_equal(half.step[0], 2 * first.step[0])
    assert half.num_draws == first.num_draws and half.info["seed"] != first.info["seed"]


@pytest.mark.parametrize(("order", "order_of_bias"), [("independent", 1), ("reshuffle", 2)])
def test_the_bias_that_is_taken_away_is_of_the_orders_own(order, order_of_bias):
    """E(h) = E(0) + c h^k at h and h/2: E(0) = (2^k E(h/2) - E(h)) / (2^k - 1)."""
    first = sgld.sample(
        MEAN_OF_ROWS, X, jnp.float32(1.0), step_size=0.002, batch_size=10, order=order, num_draws=1000,
        burn_in=50, thin=12, progress=False,
    )  # fmt: skip
    found, k = sgld.step_halving(MEAN_OF_ROWS, X, first), 2**order_of_bias
    (mean, square), (half_mean, half_square) = moments(first), moments(found.draws)
    to_zero = lambda at_h, at_half: (k * at_half - at_h) / (k - 1)  # noqa: E731
    np.testing.assert_allclose(found.mean, to_zero(mean, half_mean), rtol=1e-9)
    variance = to_zero(square, half_square) - to_zero(mean, half_mean) ** 2
    np.testing.assert_allclose(found.sd**2, variance, rtol=1e-9)
    assert found.factor == pytest.approx(k / (k - 1))


def test_the_standard_errors_are_those_of_two_independent_runs():
    first = sgld.sample(
        GAUSSIAN, None, jnp.zeros(2), step_size=0.2, thin=20, num_draws=1000, burn_in=50,
        progress=False,
    )  # fmt: skip
    found, n = sgld.step_halving(GAUSSIAN, None, first), 4000
    np.testing.assert_allclose(found.sd_ratio_se, np.sqrt(2 / (2 * n)), rtol=0.15)
    np.testing.assert_allclose(found.mean_shift_se, np.sqrt(2 / n), rtol=0.15)
