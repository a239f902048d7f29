"""The plan of a network: metric, step and batches where the chains are, against closed forms."""

import ast
import math
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation.mode import optimise
from sgld.core.progress import deadline
from sgld.diagnostics.function_space.predictions import predictions_of
from sgld.diagnostics.function_space.temperature import Layers, Probe, stiffest
from sgld.inference import execute, loop
from sgld.inference.tuning import network as heat
from sgld.inference.tuning import network as path
from sgld.inference.tuning import network_rules as lengths
from sgld.inference.tuning import network_rules as prices
from sgld.inference.tuning import network_rules as rule
from sgld.inference.tuning.network_backend import lost_chains
from sgld.model.prepare import prepare
from sgld.model.problem import Problem, Request
from sgld.results.plan import Plan, Setup

FLAT = jnp.zeros(6)
ROWS = 300


def linear(predict=True):
    """y = x' b + noise of sd 1, b ~ N(0, 4): the law of b is known."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, 6)).astype(np.float32) * np.array(
        [1, 2, 4, 0.5, 1, 1], np.float32
    )
    y = (x[:, 0] + rng.standard_normal(ROWS)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda b: -0.125 * jnp.sum(b**2),
        lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2,
        predict=(lambda b, row: row[0] @ b) if predict else None,
    )
    return posterior, (x, y)


def truth(x, y):
    precision = x.T @ x + np.eye(6) / 4
    covariance = np.linalg.inv(precision)
    return covariance @ (x.T @ y), covariance


def test_the_metric_is_that_of_the_rows_and_the_prior():
    posterior, (x, y) = linear()
    problem = prepare(posterior, (x, y), FLAT)
    z = problem.array(np.arange(6.0) / 10)
    residual = y - x @ np.asarray(z)
    wanted = 0.25 + ((residual[:, None] * x) ** 2).sum(0)
    found = path.fisher(problem, z, jnp.int32(0), rows=ROWS)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    halves = [path.fisher(problem, z, jnp.int32(k), rows=ROWS // 2) for k in (0, ROWS // 2)]
    np.testing.assert_allclose(np.mean(halves, axis=0), wanted, rtol=1e-4)


def test_the_stiffest_directions_are_eigenvectors_in_the_metric():
    posterior, (x, y) = linear()
    problem = prepare(posterior, (x, y), FLAT)
    D = sgld.Diagonal(np.array([1, 2, 3, 1, 1, 1], np.float32)).prepare(problem.layout)
    root = np.sqrt([1, 2, 3, 1, 1, 1])
    white = root[:, None] * (x.T @ x + np.eye(6) / 4) * root
    values, vectors = np.linalg.eigh(white)
    zs = problem.array(np.zeros((2, 6)))
    basis, largest = stiffest(problem, D, zs, count=2, rows=ROWS)
    np.testing.assert_allclose(largest, values[-1], rtol=1e-3)
    overlap = np.linalg.svd(np.asarray(basis[1]) @ vectors[:, -2:])[1]
    np.testing.assert_allclose(overlap, 1, atol=1e-3)
    np.testing.assert_allclose(np.asarray(basis[0]) @ np.asarray(basis[0]).T, np.eye(2), atol=1e-4)


def test_a_chain_whose_density_fell_further_than_noise_takes_it_is_lost():
    """From the mode to a sphere of radius r in the posterior's own metric, log p falls by r^2 / 2."""
    posterior, (x, y) = linear()
    problem = prepare(posterior, (x, y), FLAT)
    mean, covariance = truth(x, y)
    root = np.linalg.cholesky(covariance)
    most = rule.most_fallen(6, 1.0)
    away = [root[:, 0] * np.sqrt(2 * share * most) for share in (0.0, 0.9, 1.1)]
    old = np.tile(mean, (4, 1))
    new = mean + np.array([*away, np.full(6, np.nan)])
    backend = path.JaxBackend(problem, ASK, sgld.BAOA(), sgld.Full(), 1.0)
    found = lost_chains(backend, problem.array(old), problem.array(new))
    assert found.tolist() == [False, False, True, True]
    back = lost_chains(backend, problem.array(new[2:3]), problem.array(old[:1]))
    assert back.tolist() == [False]


