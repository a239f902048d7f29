"""Probabilities, entropies and scores against the same computed by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import UsageError
from sgld.networks import classes, scores

# two chains of two draws with weights 1, 2, 3, 4 (of 10), and a failed one that must not count
LOG_WEIGHT = np.log([[1.0, 2.0], [3.0, 4.0], [100.0, 100.0]])
P = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.9, 0.1]], [[0.5, 0.5], [0.5, 0.5]]])


def draws(**fields):
    """Draws whose logits for row r are log P: the position is the table of logits."""
    first = np.log(P)  # [chain, draw, class], of the first row
    second = np.zeros_like(first)
    return sgld.Draws.of(
        {"logits": np.stack([first, second], 2)}, log_weight=LOG_WEIGHT,
        status=("ok", "ok", "failed"), **fields,
    )  # fmt: skip


def f(position, x):
    return position["logits"] + x[:, None] * jnp.zeros((1, 2))


def test_the_entropy_splits_as_by_hand():
    found = classes(draws(), f, np.zeros(2, np.float32))
    # by hand: .1 x .9 + .2 x .5 + .3 x .2 + .4 x .9 = .61
    np.testing.assert_allclose(found.probabilities, [[0.61, 0.39], [0.5, 0.5]], atol=1e-6)
    h = lambda p: -p * np.log(p) - (1 - p) * np.log(1 - p)  # noqa: E731
    aleatoric = 0.1 * h(0.9) + 0.2 * h(0.5) + 0.3 * h(0.2) + 0.4 * h(0.9)
    np.testing.assert_allclose(found.aleatoric, [aleatoric, np.log(2)], atol=1e-6)
    np.testing.assert_allclose(found.entropy, [h(0.61), np.log(2)], atol=1e-6)
    np.testing.assert_allclose(found.epistemic, [h(0.61) - aleatoric, 0], atol=1e-6)


def test_pieces_change_nothing(monkeypatch, rng):
    many = sgld.Draws.of({"w": rng.normal(size=(2, 7, 3))}, log_weight=rng.normal(size=(2, 7)))
    x = rng.normal(size=(11, 3)).astype(np.float32)
    logits = lambda p, x: jnp.stack([x @ p["w"], -x @ p["w"], jnp.zeros(len(x))], 1)  # noqa: E731
    whole = classes(many, logits, x)
    monkeypatch.setattr("sgld.inference.network_scores.LOGITS_AT_ONCE", 3 * 33)
    for batch_size in (None, 4):
        parts = classes(many, logits, x, batch_size=batch_size)
        for name in ("probabilities", "entropy", "aleatoric", "epistemic"):
            np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-6)


@pytest.mark.torch
def test_the_same_numbers_as_for_torch(rng):
    torch = pytest.importorskip("torch")
    import sgld.torch

    model = torch.nn.Linear(3, 4)
    ensemble = sgld.torch.Ensemble(model)
    weight, bias = rng.normal(size=(1, 5, 4, 3)), rng.normal(size=(1, 5, 4))
    steps = np.array([1.0, 0.5, 2.0, 0.1, 3.0])
    for s in range(5):
        model.load_state_dict(
            {"weight": torch.tensor(weight[0, s]), "bias": torch.tensor(bias[0, s])}
        )
        ensemble.collect(weight=steps[s])
    here = sgld.Draws.of({"w": weight, "b": bias}, log_weight=np.log(steps)[None])
    x = rng.normal(size=(6, 3)).astype(np.float32)
    ours = classes(here, lambda p, x: x @ p["w"].T + p["b"][None], x)
    theirs = ensemble.predict_classes(torch.tensor(x))
    for name in ("probabilities", "entropy", "aleatoric", "epistemic"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name).numpy(), atol=1e-5)


def table(probabilities):
    """Draws of one network that gives these probabilities."""
    return sgld.Draws.of({"logits": np.log(probabilities)[None, None]})


def test_scores_are_those_of_a_hand():
    p = np.array([[0.6, 0.4], [0.3, 0.7], [0.65, 0.35], [0.05, 0.95]])
    y = [0, 0, 1, 1]
    found = scores({"a": table(p)}, f, np.zeros(4, np.float32), y, bins=5)
    assert found.accuracy[0] == 0.5
    log_p = np.log([0.6, 0.3, 0.35, 0.95])
    np.testing.assert_allclose(found.log_score[0], log_p.mean(), rtol=1e-6)
    np.testing.assert_allclose(found.log_score_se[0], log_p.std(ddof=1) / 2, rtol=1e-5)
    brier = 2 * np.mean([0.4**2, 0.7**2, 0.65**2, 0.05**2])
    np.testing.assert_allclose(found.brier[0], brier, rtol=1e-6)
    # bins (.6, .8]: .6, .7, .65 with 1 of 3 right; (.8, 1]: .95, right
    by_hand = 3 / 4 * abs(1 / 3 - (0.6 + 0.7 + 0.65) / 3) + 1 / 4 * (1 - 0.95)
    np.testing.assert_allclose(found.ece[0], by_hand, rtol=1e-5)
    assert found.to_dict()["a"]["accuracy"] == 0.5


def test_every_row_names_the_law_of_its_draws():
    cold = draws(temperature=np.full((3, 2), 0.01))
    hot = draws(temperature=np.full((3, 2), 2.0))
    cycles = draws(temperature=np.array([[1.0, 0.5]] * 3))
    sandwich = draws(info={"target": "sandwich"})
    laplace = draws(info={"method": "laplace"})
    sets = {"a": draws(), "b": cold, "c": hot, "d": cycles, "e": sandwich, "f": laplace}
    found = scores(sets, f, np.zeros(2, np.float32), [0, 1])
    assert found.targets == (
        "posterior, T = 1", "cold, T = 0.01: not the posterior",
        "tempered, T = 2: not the posterior", "temperature changes: not the posterior",
        "sandwich: not the posterior", "Laplace approximation",
    )  # fmt: skip
    lines = str(found).splitlines()
    assert len(lines) == 7 and lines[2].startswith("b  cold, T = 0.01: not the posterior")
    assert lines[1].endswith("not judged") and repr(found) == str(found)


def test_refusals():
    x = np.zeros(2, np.float32)
    one = {"a": draws()}
    for y, message in (
        ([0], r"one class per row, \[2\]. Got shape \(1,\)"),
        ([0.0, 1.0], "whole numbers from 0. Got dtype float64"),
        ([0, 2], "between 0 and 1, the classes that f has. Got 2 in row 1"),
    ):
        with pytest.raises(UsageError, match=message):
            scores(one, f, x, y)
    with pytest.raises(UsageError, match="sets must be a dict"):
        scores(draws(), f, x, [0, 1])
    with pytest.raises(UsageError, match=r"'a' must be Draws\. Got dict"):
        scores({"a": {}}, f, x, [0, 1])
    with pytest.raises(UsageError, match="bins must be a whole number"):
        scores(one, f, x, [0, 1], bins=0)
    with pytest.raises(UsageError, match=r"logits \[row, class\] for 2 rows. Got \(2,\)"):
        classes(draws(), lambda p, x: x, x)
    with pytest.raises(UsageError, match="not finite for row 1"):
        classes(draws(), lambda p, x: f(p, x) / jnp.array([[1.0], [0.0]]), x)
    with pytest.raises(UsageError, match="batch_size must be positive"):
        classes(draws(), f, x, batch_size=0)
    with pytest.raises(UsageError, match="rows along the first axis"):
        classes(draws(), f, {"a": x, "b": np.zeros(3)})
    with pytest.raises(UsageError, match="draws must be Draws"):
        classes(draws().position, f, x)
