"""The meter on the scale that is read, and tails too heavy for an sd to be known."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints
from scipy import stats

import sgld
from sgld.diagnostics.stein import Corrected, may_be_nonlinear, on_the_reported_scale
from sgld.diagnostics.tails import heavy_tails
from sgld.model.prepare import prepare
from sgld.results.statistics import Estimates

SCALE = 1.5
LOGNORMAL = prepare(
    sgld.Posterior(
        lambda x: -0.5 * (jnp.log(x) / SCALE) ** 2 - jnp.log(x), constraints=constraints.positive
    ),
    None,
    np.float32(1.0),
)


def corrected(ratio, se=0.0, shift=0.0):
    return Corrected(*(np.array([a]) for a in (ratio, se, shift, 1.0)))


def judged(problem, z, free, **given):
    """What the meter says on the reported scale where the linear one says 1."""
    phi, weights = given.get("phi", z), given.get("weights", np.ones(z.shape[:2]))
    return on_the_reported_scale(problem, z, phi, weights, free, corrected(1.0, 0.01))


@pytest.mark.parametrize("rho", [0.9, 1.0, 1.1])
def test_an_sd_of_z_that_is_off_is_off_by_more_where_the_map_bends(rho):
    scale = 0.4  # of which the sd is known from quantiles
    z = scale * rho * stats.norm.ppf((np.arange(4000) + 0.5) / 4000).reshape(1, -1, 1)
    sd = lambda s: np.sqrt(np.expm1(s**2)) * np.exp(s**2 / 2)  # noqa: E731
    found = judged(LOGNORMAL, z, corrected(rho, 0.02))
    assert found.ratio[0] == pytest.approx(sd(scale * rho) / sd(scale), rel=0.005)
    # 2% of z's, through the same map
    assert found.ratio_se[0] == pytest.approx(
        found.ratio[0] * (sd(scale * (1 + 0.02 / rho)) / sd(scale) - 1), rel=0.05
    )
    mean = np.exp(scale**2 / 2) - np.exp((scale * rho) ** 2 / 2)
    assert found.mean_shift[0] == pytest.approx(mean, abs=0.003)


def test_a_mean_of_z_that_is_off_moves_what_is_reported():
    z = 0.4 * stats.norm.ppf((np.arange(4000) + 0.5) / 4000).reshape(1, -1, 1)
    found = judged(LOGNORMAL, z, corrected(1.0, 0.0, shift=0.5))
    assert found.mean_shift[0] == pytest.approx(np.exp(0.08) * np.expm1(0.5), rel=0.01)
    assert found.ratio[0] == pytest.approx(np.exp(-0.5), rel=0.001)


def test_a_straight_map_keeps_the_linear_meter():
    z = np.random.default_rng(0).standard_normal((2, 500, 1))
    double = prepare(
        sgld.Posterior(lambda x: -0.5 * x**2, output=lambda x: 2 * x), None, np.float32(0.0)
    )
    found = judged(double, z, corrected(1.3), phi=2 * z)
    assert found.ratio == 1.0 and found.ratio_se == 0.01
    assert may_be_nonlinear(double) and not may_be_nonlinear(
        prepare(sgld.Posterior(lambda x: -0.5 * x**2), None, np.float32(0.0))
    )


def test_draws_count_by_their_weights():
    rng = np.random.default_rng(0)
    z = 0.4 * rng.standard_normal((1, 4000, 1))
    weights = np.where(np.arange(4000) < 2000, 1.0, 1e-9)[None]
    half = judged(LOGNORMAL, z[:, :2000], corrected(1.2), weights=np.ones((1, 2000)))
    found = judged(LOGNORMAL, z, corrected(1.2), weights=weights)
    assert found.ratio[0] == pytest.approx(half.ratio[0], rel=1e-3)


def estimates(values):
    return Estimates(values, np.ones(values.shape[:2]))


@pytest.mark.parametrize("d", [1, 50, 650])
def test_tails_of_gaussians_are_light(d):
    for seed in range(3):
        values = np.random.default_rng(seed).standard_normal((4, 500, d))
        assert not heavy_tails(estimates(values)).any()


@pytest.mark.parametrize(
    "law", [stats.t(2.5), stats.lognorm(1.5), stats.lognorm(2.0)], ids=["t", "1.5", "2"]
)
def test_tails_without_a_fourth_moment_are_heavy(law):
    for seed in range(3):
        values = law.rvs((4, 5000, 1), random_state=seed)
        assert heavy_tails(estimates(values))[0] > 0.2


def test_a_scale_of_a_few_tenths_on_the_log_scale_is_not_heavy():
    for seed in range(3):
        values = stats.lognorm(0.3).rvs((4, 1000, 1), random_state=seed)
        assert not heavy_tails(estimates(values)).any()
