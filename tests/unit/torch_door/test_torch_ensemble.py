"""Ensemble: draws, weights, predictions, wrong use; the page runs."""

import math
import re

import numpy as np
import pytest

from sgld.errors import UsageError
from sgld.results.verdict import Verdict

torch = pytest.importorskip("torch")

from torch_parts import Mixed, drawn  # noqa: E402

import sgld.torch as st  # noqa: E402


def test_draws_are_copies_and_the_model_is_left_as_it_is():
    model = Mixed().train()
    ensemble = drawn(model)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.5)  # the weights of no draw
    before = {k: v.clone() for k, v in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    x = torch.randn(7, 3)
    again = ensemble.outputs(x, batch_size=1)
    # dropout is off; how single precision rounds depends on the batch, by the processor's kernels
    torch.testing.assert_close(ensemble.outputs(x), again, rtol=0.0, atol=1e-5)
    assert modes == [m.training for m in model.modules()]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not torch.equal(ensemble.draws_of("narrow")[0], ensemble.draws_of("narrow")[1])
    eager = Mixed().eval()
    eager.load_state_dict(ensemble.states[3])
    torch.testing.assert_close(ensemble.outputs(x)[3], eager(x).detach().double())


def test_small_networks_predict_on_one_thread():
    class Told(torch.nn.Linear):
        def forward(self, x):
            seen.append(torch.get_num_threads())
            return super().forward(x)

    seen, before = [], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        drawn(Told(3, 2)).predict_proba(torch.zeros(4, 3))
        assert set(seen) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_arviz_is_told_the_verdict():
    ensemble = drawn(torch.nn.Linear(3, 2))
    ensemble.verdict = Verdict("trusted", ("by hand.",))
    assert ensemble.to_arviz(weights="keep")["posterior"].attrs["verdict"] == "trusted"


def test_one_number_a_row_is_the_logit_of_the_second_class():
    class Squeezed(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x).squeeze(-1)

    torch.manual_seed(0)
    flat, x = drawn(Squeezed(3, 1)), torch.randn(4, 3)
    expected = (torch.sigmoid(flat.outputs(x)) * (flat.weights / flat.weights.sum())[:, None]).sum(
        0
    )
    torch.testing.assert_close(flat.predict_proba(x)[:, 1], expected)
    assert re.fullmatch(
        r"Classes\(4 rows x 2 classes; mean entropy .* \+ epistemic \S+\)",
        repr(flat.predict_classes(x)),
    )


@pytest.mark.parametrize("outputs", [4, 1])
def test_entropies_add_up(outputs):
    ensemble = drawn(torch.nn.Linear(3, outputs))
    x = 3 * torch.randn(50, 3)
    found = ensemble.predict_classes(x, batch_size=7)
    logits, w = ensemble.outputs(x), ensemble.weights / ensemble.weights.sum()
    p = logits.softmax(-1)
    if outputs == 1:
        p = torch.cat([1 - logits.sigmoid(), logits.sigmoid()], -1)
    H = lambda q: -(q * q.log()).sum(-1)  # noqa: E731
    mean = torch.einsum("s,src->rc", w, p)
    torch.testing.assert_close(found.probabilities, mean)
    torch.testing.assert_close(found.aleatoric, torch.einsum("s,sr->r", w, H(p)))
    torch.testing.assert_close(found.entropy, H(mean))
    divergence = torch.einsum("s,src->r", w, p * (p.log() - mean.log()))
    torch.testing.assert_close(found.epistemic, divergence, rtol=1e-7, atol=1e-12)
    torch.testing.assert_close(found.aleatoric + found.epistemic, found.entropy)
    assert bool((found.epistemic > 0).all())


def test_values_are_those_of_the_mixture():
    ensemble = drawn(torch.nn.Linear(3, 1))
    x = torch.randn(6, 3)
    f = ensemble.outputs(x)[..., 0].numpy()
    w = (ensemble.weights / ensemble.weights.sum()).numpy()
    noise = np.array([0.3, 0.1, 0.7, 0.2, 0.5])
    found = ensemble.predict_values(x, interval=0.8, noise_sd=noise)
    mean = w @ f
    np.testing.assert_allclose(found.mean[:, 0], mean, rtol=1e-12)
    variance = w @ (f - mean) ** 2
    np.testing.assert_allclose(found.epistemic_sd[:, 0], np.sqrt(variance), rtol=1e-9)
    np.testing.assert_allclose(found.sd[:, 0], np.sqrt(variance + w @ noise**2), rtol=1e-9)
    from scipy.stats import norm

    for bound, q in ((found.lower, 0.1), (found.upper, 0.9)):
        mass = w @ norm.cdf(bound[:, 0].numpy(), f, noise[:, None])
        np.testing.assert_allclose(mass, q, atol=1e-10)
    bare = ensemble.predict_values(x, interval=0.8)
    for bound, q in ((bare.lower, 0.1), (bare.upper, 0.9)):
        at = bound[:, 0].numpy()
        assert (w @ (f <= at) >= q - 1e-9).all() and (w @ (f < at) < q).all()


@pytest.mark.parametrize("rows", [1, 5, 6])  # of 5 draws
@pytest.mark.parametrize("outputs", [1, 2])
def test_noise_of_each_shape_is_where_it_belongs(rows, outputs):
    ensemble = drawn(torch.nn.Linear(3, outputs))
    x = torch.randn(rows, 3)
    per_draw, per_row = torch.rand(5) + 0.1, torch.rand(rows) + 0.1
    sd = lambda noise: ensemble.predict_values(x, noise_sd=noise).sd  # noqa: E731
    w = (ensemble.weights / ensemble.weights.sum())[:, None, None]
    epistemic = ensemble.predict_values(x).sd
    full = torch.rand(5, rows, outputs)

    def law(noise):
        return (epistemic**2 + (w * noise.double() ** 2).sum(0)).sqrt()

    torch.testing.assert_close(sd(0.3), law(torch.full((5, 1, 1), 0.3)))
    torch.testing.assert_close(sd(per_draw[:, None]), law(per_draw[:, None, None]))
    torch.testing.assert_close(sd(full), law(full))
    torch.testing.assert_close(
        sd(per_row[None, :, None]), law(per_row[None, :, None].expand(5, -1, 1))
    )
    torch.testing.assert_close(sd(per_draw), law(per_draw[:, None, None]))
    for shape in ((7,), (1, 5), (5, rows + 1), (rows, 5, 4), (5, rows, outputs, 1)):
        with pytest.raises(UsageError, match=r"noise_sd must be .* Got shape \("):
            sd(torch.ones(shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_rows_come_as_arrays_and_lists_too(dtype):
    ensemble = drawn(torch.nn.Linear(3, 1).to(dtype))
    rows = [[1, 2, 3], [4, 5, 6]]
    wanted = ensemble.outputs(torch.tensor(rows).to(dtype))
    for given in (rows, np.array(rows), np.array(rows, np.float32), torch.tensor(rows).double()):
        assert torch.equal(ensemble.outputs(given), wanted)
    dataset = torch.utils.data.TensorDataset(torch.tensor(rows, dtype=torch.float32))
    for given in ("rows", None, 3.0, {"x": rows}, [[1.0], [2.0, 3.0]], dataset):
        with pytest.raises(UsageError, match=f"^x must be .* Got {type(given).__name__}"):
            ensemble.outputs(given)


def test_indices_stay_integers_and_a_mixed_network_is_given_what_came():
    ensemble = drawn(torch.nn.Embedding(4, 2))
    assert ensemble.outputs(torch.tensor([0, 3])).shape == (5, 2, 2)
    mixed = torch.nn.Sequential(torch.nn.Linear(2, 2).bfloat16(), Wider(), torch.nn.Linear(2, 1))
    ensemble = drawn(mixed)
    assert ensemble.outputs(torch.ones(3, 2, dtype=torch.bfloat16)).shape == (5, 3, 1)


class Wider(torch.nn.Module):
    def forward(self, x):
        return x.float()


def test_weights_are_the_steps_taken_from_the_draws():
    model = torch.nn.Linear(2, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "step_size": 1e-4}]
    optimizer = st.SGLD(groups, step_size=1e-3, num_data=10)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    ensemble = st.Ensemble(model)
    for _ in range(3):
        model(torch.ones(1, 2)).mean().backward()
        optimizer.step()
        scheduler.step()
        ensemble.collect(optimizer)
    np.testing.assert_allclose(ensemble.weights, [5e-4, 2.5e-4, 1.25e-4], rtol=1e-12)
    optimizer.param_groups[1]["lr"] *= 3
    with pytest.raises(UsageError, match="keep their proportion"):
        ensemble.collect(optimizer)


def batch_norm(**kwargs):
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3, **kwargs))


