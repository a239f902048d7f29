"""Values of an output that come so rarely that draws do not know how wide it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.diagnostics.tails import rare_error
from sgld.model.prepare import prepare

RNG = np.random.default_rng(0)
ESS = 10_000.0


def error(output, d=1, ess=ESS, draws=4000, scale=1.0):
    posterior = sgld.Posterior(lambda z: -0.5 * jnp.sum(z**2), output=output)
    problem = prepare(posterior, None, np.zeros(d, np.float32))
    z = scale * RNG.standard_normal((4, draws // 4, d))
    reported = np.size(output(jnp.zeros(d)))
    return rare_error(problem, z, np.full(reported, ess))


def step(at, height):
    return lambda z: z[0] + height * jax.nn.sigmoid(50 * (z[0] - at))


@pytest.mark.parametrize("d", [1, 3, 20])
def test_a_value_that_comes_once_in_two_thousand_draws(d):
    """P(z > 3.3) = 4.8e-4 of height 100 makes 83% of the variance: kurtosis p h^4 / (1 + p h^2)^2."""
    p, h = 4.83e-4, 100.0
    kurtosis = p * h**4 / (1 + p * h**2) ** 2
    assert error(step(3.3, h), d)[0] == pytest.approx(np.sqrt((kurtosis - 1) / 4 / ESS), rel=0.3)


def test_it_is_known_from_enough_draws():
    assert error(step(3.3, 100.0), ess=1e6)[0] == 0


def test_what_many_draws_have_seen_is_theirs_to_judge():
    found = error(lambda z: jnp.stack([z[0], z[0] ** 3, jnp.exp(z[0]), 1 / (1 + z[0] ** 2)]))
    assert not found.any()


def test_without_an_output_it_costs_nothing():
    problem = prepare(sgld.Posterior(lambda z: -0.5 * jnp.sum(z**2)), None, np.zeros(1, np.float32))
    assert not rare_error(problem, RNG.standard_normal((4, 100, 1)), np.ones(1)).any()


@pytest.mark.parametrize("seed", [1, 6])
def test_a_rare_loss_is_not_trusted_from_draws_that_missed_it(seed):
    posterior = sgld.Posterior(
        lambda z: -0.5 * jnp.sum(z**2),
        output=lambda z: z[0] + 300 * jax.nn.sigmoid(20 * (z[0] - 3.5)),
    )
    draws = sgld.sample(posterior, None, jnp.zeros(1), seed=seed, progress=False)
    assert draws.verdict.word != "trusted"


def square(density, z):
    """The error of x^2 = exp(2 z), of draws z of this density."""
    problem = prepare(
        sgld.Posterior(density, output=lambda z: jnp.exp(2 * z[0])), None, np.zeros(1, np.float32)
    )
    return rare_error(problem, z, np.full(1, ESS))[0]


def test_what_the_density_has_not_there_is_no_error():
    """The logarithm of a half normal x: exp(2 z) is far wider by the draws' Gaussian than by the density."""
    z = np.log(np.abs(RNG.standard_normal((4, 5000, 1))))
    assert square(lambda z: jnp.sum(z - 0.5 * jnp.exp(2 * z)), z) == 0


def test_what_the_density_has_there_is_told_still():
    assert square(lambda z: -0.5 * jnp.sum((z / 1.2) ** 2), 1.2 * RNG.standard_normal((4, 5000, 1)))
    assert error(step(3.3, 100.0))[0] > 0.05


def test_the_density_is_asked_at_the_runs_temperature():
    """At T = 4 draws are twice as wide, and a step of 200 at 6.6 is what one of 100 at 3.3 is at T = 1."""
    posterior = sgld.Posterior(lambda z: -0.5 * jnp.sum(z**2), output=step(6.6, 200.0))
    problem = prepare(posterior, None, np.zeros(1, np.float32))
    z = 2 * RNG.standard_normal((4, 1000, 1))
    assert rare_error(problem, z, np.full(1, ESS), 4.0)[0] == pytest.approx(0.19, rel=0.2)