def test_the_temperature_of_predictions_is_that_of_the_momentum_along_their_gradients():
    """Heat in one of six directions, which is all that is predicted: a sixth of it shows in the layer's."""
    posterior, data = linear()
    posterior = sgld.Posterior(
        posterior.log_prior, posterior.log_likelihood, predict=lambda b, row: row[0][0] * b[0]
    )
    problem = prepare(posterior, data, FLAT)
    D = sgld.Diagonal(np.array([4, 1, 1, 1, 1, 1], np.float32)).prepare(problem.layout)
    directions = problem.array(np.tile(np.eye(6)[1], (2, 1, 1)))
    probe = Probe(predictions_of(problem), directions, Layers.of(problem.layout), "momentum")
    momentum = problem.array(np.array([[3, 1, 1, 1, 1, 1], [0, 5, 1, 1, 1, 1]]))
    found = probe.kinetic(
        problem, sgld.BAOA(), D, jnp.zeros((2, 6)), momentum, 1e-10, 1.0, jnp.int32(0)
    )
    np.testing.assert_allclose(found, [[14 / 6, 1, 9], [29 / 6, 25, 0]], atol=1e-3)


def test_of_many_weights_predictions_take_turns_and_every_row_has_its_turn(monkeypatch):
    posterior, data = linear()
    posterior = replace(posterior, predict=lambda b, row: row[0] @ b)
    problem = prepare(posterior, data, FLAT)
    D = sgld.Diagonal(np.array([4, 1, 2, 1, 1, 1], np.float32)).prepare(problem.layout)
    directions = problem.array(np.tile(np.eye(6)[1], (2, 1, 1)))
    probe = Probe(predictions_of(problem), directions, Layers.of(problem.layout), "momentum")
    momentum, z = (
        problem.array(np.array([[3, 1, 2, 1, -1, 1], [0, 5, 1, 1, 1, 1]])),
        jnp.ones((2, 6)),
    )
    at = lambda draw: probe.kinetic(problem, sgld.BAOA(), D, z, momentum, 1e-10, 1.0, draw)  # noqa: E731
    whole = at(jnp.int32(3))
    along = np.asarray(probe.predictions.rows[0][:8]) * np.sqrt([4, 1, 2, 1, 1, 1])
    speeds = (along @ np.asarray(momentum).T) ** 2 / np.sum(along**2, axis=1)[:, None]
    np.testing.assert_allclose(whole[:, -1], speeds.mean(axis=0), rtol=1e-4)
    monkeypatch.setattr("sgld.diagnostics.function_space.temperature.SPEED_NUMBERS", 0)
    at = jax.jit(at)
    turns = np.array(
        [at(jnp.int32(draw)) for draw in range(0, 600, 2)]
    )  # every second may be dropped
    np.testing.assert_allclose(turns.mean(axis=0), whole, rtol=0.15)
    assert len(np.unique(turns[:, 0, -1])) > 20
    np.testing.assert_array_equal(at(jnp.int32(4)), turns[2])


def test_draws_of_many_weights_are_few_enough_to_cost_little():
    """One of 1,006,510 weights took as long as 5 steps, and there was one every 5 steps."""
    posterior, data = linear()
    problem = prepare(posterior, data, FLAT)
    setup = Setup(None, sgld.Minibatch(), None, None, batch_size=100)
    assert lengths._least_thin(Plan(setup), problem, 100) == rule.least_thin(100) == 5
    wide = replace(posterior, log_likelihood=lambda b, row: -0.5 * (row[1] - row[0] @ b[:6]) ** 2)
    many = prepare(wide, data, np.zeros(10**5, np.float32))
    thin = lengths._least_thin(Plan(setup), many, 100)
    price = lengths.step_cost(many, setup.gradient, 100)
    assert thin > 5 and rule.MAX_PREDICTION_SHARE * thin * price >= lengths.PROBE_SECONDS * 10**5


