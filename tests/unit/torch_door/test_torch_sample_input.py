"""What `sgld.torch.sample` takes, and what it refuses before the first step."""

import types

import numpy as np
import pytest

import sgld
from sgld.errors import DataError, RunError, SGLDWarning, UsageError

torch = pytest.importorskip("torch")

from torch_parts import F  # noqa: E402

import sgld.torch as st  # noqa: E402
from sgld.torch.likelihood import called, checked  # noqa: E402
from sgld.torch.rows import read_rows  # noqa: E402
from sgld.torch.target import (  # noqa: E402
    Weights,
    prior_of,
)

CPU = torch.device("cpu")
SHORT = {"num_draws": 20, "burn_in": 5, "thin": 1, "chains": 2, "progress": False, "prior_sd": 1.0}


@pytest.fixture(autouse=True)
def short_tuning(monkeypatch):
    monkeypatch.setattr("sgld.inference.tuning.network_rules.MIN_TRAINING_STEPS", 20)
    monkeypatch.setattr("sgld.inference.tuning.network_rules.STAGE_STEPS", 20)


def classes(num_data=60, outputs=3):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num_data, 4, generator=generator)
    return x, (x[:, :outputs] + torch.randn(num_data, outputs, generator=generator)).argmax(1)


def network(*more):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), *more, torch.nn.Tanh(), torch.nn.Linear(5, 3))


def refused(sentence, model=None, loss=F.cross_entropy, data=None, error=UsageError, **given):
    with pytest.raises(error, match=sentence):
        st.sample(model or network(), loss, data or classes(), **{**SHORT, **given})


