"""Pilot chains, what they confirm, and what is refused or tried again."""

import shutil
from dataclasses import replace
from unittest.mock import Mock

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.diagnose.rule import Evidence, judge
from sgld.draws.plan import Plan
from sgld.draws.setup import Setup
from sgld.draws.verdict import Verdict
from sgld.errors import UsageError
from sgld.gaussian.dense import Laplace
from sgld.gaussian.known import Known
from sgld.layout import Layout
from sgld.metropolis.confirm import Confirmation, confirm
from sgld.metropolis.pilot import pilot
from sgld.problem.problem import Problem
from sgld.problem.request import Request
from sgld.problem.target import Target
from sgld.run.again import another
from sgld.tune import plan as plan_module

COVARIANCE = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 25.0]])
PRECISION = np.linalg.inv(COVARIANCE).astype(np.float32)
GAUSSIAN = Problem(
    Target(sgld.Posterior(lambda t: -0.5 * t @ jnp.asarray(PRECISION) @ t), Layout.of(jnp.zeros(3)))
)


def banana(t):
    return -0.5 * (t[0] ** 2 + (t[1] - 0.5 * t[0] ** 2) ** 2 / 0.25)


def test_pilot_chains_find_a_gaussians_covariance_and_the_step_of_its_bias():
    bias = 0.025
    found = pilot(GAUSSIAN, np.full(3, 0.5), np.eye(3), bias, 0)
    np.testing.assert_allclose(found.factor @ found.factor.T, COVARIANCE, atol=0.12 * 5, rtol=0.25)
    # h = 4b is b too wide on a Gaussian; the metric's own error may cost a little of it
    assert 0.75 * 4 * bias <= found.step_size <= 4 * bias
    assert found.zs.shape == (32, 3) and np.std(found.zs[:, 2]) > 2
    half = pilot(GAUSSIAN, np.full(3, 0.5), np.eye(3), bias / 2, 0)
    assert half.step_size == pytest.approx(found.step_size / 2, rel=0.3)


def test_a_banana_is_sampled_and_confirmed():
    draws = sgld.sample(sgld.Posterior(banana), None, jnp.zeros(2), progress=False)
    exact = np.array([1.0, np.sqrt(0.25 + 0.25 * 2)])
    np.testing.assert_allclose(draws.sd() / exact, 1, atol=0.08)
    np.testing.assert_allclose((draws.mean() - [0, 0.5]) / exact, 0, atol=0.12)
    assert draws.verdict.word == "trusted", draws.verdict
    assert "Metropolis-adjusted" in draws.verdict.reasons[0]


def test_adjusted_chains_tell_the_truth_whatever_the_runs_step():
    starts = np.random.default_rng(0).normal(size=(32, 3)) @ np.linalg.cholesky(COVARIANCE).T
    D = sgld.Dense(jnp.asarray(COVARIANCE, jnp.float32)).prepare(GAUSSIAN.layout)
    setup = Setup(sgld.SGLD(), sgld.Full(), D, lambda t: 0.05, starts=starts)
    found = confirm(GAUSSIAN, setup, 0)
    assert found.mixed
    np.testing.assert_allclose(found.sd / np.sqrt(np.diag(COVARIANCE)), 1, atol=0.08)
    np.testing.assert_allclose(found.mean / np.sqrt(np.diag(COVARIANCE)), 0, atol=0.12)


EVIDENCE = Evidence(
    names=("a", "b"), mean=np.array([1.0, 2.0]), sd=np.array([1.0, 0.5]), ess=np.full(2, 900.0),
    ess_square=np.full(2, 900.0), r_hat=np.full(2, 1.001), num_chains=4, nu=30.0,
    sd_ratio=np.ones(2), sd_ratio_se=np.full(2, 0.01), r2=np.full(2, 0.2), mean_shift=np.zeros(2),
)  # fmt: skip
SAME = Confirmation(
    EVIDENCE.mean, EVIDENCE.sd, np.full(2, 0.02), np.full(2, 0.01), True, np.zeros(2)
)


