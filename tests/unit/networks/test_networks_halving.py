"""Half the step of a network: predictions are compared, and a step that is too large is seen."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.diagnostics.function_space.verdict import compared
from sgld.errors import UsageError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 3)).astype(np.float32)
Y = (X[:, 0] + RNG.standard_normal(200)).astype(np.float32)


def posterior(predict=True):
    return sgld.Posterior(
        lambda b: -0.5 * jnp.sum(b**2),
        lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2,
        predict=(lambda b, row: row[0] @ b) if predict else None,
    )


def run(h, **given):
    how = {"thin": 10, "num_draws": 1500, "burn_in": 300, "progress": False, **given}
    return sgld.sample(posterior(), (X, Y), jnp.zeros(3), step_size=h, **how)


@pytest.mark.slow
def test_full_gradients_of_a_good_step_agree():
    draws = run(1e-3, sampler=sgld.BAOA(), gradient=sgld.Full())
    found = sgld.networks.step_halving(posterior(), (X, Y), draws)
    assert found.agrees and found.verdict.word == "trusted", found.verdict
    np.testing.assert_allclose(np.median(found.sd_ratio), 1, atol=0.05)
    assert found.draws.num_chains == draws.num_chains and found.variation is None


def test_a_prediction_that_does_not_move_is_nothing_that_agrees():
    values, weights = RNG.standard_normal((4, 300, 3, 1)), np.full((4, 300), 1 / 1200)
    assert compared("means", values, values, weights, weights).agrees
    values[:, :, 1] = 0.0
    found = compared("means", values, values, weights, weights)
    assert np.isnan(found.sd_ratio[1]) and not found.agrees


def test_a_step_whose_sds_are_too_wide_does_not():
    # SGLD of full gradients: variance 1 / (1 - h l / 2), h l = 1, against h l = .5: sd 1.41 and 1.15
    draws = run(5e-3, gradient=sgld.Full())
    found = sgld.networks.step_halving(posterior(), (X, Y), draws)
    assert not found.agrees
    np.testing.assert_allclose(np.median(found.sd_ratio), np.sqrt(2 / (4 / 3)), rtol=0.05)
    assert draws.verdict.word == found.verdict.word == "biased"


@pytest.mark.slow
def test_each_kind_of_run_has_its_own():
    draws = sgld.sample(posterior(False), (X, Y), jnp.zeros(3), progress=False, max_steps=200)
    with pytest.raises(UsageError, match="judged by their parameters"):
        sgld.networks.step_halving(posterior(False), (X, Y), draws)
    with pytest.raises(UsageError, match="judged by predictions"):
        sgld.step_halving(posterior(), (X, Y), run(1e-3, num_draws=50))


def test_draws_that_are_no_positions_are_no_starts(tmp_path):
    kept = run(1e-3, keep=lambda b: b[:1], num_draws=50, path=tmp_path / "run")
    for draws in (kept, sgld.load(tmp_path / "run")):
        with pytest.raises(UsageError, match="are what keep= returned, from which no chain can go"):
            sgld.networks.step_halving(posterior(), (X, Y), draws)
    other = dataclasses.replace(posterior(), output=lambda b: {"first": b[0]})
    draws = sgld.sample(other, (X, Y), jnp.zeros(3), step_size=1e-3, num_draws=50, progress=False)
    with pytest.raises(UsageError, match="output= of the posterior reports"):
        sgld.networks.step_halving(other, (X, Y), draws)
