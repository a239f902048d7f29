"""Limits on steps and time, and the plan that a run directory keeps."""

import itertools
import json
import re
import time
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation.known import NOT_SEARCHED
from sgld.core import progress as deadlines
from sgld.core.progress import check_deadline, deadline, sampled_until
from sgld.core.work import Work
from sgld.errors import RunError, UsageError
from sgld.inference import loop
from sgld.inference.tuning.survey import survey_posterior
from sgld.model.prepare import prepare

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))


def run(**how):
    return sgld.sample(GAUSSIAN, None, jnp.zeros(2), progress=False, **how)


def test_max_steps_holds_burn_in_included_and_the_verdict_knows():
    draws = run(max_steps=150)
    assert draws.info["num_steps"] <= 150
    assert draws.num_draws >= 30
    assert draws.verdict.word == "not mixed"
    assert run(max_steps=100_000).verdict.word == "trusted"


def test_max_steps_also_ends_a_run_that_wants_more_effective_draws():
    assert run(max_steps=1000, ess=10**6).info["num_steps"] <= 1000


def test_ess_is_reached_by_every_parameter():
    draws = run(ess=4000)
    assert min(row["ess_bulk"] for row in draws.summary().parameters.values()) >= 4000
    assert draws.num_draws > 1000  # the number without ess


@pytest.fixture
def late(monkeypatch):
    """The time is up from the first chunk of sampling on, whatever the clock says."""
    monkeypatch.setattr(Work, "late", property(lambda work: True))


def test_a_run_out_of_time_gives_the_first_draws_of_the_longer_one(late):
    given = {"step_size": 0.3, "burn_in": 10}
    short = run(max_seconds=1e4, num_draws=10**6, **given)
    assert 20 <= short.num_draws < 10**6
    assert "max_seconds = 10000 ended the run" in " ".join(short.plan.notes)
    long = run(num_draws=short.num_draws, **given)
    np.testing.assert_array_equal(short.position, long.position)


def test_time_that_is_up_before_the_first_draw_is_told_with_the_stage():
    with pytest.raises(
        RunError, match="max_seconds = 1e-09 ended before the first draw, at the stage '"
    ):
        run(max_seconds=1e-9)


def seconds_named(error):
    """What the sentence says that should do."""
    return float(re.search(r"max_seconds = (\S+) should do", str(error.value))[1])


def test_the_time_that_is_said_to_do_does():
    with pytest.raises(RunError) as error:
        run(max_seconds=1e-9)
    assert 1 <= seconds_named(error) <= 100
    assert run(max_seconds=seconds_named(error)).num_draws >= 20


def test_the_time_that_is_said_to_do_covers_the_steps_that_are_missing(late):
    with pytest.raises(RunError, match="0 draws of at least 4") as error:
        run(max_seconds=1e3, step_size=0.3, burn_in=10**9, num_draws=50)
    assert (
        seconds_named(error) > 2000
    )  # and not twice what was given: a tenth of what a first chunk took is more


def test_what_a_stage_needs_still_is_asked_for_too():
    with deadline(1.0, time.monotonic() - 1), pytest.raises(RunError) as error:
        check_deadline("rows", left=600.0)
    assert seconds_named(error) >= 1000
    with (
        deadline(1.0, time.monotonic() - 1, least=700.0),
        pytest.raises(RunError) as error,
    ):
        check_deadline("rows")
    assert seconds_named(error) >= 1000


def test_time_that_is_up_in_the_burn_in_ends_it_and_the_run_can_be_resumed(
    late, tmp_path, monkeypatch
):
    given = {"step_size": 0.3, "burn_in": 3000, "num_draws": 50, "max_seconds": 1e4}
    with pytest.raises(RunError, match=r"was up at step .* each chain had 0 draws"):
        run(path=tmp_path / "run", **given)
    monkeypatch.undo()
    again = sgld.resume(tmp_path / "run", GAUSSIAN, None, jnp.zeros(2), progress=False)
    np.testing.assert_array_equal(again.position, run(**given).position)


def test_sampling_leaves_a_fifth_of_the_time_to_the_verdict(monkeypatch):
    seen = []
    work = loop.Work
    monkeypatch.setattr(
        loop, "Work", lambda *a, **how: seen.append(how["until"]) or work(*a, **how)
    )
    before = time.monotonic()
    run(max_seconds=1e4, max_steps=200)
    assert before + 8000 <= seen[0] <= time.monotonic() + 8000


def test_a_verdict_on_predictions_is_left_a_twentieth_and_what_compiling_takes():
    assert sampled_until(5.0, 1000.0, predictions=True) == 5.0 + 1000 - 56
    assert sampled_until(5.0, 30.0, predictions=True) == 5.0 + 24  # never over a fifth
    assert sampled_until(5.0, np.inf, predictions=True) == np.inf


def test_where_other_modes_have_had_their_share_of_the_time_draws_come_without_a_promise(
    monkeypatch,
):
    monkeypatch.setattr(deadlines, "past", lambda of: -np.inf)
    found = run(max_seconds=1e4)
    assert found.verdict.word == "unknown"
    assert "(max_seconds) stopped the search" in found.verdict.reasons[0]
    assert "; raise it" in found.verdict.reasons[0]
    assert "stopped the search" in " ".join(found.plan.notes)
    # without a limit there is no share of it
    np.testing.assert_array_equal(run().position, found.position)
    assert run().verdict.word == "trusted"


@pytest.mark.parametrize(
    ("d", "shares"), [(3, (0.55, 0.7, 1.1)), pytest.param(1001, (0.6,), marks=pytest.mark.slow)]
)
def test_the_search_for_other_modes_is_left_in_its_middle(d, shares, monkeypatch):
    curved = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2) - 0.01 * jnp.sum(t**4))
    problem = prepare(curved, None, jnp.ones(d))

    def found(seconds):
        clock = itertools.count()
        ticking = SimpleNamespace(monotonic=lambda: float(next(clock)))
        monkeypatch.setattr(deadlines, "time", ticking)
        with deadline(seconds, 0.8 * seconds):
            known = survey_posterior(problem, 0, 1.0, by_hand=False)
        return next(clock), known

    whole, known = found(1e9)
    assert known.doubts == ()
    for share in shares:
        _, known = found(share * whole / 0.4)
        assert known.doubts == ((NOT_SEARCHED,) if share < 1 else ())
        assert not known.elsewhere


def test_time_that_is_not_up_changes_nothing():
    np.testing.assert_array_equal(run(max_seconds=1e4).position, run().position)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"max_steps": 10}, "max_steps must be a whole number, at least 100"),
        ({"max_steps": 500, "burn_in": 500}, "at least 501, burn-in included"),
        ({"max_steps": 1e3}, "max_steps must be a whole number"),
        ({"max_seconds": 0}, "max_seconds must be a positive number"),
    ],
)
def test_limits_that_make_no_sense_are_refused(given, word):
    with pytest.raises(UsageError, match=word):
        run(**given)


def test_the_plan_is_kept_in_run_json_from_the_start(tmp_path):
    draws = run(path=tmp_path / "run", max_steps=5000)
    kept = json.loads((tmp_path / "run" / "run.json").read_text())
    assert kept["plan"] == json.loads(json.dumps(draws.info["plan"]))
    assert kept["request"]["max_steps"] == 5000
    again = sgld.resume(tmp_path / "run", GAUSSIAN, None, jnp.zeros(2))
    np.testing.assert_array_equal(again.position, draws.position)