def test_the_noise_of_a_layer_is_its_batches_variance_in_the_metric():
    posterior, (x, y) = linear()
    problem = prepare(posterior, (x, y), FLAT).with_batches(10, "replacement")
    D = sgld.Diagonal(np.array([1, 2, 3, 1, 1, 1], np.float32)).prepare(problem.layout)
    z = problem.array(np.ones((8, 6)))  # where the gradient's mean is as large as its noise
    scores = (y - x.sum(1))[:, None] * x
    each = ROWS**2 / 10 * scores.var(0) * np.array([1, 2, 3, 1, 1, 1])
    layers = Layers.of(problem.layout)
    draws = []
    for seed in range(12):
        entries = jnp.asarray(problem.source.chunk((seed, 1), 0, rule.NOISE_BATCHES))
        found = path._layer_noise(problem, sgld.Minibatch(), D, z, entries, layers.sizes)
        draws.append(np.asarray(found)[0])
    np.testing.assert_allclose(np.mean(draws), each.mean(), rtol=0.15)


def test_the_heat_of_predictions_is_their_gradients_share_of_the_batches_variance():
    posterior, (x, y) = linear()
    problem = prepare(posterior, (x, y), FLAT).with_batches(10, "replacement")
    scale = np.array([1, 2, 3, 1, 1, 1], np.float32)
    D = sgld.Diagonal(scale).prepare(problem.layout)
    z = problem.array(np.ones((8, 6)))
    scores = (y - x.sum(1))[:, None] * x * np.sqrt(scale)
    noise = ROWS**2 / 10 * np.cov(scores.T, bias=True)
    along = np.asarray(predictions_of(problem).rows[0])[:8] * np.sqrt(scale)
    V = np.mean(np.einsum("ri,ij,rj->r", along, noise, along) / np.sum(along**2, axis=1))
    heats = [heat.heat_of_predictions(problem, sgld.Minibatch(), D, z, seed, 1e-3, 0.5) for seed in range(20)]  # fmt: skip
    np.testing.assert_allclose(np.mean(heats), V * 1e-3, rtol=0.15)


def test_batches_that_will_warm_predictions_are_told(monkeypatch):
    """Of 199,210 weights whose layers were at 1.01 predictions were at 20."""
    posterior, data = linear()
    problem = prepare(posterior, data, FLAT)
    monkeypatch.setattr(rule, "MAX_FULL_SECONDS", 0.0)
    monkeypatch.setattr(path, "_passes", lambda *_: 300)
    monkeypatch.setattr(path, "heat_of_predictions", lambda *_: 19.0)
    told = path.from_network(problem, ASK).notes
    assert "of 100 rows will warm predictions to a temperature of 20 or more, where 1" in told[0]
    cold = path.from_network(problem, replace(ASK, temperature=2.0)).notes
    assert "temperature of 10.5 or more, where 1 is" in cold[0]
    for heat_found in (0.1, math.nan):
        monkeypatch.setattr(path, "heat_of_predictions", lambda *_, found=heat_found: found)
        assert path.from_network(problem, ASK).notes == ()


def test_max_steps_leaves_draws_enough_of_many_weights(monkeypatch):
    monkeypatch.setattr(lengths, "_least_thin", lambda *_: 17)
    posterior, data = linear()
    problem = prepare(posterior, data, FLAT)
    monkeypatch.setattr(path, "_passes", lambda *_: 10)
    plan = path.from_network(problem, ASK)
    given = replace(ASK, max_steps=1000, num_draws=100)
    assert lengths.network_lengths(plan, problem, given).setup.num_draws == 100
    few = lengths.network_lengths(plan, problem, replace(ASK, max_steps=80)).setup
    assert few.num_draws >= 20 and few.thin < 17


