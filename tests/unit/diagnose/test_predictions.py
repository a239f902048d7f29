"""The verdict in function space: every rule, by what it is for."""

import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.diagnostics.function_space.other_chains import OtherStarts
from sgld.diagnostics.function_space.predictions import CLASSES, LIKELIHOODS, MEANS, predictions_of
from sgld.diagnostics.function_space.temperature import Layers
from sgld.diagnostics.function_space.verdict import (
    Change,
    Seen,
    judge_predictions,
    mixed,
    temperatures,
)
from sgld.inference.execute import next_attempts
from sgld.model.prepare import prepare
from sgld.model.problem import Request
from sgld.results.plan import Plan, Setup
from sgld.results.summary import layer_rows
from sgld.results.verdict import Verdict

LAYERS = Layers(("a", "b", "tiny"), (40, 20, 1))
CHAINS, DRAWS, ROWS = 4, 400, 6
OTHERS = OtherStarts(np.zeros((6, ROWS, 1)), np.zeros(6), 0.0, np.zeros((6, 3)))


def seen(
    kind: Any = MEANS, shift=0.0, temperature=(1.0, 1.0, 1.0, 1.0), width=1, noise=0.02, **more
):
    """Independent draws; the first chain's predictions moved by `shift`."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((CHAINS, DRAWS, ROWS, width))
    values[0] += shift
    if kind == CLASSES:
        values = np.asarray(jax.nn.log_softmax(jnp.asarray(values, jnp.float32)))
    noise = noise * rng.standard_normal((CHAINS, DRAWS, len(temperature)))
    kinetic = np.asarray(temperature) + noise
    weights = np.full((CHAINS, DRAWS), 1 / (CHAINS * DRAWS))
    return Seen(kind, values, kinetic, weights, LAYERS, **more)


def word(**given):
    verdict = judge_predictions(seen(**given))
    return verdict.word, verdict.reasons[0]


@pytest.mark.parametrize("kind, said", [
    (MEANS, "predictions: means within .15 sd, sd within 10% of the posterior's; single weights are not judged."),
    (CLASSES, "predictions: probabilities within .01, sd within 10% of the posterior's; single weights are not judged."),
    (LIKELIHOODS, "what the network predicts is not known here"),
])  # fmt: skip
def test_what_is_right_is_trusted_and_says_of_what(kind, said):
    found, reason = word(kind=kind, width=3 if kind == CLASSES else 1)
    assert found == "trusted" and said in reason


@pytest.mark.parametrize("given, wanted, said", [
    ({"shift": 1.0}, "not mixed", "R-hat is"),
    ({"temperature": (1.0, 1.2, 1.0, 1.0)}, "biased", "layer 'b' is 1.20"),
    ({"temperature": (1.0, 90.0, 1.0, 1.0)}, "biased", "scale inputs and outcomes to sds near 1"),
    ({"temperature": (1.0, 2.75e8, 1.0, 1.0)}, "biased", "is 2.75e+08 where 1 is right"),
    ({"temperature": (1.0, 1.0, 1.0, 1.3)}, "biased", "the stiffest directions is 1.30"),
    ({"temperature": (1.0, 1.0, 1.0, 1.0, 1.3)}, "biased", "of the predictions is 1.30"),
    ({"temperature": (1.0, 1.0, 9.0, 1.0)}, "trusted", "predictions"),  # a layer of one weight
    ({"temperature": (1.0, 1.12, 1.0, 1.0)}, "unknown", "is 1.12, where up to 1.10"),
    ({"temperature": (0.937, 1.0, 1.0, 1.0)}, "not mixed", "still on their way"),
    ({"noise": 3.0}, "unknown", "is known within"),
    ({"failures": ("chain 1 became non-finite.",)}, "biased", "non-finite"),
    ({"temperature": (2.0, 2.0, 2.0, 2.0), "exact": True}, "trusted", "predictions"),
])  # fmt: skip
def test_every_rule(given, wanted, said):
    found, reason = word(**given)
    assert found == wanted and said in reason


@pytest.mark.parametrize("exact, told", [(False, 2), (True, 1)])
def test_of_chains_that_have_not_mixed_it_is_said_that_they_are_too_warm_as_well(exact, told):
    verdict = judge_predictions(seen(shift=1.0, temperature=(1.0, 19.9, 1.0, 1.0), exact=exact))
    assert verdict.word == "not mixed" and "R-hat is" in verdict.reasons[0]
    assert len(verdict.reasons) == told
    assert exact or verdict.reasons[1] == (
        "the kinetic temperature of layer 'b' is 19.90 where 1 is right, so predictions spread too far, which "
        "more steps do not reduce."
    )


def test_a_vast_temperature_does_not_widen_the_table():
    layer = {"name": "a", "weights": 4, "mean": 0.0, "sd": 1.0}
    rows = layer_rows([{**layer, "temperature": t} for t in (1.0, 999.0, 274744977.431)])
    assert [row[-1] for row in rows] == ["1.000", "999.000", "2.75e+08"]


def test_probabilities_that_differ_between_halves_of_the_chains():
    """R-hat of logits that are far out says little of what they are odds of."""
    given = seen(kind=CLASSES, width=2)
    p = np.exp(given.predicted)
    apart = mixed(given).variation
    assert apart is not None and apart < 0.02
    p[:2] = p[:2] * 0.9 + 0.1 * np.array([1.0, 0.0])
    moved = Seen(CLASSES, np.log(p), given.kinetic, given.weights, LAYERS)
    # over the three ways to halve four chains one has all of it, two have none
    one = (0.1 * (1 - np.exp(given.predicted)[..., 0]).mean()) / 3
    assert mixed(moved).variation == pytest.approx(one, abs=0.01)


def rare(draws, seed=0, odds=-8.0):
    """Independent probabilities that are next to 0 at most draws."""
    rng = np.random.default_rng(seed)
    odds = odds + 2.7 * rng.standard_normal((CHAINS, draws, ROWS))
    values = np.stack([-np.logaddexp(0, -odds), -np.logaddexp(0, odds)], axis=-1)
    kinetic = 1 + 0.02 * rng.standard_normal((CHAINS, draws, 4))
    return Seen(CLASSES, values, kinetic, np.full((CHAINS, draws), 1 / (CHAINS * draws)), LAYERS)


def test_sds_that_a_few_draws_make_up_are_not_promised_at_the_ess_of_logits():
    few = judge_predictions(rare(300))
    assert few.word == "not mixed" and "a few draws make up much of the sds" in few.reasons[0]
    assert few.extra["predictions"]["ess"] > 900
    assert judge_predictions(rare(6000)).word == "trusted"
    # the error is what sds of runs of the same length differ by, as a share of them
    sds = [np.exp(rare(1500, seed).predicted[..., 0]).std(axis=(0, 1)) for seed in range(60)]
    assert mixed(rare(1500)).sd_error == pytest.approx(
        np.median(np.std(sds, axis=0) / np.mean(sds, axis=0)), rel=0.35
    )


def test_sds_of_probabilities_that_are_promised_anyway_are_not_waited_for():
    """Within .01 is promised of each, and these hardly differ from 0."""
    found = mixed(rare(300, odds=-20.0))
    assert found.sd_error == 0.0 and not found.reasons


def test_few_draws_and_draws_that_stand_still():
    given = seen()
    assert given.kinetic is not None
    short = Seen(
        MEANS, given.predicted[:, :12], given.kinetic[:, :12], given.weights[:, :12], LAYERS
    )
    assert judge_predictions(short).word == "not mixed"
    still = np.ones_like(given.predicted)
    found = judge_predictions(Seen(MEANS, still, given.kinetic, given.weights, LAYERS))
    assert found.word == "not mixed" and "do not move" in found.reasons[0]
    bad = given.predicted.copy()
    bad[2, 7, 3] = np.nan
    found = judge_predictions(Seen(MEANS, bad, given.kinetic, given.weights, LAYERS))
    assert found.word == "biased" and "probe row 3 at draw 7 of chain 2" in found.reasons[0]


def test_a_sampler_without_temperatures_is_never_trusted():
    given = seen()
    found = judge_predictions(Seen(MEANS, given.predicted, None, given.weights, LAYERS))
    assert found.word == "unknown" and "no temperature is measured" in found.reasons[0]


def test_standard_errors_are_of_means_of_batches():
    rng = np.random.default_rng(1)
    slow = np.repeat(rng.standard_normal((CHAINS, 10, 4)), DRAWS // 10, axis=1) + 1.0
    given = Seen(MEANS, seen().predicted, slow, seen().weights, LAYERS)
    found = temperatures(given)
    assert [t.judged for t in found] == [True, True, False, True]
    for t in found:
        assert t.se == pytest.approx(1 / np.sqrt(40), rel=0.3)


def test_the_numbers_are_stored():
    verdict = judge_predictions(seen(kind=CLASSES, width=3))
    back = Verdict.from_dict(json.loads(json.dumps(verdict.to_dict())))
    assert back.extra == verdict.extra
    assert back.extra["predictions"]["kind"] == "classes"
    assert set(back.extra["predictions"]["temperatures"]) == {
        "a",
        "b",
        "tiny",
        "the stiffest directions",
    }


# -- what the predictions of a posterior are ---------------------------------------------------


def table():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((80, 3)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int32)


def of(log_likelihood, init, predict=None, data=None):
    posterior = sgld.Posterior(lambda p: jnp.zeros(()), log_likelihood, predict=predict)
    problem = prepare(posterior, table() if data is None else data, init)
    found = predictions_of(problem)
    return problem, found, np.asarray(found.at(problem.target, problem.start))


def net():
    eqx = pytest.importorskip("equinox")
    return eqx.nn.MLP(3, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(0))


def test_what_a_module_returns_is_heard_where_the_likelihood_calls_it():
    module = net()
    problem, found, values = of(lambda n, row: jax.nn.log_softmax(n(row[0]))[row[1]], module)
    assert found.kind == CLASSES and values.shape == (64, 2)
    rows = np.asarray(problem.source.take(jnp.arange(64))[0])
    wanted = jax.nn.log_softmax(jax.vmap(module)(rows))
    np.testing.assert_allclose(values, wanted, atol=1e-5)


def test_a_module_beside_a_scale_predicts_means():
    def likelihood(p, row):
        return -jnp.sum((row[0][:2] - p["net"](row[0])) ** 2) / jnp.exp(p["log_sd"])

    _, found, values = of(likelihood, {"net": net(), "log_sd": jnp.array(0.0)})
    assert found.kind == MEANS and values.shape == (64, 2)


@pytest.mark.parametrize("how", ["vmap", "layers"])
def test_a_call_that_cannot_be_heard_leaves_the_log_likelihood(how):
    def likelihood(n, row):
        if how == "vmap":
            return jnp.sum(jax.vmap(n)(row[0][None]))
        return jnp.sum(n.layers[0](row[0]))

    problem, found, values = of(likelihood, net())
    assert found.kind == LIKELIHOODS and values.shape == (64, 1)
    rows = problem.source.take(jnp.arange(64))
    one = [
        float(problem.log_likelihood(problem.start, jax.tree.map(lambda a, k=k: a[k][None], rows)))
        for k in (0, 7)
    ]
    np.testing.assert_allclose(values[[0, 7], 0], one, rtol=1e-4)


def test_a_function_of_the_users_own():
    flat = jnp.array([0.5, -0.5, 1.0])

    def likelihood(b, row):
        return jax.nn.log_sigmoid((2.0 * row[1].astype(jnp.float32) - 1) * (row[0] @ b))

    _, found, values = of(likelihood, flat, predict=lambda b, row: row[0] @ b)
    assert found.kind == MEANS and values.shape == (64, 1)

    def both(b, row):
        return jax.nn.log_sigmoid(jnp.stack([-(row[0] @ b), row[0] @ b]))

    _, found, values = of(likelihood, flat, predict=both)
    assert found.kind == CLASSES
    np.testing.assert_allclose(np.exp(values).sum(1), 1, atol=1e-5)


def test_several_choices_are_no_one_choice():
    """Log probabilities of two tokens: a shift leaves their likelihood as it is, and they are no six classes."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50, 3)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda w: -0.5 * jnp.sum(w**2),
        lambda w, row: jnp.sum(jax.nn.log_softmax(jnp.outer(w, row), axis=-1)[:, 0]),
        predict=lambda w, row: jax.nn.log_softmax(jnp.outer(w, row), axis=-1) - jnp.log(2.0),
    )
    assert predictions_of(prepare(posterior, rows, jnp.zeros(2))).kind == MEANS


