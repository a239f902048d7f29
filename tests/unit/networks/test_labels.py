"""Labels that a network has no class for, and weights in half precision."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.diagnostics.function_space.predictions import CLASSES, check_labels, predictions_of
from sgld.errors import DataError, SGLDWarning, UsageError
from sgld.model.prepare import prepare

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4)).astype(np.float32)
Y = RNG.integers(0, 3, 60).astype(np.int32)
GROUP = RNG.integers(0, 5, 60).astype(np.int32)  # a whole number that is no label
PRIOR = sgld.networks.normal_prior(1.0)
NET = eqx.nn.Linear(4, 3, key=jax.random.key(0))
PARAMS = {"w": jnp.zeros((3, 4)), "b": jnp.zeros(3)}
SHORT = {"step_size": 1e-3, "num_draws": 4, "thin": 1, "burn_in": 0, "progress": False}


def of_a_module(net, row):
    return jax.nn.log_softmax(net(row["x"]))[row["y"]]


def logits(params, row):
    return params["w"] @ row["x"] + params["b"]


def of_logits(params, row):
    return jax.nn.log_softmax(logits(params, row))[row["y"]]


MODELS = {
    "a module": (sgld.Posterior(PRIOR, of_a_module), NET),
    "predict": (sgld.Posterior(PRIOR, of_logits, predict=logits), PARAMS),
}


def run(model, y):
    posterior, init = MODELS[model]
    return sgld.sample(posterior, {"x": X, "g": GROUP, "y": y}, init, **SHORT)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("label", [-1, 3, 7])
def test_one_that_the_network_has_no_class_for_is_told_with_its_row(model, label):
    wrong = Y.copy()
    wrong[[41, 50]] = label
    with pytest.raises(DataError, match=f"between 0 and 2, .*Got {label} in row 41 of 'y'"):
        run(model, wrong)


@pytest.mark.parametrize("model", MODELS)
def test_labels_within_the_classes_run_and_other_whole_numbers_may_be_any(model):
    assert run(model, Y).num_draws == 4


MISTAKES = {
    "opposite sign": lambda outputs, y: -jax.nn.log_softmax(outputs)[y],
    "not its logarithm": lambda outputs, y: jax.nn.softmax(outputs)[y],
    "do not sum to 1": lambda outputs, y: outputs[y],
}


@pytest.mark.parametrize("said", MISTAKES)
@pytest.mark.parametrize("model", MODELS)
def test_what_is_no_log_probability_of_a_class_is_told_before_the_first_step(
    model, said, monkeypatch
):
    """Each of them ran for half a minute to end as not mixed, with the advice to take more steps."""
    mistake = MISTAKES[said]
    wrong = {
        "a module": sgld.Posterior(PRIOR, lambda net, row: mistake(net(row["x"]), row["y"])),
        "predict": sgld.Posterior(
            PRIOR, lambda p, row: mistake(logits(p, row), row["y"]), predict=logits
        ),
    }
    monkeypatch.setitem(MODELS, model, (wrong[model], MODELS[model][1]))
    with pytest.raises(UsageError, match=f"of the label 'y'.*{said}.*log_softmax"):
        run(model, Y)


@pytest.mark.parametrize("likelihood", [
    lambda outputs, y: 0.5 * jax.nn.log_softmax(outputs)[y],  # a row of half the weight
    lambda outputs, y: jax.nn.log_softmax(outputs)[y] - 3.0,
    # a second outcome; marks of a Poisson process; one against all
    lambda outputs, y: jax.nn.log_softmax(outputs)[y] - 0.5 * (3 * outputs[1] - 1.0) ** 2,
    lambda outputs, y: outputs[y] - 100.0 * jnp.exp(outputs).sum(),
    lambda outputs, y: outputs[y] - jax.nn.softplus(outputs).sum(),
    lambda outputs, y: -0.5 * (outputs[0] - y.astype(jnp.float32)) ** 2,  # a count, and no label
])  # fmt: skip
def test_other_laws_of_whole_numbers_are_left_alone(likelihood):
    posterior = sgld.Posterior(
        PRIOR, lambda p, row: likelihood(logits(p, row), row["y"]), predict=logits
    )
    check_labels(prepare(posterior, {"x": X, "g": GROUP, "y": Y}, PARAMS), 0)


def test_logits_that_predict_gives_are_classes_and_rows_held_back_have_them_too():
    posterior, init = MODELS["predict"]
    data = {"x": X, "y": Y}
    problem = prepare(posterior, data, init)
    assert predictions_of(problem).kind == CLASSES
    draws = sgld.sample(posterior, data, init, **SHORT)
    with pytest.raises(DataError, match="between 0 and 2"):
        sgld.networks.held_back(posterior, data, init, draws, {"x": X, "y": Y + 1})


def masked(params, row):
    """Rows without a label say nothing; what they hold there is no class."""
    known = (row["y"] >= 0) & (row["y"] < 3)
    return jnp.where(known, of_logits(params, {**row, "y": jnp.clip(row["y"], 0, 2)}), 0.0)


def test_rows_of_a_negative_label_may_say_nothing(monkeypatch):
    monkeypatch.setitem(MODELS, "masked", (sgld.Posterior(PRIOR, masked, predict=logits), PARAMS))
    assert run("masked", np.where(np.arange(60) % 7, Y, -1).astype(np.int32)).num_draws == 4
    with pytest.raises(DataError, match="Got 3 in row 0 of 'y'"):  # as of labels from 1 on
        run("masked", np.where(np.arange(60) % 7, Y, 3).astype(np.int32))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_in_half_precision_are_sampled_as_copies_in_float32_and_that_is_said(model, dtype):
    posterior, init = MODELS[model]
    narrow = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_array(leaf) else leaf, init)
    with pytest.warns(
        SGLDWarning, match=f"2 arrays of init are {dtype}: they are converted to float32"
    ):
        draws = sgld.sample(posterior, {"x": X, "g": GROUP, "y": Y}, narrow, **SHORT)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(draws.position)} == {"float32"}
    assert jax.tree.leaves(narrow)[0].dtype == dtype  # the user's own are left as they are