def planned(posterior, data, **given):
    return sgld.sample(
        posterior, data, FLAT, progress=False, **{"num_draws": 40, "max_steps": 400, **given}
    ).plan


@pytest.mark.slow
def test_rows_that_are_affordable_are_all_taken_at_every_step():
    posterior, data = linear()
    plan = planned(posterior, data)
    assert type(plan.setup.gradient).__name__ == "Full" and plan.setup.predictions
    assert type(plan.setup.sampler).__name__ == "BAOA"
    x, _ = data
    root = np.sqrt(np.asarray(plan.setup.preconditioner.array))
    stiff = np.linalg.eigvalsh(root[:, None] * (x.T @ x + np.eye(6) / 4) * root)[-1]
    np.testing.assert_allclose(
        float(plan.setup.step_size(0)) * stiff, rule.STABLE_STIFFNESS, rtol=0.02
    )


@pytest.mark.parametrize(("V", "friction"), [(0.0, 1.0), (50.0, 1.0), (0.0, None), (50.0, None)])
def test_a_smaller_tolerance_makes_the_step_smaller(V, friction):
    """Also where no noise of batches bounds it, as a hot verdict advises."""
    found = [
        rule.largest_step(V, 2.0, tolerance, friction) for tolerance in (0.2, 0.05, 0.025, 0.01)
    ]
    assert found[1] > found[2] > found[3] > 0
    if V == 0 and friction:
        assert found == pytest.approx([0.25, 0.25, 0.125, 0.05])


def test_else_the_step_is_the_largest_that_the_noise_allows(monkeypatch):
    monkeypatch.setattr(rule, "MAX_FULL_SECONDS", 0.0)
    posterior, data = linear()
    one, two = (planned(posterior, data, tolerance=t) for t in (0.01, 0.02))
    assert type(one.setup.gradient).__name__ == "Minibatch" and one.setup.batch_size == 100
    delta = [np.sqrt(float(plan.setup.step_size(0))) for plan in (one, two)]
    np.testing.assert_allclose(delta[1] / delta[0], 2, rtol=0.2)


def test_a_sampler_without_a_rule_is_refused_with_a_sentence():
    posterior, data = linear()
    with pytest.raises(sgld.errors.UsageError, match="step_size must be given with SGNHT"):
        sgld.sample(posterior, data, FLAT, sampler=sgld.SGNHT(), progress=False)
    with pytest.raises(sgld.errors.UsageError, match="step_size must be given with SAGA"):
        sgld.sample(posterior, data, FLAT, gradient=sgld.SAGA(), progress=False)


def test_control_variates_by_hand_are_centred_at_the_start():
    posterior, data = linear()
    how = {"step_size": 1e-4, "batch_size": 20, "num_draws": 30, "burn_in": 10, "progress": False}
    draws = sgld.sample(posterior, data, FLAT, gradient=sgld.ControlVariates(), **how)
    np.testing.assert_array_equal(draws.plan.setup.gradient.center, np.zeros(6))


def test_a_law_of_predictions_is_the_closed_one():
    """Bayesian regression as a network of one layer: the last layer of a frozen network."""
    posterior, (x, y) = linear()
    draws = sgld.sample(posterior, (x, y), FLAT, progress=False)
    assert draws.verdict.word == "trusted", draws.verdict
    assert draws.verdict.reasons[0].startswith("predictions: means within .15 sd, sd within 10%")
    mean, covariance = truth(x, y)
    found = draws.predict(lambda b, rows: rows @ b, x[:20])
    sd = np.sqrt(np.einsum("ri,ij,rj->r", x[:20], covariance, x[:20]))
    np.testing.assert_allclose((found.mean - x[:20] @ mean) / sd, 0, atol=0.15)
    np.testing.assert_allclose(found.sd / sd, 1, atol=0.1)
    assert jax.tree.leaves(draws.position)[0].shape[:2] == (4, draws.num_draws)


