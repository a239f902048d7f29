"""`keep="moments"` of runs that are judged by their predictions."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.inference import function_space

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3)).astype(np.float32)
Y = (X[:, 0] + RNG.standard_normal(40)).astype(np.float32)
POSTERIOR = sgld.Posterior(
    lambda w: -0.5 * jnp.sum(w**2), lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2,
    predict=lambda w, row: row[0] @ w,
)  # fmt: skip
HAND = {"step_size": 1e-4, "sampler": sgld.BAOA(), "num_draws": 100, "thin": 10, "burn_in": 500}


def run(**given):
    return sgld.sample(POSTERIOR, (X, Y), np.zeros(3, np.float32), progress=False, **given)


@pytest.mark.slow
def test_moments_are_those_of_the_draws_and_so_is_the_word():
    draws, moments = run(**HAND), run(**HAND, keep="moments")
    np.testing.assert_allclose(moments.mean(), draws.mean(), rtol=1e-4)
    np.testing.assert_allclose(moments.sd(), draws.sd(), rtol=1e-4)
    assert moments.verdict.reasons == draws.verdict.reasons
    assert moments.verdict.extra["predictions"] == draws.verdict.extra["predictions"]


def test_of_what_is_summed_up_all_draws_are_judged(monkeypatch):
    """Those of the beginning, which other runs leave out, are in the moments."""
    left_out = []
    monkeypatch.setattr(function_space, "without_beginning", lambda *given: left_out.append(given))
    moments = run(keep="moments", max_steps=5_000)
    assert not left_out and moments.verdict.judged


def test_what_is_summed_up_in_batches_of_the_planned_draws_is_not_prolonged(monkeypatch):
    monkeypatch.setattr("sgld.inference.execute.draws_suffice", lambda *_: False)
    moments = run(keep="moments", max_steps=20_000)
    setup = moments.plan.setup
    assert moments.info["num_steps"] == setup.burn_in + setup.thin * (setup.num_draws - 1) + 1
    assert moments.moments.num_draws == setup.num_draws
    assert np.all(
        np.abs(moments.sd() / np.sqrt(np.diag(np.linalg.inv(np.eye(3) + X.T @ X))) - 1) < 0.3
    )