@pytest.mark.parametrize(
    ("change", "word", "says"),
    [
        ({}, "trusted", "by Metropolis-adjusted chains"),
        ({"tail": np.array([0.0, 0.3])}, "unknown", "the tails of 'b' are too heavy"),
        ({"sd": EVIDENCE.sd / [1.0, 1.2]}, "biased", "sd of 'b' is about 20% too wide"),
        ({"sd": EVIDENCE.sd * 1.2}, "biased", "too narrow"),
        ({"mean": np.array([1.0, 2.2])}, "biased", "mean of 'b' is about 0.40 sd off"),
        # of the true sd, .5 / 1.08: .26 off, which is .24 of the run's
        (
            {"mean": np.array([1.0, 2.12]), "sd": EVIDENCE.sd / [1.0, 1.08]},
            "biased",
            "mean of 'b' is about 0.26 sd off",
        ),
        ({"mixed": False}, "unknown", "far from Gaussian"),
        ({"sd_se": np.full(2, 0.08)}, "unknown", "too short to tell"),
    ],
)
def test_the_rule_with_adjusted_chains(change, word, says):
    verdict = judge(replace(EVIDENCE, confirmation=replace(SAME, **change)))
    assert verdict.word == word and says in verdict.reasons[0]


def test_without_them_the_doubt_stays():
    assert judge(EVIDENCE).word == "unknown"


NO_LIMITS = {"max_steps": None, "max_seconds": None}


def request(**given):
    names = {name: "auto" for name in Request.__dataclass_fields__}
    return Request(**{**names, "tolerance": 0.05, "num_chains": 4, "seed": 0, **NO_LIMITS, **given})


def test_what_is_tried_next():
    plan = Plan(Setup(None, None, None, None), Known(gaussian=Mock(spec=Laplace)))
    biased, unknown = (Verdict(word, ("why",)) for word in ("biased", "unknown"))
    tried = [{"what": "pilot", "why": "why"}]
    assert another(plan, request(), Verdict("trusted", ()), []) == []
    assert another(plan, request(), unknown, []) == ["pilot"]
    assert another(plan, request(), biased, []) == ["pilot", "halve"]
    assert another(plan, request(), biased, tried) == ["halve"]
    assert another(plan, request(), unknown, tried) == []
    assert another(plan, request(), biased, 3 * tried) == []
    assert another(plan, request(step_size=0.1), biased, []) == []


def test_a_resumed_second_attempt_is_the_same_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_module, "NEAR", 0.9)  # begin with the Gaussian at the mode
    posterior = sgld.Posterior(lambda t: -1.5 * jnp.log1p(t**2 / 2))  # Student-t: r2 is low
    first = sgld.sample(posterior, None, 0.1, path=tmp_path / "whole", progress=False)
    assert any("pilot chains" in note for note in first.info["plan"]["notes"])
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    for name in ("result.json", "summary.json"):
        (tmp_path / "killed" / name).unlink()
    (tmp_path / "killed" / "draws.npz").unlink()
    again = sgld.resume(tmp_path / "killed", posterior, None, 0.1, progress=False)
    np.testing.assert_array_equal(again.position, first.position)
    assert again.info["plan"]["notes"] == first.info["plan"]["notes"]


def test_an_improper_posterior_is_refused_and_its_direction_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)).astype(np.float32)
    y = (X[:, 0] - 0.5 * X[:, 1] > 0.1).astype(np.float32)

    def likelihood(b, row):
        eta = b["base"] + row[0] @ b["slope"]
        return row[1] * eta - jnp.logaddexp(0.0, eta)

    start = {"base": jnp.float32(0), "slope": jnp.zeros(2)}
    flat = sgld.Posterior(lambda b: 0.0 * b["base"], likelihood)
    with pytest.raises(UsageError, match=r"improper.*\+1 'slope\[0\]' -0\.5 'slope\[1\]'"):
        sgld.sample(flat, (X, y), start, progress=False)
    with pytest.raises(UsageError, match=r"improper.*redundant"):
        sgld.sample(
            sgld.Posterior(lambda t: -0.5 * (t[0] + t[1]) ** 2), None, jnp.zeros(2), progress=False
        )


def test_a_saddle_is_left():
    double_well = sgld.Posterior(lambda t: 0.5 * t[0] ** 2 - 0.02 * t[0] ** 4 - 0.5 * t[1] ** 2)
    draws = sgld.sample(double_well, None, jnp.zeros(2), progress=False, num_draws=200)
    assert draws.plan.known.gaussian.positive_definite
    assert abs(abs(draws.plan.known.gaussian.center[0]) - 3.5355) < 0.01  # t^2 = 1 / .08