def test_an_optimiser_past_its_time_is_cut_short_and_says_after_how_many_steps():
    posterior, data = linear()
    problem = prepare(posterior, data, FLAT).with_batches(20, "reshuffle")
    found = optimise(problem, problem.start, None, sgld.Minibatch(), 1000, None, 0, until=0.0)
    assert found[2] == 1 and np.isfinite(found[1])


ASK = Request(
    "auto", "auto", 0.05, 1.0, "auto", "auto", "auto", "auto", "auto", "auto", "auto", "auto", 0
)  # fmt: skip


def test_stages_are_left_out_past_half_of_the_time(monkeypatch):
    taken, moved = [], path.JaxBackend.moved
    monkeypatch.setattr(path.JaxBackend, "moved", lambda *a: taken.append(a[-1][0]) or moved(*a))
    monkeypatch.setattr(path, "_passes", lambda *_: 10)
    posterior, data = linear()
    problem = prepare(posterior, data, FLAT)
    with deadline(1000.0, time.monotonic() + 250.0):  # sampling may go on to .8 of it
        path.from_network(problem, ASK)
    assert taken == [rule.STAGES]  # the trial of the step alone
    taken.clear()
    with deadline(1000.0, time.monotonic() + 700.0):
        path.from_network(problem, ASK)
    assert taken == [*range(rule.STAGES), rule.STAGES]


def test_both_doors_go_by_one_rule():
    """No number of the rule stands a second time where networks are tuned, in JAX or in PyTorch."""
    root = Path(path.__file__).parents[1]
    run = [root / f"{name}.py" for name in ("function_space", "chunk")]
    doors = [*(root.parent / "torch").glob("*.py"), *(root / "tuning").glob("*network*.py"), *run]
    again = [
        (file.name, target.id)
        for file in doors
        if file.name != "network_rules.py"
        for line in ast.parse(file.read_text()).body
        if isinstance(line, ast.Assign)
        for target in ast.walk(line)
        if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
        and target.id != "__all__" and hasattr(rule, target.id)
    ]  # fmt: skip
    assert len(doors) > 15 and again == []


def test_max_seconds_plans_fewer_steps(monkeypatch):
    monkeypatch.setattr(path, "_passes", lambda *_: 10)
    posterior, data = linear()
    problem = prepare(posterior, data, FLAT)
    plan = path.from_network(problem, ASK)
    plan = replace(plan, setup=replace(plan.setup, step_size=lambda _: 1e-4))
    # a position that takes long: 2.4 ms a step of all chains
    monkeypatch.setattr(prices, "UPDATE_SECONDS", 1e-4)

    def steps(seconds):
        setup = lengths.network_lengths(plan, problem, replace(ASK, max_seconds=seconds)).setup
        return setup.burn_in + setup.thin * setup.num_draws

    short, long, whole = steps(1.0), steps(60.0), steps(None)
    assert short <= rule.MIN_RUN_STEPS < long <= 60 * rule.MAX_RUN_SHARE / 0.0024 < whole


def test_with_max_seconds_time_ends_a_run_and_not_memory():
    """200,000 weights ended after 70 of 120 seconds, when 167 draws filled what there is of memory."""
    posterior, data = linear()
    problem = prepare(posterior, data, FLAT)
    plan = Plan(Setup(None, None, None, None, num_draws=750, num_chains=4))
    most = lengths.most_at_once(plan, problem, on_disk=True)
    assert 40 * 750 < most == lengths.most_at_once(plan, problem, on_disk=False)
    few = replace(plan, setup=replace(plan.setup, num_draws=50))
    assert lengths.most_at_once(few, problem, on_disk=False) == rule.MAX_RUN_GROWTH * 50
    wide = replace(posterior, predict=lambda b, row: row[0] @ b * jnp.ones(64))
    fewer = lengths.most_at_once(plan, prepare(wide, data, FLAT), on_disk=True)
    assert fewer == most * 1024 // 4096


