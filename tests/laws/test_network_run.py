"""Runs that are judged by predictions: bits, resume, the clock, and the failures that must be caught."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core import work
from sgld.core.work import Work
from sgld.inference import chunk, execute, sink
from sgld.inference.tuning import network_rules as rule
from sgld.results.run_directory import RunDirectory

RNG = np.random.default_rng(0)
X = RNG.standard_normal((400, 3)).astype(np.float32)
Y = (np.tanh(X[:, 0]) + 0.3 * RNG.standard_normal(400)).astype(np.float32)
WIDTH = 4
INIT = {
    "w": jnp.asarray(RNG.standard_normal((3, WIDTH)), jnp.float32),
    "v": jnp.asarray(RNG.standard_normal(WIDTH), jnp.float32),
}


def predict(p, row):
    return jnp.tanh(row[0] @ p["w"]) @ p["v"]


POSTERIOR = sgld.Posterior(
    lambda p: -0.5 * (jnp.sum(p["w"] ** 2) + jnp.sum(p["v"] ** 2)),
    lambda p, row: -0.5 * ((row[1] - predict(p, row)) / 0.3) ** 2,
    predict=predict,
)


def run(**given):
    return sgld.sample(POSTERIOR, (X, Y), INIT, progress=False, **given)


@pytest.fixture
def batches(monkeypatch):
    """No budget for full gradients."""
    monkeypatch.setattr(rule, "MAX_FULL_SECONDS", 0.0)


class Stopped(BaseException):
    """As a kill right after a write."""


def test_a_stopped_run_goes_on_to_the_same_bits_and_verdict(tmp_path, batches):
    given = {"num_draws": 60, "max_steps": 2000}
    whole = run(path=tmp_path / "whole", **given)
    write = RunDirectory.write_checkpoint

    def stop(self, *arguments):
        write(self, *arguments)
        raise Stopped

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(RunDirectory, "write_checkpoint", stop)
        run(path=tmp_path / "run", checkpoint_every=1e-9, **given)
    again = sgld.resume(tmp_path / "run", POSTERIOR, (X, Y), INIT, progress=False)
    for name, leaf in whole.position.items():
        np.testing.assert_array_equal(again.position[name], leaf)
    assert again.verdict.to_dict() == whole.verdict.to_dict()
    assert sgld.load(tmp_path / "run").verdict.to_dict() == whole.verdict.to_dict()


def test_few_positions_are_those_of_the_same_run_wherever_it_is_stopped(tmp_path, monkeypatch):
    """Of so many weights that memory ends there: all predictions are judged, every 2^k-th position is given back."""
    monkeypatch.setattr(sink, "CHUNK_NUMBERS", 1000)
    monkeypatch.setattr(sink, "MIN_CHUNK_DRAWS", 4)
    monkeypatch.setattr(chunk, "MAX_BLOCK_STEPS", 8)
    monkeypatch.setattr(work, "PIECE_SECONDS", 1e-9)
    given = {"step_size": 5e-5, "sampler": sgld.BAOA(), "gradient": sgld.Full(), "burn_in": 50, "thin": 2, "max_steps": 700}  # fmt: skip
    whole = run(**given)
    monkeypatch.setattr(execute, "held", lambda *_: 40)
    few = run(**given)
    at = np.searchsorted(whole.step, few.step)
    assert whole.num_draws == 325 and few.num_draws == 21 and set(np.diff(few.step)) == {32}
    assert few.plan.setup.thin == 32 and few.plan.setup.burn_in == few.step[0]
    for name, leaf in whole.position.items():
        np.testing.assert_array_equal(few.position[name], leaf[:, at])
    one, other = few.verdict, whole.verdict
    assert one.word == other.word and one.extra["predictions"] == other.extra["predictions"]
    writes, write = [], RunDirectory.write_checkpoint

    def stop(self, *arguments):
        write(self, *arguments)
        writes.append(1)
        if len(writes) in (20, 50):
            raise Stopped

    how = {"path": tmp_path / "run", "checkpoint_every": 1e-9, **given}

    def go_on():
        path = tmp_path / "run"
        return sgld.resume(path, POSTERIOR, (X, Y), INIT, progress=False, checkpoint_every=1e-9)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "write_checkpoint", stop)
        with pytest.raises(Stopped):
            run(**how)
        with pytest.raises(Stopped):
            go_on()
        again = go_on()
    for name, leaf in few.position.items():
        np.testing.assert_array_equal(again.position[name], leaf)
    assert again.verdict.to_dict() == few.verdict.to_dict()


def test_a_run_that_the_clock_ends_is_judged_after_a_burn_in_of_a_third(monkeypatch, batches):
    monkeypatch.setattr(Work, "late", property(lambda work: True))
    draws = run(max_seconds=1e4)
    assert "max_seconds = 10000 ended the run" in " ".join(draws.plan.notes)
    share = draws.step[0] / draws.info["num_steps"]
    assert 0.25 < share < 0.6 or draws.num_draws == 20
    assert draws.verdict.extra["predictions"]["rows"] == 64


def test_a_hot_run_that_mixes_well_is_not_trusted():
    """Batches of few rows at the step of full gradients: every R-hat is fine, every sd too wide."""
    x = RNG.standard_normal((400, 30)).astype(np.float32)
    y = (x[:, 0] + RNG.standard_normal(400)).astype(np.float32)
    features = sgld.Posterior(
        lambda b: -0.5 * jnp.sum(b**2),
        lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2,
        predict=lambda b, row: row[0] @ b,
    )

    def of(**given):
        return sgld.sample(features, (x, y), jnp.zeros(30), progress=False, **given)

    well = of()
    assert well.verdict.word == "trusted", well.verdict
    setup = well.plan.setup
    hot = of(
        sampler=sgld.BAOA(), preconditioner=setup.preconditioner, gradient=sgld.Minibatch(),
        step_size=float(setup.step_size(0)) / 4, batch_size=10, burn_in=500, thin=20, num_draws=400,
    )  # fmt: skip
    sd = [d.predict(lambda b, rows: rows @ b, x[:50]).sd for d in (well, hot)]
    assert np.median(sd[1] / sd[0]) > 1.15
    found = hot.verdict.extra["predictions"]
    assert found["r_hat"] < 1.05 and found["ess"] > 100
    assert hot.verdict.word == "biased" and "temperature" in hot.verdict.reasons[0]


def test_a_step_that_collapsed_is_not_mixed():
    found = run(sampler=sgld.BAOA(), step_size=1e-12, num_draws=200, thin=2, burn_in=10)
    assert found.verdict.word == "not mixed"


def test_only_predictions_are_kept_where_asked_and_the_verdict_is_theirs():
    draws = run(keep=lambda p: p["v"], num_draws=50, max_steps=1000)
    assert draws.position.shape == (4, draws.num_draws, WIDTH)
    assert draws.verdict.extra["predictions"]["kind"] == "means"


def test_sgld_asked_for_takes_a_step_by_its_own_rule(batches):
    draws = run(sampler=sgld.SGLD(), num_draws=30, max_steps=600)
    plan = draws.plan.setup
    assert isinstance(plan.sampler, sgld.SGLD) and not plan.corrected and plan.predictions
    assert np.isfinite(draws.position["w"]).all()


def test_draws_that_were_asked_for_are_not_dropped_where_more_are_wanted(monkeypatch):
    """`ess=` goes on, and memory for what it adds ends; the draws of `num_draws` had theirs."""
    monkeypatch.setattr("sgld.inference.tuning.network_rules.MAX_KEPT_NUMBERS", 2**10)
    given = {"step_size": 5e-5, "sampler": sgld.BAOA(), "gradient": sgld.Full(), "burn_in": 100}
    draws = run(num_draws=200, thin=2, num_chains=2, ess=4000, max_seconds=30, **given)
    assert draws.num_draws >= 100 and draws.plan.setup.thin > 2  # every second of 200 at the least