def test_running_statistics_are_refused():
    with pytest.raises(
        UsageError, match=r"the BatchNorm1d at '1' norm.*GroupNorm or LayerNorm.*eval\(\)"
    ):
        st.Ensemble(batch_norm())
    with pytest.raises(UsageError, match="the model, a BatchNorm1d, normalises"):
        st.Ensemble(torch.nn.BatchNorm1d(3))
    with pytest.raises(UsageError, match="statistics of the batch"):
        st.Ensemble(batch_norm(track_running_stats=False).eval())
    model = batch_norm()
    model[1].eval()
    ensemble = st.Ensemble(model)
    ensemble.collect()
    with pytest.raises(UsageError, match="statistics of the batch"):
        ensemble.collect(model=batch_norm())
    model[1].train()
    model(torch.randn(8, 2))
    model[1].eval()
    with pytest.raises(UsageError, match="has changed since the Ensemble was made"):
        ensemble.collect()
    st.Ensemble(torch.nn.Sequential(torch.nn.GroupNorm(1, 2), torch.nn.InstanceNorm1d(2)))


def test_wrong_use_of_an_ensemble():
    model = torch.nn.Linear(2, 3)
    ensemble = st.Ensemble(model)
    with pytest.raises(UsageError, match=r"no draws yet; call collect\(\)"):
        ensemble.predict_classes(torch.zeros(1, 2))
    with pytest.raises(UsageError, match="same architecture"):
        ensemble.collect(model=torch.nn.Linear(2, 4))
    ensemble.collect(weight=0.0)
    with pytest.raises(UsageError, match="every draw has weight 0"):
        ensemble.predict_classes(torch.zeros(1, 2))
    with pytest.raises(UsageError, match="weight must be zero or positive"):
        ensemble.collect(weight=-1.0)
    with pytest.raises(UsageError, match="interval must be above 0 and below 1"):
        ensemble.predict_values(torch.zeros(1, 2), interval=90)
    with pytest.raises(UsageError, match="noise_sd must be zero or positive"):
        ensemble.collect(), ensemble.predict_values(torch.zeros(1, 2), noise_sd=-1.0)
    with torch.no_grad():
        model.weight[0, 0] = math.nan
    with pytest.raises(UsageError, match=r"nan or inf in 'weight'.*smaller step_size"):
        ensemble.collect()


