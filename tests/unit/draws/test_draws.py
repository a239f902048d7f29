"""Weighted summaries, export and storage."""

import json
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.files import read_arrays
from sgld.errors import RunError, UsageError
from sgld.results import statistics
from sgld.results.verdict import Verdict


def draws_of(position, weights=None, **fields):
    if weights is not None:
        fields |= {"log_weight": np.log(weights), "step_size": weights}
    return sgld.Draws.of(position, **fields)


@pytest.fixture
def weighted_draws(rng):
    weights = rng.integers(1, 6, (2, 50)).astype(float)
    position = {"a": rng.normal(size=(2, 50)), "b": rng.normal(size=(2, 50, 3))}
    return draws_of(position, weights), weights


def replicated(values, weights):
    return np.repeat(values.reshape(-1, *values.shape[2:]), weights.ravel().astype(int), axis=0)


def test_moments_equal_those_of_replicated_draws(weighted_draws):
    draws, weights = weighted_draws
    for name in ("a", "b"):
        copies = replicated(draws.position[name], weights)
        np.testing.assert_allclose(draws.mean()[name], copies.mean(0), rtol=1e-12)
        # the divisors differ: n - 1 counts copies, the weighted one counts draws
        share = (weights**2).sum() / weights.sum() ** 2
        np.testing.assert_allclose(draws.var()[name] * (1 - share), copies.var(0), rtol=1e-12)
        np.testing.assert_allclose(draws.sd()[name] ** 2, draws.var()[name], rtol=1e-12)
    squares = draws.mean(lambda p: {"s": p["a"] ** 2})
    np.testing.assert_allclose(
        squares["s"], np.mean(replicated(draws.position["a"], weights) ** 2), rtol=1e-6
    )


def test_quantiles_lie_between_the_draws_next_to_those_of_replicated_draws(weighted_draws):
    draws, weights = weighted_draws
    copies = np.sort(replicated(draws.position["a"], weights))
    distinct = np.unique(copies)
    for q in (0.0, 0.05, 0.3, 0.5, 0.9, 1.0):
        found = draws.quantile(q)["a"]
        place = np.searchsorted(distinct, np.quantile(copies, q, method="inverted_cdf"))
        assert distinct[max(0, place - 2)] <= found <= distinct[min(len(distinct) - 1, place + 2)]
    assert draws.quantile(0.0)["a"] == distinct[0] and draws.quantile(1.0)["a"] == distinct[-1]


def test_weighted_quantile_of_many_draws(rng):
    x = rng.normal(size=(4, 20000))
    # importance weights turn N(0, 1) into N(1, 1)
    draws = draws_of(x, np.exp(x - 0.5))
    assert draws.mean() == pytest.approx(1.0, abs=0.03)
    lower, upper = draws.interval(0.9)
    assert (lower, upper) == (pytest.approx(1 - 1.645, abs=0.06), pytest.approx(1 + 1.645, abs=0.1))