@pytest.mark.parametrize(
    ("sampler", "share"), [(sgld.SGLD(None), 2), (sgld.BAOA(), 4), (sgld.UBU(), 4)]
)
def test_half_the_step_is_half_the_heat_of_noisy_gradients(sampler, share, monkeypatch):
    """BAOA's goes as sqrt(h): half of h would remove less than a third of it, and hide 20% of an sd in 5%."""
    from sgld.inference import prediction_halving

    x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda b: -0.5 * jnp.sum(b**2), lambda b, row: -0.5 * (row @ b) ** 2,
        predict=lambda b, row: row @ b,
    )  # fmt: skip
    how = {"step_size": 2e-3, "num_draws": 50, "burn_in": 10, "num_chains": 2, "progress": False}
    draws = sgld.sample(posterior, x, jnp.zeros(2), sampler=sampler, **how)
    asked = []
    sample = prediction_halving.sample
    monkeypatch.setattr(
        prediction_halving,
        "sample",
        lambda *a, **k: asked.append(float(k["step_size"](7))) or sample(*a, **k),
    )
    found = sgld.networks.step_halving(posterior, x, draws)
    assert asked == pytest.approx([2e-3 / share] * 2)
    assert not found.agrees or np.median(found.sd_ratio_se) <= 0.05