def test_an_ensemble_is_called_shown_and_asked_for_probabilities():
    ensemble = drawn(torch.nn.Linear(3, 4))
    x = torch.randn(6, 3)
    assert torch.equal(ensemble(x), ensemble.outputs(x)) and ensemble(x).shape == (5, 6, 4)
    torch.testing.assert_close(ensemble(x, batch_size=2), ensemble(x), rtol=0.0, atol=1e-5)
    assert torch.equal(ensemble.predict_proba(x), ensemble.predict_classes(x).probabilities)
    effective = float(ensemble.weights.sum() ** 2 / (ensemble.weights**2).sum())
    assert repr(ensemble) == (
        f"Ensemble(Linear, 5 draws of 16 weights, effective number {effective:.3g})"
    )
    assert repr(st.Ensemble(torch.nn.Linear(3, 4))) == "Ensemble(Linear, 0 draws of 16 weights)"


def test_arviz_gets_each_parameter_once_and_the_weights():
    ensemble = drawn(Mixed())
    tree = ensemble.to_arviz(weights="keep")
    wanted = dict(Mixed().named_parameters())
    assert set(tree["posterior"].data_vars) == set(wanted)  # no buffer, no second name of a weight
    for name in wanted:
        found = tree["posterior"][name].values
        np.testing.assert_array_equal(found[0], ensemble.draws_of(name).float().numpy())
    log_weight = tree["sample_stats"]["log_weight"].values
    shares = np.exp(log_weight[0] - log_weight.max())
    np.testing.assert_allclose(shares / shares.sum(), ensemble.weights / ensemble.weights.sum())
    with pytest.warns(UserWarning, match="unequal weights"):
        resampled = ensemble.to_arviz()["posterior"]["other.bias"].values[0]
    kept = {row.tobytes() for row in tree["posterior"]["other.bias"].values[0]}
    assert {row.tobytes() for row in resampled} < kept  # some twice, others not at all
    with pytest.raises(UsageError, match="no draws yet"):
        st.Ensemble(Mixed()).to_arviz()