@pytest.mark.parametrize("d", [50, 10**5, 10**6])
def test_positions_are_held_as_memory_allows_and_all_where_their_number_was_given(d):
    problem = Mock(Problem, dimension=d)
    room = lengths.held(problem, ASK, 4)
    assert lengths.most_kept(problem, 4) <= room and 4 * d * room <= lengths.MAX_HELD_NUMBERS
    assert d < 10**6 or room >= 24
    assert lengths.held(problem, replace(ASK, num_draws=1000), 4) == math.inf


def test_a_run_with_max_seconds_goes_on_until_they_are_over(monkeypatch):
    """2-3-1, 60 rows: it ended as `not mixed` after 3 of 40 seconds, at 64 times the draws that were planned."""
    monkeypatch.setattr(execute, "draws_suffice", lambda *_: False)
    posterior, data = linear()
    problem = prepare(posterior, data, FLAT)
    monkeypatch.setattr(path, "_passes", lambda *_: 10)
    plan = lengths.network_lengths(path.from_network(problem, ASK), problem, ASK)
    setup = replace(plan.setup, num_draws=10, predictions=True)
    raw = SimpleNamespace(num_draws=640, every=1)
    plan, limited = replace(plan, setup=setup), replace(ASK, max_seconds=40.0)
    assert execute._until_predictions_mix(problem, plan, limited, raw) == 1280
    assert execute._until_predictions_mix(problem, plan, ASK, raw) == 640


def test_a_chunk_has_room_for_what_is_predicted_too(monkeypatch):
    """Of one number that is kept there would be room for 65,536 draws, and as many predictions at 64 rows."""
    posterior, data = linear()
    returned, rows_of = [], loop.rows_of
    sizes = lambda kept: sum(leaf.size for leaf in jax.tree.leaves(kept))  # noqa: E731
    monkeypatch.setattr(loop, "rows_of", lambda kept, n: returned.append(sizes(kept)) or rows_of(kept, n))  # fmt: skip
    how = {"step_size": 1e-4, "sampler": sgld.BAOA(), "gradient": sgld.Full(), "thin": 10}
    sgld.sample(posterior, data, FLAT, **how, num_draws=30, keep=lambda b: b[0], progress=False)
    assert 0 < max(returned) <= 2 * loop.MAX_SLOT_NUMBERS


def test_layers_by_their_names_are_a_network_and_the_plan_asks_what_it_predicts():
    """Flax's parameters, with nothing said of what they predict: no mode is looked for, for minutes."""
    dense = lambda k, m: {"kernel": 0.3 * jnp.ones((k, m)), "bias": jnp.zeros(m)}  # noqa: E731
    init = {"params": {"Dense_0": dense(2, 3), "Dense_1": dense(3, 1)}}

    def log_likelihood(p, datum):
        first, second = p["params"]["Dense_0"], p["params"]["Dense_1"]
        hidden = jnp.tanh(datum[0] @ first["kernel"] + first["bias"])
        return -0.5 * ((hidden @ second["kernel"] + second["bias"])[0] - datum[1]) ** 2

    rng = np.random.default_rng(0)
    data = (rng.normal(size=(40, 2)).astype("f"), rng.normal(size=40).astype("f"))
    posterior = sgld.Posterior(sgld.networks.normal_prior(1.0), log_likelihood)
    assert path.is_network(prepare(posterior, data, init))
    by_hand = {"step_size": 1e-3, "burn_in": 10, "num_draws": 20, "progress": False}
    draws = sgld.sample(posterior, data, init, **by_hand)
    assert "predictions" in draws.verdict.extra
    assert any("give predict=" in note for note in draws.plan.notes)
    told = sgld.Posterior(
        sgld.networks.normal_prior(1.0), log_likelihood, predict=lambda p, row: p["params"]["Dense_1"]["bias"]
    )  # fmt: skip
    draws = sgld.sample(told, data, init, **by_hand)
    assert not any("give predict=" in note for note in draws.plan.notes)
