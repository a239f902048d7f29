"""What a loss takes outputs for: logits of classes, log odds or numbers; and what follows for predictions."""

import functools

import pytest

from sgld.errors import UsageError

torch = pytest.importorskip("torch")

from torch_parts import F, drawn  # noqa: E402

import sgld.torch as st  # noqa: E402
from sgld.torch.likelihood import checked  # noqa: E402
from sgld.torch.rows import read_rows  # noqa: E402

CPU = torch.device("cpu")
SHORT = {"num_draws": 20, "burn_in": 5, "thin": 1, "chains": 2, "progress": False, "prior_sd": 1.0}
binary = F.binary_cross_entropy_with_logits


@pytest.fixture(autouse=True)
def short_tuning(monkeypatch):
    monkeypatch.setattr("sgld.inference.tuning.network_rules.MIN_TRAINING_STEPS", 20)
    monkeypatch.setattr("sgld.inference.tuning.network_rules.STAGE_STEPS", 20)


def rows(classes=3):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, 4, generator=generator)
    return x, torch.randint(0, classes, (60,), generator=generator)


def linear(outputs, *more, zero=False):
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, outputs)
    if zero:
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    return torch.nn.Sequential(layer, *more)


def likelihood(model, loss, target, x=None):
    return checked(model, loss, read_rows((rows()[0] if x is None else x, target), CPU, 0))


def refused(sentence, model, loss, target):
    with pytest.raises(UsageError, match=sentence):
        likelihood(model, loss, target)


def naive(outputs, y):
    p = outputs.sigmoid()
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def test_what_a_loss_takes_outputs_for():
    x, y = rows()
    column = (y > 0).float()[:, None]
    none = functools.partial(binary, reduction="none")
    for model, loss, target, meaning in (
        (linear(3), F.cross_entropy, y, "classes"),
        (linear(3, torch.nn.LogSoftmax(1)), F.nll_loss, y, "classes"),
        (linear(3), F.cross_entropy, torch.softmax(x[:, :3], 1), "classes"),
        (linear(1), binary, column, "odds"),
        (linear(1), lambda o, t: binary(o[:, 0], t), column[:, 0], "odds"),
        (linear(1), lambda o, t: binary(o, 0.9 * t + 0.05), column, "odds"),
        (linear(1), binary, 0.9 * column + 0.05, "odds"),
        (linear(1), naive, column, "odds"),
        (linear(1), lambda o, t: F.softplus(-o * t).mean(), 2 * column - 1, "odds"),
        (linear(3), none, (x[:, :3] > 0).float(), "odds"),
        (linear(1), F.l1_loss, column, "numbers"),
        (linear(1), F.mse_loss, column, "numbers"),
        (linear(1), lambda o, t: (o.exp() - t * o).mean(), column, "numbers"),
        (linear(1, torch.nn.Sigmoid()), F.binary_cross_entropy, column, "numbers"),
    ):
        assert likelihood(model, loss, target).meaning == meaning


def test_a_regression_has_no_probabilities(tmp_path):
    x, _ = rows()
    half = lambda outputs, y: 0.5 * (outputs - y) ** 2  # noqa: E731
    ensemble = st.sample(linear(1), half, (x, x[:, :1]), **SHORT, path=tmp_path / "run")
    ensemble.save(tmp_path / "draws.npz")
    assert ensemble.predict_values(x).mean.shape == (60, 1)
    again = [st.Ensemble.load(tmp_path / name, linear(1)) for name in ("draws.npz", "run")]
    for each in (ensemble, *again):
        for asked in (each.predict_proba, each.predict_classes):
            with pytest.raises(UsageError, match=r"takes no logits of classes.*use predict_values"):
                asked(x)
    del again[0].info["outputs"]  # of a file from before it was kept
    assert again[0].predict_proba(x).shape == (60, 2)
    assert drawn(torch.nn.Linear(4, 1)).predict_proba(x).shape == (60, 2)  # nobody knows the loss


def test_classes_and_single_log_odds_have_probabilities_and_several_answers_none():
    x, y = rows()
    positive = (x > 0).float()
    for outputs, loss, target in ((3, F.cross_entropy, y), (1, binary, positive[:, :1])):
        ensemble = st.sample(linear(outputs), loss, (x, target), **SHORT)
        found = ensemble.predict_proba(x)
        with pytest.raises(UsageError, match=r"takes logits, .* use predict_proba"):
            ensemble.predict_values(x)
        assert found.shape == (60, max(2, outputs))
    several = st.sample(linear(4), functools.partial(binary, reduction="none"), (x, positive), **SHORT)  # fmt: skip
    with pytest.raises(UsageError, match=r"each of the 4 outputs.*\.sigmoid\(\)\.mean\(0\)"):
        several.predict_proba(x)


def test_probabilities_in_the_place_of_logits():
    _, y = rows()
    refused("remove the softmax", linear(3, torch.nn.Softmax(1)), F.cross_entropy, y)
    refused("remove the softmax", linear(3, torch.nn.Softmax(1), torch.nn.Identity()), torch.nn.CrossEntropyLoss(), y)  # fmt: skip
    likelihood(linear(3, torch.nn.LogSoftmax(1)), F.cross_entropy, y)
    likelihood(linear(3, torch.nn.Sigmoid()), F.cross_entropy, y)  # odd, and no probabilities
    ended = linear(1, torch.nn.Sigmoid(), torch.nn.Flatten(0))
    refused("ends in a sigmoid.*remove the sigmoid", ended, binary, (y > 0).float())
    likelihood(linear(1, torch.nn.Sigmoid(), torch.nn.Linear(1, 1)), binary, (y > 0).float()[:, None])  # fmt: skip


def test_weights_of_classes_are_always_seen():
    """Single rows lose what they do without weights, and equal losses have one mean however they weigh."""
    _, y = rows()
    weight = torch.tensor([1.0, 2.0, 1.0])
    model = linear(3, zero=True)  # every class is as likely: all rows lose log 3
    named = r"weighs classes differently \(weight=\[1, 2, 1\]\)"
    refused(named, model, torch.nn.CrossEntropyLoss(weight=weight), y)
    refused(named, model, functools.partial(F.cross_entropy, weight=weight), y)
    refused("classes that weigh differently", model, lambda o, t: F.cross_entropy(o, t, weight=weight), y)  # fmt: skip
    log_p = linear(3, torch.nn.LogSoftmax(1), zero=True)
    refused("classes that weigh differently", log_p, lambda o, t: F.nll_loss(o, t, weight=weight), y)  # fmt: skip
    likelihood(model, torch.nn.CrossEntropyLoss(weight=torch.full((3,), 2.0)), y)
    likelihood(model, torch.nn.CrossEntropyLoss(weight=weight, reduction="none"), y)

    def weighted(outputs, y):
        w = 1 + 2 * y
        return (w * binary(outputs, y, reduction="none")).sum() / w.sum()

    refused("classes that weigh differently", linear(1, zero=True), weighted, (y > 0).float()[:, None])  # fmt: skip
