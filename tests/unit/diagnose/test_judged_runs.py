"""What the verdict of a whole run measures, on Gaussians whose every number is known."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.diagnostics import evidence

SD, MEAN = np.array([1.0, 3.0]), np.array([2.0, -1.0])
GAUSSIAN = sgld.Posterior(
    lambda t: -0.5 * jnp.sum(((t - jnp.array(MEAN, jnp.float32)) / jnp.array(SD, jnp.float32)) ** 2)
)


def run(posterior=GAUSSIAN, data=None, init=MEAN, **given):
    settings = {"burn_in": 100, "num_draws": 1000, "progress": False, **given}
    return sgld.sample(posterior, data, np.asarray(init, np.float32), **settings)


def test_draws_that_alternate_count_by_their_squares():
    """Half a period apart, theta changes its sign and theta^2 hardly moves."""
    h, friction = 0.01, 0.02  # delta = .1, so that 31 steps are half of 2 pi / delta
    posterior = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    draws = run(
        posterior, None, np.zeros(2), sampler=sgld.BAOA(friction), step_size=h, thin=31,
        burn_in=5000,
    )  # fmt: skip
    ess = min(row["ess_bulk"] for row in draws.summary().parameters.values())
    assert ess > 1000
    assert draws.verdict.word == "not mixed"
    assert "where 400 are needed" in draws.verdict.reasons[0]  # not of their sd's error


def test_the_meter_measures_the_weighted_draws():
    """Draws weigh as much as their steps: of a long step that falls, the first count most."""
    h = sgld.polynomial_between(1.5, 0.01, 4000, 0.6)
    draws = run(step_size=h, thin=4, burn_in=1, preconditioner=sgld.Diagonal(SD**2))
    assert np.ptp(np.log(draws.step_size)) > 3
    np.testing.assert_allclose(draws.verdict.sd_ratio, draws.sd() / SD, rtol=2e-3)


@pytest.mark.parametrize("T", [0.25, 4.0])
def test_a_tempered_run_is_held_against_the_tempered_law(T):
    draws = run(step_size=0.05, thin=40, temperature=T, preconditioner=sgld.Diagonal(SD**2))
    verdict = draws.verdict
    assert verdict.word == "trusted", verdict
    np.testing.assert_allclose(verdict.sd_corrected, np.sqrt(T) * SD, rtol=1e-3)
    np.testing.assert_allclose(verdict.mean_corrected, MEAN, atol=1e-3)


def test_draws_at_several_temperatures_follow_no_single_law():
    T = sgld.polynomial_between(1.2, 1.0, 20_000, 1.0)
    D = sgld.Diagonal(SD**2)
    draws = run(step_size=0.1, thin=20, temperature=T, preconditioner=D)
    assert "no single positive temperature" in draws.verdict.reasons[0]
    assert draws.verdict.sd_ratio is None


@pytest.mark.parametrize("h", [0.2, 0.5])
def test_the_excess_of_a_step_by_hand_is_the_closed_form(h):
    """The variance of SGLD's draws on N(0, 1) is 1 / (1 - h / 2)."""
    draws = run(step_size=h, thin=10, num_draws=2000, preconditioner=sgld.Diagonal(SD**2))
    excess = 1 / np.sqrt(1 - h / 2) - 1
    assert draws.verdict.extra["excess"] == pytest.approx(excess, rel=0.08)
    assert draws.verdict.word == ("biased" if excess > 0.1 else "trusted")


@pytest.mark.parametrize(
    "given",
    [{"order": "independent"}, {"order": "reshuffle"}, {"gradient": sgld.SAGA()}],
    ids=["independent", "reshuffle", "SAGA"],
)
def test_noisy_gradients_explain_a_gaussian_as_well_as_exact_ones(given, monkeypatch):
    """r2 is from two gradients of independent noise at the same draws."""
    monkeypatch.setattr(evidence, "MAX_R2_GRADIENTS", 1000)  # as if exact gradients cost too much
    x = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
    posterior = sgld.Posterior(lambda t: 0.0 * t, lambda t, x: -0.5 * (x - t) ** 2)
    draws = run(
        posterior, x, x.mean(), step_size=2e-5, batch_size=50, thin=20, num_draws=2000, **given
    )
    assert draws.verdict.r2[0] > 0.9


def test_a_runs_own_gradients_explain_where_all_rows_were_looked_at(monkeypatch):
    """Of noise three times the signal's variance, which the second gradient does not share."""
    monkeypatch.setattr(evidence, "MAX_R2_GRADIENTS", 1000)
    x = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
    posterior = sgld.Posterior(lambda t: 0.0 * t, lambda t, x: -0.5 * (x - t) ** 2)
    given = {"gradient": sgld.Minibatch(), "order": "independent", "batch_size": 1000}
    draws = run(posterior, x, x.mean(), **given)
    assert draws.plan.surveyed and draws.verdict.r2[0] > 0.85