@pytest.mark.parametrize("given, warm", [
    ({"temperature": (1.0, 1.2, 1.0, 1.0)}, "b"),
    ({"temperature": (1.0, 1.0, 1.0, 1.12)}, "the stiffest directions"),
    ({"noise": 3.0}, None),  # not known: half the step would say as little
    ({"temperature": (0.937, 1.0, 1.0, 1.0)}, None),
    ({"temperature": (1.0, 1.2, 1.0, 1.0), "failures": ("temperature",)}, None),
])  # fmt: skip
def test_the_step_is_halved_where_a_temperature_is_too_high_and_nowhere_else(given, warm):
    verdict = judge_predictions(seen(**given))
    assert verdict.extra["predictions"]["too_warm"] == warm
    left_to_us = Request(*["auto"] * len(Request.__dataclass_fields__))
    plan = Plan(Setup(None, None, None, None, predictions=True))
    # where chains failed, curvature is much larger than where it was measured
    failed = ["quarter"] if "failures" in given else []
    assert next_attempts(plan, left_to_us, verdict, []) == (["halve"] if warm else failed)


def test_rules_of_what_is_seen_beside_the_probe_rows():
    found = word(rows_r_hat=1.21)
    assert found[0] == "not mixed" and "not among the probe rows" in found[1]
    assert word(rows_r_hat=1.19)[0] == "trusted"
    assert word(rows_unlike=3, others=OTHERS)[0] == "not mixed"
    found = word(misses=0.06)
    assert found[0] == "biased" and "not that of the log density" in found[1]
    assert "sgld.reference" in found[1] and "reference" not in word(misses=0.06, by_density="")[1]
    assert word(misses=0.05)[0] == word(misses=None)[0] == "trusted"
    found = word(misses=np.nan)
    assert found[0] == "unknown" and "for want of time; give more max_seconds" in found[1]
    assert word(rows_r_hat=1.25, rows_allowed=1.3)[0] == "trusted"