def test_equal_weights_are_numpys(rng):
    x = rng.normal(size=(3, 40, 2))
    draws = draws_of(x)
    flat = x.reshape(-1, 2)
    np.testing.assert_allclose(draws.var(), flat.var(0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(draws.quantile(0.37), np.quantile(flat, 0.37, axis=0), rtol=1e-12)
    assert statistics.weight_share(np.full((2, 5), 0.1)) == pytest.approx(1.0)


def test_unequal_weights_cost_effective_draws(rng):
    x, w = rng.normal(size=(2, 1000, 1)), np.ones((2, 1000))
    w[:, ::2] = 1e-9
    assert statistics.ess(x, w)[0] == pytest.approx(0.5 * statistics.ess(x, np.ones_like(w))[0])


def test_failed_chains_are_left_out(rng):
    x = rng.normal(size=(3, 30))
    x[1] = np.nan
    draws = draws_of(x, status=("ok", "chain 1 failed at step 3", "ok"))
    assert draws.mean() == pytest.approx(x[[0, 2]].mean())
    with pytest.raises(RunError, match="chains failed"):
        _ = draws_of(x, status=("bad",) * 3).weights


def test_a_mean_over_no_chain_is_a_sentence(rng):
    with pytest.raises(RunError, match="chains failed"):
        draws_of(rng.normal(size=(3, 30)), status=("bad",) * 3).mean()


def test_predict_and_arguments(rng):
    x = rng.normal(size=(2, 500))
    draws = draws_of(x)
    prediction = draws.predict(lambda p, t: p * t, np.array([1.0, 2.0], np.float32))
    np.testing.assert_allclose(prediction.mean, x.mean() * np.array([1, 2]), rtol=1e-4)
    np.testing.assert_allclose(prediction.upper, np.quantile(x, 0.95) * np.array([1, 2]), rtol=1e-4)
    for call in (lambda: draws.quantile(1.5), lambda: draws.interval(1.0)):
        with pytest.raises(UsageError):
            call()


def test_predict_says_what_is_amiss_with_f_and_x(tmp_path):
    draws = sgld.Draws.of({"weight": np.ones((4, 9, 2))})
    with pytest.raises(UsageError, match=r"f must be a function .*predict\(f, x\)\. Got ndarray"):
        draws.predict(np.ones((3, 2)))
    module = lambda net, x: net(x)  # noqa: E731
    loaded = sgld.load(draws.save(tmp_path / "run"))
    with pytest.raises(
        UsageError, match=r"was a module, pass sgld\.networks\.restore\(draws, init\)"
    ):
        loaded.predict(module, np.ones((3, 2)))
    with pytest.raises(UsageError, match="fix it there"):
        draws.predict(module, np.ones((3, 2)))
    pandas = pytest.importorskip("pandas")
    with pytest.raises(UsageError, match=r"pass its numbers, x\.to_numpy\(\)"):
        draws.predict(
            lambda p, x: jnp.dot(x, p["weight"]), pandas.DataFrame({"a": [1.0], "b": 2.0})
        )


def test_arviz_gets_weights_step_sizes_and_temperatures(weighted_draws):
    draws, weights = weighted_draws
    tree = draws.to_arviz(weights="keep")
    np.testing.assert_allclose(np.exp(tree["sample_stats"]["log_weight"].values), weights)
    np.testing.assert_allclose(tree["sample_stats"]["step_size"].values, weights)
    np.testing.assert_allclose(tree["sample_stats"]["temperature"].values, 1.0)
    np.testing.assert_array_equal(tree["posterior"]["b"].values, draws.position["b"])
    assert list(tree["posterior"]["b"].coords["b_dim"].values) == [0, 1, 2]


def test_save_and_load(weighted_draws, tmp_path):
    draws, _ = weighted_draws
    again = sgld.load(draws.save(tmp_path / "run"))
    for name in ("a", "b"):
        np.testing.assert_array_equal(again.position[name], draws.position[name])
    for name in ("log_weight", "step_size", "temperature", "step"):
        np.testing.assert_array_equal(getattr(again, name), getattr(draws, name))
    assert again.names == draws.names == ("a", "b[0]", "b[1]", "b[2]")
    assert again.status == draws.status
    with pytest.raises(RunError, match="already exists"):
        draws.save(tmp_path / "run")
    with pytest.raises(RunError, match="no run directory"):
        sgld.load(tmp_path / "nowhere")


def test_summary_ends_with_the_verdict(weighted_draws):
    text = str(weighted_draws[0].summary())
    assert text.splitlines()[-2:] == ["verdict: unknown", "  the draws were not judged"]
    assert "b[2]" in text


def test_draws_from_elsewhere_are_unknown_and_say_that_nothing_judged_them(
    weighted_draws, tmp_path
):
    draws, _ = weighted_draws
    assert draws.verdict.word == "unknown" and not draws.verdict.judged
    assert draws.verdict.reasons == ("the draws were not judged",)
    assert "not judged" in repr(draws)
    failed = replace(draws, status=("ok", "chain 1 became non-finite at step 3"))
    assert failed.summary().reasons == ("the draws were not judged", failed.status[1])
    again = sgld.load(draws.save(tmp_path / "run"))
    assert not again.verdict.judged and again.verdict.reasons == draws.verdict.reasons


def test_draws_that_were_judged_unknown_stay_judged_on_disk(weighted_draws, tmp_path):
    judged = weighted_draws[0].with_verdict(Verdict("unknown", ("it cannot be told.",)))
    assert judged.verdict.judged and "not judged" not in repr(judged)
    again = sgld.load(judged.save(tmp_path / "run"))
    assert again.verdict.judged and again.summary().reasons == ("it cannot be told.",)
    failed = replace(judged, status=("ok", "chain 1 became non-finite at step 3"))
    assert failed.summary().reasons == ("it cannot be told.",)  # a verdict knows of failures


class Payload:
    """What unpickling it does is seen."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_draws_that_would_be_unpickled_are_refused(weighted_draws, tmp_path):
    """An archive with a pickled array, sealed or not, makes nothing run."""
    run = weighted_draws[0].save(tmp_path / "run")
    mark = tmp_path / "unpickled"
    with np.load(run / "draws.npz") as file:
        arrays = {name: file[name] for name in file.files}
    payload = np.array([Payload(mark)], dtype=object)
    np.savez(run / "draws.npz", **{**arrays, "position0": payload})
    with pytest.raises(RunError, match=r"draws.npz .*was damaged"):
        sgld.load(run)
    with pytest.raises(RunError, match=r"draws.npz cannot be read: an array has dtype object"):
        read_arrays(run / "draws.npz")
    assert not mark.exists()


def test_a_verdict_of_numbers_that_are_not_finite_can_be_stored():
    """Two rows for a line and its scatter: nu is infinite."""
    word = Verdict(
        "unknown", (), noise_ratio=float("nan"), extra={"nu": float("inf"), "excess": 0.1}
    )
    stored = json.loads(json.dumps(word.to_dict(), allow_nan=False))
    again = Verdict.from_dict(stored)
    assert again.noise_ratio is None and again.extra == {"nu": None, "excess": 0.1}
    assert again.to_dict() == stored
    with pytest.raises(TypeError):  # which the file's reader turns into a sentence
        Verdict.from_dict({**stored, "extra": [[]]})


def test_a_parameter_is_asked_for_by_its_name():
    draws = sgld.Draws.of({"beta": np.arange(12.0).reshape(2, 3, 2), "sigma": np.ones((2, 3))})
    np.testing.assert_array_equal(draws["beta"], draws.position["beta"])
    np.testing.assert_array_equal(draws["beta[1]"], draws.position["beta"][..., 1])
    with pytest.raises(
        UsageError, match=r"no parameter 'bta'; they have 'beta', 'sigma', .*Did you mean 'beta'"
    ):
        draws["bta"]
    with pytest.raises(UsageError, match="no parameter 0"):
        list(draws)
    whole = sgld.Draws.of(np.arange(6.0).reshape(1, 3, 2))
    np.testing.assert_array_equal(whole[whole.names[1]], [[1.0, 3.0, 5.0]])
