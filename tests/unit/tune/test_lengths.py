"""Step size and lengths left to the library, on N(0, I), where every law is closed."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.inference.tuning.cost import _whole
from sgld.inference.tuning.ensemble import _gaussian_rejection as gaussian_rejection
from sgld.samplers.stationary import Law

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
UNCORRECTED = sgld.SGLD(None)


def run(**given):
    return sgld.sample(GAUSSIAN, None, jnp.zeros(2), progress=False, **given)


@pytest.mark.parametrize("h", [0.1, 0.4])
@pytest.mark.parametrize("T", [0.5, 3.0])
def test_the_ratio_of_exact_gradients_is_the_closed_form(h, T):
    """S = T / (a (1 - h a / 2)) for curvature a, whatever the temperature."""
    a = np.array([1.0, 3.0])
    law = Law.of(np.diag(a), np.eye(2), np.zeros((2, 2)))
    np.testing.assert_allclose(law.ratio(h, T), 1 / np.sqrt(1 - h * a / 2), rtol=1e-12)


def test_the_noise_ratio_is_of_variances():
    """h^2 C over 2 h T."""
    law = Law.of(np.eye(2), np.eye(2), np.diag([3.0, 5.0]))
    assert law.noise_ratio(0.2, 2.0) == pytest.approx(0.2**2 * 5 / (2 * 0.2 * 2.0))


@pytest.mark.parametrize("tolerance", [0.05, 0.1])
def test_half_of_the_tolerance_is_the_steps(tolerance):
    h = float(run(sampler=UNCORRECTED, tolerance=tolerance, max_steps=200).step_size[0, -1])
    assert 1 / np.sqrt(1 - h / 2) - 1 == pytest.approx(tolerance / 2, rel=0.01)


def test_what_is_left_of_the_start_after_burn_in_is_nothing():
    draws = run(sampler=UNCORRECTED, num_draws=50)
    h, burn_in = float(draws.step_size[0, -1]), int(draws.step[0])
    assert (1 - h) ** burn_in < 0.003 and burn_in < 20 / h
    lag = int(draws.step[1] - draws.step[0])
    assert 0.2 < (1 - h) ** lag < 0.5  # draws are kept about a time constant apart


def test_the_last_bit_of_a_rate_decides_nothing():
    assert _whole(np.nextafter(6 / 0.2, 31)) == 30 and _whole(30.01) == 31


def test_all_chains_together_make_the_draws_that_a_tolerance_needs():
    one, two = (run(sampler=UNCORRECTED, tolerance=0.02, num_chains=chains) for chains in (2, 4))
    assert one.num_draws * 2 == pytest.approx(two.num_draws * 4, rel=0.02)
    # the sd's Monte Carlo error is half of the tolerance at most
    for draws in (one, two):
        x = draws.position.reshape(draws.num_chains, -1, 2)
        ess = min(sgld.results.statistics.ess(x**2, draws.weights))
        assert np.sqrt(1 / (2 * ess)) < 0.02 / 2


@pytest.mark.parametrize(("d", "h"), [(1, 0.5), (10, 0.5), (50, 0.3)])
def test_how_often_a_step_is_rejected_on_a_gaussian(d, h):
    """By `sgld.rejection_rate`, without the 2% of positions that are rejected most."""
    x = np.random.default_rng(5).standard_normal((4, 1000, d)).astype(np.float32)
    rate = sgld.rejection_rate(GAUSSIAN, None, sgld.Draws.of(x), h, num_proposals=4000)
    found = gaussian_rejection(d, h)
    assert (rate - 0.02) / 0.98 - 0.01 < found < rate + 0.005