class Shared(torch.nn.Module):
    """A module under two names, and a weight in two modules."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(4, 4)
        self.again, self.tied, self.last = self.first, torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
        self.tied.weight = self.first.weight

    def forward(self, x):
        return self.last(self.tied(torch.tanh(self.again(torch.tanh(self.first(x))))))


def test_weights_in_several_places_are_one_and_the_model_is_left_as_it_is():
    model, data = Shared(), classes()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weights = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    assert len(weights) == 5
    wanted = Shared()
    wanted.load_state_dict({**wanted.state_dict(), **weights, "again.weight": weights["first.weight"],
                            "again.bias": weights["first.bias"], "tied.weight": weights["first.weight"]})  # fmt: skip
    found = called(model, weights, (data[0],))
    torch.testing.assert_close(found, wanted(data[0]))
    ensemble = st.sample(model, F.cross_entropy, data, **SHORT)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    state = ensemble.states[0]
    assert all(
        torch.equal(state[f"again.{key}"], state[f"first.{key}"]) for key in ("weight", "bias")
    )


def test_labels_of_floating_point_and_arguments_in_another_order_are_told():
    x, y = classes()
    refused(r"give it as integers: target\.long\(\)", data=(x, y.float()))
    refused(r"the order is sample\(model, loss, dataset\)", loss=(x, y), data=F.cross_entropy)


def test_a_loss_times_the_number_of_rows_is_told():
    x, y = classes()
    times = r"exp\(-loss\) adds up to .* over the 3 classes of a row.*leave the factor out"
    refused(times, loss=lambda o, t: 60 * F.cross_entropy(o, t))
    refused(times, loss=lambda o, t: 60 * F.cross_entropy(o, t, reduction="none"))
    smooth = lambda o, t: F.cross_entropy(o, t, label_smoothing=0.2)  # noqa: E731
    one = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0))
    binary = F.binary_cross_entropy_with_logits
    refused("over the 2 classes", one, lambda o, t: 60 * binary(o, t), (x, (y > 0).float()))
    narrow = lambda o, t: 0.5 * ((o - t) / 0.01) ** 2  # noqa: E731, no classes, though 0 and 1
    sure = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Sigmoid(), torch.nn.Flatten(0))
    for model, loss, target in (
        (network(), smooth, y), (one, binary, (y > 0).float()), (one, narrow, (y > 0).float()),
        (sure, F.binary_cross_entropy, (y > 0).float()),
    ):  # fmt: skip
        checked(model, loss, read_rows((x, target), CPU, 0))


def test_layers_whose_output_is_not_the_rows_own():
    refused(r"the BatchNorm1d at '\d'.*GroupNorm or LayerNorm", network(torch.nn.BatchNorm1d(5)))
    refused(r"dropout in training mode \(the Dropout at '1'\).*model\.eval\(\)", network(torch.nn.Dropout(0.2)))  # fmt: skip

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x):
            return F.dropout(self.net(x), 0.5, training=self.training)

    refused(r"other outputs when it is called again.*model\.eval\(\)", Hidden())
    assert len(st.sample(network(torch.nn.Dropout(0.2)).eval(), F.cross_entropy, classes(), **SHORT)) == 40  # fmt: skip


def test_a_loss_is_one_number_per_row_or_their_mean():
    x, _ = classes()
    total = lambda outputs, y: F.cross_entropy(outputs, y, reduction="sum")  # noqa: E731
    refused(r"Got their sum \(.* for .* rows\); use reduction='none'", loss=total)
    weighted = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 1.0]))
    refused(r"weighs classes differently \(weight=\[1, 5, 1\]\)", loss=weighted)
    wide = (x, x)
    refused("a mean over the 4 outputs of a row too", torch.nn.Linear(4, 4), F.mse_loss, wide)
    each = lambda outputs, y: (outputs - y) ** 2  # noqa: E731
    refused(r"one number per row.*\(16, 1\).*\(16,\)", torch.nn.Linear(4, 1), each, (x, x[:, 0]))
    refused("could not be called with outputs", loss=lambda outputs, y: outputs.nothing)
    refused("must return a tensor", loss=lambda outputs, y: 1.0)
    refused("must be a function", loss="cross_entropy")
    zero = lambda outputs, y: 0 * outputs.mean()  # noqa: E731
    refused("0 at the data set's first rows", loss=zero)


def test_the_two_kinds_of_loss_are_one_posterior():
    x, y = classes()
    rows = read_rows((x, y), CPU, 0)
    model = network()
    mean, each = (
        checked(model, torch.nn.CrossEntropyLoss(reduction=how), rows) for how in ("mean", "none")
    )
    assert (mean.kind, each.kind) == ("mean", "rows") and mean.classes and each.classes
    outputs = model(x)
    torch.testing.assert_close(mean.total(outputs, y), each.total(outputs, y))
    logistic = checked(
        torch.nn.Linear(4, 1),
        F.binary_cross_entropy_with_logits,
        read_rows((x, (y > 0).float()[:, None]), CPU, 0),
    )
    assert not logistic.classes
    log_p = torch.nn.Sequential(network(), torch.nn.LogSoftmax(-1))
    assert checked(log_p, F.nll_loss, rows).classes
    assert not checked(torch.nn.Linear(4, 4), lambda o, y: (o - y) ** 2, read_rows((x, x), CPU, 0)).classes  # fmt: skip


def test_labels_and_numbers_that_are_not_there():
    x, y = classes()
    refused("between 0 and 2.* Got 7 in row 5", data=(x, y.index_fill(0, torch.tensor(5), 7)))
    refused("Got -100 in row 0", data=(x, y.index_fill(0, torch.tensor(0), -100)))
    bad = x.clone()
    bad[3, 1] = torch.nan
    refused("row 3 of input 0 is not finite", data=(bad, y), error=DataError)
    refused("a row for each of the target's", data=(x[:-1], y), error=DataError)
    refused("at least two rows", data=(x[:1], y[:1]), error=DataError)
    refused("last, the target. Got one tensor", data=torch.utils.data.TensorDataset(x))
    refused("hold inputs and 'labels'", data={"x": x})
    refused("dataset must be .* Got str", data="rows")
    refused("could not be called with the data set's first rows", data=(x[:, :3], y))
    ragged = [(torch.zeros(n), torch.tensor(0)) for n in (4, 5)]
    loader = torch.utils.data.DataLoader(ragged, batch_size=1)
    refused("must all have one shape", data=loader, error=DataError)


def test_a_network_that_is_not_finite_at_its_start():
    model = network()

    class Root(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x):
            return torch.log(self.net(x))

    refused("output for row .* is not finite at the weights it has", Root(), error=DataError)
    with torch.no_grad():
        model[0].bias[2] = torch.inf
    refused(r"weights must be finite. Got nan or inf in '0\.bias'", model)


def test_probe_rows_are_like_the_data_sets():
    refused(r"shape of the data set's.*\[60, 4\].*Got 0: \[2, 5\]", probe=torch.zeros(2, 5))
    refused("without the target", probe=(torch.zeros(2, 4), torch.zeros(2)))
    refused("rows first", probe=torch.zeros(0, 4))
    refused("output for probe row 1 is not finite", error=DataError, probe=torch.tensor([[0.0] * 4, [torch.inf] * 4]))  # fmt: skip
    ensemble = st.sample(network(), F.cross_entropy, classes(), **SHORT, probe=torch.zeros(7, 4))
    assert ensemble.verdict.extra["predictions"]["rows"] == 7


def test_priors():
    weights = Weights.of(network())
    named = lambda *given: weights.named(prior_of(*given, weights).scale)  # noqa: E731
    found = named(None, {"*weight": 2.0, "*": 0.5}, None)
    np.testing.assert_allclose(found["0.weight"], 2.0, rtol=1e-6)
    np.testing.assert_allclose(found["2.bias"], 0.5, rtol=1e-6)
    scaled = named(sgld.networks.normal_prior({"*": 3.0}, fan_in=True), None, None)
    np.testing.assert_allclose(scaled["0.weight"], 1.5, rtol=1e-6)
    np.testing.assert_allclose(prior_of(None, None, 0.25, weights).scale, 2.0)
    for given in ({"prior_sd": None}, {"prior_precision": 1.0}, {"prior": sgld.networks.laplace_prior(1.0)}):  # fmt: skip
        refused("one of the three", **given)
    refused("must be positive. Got 0", prior_sd=None, prior_precision=0)
    refused("one of sgld.networks", prior_sd=None, prior=lambda w: 0.0)
    refused("no parameter", prior_sd={"layer*": 1.0, "*": 1.0})
    refused("prior_sd must be a number", prior_sd="wide")


def test_numbers_that_are_none():
    refused("chains must be a whole number", chains=0)
    refused("max_seconds must be a positive number", max_seconds=-1)
    refused("tolerance", tolerance=0.7)
    refused("step_size must be a positive number", step_size=0.0)
    refused("num_draws must be a whole number, at least 4", num_draws=2)
    refused("seed must be", seed=-1)
    with pytest.raises(UsageError, match=r"must be a torch\.nn\.Module"):
        st.sample(len, F.cross_entropy, classes(), **SHORT)
    frozen = network().requires_grad_(False)
    refused("no parameter that requires a gradient", frozen)
    refused(
        "before the first draw.* max_seconds = 1?[05] should do", max_seconds=0.01, error=RunError
    )


def test_what_training_loops_call_it():
    refused(r"sample takes step_size, not lr\. Got lr=0\.1; left out, .* lr / \(rows", lr=0.1)
    refused("prior_precision = weight_decay \\* ", weight_decay=0.1)
    refused("momentum of its own", momentum=0.9)
    refused("sample takes num_draws, not num_samples", num_samples=9)
    refused("sample takes chains, not num_chains", num_chains=2)
    refused("max_seconds, or num_draws", epochs=3)
    refused("sample takes path, not run_dir", run_dir="q")
    refused(r"takes no where\. .* frozen before: .*requires_grad_\(False\)\.$", where="last_layer")
    refused(r"takes no keep\. .* its outputs\(x\) are what each draw gives\.$", keep=len)
    refused(
        r"the class CrossEntropyLoss; give one of it, CrossEntropyLoss\(\)\.",
        loss=torch.nn.CrossEntropyLoss,
    )
    refused("Did you mean 'prior_sd'", prior_ds=1.0)


def test_a_call_that_is_refused_leaves_no_directory(tmp_path):
    refused("ended before the first draw", max_seconds=0.01, error=RunError, path=tmp_path / "run")
    refused("Got their sum", loss=lambda o, y: F.cross_entropy(o, y, reduction="sum"), path=tmp_path / "run")  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_rows_come_in_many_forms():
    x, y = classes()
    plain = read_rows((x, y), CPU, 0)
    pairs = [(x[i], int(y[i])) for i in range(len(y))]
    for given in (
        torch.utils.data.TensorDataset(x, y),
        torch.utils.data.DataLoader(pairs, batch_size=7, shuffle=True, drop_last=True),
        (x.numpy(), y.numpy()),
        [x.tolist(), y.tolist()],
    ):
        rows = read_rows(given, CPU, 0)
        assert rows.digest() == plain.digest()
    assert sorted(plain.order.tolist()) == list(range(60))
    assert plain.order.tolist() != read_rows((x, y), CPU, 1).order.tolist()


class Output(types.SimpleNamespace):
    pass


class Transformer(torch.nn.Module):
    """In the style of Hugging Face: arguments by name, an object with logits, a trunk and a head."""

    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Sequential(torch.nn.Embedding(11, 8), torch.nn.LayerNorm(8))
        self.classifier = torch.nn.Linear(8, 2)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, input_ids, attention_mask=None, labels=None):
        found = self.trunk(input_ids)
        if attention_mask is not None:
            found = found * attention_mask[..., None]
        return Output(logits=self.scale * self.classifier(found.mean(1)), loss=None)


def test_a_frozen_trunk_with_a_bayesian_head(tmp_path):
    torch.manual_seed(0)
    model = Transformer().eval()
    model.trunk.requires_grad_(False)
    ids = torch.randint(0, 11, (80, 6))
    rows = {"input_ids": ids, "attention_mask": torch.ones(80, 6), "labels": (ids[:, 0] > 5).long()}
    ensemble = st.sample(model, F.cross_entropy, rows, **SHORT, path=tmp_path / "run")
    assert [t["name"] for t in ensemble.verdict.extra["layers"]] == ["classifier.weight", "classifier.bias"]  # fmt: skip
    first, last = ensemble.states[0], ensemble.states[-1]
    assert first["trunk.0.weight"] is last["trunk.0.weight"]  # one copy for all draws
    assert not torch.equal(first["classifier.weight"], last["classifier.weight"])
    inputs = {"input_ids": ids[:5], "attention_mask": torch.ones(5, 6)}
    assert ensemble(inputs).shape == (40, 5, 2)
    ensemble.save(tmp_path / "draws.npz")
    other = Transformer().eval()
    again = st.Ensemble.load(tmp_path / "draws.npz", other)
    assert torch.equal(again(inputs), ensemble(inputs))
    assert again.states[0]["trunk.0.weight"] is again.states[1]["trunk.0.weight"]
    of_directory = st.Ensemble.load(tmp_path / "run", model)
    assert torch.equal(of_directory(inputs), ensemble(inputs))
    with pytest.raises(UsageError, match=r"other values of the module's other .* buffers"):
        st.Ensemble.load(tmp_path / "run", other)
    with pytest.raises(UsageError, match=r"an object with logits\. Got Output"):
        model.forward = lambda **kwargs: Output()
        st.sample(model, F.cross_entropy, rows, **SHORT)


def test_half_precision_is_sampled_in_single():
    x, y = classes()
    model = network().bfloat16()
    with pytest.warns(SGLDWarning, match="4 parameters are bfloat16: copies of them in float32"):
        ensemble = st.sample(model, F.cross_entropy, (x.bfloat16(), y), **SHORT)
    chains = ensemble._run[0]
    assert chains.state.z.dtype == torch.float32
    kept = chains.record.kept_from(0, 10**6)[1][0, -1]
    assert not np.array_equal(kept, torch.from_numpy(kept).bfloat16().float().numpy())
    assert ensemble.states[0]["0.weight"].dtype == torch.bfloat16
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())


def test_several_inputs_and_tied_weights():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Linear(4, 4)
            self.two = torch.nn.Linear(4, 4)
            self.two.weight = self.one.weight

        def forward(self, a, b):
            return self.two(torch.tanh(self.one(a))) + b

    x, _ = classes()
    torch.manual_seed(0)
    model = Two()
    ensemble = st.sample(model, lambda o, y: (o - y) ** 2, (x, 0.1 * x, x), **SHORT)
    state = ensemble.states[-1]
    assert torch.equal(state["one.weight"], state["two.weight"])
    assert not torch.equal(state["one.weight"], model.one.weight)
    assert ensemble((x, x)).shape == (40, 60, 4)


def test_a_module_that_squeezes_its_rows():
    class Squeezed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.linear(x).squeeze()  # of a single row: no axis at all

    x, _ = classes()
    ensemble = st.sample(Squeezed(), F.mse_loss, (x, x[:, 0]), **SHORT)
    assert ensemble(x).shape == (40, 60) and ensemble.verdict.judged


def test_log_odds_are_no_log_probabilities():
    refused(
        r"takes log probabilities, as nll_loss does.*add up to a probability of", loss=F.nll_loss
    )
    model = network(torch.nn.Linear(5, 5))
    ended = torch.nn.Sequential(model, torch.nn.LogSoftmax(1))
    assert len(st.sample(ended, F.nll_loss, classes(), **SHORT)) == 40
