"""What chains from other starts say of a run: functions that all of its chains missed."""

import math
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.diagnostics.function_space.other_chains import OtherStarts, met, settled
from sgld.diagnostics.function_space.predictions import CLASSES, MEANS
from sgld.diagnostics.function_space.temperature import Layers
from sgld.diagnostics.function_space.verdict import Seen, judge_predictions
from sgld.inference.function_space import not_looked_for
from sgld.inference.tuning import network as path
from sgld.inference.tuning import network_backend
from sgld.inference.tuning import network_rules as rule
from sgld.inference.tuning.network import from_prior
from sgld.model.prepare import prepare

STARTS, DRAWS, ROWS = 12, 5, 40


def run_of(kind, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((4, 400, ROWS, 2 if kind == CLASSES else 1))
    if kind == CLASSES:
        values -= np.log(np.exp(values).sum(-1, keepdims=True))
    return values


def others(kind, shift, rows=ROWS, mass=0.0):
    """Draws of the same law, those of the first three starts moved at some rows."""
    rng = np.random.default_rng(1)
    values = run_of(kind)[0][rng.integers(400, size=(STARTS, DRAWS))]
    values[:3, :, :rows, 0] += shift
    log_mass = np.where(np.arange(STARTS) < 3, mass, 0.0)
    return OtherStarts(values.mean(axis=1), log_mass, 0.0, np.zeros((len(values), 16)))


@pytest.mark.parametrize("kind", [MEANS, CLASSES])
@pytest.mark.parametrize("given, unlike", [
    ({"shift": 0.0}, 0),
    ({"shift": 12.0}, 3),
    ({"shift": 1.5}, 0),  # within what the run predicts
    ({"shift": 12.0, "rows": 1}, 0),  # a row of 40
    ({"shift": 12.0, "rows": 2}, 3),
    ({"shift": 12.0, "mass": -13.9}, 3),
    ({"shift": 12.0, "mass": -14.1}, 0),  # 10 + sqrt(16) nats: an optimiser was caught
])  # fmt: skip
def test_starts_that_are_apart_and_matter_are_counted(kind, given, unlike):
    assert others(kind, **given).unlike(kind, run_of(kind)) == unlike


@pytest.mark.parametrize("kind", [MEANS, CLASSES])
@pytest.mark.parametrize("given, known", [
    ({"shift": 0.0}, True),
    ({"shift": 12.0}, False),
    ({"shift": 12.0, "rows": 1}, False),  # of 40: 1.5% do
    ({"shift": 12.0, "mass": -100.0}, False),  # they may be on their way
])  # fmt: skip
def test_starts_are_followed_on_until_they_predict_what_the_run_does(kind, given, known):
    there = others(kind, **given).predicted
    assert met(kind, there, run_of(kind)) == known


def test_a_start_that_was_long_on_its_way_and_arrived_is_no_other_function():
    """The mass is that of where it ended, what it predicted on the way was far off."""
    run = run_of(MEANS)
    looks = np.stack([run[0, k : k + 2] for k in range(4)])  # [look, start, row, 1]
    looks[:3, 0] += 40  # arrives at the last
    looks[:, 1] += 40  # stays
    there = settled(MEANS, looks, run)
    assert (there[0] == looks[-1, 0]).all() and there[1] == pytest.approx(looks[:, 1].mean(axis=0))
    assert OtherStarts(there, np.zeros(2), 0.0, np.zeros((2, 3))).unlike(MEANS, run) == 1


@pytest.mark.parametrize("looks, followed", [
    ([0, 0], False), ([1, 0, 0, 1], False), ([1, 0, 1, 0], True), ([0, 1, 1, 1], True), ([0], True),
])  # fmt: skip
def test_two_looks_in_a_row_that_find_nothing_new_end_it_and_not_one(monkeypatch, looks, followed):
    """`looks`: what a start is away from the run after every stage."""
    run, moves, seen = SimpleNamespace(kind=MEANS, predicted=run_of(MEANS)), [], []

    def tuned(backend, z, until, enough):
        for away in looks:
            seen.append(away)
            z = np.full((1, 1), away)
            if enough(z):
                break
        return network_backend.Tuned(z, None, 0.1)

    backend = SimpleNamespace(
        moved=lambda z, *_: moves.append(1) or z, positions=lambda z: z,
        predicted=lambda z: run.predicted[0, :1] + 12 * z[0, 0],
    )  # fmt: skip
    monkeypatch.setattr(network_backend, "tuned", tuned)
    monkeypatch.setattr(network_backend, "log_masses", lambda backend, z: np.zeros(len(z)))
    network_backend.followed(backend, np.zeros((1, 1)), run, math.inf, to_the_end=False)
    assert len(moves) == rule.STRETCHES * followed
    assert seen == (looks if followed else looks[: looks.index(0) + 2])
    moves.clear()
    seen.clear()
    network_backend.followed(backend, np.zeros((1, 1)), run, math.inf, to_the_end=True)
    assert len(moves) == rule.STRETCHES and seen == looks


def test_a_run_that_missed_a_function_is_not_mixed():
    predicted = run_of(MEANS)
    weights = np.full(predicted.shape[:2], 1 / (4 * 400))
    kinetic = 1 + 0.02 * np.random.default_rng(2).standard_normal((4, 400, 2))
    for shift, word in ((0.0, "trusted"), (12.0, "not mixed")):
        seen = Seen(
            MEANS, predicted, kinetic, weights, Layers(("a",), (40,)), others=others(MEANS, shift)
        )
        verdict = judge_predictions(seen)
        assert verdict.word == word
        assert verdict.extra["predictions"]["other_starts"] == [3 * (shift > 0), STARTS]
    assert "3 of 12 chains from other starts" in verdict.reasons[0]


# -- runs ---------------------------------------------------------------------------------------

X = np.random.default_rng(6).uniform(-2, 2, (24, 1)).astype(np.float32)
Y = np.where(np.arange(24) < 12, X[:, 0], -X[:, 0]).astype(np.float32)
TWO_LINES = sgld.Posterior(  # rows on one line and on another: two functions, with little between
    lambda p: -0.125 * (p["w"] ** 2 + p["b"] ** 2),
    lambda p, row: -1.5 * jnp.log1p(((row[1] - p["w"] * row[0][0] - p["b"]) / 0.1) ** 2 / 2),
    predict=lambda p, row: p["w"] * row[0][0] + p["b"],
)
HOW = {
    "sampler": sgld.BAOA(), "gradient": sgld.Full(), "step_size": 5e-5, "burn_in": 300, "thin": 10,
    "num_draws": 2000, "progress": False,
}  # fmt: skip


def near_one(**given):
    return sgld.sample(
        TWO_LINES, (X, Y), {"w": jnp.array(1.0), "b": jnp.array(0.0)}, **{**HOW, **given}
    )


def test_chains_that_began_at_one_of_two_functions():
    with not_looked_for():
        blind = near_one()
    assert blind.verdict.word != "not mixed" and float(np.mean(blind.position["w"])) > 0.9
    seen = near_one()
    assert seen.verdict.word == "not mixed"
    assert "from other starts predict what no draw of this run does" in seen.verdict.reasons[0]


def test_starts_differ_where_a_layer_is_one_weight_or_begins_at_zero():
    draws = sgld.sample(
        TWO_LINES, (X, Y), {"w": jnp.array(0.0), "b": jnp.array(0.0)}, num_draws=30, max_steps=200,
        progress=False, num_chains=8,
    )  # fmt: skip
    starts = np.asarray(draws.plan.setup.starts)
    assert starts.min() < -0.5 and starts.max() > 0.5


def test_few_rows_of_a_limit_on_time_leave_no_other_starts(monkeypatch):
    from sgld.model.problem import Request

    problem = prepare(TWO_LINES, (X, Y), {"w": jnp.array(0.0), "b": jnp.array(0.0)})
    ask = Request(*["auto"] * 2, 0.05, 1.0, *["auto"] * 8, 0)
    assert path.other_starts_affordable(problem, ask) == (rule.MAX_OTHER_STARTS, True)
    with monkeypatch.context() as patch:  # twelve are affordable, and not cheap
        patch.setattr(rule, "CHEAP_STARTS_SECONDS", 1e-6)
        assert path.other_starts_affordable(problem, ask) == (rule.USUAL_OTHER_STARTS, False)
    short = Request(*["auto"] * 2, 0.05, 1.0, *["auto"] * 8, 0, max_seconds=29.0)
    assert path.other_starts_affordable(problem, short)[0] == 0
    monkeypatch.setattr(rule, "STRETCH_STEPS", 10**9)
    long = Request(*["auto"] * 2, 0.05, 1.0, *["auto"] * 8, 0, max_seconds=1e4)
    assert path.other_starts_affordable(problem, long)[0] == 0


def wall(p):
    """A double well of the prior's own, 10 nats deep, beside N(0, 2)."""
    return -10 * (p["c"] ** 2 / 2.25 - 1) ** 2 - 0.125 * jnp.sum(p["w"] ** 2)


def test_of_three_starts_two_are_the_priors_one_of_them_from_the_other_side_of_0():
    posterior = sgld.Posterior(wall, lambda p, row: 0.0 * row[1])
    problem = prepare(posterior, (X, Y), {"c": jnp.array(1.5), "w": jnp.full(400, 3.0)})
    near = np.tile(np.asarray(problem.start, np.float64), (6, 1))
    found = from_prior(problem, near, seed=0)
    assert (found[::3] == near[::3]).all()
    c, w = found[:, 0], found[:, 1:]
    assert (c[1::3] > 0.5).all() and (c[2::3] < -0.5).all()
    for moved in w[np.array([1, 2, 4, 5])]:  # N(0, 2) is forgotten to begin at 3
        assert abs(moved.mean()) < 0.4 and moved.std() == pytest.approx(2.0, rel=0.15)
    bad = sgld.Posterior(lambda p: jnp.log(p["c"]), lambda p, row: 0.0 * row[1])
    problem = prepare(bad, (X, Y), {"c": jnp.array(1.0), "w": jnp.zeros(4)})
    near = np.tile(np.asarray(problem.start, np.float64), (3, 1))
    assert (from_prior(problem, near, seed=0)[2] == near[2]).all()  # log(-1)


def test_a_wall_of_the_priors_own_does_not_hide_what_is_behind_it():
    posterior = sgld.Posterior(
        lambda p: wall({"c": p["c"], "w": jnp.zeros(1)}) - 0.5 * p["b"] ** 2,
        lambda p, row: -0.5 * (row[1] - p["b"] * row[0][0]) ** 2,
        predict=lambda p, row: p["c"] + 0 * row[0][0],
    )  # nothing is known of c, and half its mass is on either side
    draws = sgld.sample(
        posterior, (X, Y), {"c": jnp.array(1.5), "b": jnp.array(0.0)}, **{**HOW, "step_size": 1e-3}
    )
    assert draws.verdict.word == "not mixed" and "other starts" in draws.verdict.reasons[0]


def test_one_parameter_alone_has_a_step():
    """Two of the stiffest directions were asked for, and of one there are no two."""
    posterior = sgld.Posterior(
        lambda p: -0.005 * p["w"][0] ** 2, lambda p, row: -0.5 * (row[1] - p["w"][0]) ** 2,
        predict=lambda p, row: p["w"][0],
    )  # fmt: skip
    draws = sgld.sample(posterior, (X, Y), {"w": jnp.zeros(1)}, num_draws=200, progress=False)
    assert not draws.failures
    assert float(draws.sd()["w"][0]) == pytest.approx(1 / np.sqrt(24.01), rel=0.2)


def test_a_stage_in_which_chains_fail_goes_for_nothing(monkeypatch):
    """A saddle, where nothing is stiff, next to a slope that is."""
    posterior = sgld.Posterior(
        lambda p: -0.125 * jnp.sum(p["v"] ** 2 + p["w"] ** 2),
        lambda p, row: -50 * (row[1] - jnp.tanh(row[0] @ p["w"][None]) @ p["v"]) ** 2,
        predict=lambda p, row: jnp.tanh(row[0] @ p["w"][None]) @ p["v"],
    )
    zero = {"v": jnp.zeros(6), "w": jnp.zeros(6)}
    problem_steps = []
    real = path.JaxBackend.moved

    def moved(*arguments):
        z = real(*arguments)
        problem_steps.append(arguments[3])
        return z.at[0].set(jnp.nan) if len(problem_steps) == 1 else z

    monkeypatch.setattr(path.JaxBackend, "moved", moved)
    draws = sgld.sample(posterior, (X, Y), zero, num_draws=30, max_steps=200, progress=False)
    assert np.isfinite(np.asarray(draws.plan.setup.starts)).all()
    assert problem_steps[1] < 0.5 * problem_steps[0]