@pytest.mark.parametrize("exact", [False, True])
def test_chains_that_began_at_one_place_are_trusted_where_others_were_looked_for(exact):
    alone = judge_predictions(seen(one_place=True, exact=exact))
    assert alone.word == "unknown" and "began at one place" in alone.reasons[0]
    assert judge_predictions(seen(one_place=True, exact=exact, others=OTHERS)).word == "trusted"
    agrees = Change(np.ones(3), np.full(3, 0.01), np.zeros(3), None)
    assert agrees.judge(alone) == alone  # half the step does not look for them


@pytest.mark.parametrize("unseen", [{"one_place": True}, {"misses": np.nan}])
@pytest.mark.parametrize("doubt", [{"noise": 3.0}, {"temperature": (1.12,) * 4}])
def test_half_the_step_settles_a_doubt_and_nothing_that_nobody_looked_for(unseen, doubt):
    agrees = Change(np.ones(3), np.full(3, 0.01), np.zeros(3), None)
    first, other = (judge_predictions(seen(**doubt, **more)) for more in ({}, unseen))
    assert first.word == other.word == "unknown" and first.reasons == other.reasons
    assert agrees.judge(first).word == "trusted"
    found = agrees.judge(other)
    assert found.word == "unknown" and "want of time" in found.reasons[0]


def test_one_chain_is_said_to_be_one():
    given = seen()
    one = replace(given, predicted=given.predicted[:1], kinetic=given.kinetic[:1], weights=given.weights[:1] * 4)  # fmt: skip
    found = judge_predictions(one)
    assert (found.word, found.reasons) == ("unknown", ("one chain cannot be held against another; use num_chains=4.",))  # fmt: skip
