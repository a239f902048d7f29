"""Rows of one's own, at which a run is judged."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.diagnostics.function_space import predictions
from sgld.errors import DataError, RunError, UsageError
from sgld.inference import execute
from sgld.inference.function_space import not_looked_for

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3)).astype(np.float32)
Y = (X[:, 0] + 0.1 * RNG.standard_normal(40)).astype(np.float32)
FAR = (np.full((5, 3), 9.0), np.zeros(5))


def sample(predict_at, predict=lambda w, row: row[0] @ w, **given):
    posterior = sgld.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, row: -0.5 * ((row[1] - row[0] @ w) / 0.1) ** 2,
        predict=predict, predict_at=predict_at,
    )  # fmt: skip
    return sgld.sample(posterior, (X, Y), np.zeros(3, np.float32), progress=False, **given)


def test_predictions_are_judged_at_the_rows_that_were_given():
    """9 (w1 + w2 + w3), whose sd is known in closed form."""
    draws = sample(FAR, step_size=1e-4, sampler=sgld.BAOA(), num_draws=400, thin=10, burn_in=500)
    assert draws.verdict.extra["predictions"]["rows"] == 5
    covariance = np.linalg.inv(np.eye(3) + X.T @ X / 0.01)
    w = draws.position.reshape(-1, 3) @ np.full(3, 9.0)
    assert abs(w.std() / np.sqrt(81 * covariance.sum()) - 1) < 0.15


@pytest.mark.slow
def test_what_predictions_are_is_asked_before_the_first_step_and_not_at_each_doubling(monkeypatch):
    steps, began, real = [], [], predictions._is_one_vector
    monkeypatch.setattr(
        predictions, "_is_one_vector", lambda *given: steps.append(len(began)) or real(*given)
    )
    suffice = execute.draws_suffice
    monkeypatch.setattr(execute, "draws_suffice", lambda *run: began.append(1) or suffice(*run))
    with not_looked_for():
        draws = sample(None, lambda w, row: row[0][:2] * w[:2], max_steps=1000)
    assert draws.verdict.extra["predictions"]["kind"] == "means"
    assert steps and not any(steps) and len(began) > 1


@pytest.mark.parametrize(
    ("rows", "predict", "kind", "words"),
    [
        (FAR, None, UsageError, "judged by its parameters"),
        (FAR[0], "own", UsageError, "with every array of a datum"),
        ((np.zeros((5, 2)), np.zeros(5)), "own", UsageError, r"shape \(3,\), as the data have"),
        ((np.zeros((5, 3)), np.float32(0)), "own", UsageError, "shape"),
        ((np.zeros((5, 3)), np.zeros(4)), "own", UsageError, "same number of rows"),
        ((np.zeros((0, 3)), np.zeros(0)), "own", UsageError, "at least 1"),
        ((np.full((5, 3), np.nan), np.zeros(5)), "own", DataError, "not finite"),
        ((np.full((5, 3), 1e300), np.zeros(5)), "own", DataError, "not finite"),
        ((np.array([["a"] * 3]), np.zeros(1)), "own", UsageError, "must hold numbers. Got <U1"),
        ((np.zeros((5000, 3)), np.zeros(5000)), "own", UsageError, "give 4,096 rows at most"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_meant_are_refused_before_the_first_step(rows, predict, kind, words):
    given = {} if predict else {"predict": None}
    with pytest.raises(kind, match=words):
        sample(rows, **given)


@pytest.mark.parametrize("level", [0.5, 3e9])
def test_whole_numbers_are_given_as_whole_numbers(level):
    posterior = sgld.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, row: -0.5 * (row[1] - w[row[0]]) ** 2,
        predict=lambda w, row: w[row[0]], predict_at=(np.array([level]), np.zeros(1)),
    )  # fmt: skip
    data = (np.arange(40, dtype=np.int32) % 3, Y)
    with pytest.raises(UsageError, match="must hold whole numbers, as the data do"):
        sgld.sample(posterior, data, np.zeros(3, np.float32), step_size=1e-3, progress=False)


def test_another_set_of_rows_is_no_way_to_go_on(tmp_path, monkeypatch):
    from sgld.results.run_directory import RunDirectory

    class Stopped(Exception):
        pass

    write = RunDirectory.write_checkpoint

    def stop(self, *arguments):
        write(self, *arguments)
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(RunDirectory, "write_checkpoint", stop)
        sample(FAR, path=tmp_path / "run", checkpoint_every=1e-9, num_draws=60, max_steps=2000)
    posterior = sgld.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, row: -0.5 * ((row[1] - row[0] @ w) / 0.1) ** 2,
        predict=lambda w, row: row[0] @ w, predict_at=(FAR[0] + 1, FAR[1]),
    )  # fmt: skip
    with pytest.raises(RunError, match="begun with other values of the model"):
        sgld.resume(tmp_path / "run", posterior, (X, Y), np.zeros(3, np.float32), progress=False)


@pytest.mark.parametrize(
    ("predict", "words"),
    [
        (lambda w, row: jnp.argmax(row[0] * w), r"not the class\. Got int32"),
        (lambda w, row: jnp.zeros((2, 0)), r"Got shapes \[\(2, 0\)\], no number at all"),
        (lambda w, row: row[0] @ w[:2], "predict raised TypeError .* of test_probe_rows.py"),
        (lambda w: w, "predict raised TypeError .* takes 1 positional argument"),
    ],
)
def test_predictions_that_are_none_are_refused_before_the_first_step(predict, words):
    with pytest.raises(UsageError, match=words):
        sample(None, predict, step_size=1e-3, num_draws=9)


@pytest.mark.parametrize("prior", [lambda w: jnp.zeros(()), lambda w: -0.5 * jnp.sum(w**2)])
def test_a_prior_that_says_nothing_is_told(prior):
    posterior = sgld.Posterior(
        prior, lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2, predict=lambda w, row: row[0] @ w
    )
    draws = sgld.sample(
        posterior, (X, Y), np.zeros(3, np.float32), step_size=1e-3, num_draws=9, progress=False
    )
    told = any("log_prior is the same everywhere" in note for note in draws.plan.notes)
    assert told == (float(prior(jnp.ones(3))) == 0)
