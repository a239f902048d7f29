"""Half the step, extrapolated to step 0, against the closed form of SGLD's bias."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import UsageError
from sgld.inference.step_halving import Halving
from sgld.results.verdict import Verdict

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum((t - 1.0) ** 2))


def halve(h, thin, num_draws, burn_in):
    draws = sgld.sample(
        GAUSSIAN, None, jnp.ones(2), step_size=h, thin=thin, num_draws=num_draws, burn_in=burn_in,
        progress=False,
    )  # fmt: skip
    return sgld.step_halving(GAUSSIAN, None, draws)


@pytest.fixture(scope="module")
def found():
    return halve(0.5, 6, 8000, 40)


def test_richardson_takes_the_first_order_away(found):
    variance = lambda h: 1 / (1 - h / 2)  # noqa: E731
    np.testing.assert_allclose(found.sd_ratio, np.sqrt(variance(0.5) / variance(0.25)), rtol=0.02)
    # what is left is of second order: 2 v(h/2) - v(h) = .952, where v(h) = 1.333
    np.testing.assert_allclose(found.sd**2, 2 * variance(0.25) - variance(0.5), rtol=0.06)
    np.testing.assert_allclose(found.mean, 1, atol=0.05)
    assert not found.agrees and found.verdict.word == "biased" and "biased" in str(found)


def test_a_small_step_agrees():
    found = halve(0.05, 30, 2000, 200)
    assert found.agrees and found.verdict.word == "trusted"


def test_a_loaded_run_has_no_plan(found, tmp_path):
    with pytest.raises(UsageError, match="hold no plan"):
        sgld.step_halving(GAUSSIAN, None, sgld.load(found.draws.save(tmp_path / "run")))


def halved(ratio, se, shift=0.0, **run):
    """A Halving of one parameter with the given evidence."""
    half = sgld.Draws.of({"x": np.linspace(-1.7, 1.7, 400).reshape(4, 100)}, **run)
    sd = float(half.sd()["x"])
    at_h = ratio * sd
    return Halving(
        ("x",), np.array([ratio]), np.array([se]), np.array([shift]), np.array([0.02]),
        np.zeros(1), np.array([2 * sd - at_h]), half,
    )  # fmt: skip


def test_the_verdict_holds_the_run_against_step_0_and_not_against_half_the_step():
    assert halved(1.02, 0.01).verdict.word == "trusted"  # 2% from h/2, 4% from 0
    assert halved(1.02, 0.03).verdict.word == "unknown"  # too uncertain
    assert halved(1.12, 0.01).verdict.word == "biased"
    assert halved(1.06, 0.015).verdict.word == "unknown"  # 13% off, but for noise
    assert halved(1.0, 0.01, shift=0.3).verdict.word == "biased"
    beyond = halved(2.0, 0.01).verdict  # at step 0 there is no sd left
    assert beyond.word == "unknown" and "inf" not in beyond.reasons[0]


def test_a_run_that_failed_is_not_confirmed_by_half_the_step():
    biased = Verdict("biased", ("chain 0 became non-finite.",))
    found = halved(1.0, 0.01, verdict=biased)
    assert found.verdict.word == "biased" and "non-finite" in found.verdict.reasons[0]


@pytest.mark.parametrize("word", ["unknown", "trusted"])
def test_a_doubt_about_tails_survives_half_the_step(word):
    """Both runs miss what lies far out: that they agree says nothing of it."""
    doubt = Verdict(word, ("whatever.",), extra={"doubts": ["2% lie far out"]})
    found = halved(1.0, 0.01, verdict=doubt).verdict
    assert found.word == "unknown" and "but 2% lie far out" in found.reasons[0]
    assert halved(1.12, 0.01, verdict=doubt).verdict.word == "biased"
