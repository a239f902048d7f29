"""`sgld.torch.sample`: laws of the chains, the verdict, resume, parity with the JAX path."""

import importlib
import math
import re
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import sgld
from sgld.diagnostics.function_space.temperature import Layers
from sgld.diagnostics.function_space.verdict import Seen, judge_predictions

torch = pytest.importorskip("torch")

from torch_parts import F, linear, squares  # noqa: E402

import sgld.torch as st  # noqa: E402
from sgld.core import progress  # noqa: E402
from sgld.inference.sink import Positions  # noqa: E402
from sgld.torch import chains as torch_chains  # noqa: E402
from sgld.torch.dynamics import Order, State, baoa, kinetic  # noqa: E402
from sgld.torch.likelihood import checked  # noqa: E402
from sgld.torch.rows import read_rows  # noqa: E402
from sgld.torch.target import (  # noqa: E402
    Target,
    Weights,
    prior_of,
)
from sgld.torch.tuning import (  # noqa: E402
    Asked,
    TorchBackend,
    _optimised,
    starts,
    stiffest,
)


def target_of(model, loss, data, prior=None):
    weights = Weights.of(model)
    rows = read_rows(data, weights.device, 0)
    law = prior_of(prior, 1.0 if prior is None else None, None, weights)
    return Target(checked(model, loss, rows), rows, weights, law)


def test_a_step_is_that_of_the_jax_sampler():
    import jax

    with jax.enable_x64(True):
        import jax.numpy as jnp

        from sgld.samplers.preconditioners.fixed import Diagonal

        rng = np.random.default_rng(1)
        z, p, xi, root = (rng.standard_normal((2, 5)) for _ in range(4))
        root, h = np.abs(root[0]) + 0.1, 0.3
        model, data, *_ = linear()
        target = target_of(model, squares, data)
        z = z[:, :4]
        p, xi, root = p[:, :4], xi[:, :4], root[:4]
        x, y = (a.numpy() for a in data)
        design = jnp.asarray(np.column_stack([x, np.ones(len(x))]))
        grad = lambda q: design.T @ (jnp.asarray(y) - design @ q) - q  # noqa: E731
        sampler, D = sgld.BAOA(), Diagonal(jnp.asarray(root**2))
        order = Order(target.rows, 2, None, 0, 0)
        state = State(torch.tensor(z), torch.tensor(p))
        wanted = [(jnp.asarray(a), jnp.asarray(b)) for a, b in zip(z, p, strict=True)]
        for _ in range(3):
            g = target.gradient(state.z, order.at(0), order.scale)
            state = baoa(state, g, h / 300, torch.tensor(root), torch.tensor(xi))
            one = lambda s, noise: tuple(  # noqa: E731
                sampler.step(type(sampler.init(s[0]))(*s), grad, h / 300, noise, preconditioner=D)
            )
            wanted = [one(s, jnp.asarray(noise)) for s, noise in zip(wanted, xi, strict=True)]
        np.testing.assert_allclose(state.z, [s[0] for s in wanted], rtol=1e-9)
        np.testing.assert_allclose(state.p, [s[1] for s in wanted], rtol=1e-9)


def test_the_law_of_a_linear_module_is_the_closed_form():
    model, data, mean, covariance = linear()
    before = [p.clone() for p in model.parameters()]
    ensemble = st.sample(model, squares, data, prior_sd=1.0, progress=False)
    assert ensemble.verdict.word == "trusted", ensemble.verdict
    draws = torch.stack([torch.cat([s["weight"][0], s["bias"]]) for s in ensemble.states]).numpy()
    sd = np.sqrt(np.diag(covariance))
    effective = 400  # at least, of up to 800 that are kept
    assert (np.abs(draws.mean(0) - mean) < 5 * sd / math.sqrt(effective)).all()
    assert (np.abs(draws.std(0) / sd - 1) < 5 / math.sqrt(2 * effective)).all()
    correlation = np.corrcoef(draws.T) - covariance / np.outer(sd, sd)
    assert (np.abs(correlation) < 5 / math.sqrt(effective)).all()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert 2 * effective <= 2 * len(ensemble) <= 1600 and repr(ensemble).endswith("trusted)")
    assert len(ensemble.summary().splitlines()) <= 20
    assert ensemble.to_arviz(weights="keep")["posterior"]["weight"].shape == (
        4,
        len(ensemble) // 4,
        1,
        3,
    )


def test_minibatches_have_the_law_too():
    model, data, mean, covariance = linear(1000)
    ensemble = st.sample(
        model, squares, data, prior_precision=1.0, batch_size=100, num_draws=1500, step_size=0.01,
        burn_in=300, thin=4, progress=False,
    )  # fmt: skip
    draws = torch.stack([torch.cat([s["weight"][0], s["bias"]]) for s in ensemble.states]).numpy()
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(0) - mean) < 0.3 * sd).all()
    assert (np.abs(draws.std(0) / sd - 1) < 0.2).all()


def test_metric_and_stiffest_direction_are_those_of_the_hessian():
    model, data, _, covariance = linear()
    target = target_of(model, squares, data)
    z = target.weights.flat(model).expand(2, -1).clone()
    J = np.linalg.inv(covariance)
    x, y = (a.numpy() for a in data)
    design = np.column_stack([x, np.ones(len(x))])
    residual = design @ z[0].numpy() - y
    fisher = ((design * residual[:, None]) ** 2).sum(0) + 1
    asked = Asked(2, 0, 0.05, None, None, None, None, None, None)
    found, V, _ = TorchBackend(target, asked, None).measured(z)
    np.testing.assert_allclose(found**-2, fisher, rtol=1e-6)
    assert V == 0
    root = torch.tensor(np.diag(J) ** -0.5)
    whitened = root.numpy()[:, None] * J * root.numpy()
    values, vectors = np.linalg.eigh(whitened)
    for exact in (True, False):  # by differences of gradients too
        target.exact = exact
        directions, largest = stiffest(target, root, z, 2)
        np.testing.assert_allclose(largest, values[-1], rtol=1e-3)
        overlap = np.linalg.norm(directions[0].numpy() @ vectors[:, -1])
        assert overlap > 0.999


def test_chains_begin_where_adam_ends(monkeypatch):
    monkeypatch.setattr("sgld.inference.tuning.network_rules.MIN_TRAINING_STEPS", 1500)
    model, data, mean, covariance = linear()
    target = target_of(model, squares, data)
    asked = Asked(3, 0, 0.05, None, None, None, None, None, None)
    found = _optimised(target, asked, 300, math.inf, starts(target, asked, False))
    assert (np.abs(found.numpy() - mean) < 0.1 * np.sqrt(np.diag(covariance))).all()
    monkeypatch.setattr("sgld.inference.tuning.network_rules.MIN_TRAINING_STEPS", 1)
    monkeypatch.setattr("sgld.inference.tuning.network_rules.MAX_OPTIMISER_PASSES", 1)
    first = _optimised(
        target, asked, 300, math.inf, starts(target, asked, False)
    )  # one step: of length 1e-2 in every weight
    start = target.weights.flat(model)
    np.testing.assert_allclose((first[0] - start).abs(), 1e-2, rtol=1e-4)
    assert not torch.equal(first[1], first[2])


def test_chain_by_chain_and_together_are_the_same():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    x, y = torch.randn(50, 4), torch.randint(0, 3, (50,))
    target = target_of(model, F.cross_entropy, (x, y))
    assert target.together and target.likelihood.classes
    z = torch.randn(3, target.dimension)
    batch = target.rows.at(torch.arange(15).reshape(3, 5))
    together = target.gradient(z, batch, 2.0)
    target.together = False
    torch.testing.assert_close(together, target.gradient(z, batch, 2.0))
    torch.testing.assert_close(
        target.predicted(z, target.rows.first(4).inputs)[1],
        torch.log_softmax(
            torch.func.functional_call(
                model, target.weights.named(z[1]), target.rows.first(4).inputs
            ),
            -1,
        ),
    )


class Branches(torch.nn.Module):
    """What vmap cannot take: a branch by value."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.linear(x) if float(self.linear.bias.detach()) < 1e9 else x


def test_a_module_that_vmap_cannot_take_is_called_chain_by_chain():
    x, y = (a.float() for a in linear()[1])
    target = target_of(Branches(), squares, (x, y))
    assert not target.together
    ensemble = st.sample(
        Branches(), squares, (x, y), prior_sd=1.0, chains=2, num_draws=30, burn_in=10, thin=1,
        progress=False,
    )  # fmt: skip
    assert len(ensemble) == 60


def test_the_kinetic_temperature_is_one_where_the_momentum_has_its_law():
    from sgld.diagnostics.function_space.temperature import Layers

    generator = torch.Generator().manual_seed(0)
    h, layers = 0.25, Layers(("a", "b"), (40, 60))
    decay = math.exp(-2 * math.sqrt(h))
    before = math.sqrt(1.3) * torch.randn(4, 100, generator=generator)
    values = []
    for _ in range(400):  # heat that comes in between two O steps: 1.3 before, less after
        before = math.sqrt(1.3) * torch.randn(4, 100, generator=generator)
        after = math.sqrt(decay) * before + math.sqrt(1 - decay) * torch.randn(4, 100, generator=generator)  # fmt: skip
        directions, slopes = torch.eye(100)[:16].expand(4, -1, -1), 3 * torch.eye(100)[:20, None].expand(-1, 4, -1)  # fmt: skip
        values.append(kinetic(after, directions, slopes, layers, h))
    found = torch.stack(values).mean((0, 1))
    wanted = (1.3 + 1 + 0.3 * decay) / 2
    np.testing.assert_allclose(found, [wanted] * 4, rtol=0.02)


def test_a_pass_visits_rows_once_and_resumes_anywhere():
    rows = read_rows((torch.arange(23.0)[:, None], torch.arange(23.0)), torch.device("cpu"), 0)
    order = Order(rows, 2, 5, 7, 0)  # 5 batches of 4
    batches = [order.at(step) for step in range(10)]
    for chain in range(2):
        seen = torch.cat([b.target[chain] for b in batches[:5]])
        assert len(seen) == 20 == len(seen.unique())
    assert not torch.equal(batches[0].target[0], batches[0].target[1])
    assert not torch.equal(batches[0].target, batches[5].target)
    again = Order(rows, 2, 5, 7, 0).at(7)
    assert torch.equal(again.target, batches[7].target)
    assert math.isclose(order.scale, 23 / 4)


def test_a_step_that_is_too_large_is_not_trusted():
    """Well mixed and too hot: the momentum shows it."""
    x, y = digits_like(400)
    ensemble = st.sample(
        torch.nn.Linear(5, 3), F.cross_entropy, (x, y), prior_sd=1.0, step_size=0.03, batch_size=20,
        burn_in=200, num_draws=1000, thin=2, progress=False,
    )  # fmt: skip
    assert ensemble.verdict.word == "biased", ensemble.verdict
    assert "temperature" in ensemble.verdict.reasons[0]
    assert "smaller step_size" in ensemble.verdict.reasons[0]
    hot = ensemble.verdict.extra["predictions"]["temperatures"]["the stiffest directions"][0]
    assert hot > 1.3


def digits_like(num_data):
    """Rows of three classes, in five columns."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_data, 5)).astype(np.float32)
    logits = np.stack([x[:, 0] * 2, x[:, 1] - x[:, 2], x[:, 3] * x[:, 4]], 1)
    y = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return torch.tensor(x), torch.tensor(y)


def test_a_network_is_that_of_the_jax_path():
    import equinox as eqx
    import jax

    x, y = digits_like(200)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    rows = torch.randn(100, 5)
    ensemble = st.sample(model, F.cross_entropy, (x, y), prior_sd=0.7, progress=False)
    assert ensemble.verdict.word == "trusted", ensemble.verdict
    net = eqx.nn.MLP(5, 3, 6, 1, activation=jax.nn.tanh, key=jax.random.key(0))
    posterior = sgld.Posterior(
        sgld.networks.normal_prior(0.7),
        lambda net, datum: jax.nn.log_softmax(net(datum[0]))[datum[1]],
    )
    draws = sgld.sample(posterior, (x.numpy(), y.numpy().astype(np.int32)), net, progress=False)
    assert draws.verdict.word == ensemble.verdict.word
    other = sgld.networks.classes(draws, lambda net, rows: jax.vmap(net)(rows), rows.numpy())
    one = ensemble.predict_classes(rows)
    variation = 0.5 * np.abs(one.probabilities.numpy() - other.probabilities).sum(1).mean()
    assert variation < 0.015
    ratio = one.epistemic.numpy().mean() / np.mean(other.epistemic)
    assert abs(ratio - 1) < 0.1


def test_kept_weights_have_the_bounds_that_they_are_given():
    record = torch_chains.Record(Positions(8), np.full(1, -1))
    for k in range(50):
        record.take(torch.full((1, 2), float(k)), torch.zeros(1, 1, 1), torch.zeros(1, 2))
        _, held = record.positions.between(0, k + 1)
        assert len(held) <= 8 and held[0, 0, 0] == 0
    numbers, weights = record.kept_from(20, 3)
    assert (weights[0, :, 0] == numbers).all() and (numbers >= 20).all() and len(numbers) <= 3


def test_max_seconds_is_honoured():
    """Of a run that would never end, with a verdict on what there is."""
    x, y = digits_like(300)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    began = time.monotonic()
    ensemble = st.sample(
        model, F.cross_entropy, (x, y), prior_sd=1.0, max_seconds=8, num_draws=10**6, burn_in=5, thin=1,
        probe=x[:8], progress=False,
    )  # fmt: skip
    assert 8 * 0.85 < time.monotonic() - began < 8 * 1.2
    assert ensemble.verdict.judged and 20 <= ensemble.info["draws"] < 10**6


def test_half_the_step_confirms_or_refutes():
    model, data, *_ = linear(500)
    well = st.sample(
        model, squares, data, prior_sd=1.0, step_size=0.1, num_draws=400, thin=4, burn_in=50,
        progress=False,
    )  # fmt: skip
    found = well.step_halving()
    assert found.word == "trusted" and found.confirmed_by == "half the step" and well.verdict is found  # fmt: skip


def test_half_the_step_is_told_and_says_what_it_found(capsys, monkeypatch):
    monkeypatch.setattr("sgld.core.progress._Lines.every", 0.05)
    said, write = threading.Event(), progress._Lines.write
    monkeypatch.setattr(progress._Lines, "write", lambda self, text: ("sampling" in text and said.set(), write(self, text)))  # fmt: skip
    model, data, *_ = linear(100)
    short = st.sample(
        model, squares, data, prior_sd=1.0, step_size=0.1, num_draws=10, thin=4, burn_in=5, progress=False,
    )  # fmt: skip
    threads = []
    looked = torch_chains.Chains._look

    def look(self):
        threads.append(torch.get_num_threads())
        said.wait(20)  # however fast the machine, the stage lasts until it is told
        looked(self)

    monkeypatch.setattr(torch_chains.Chains, "_look", look)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(2):
            found = short.step_halving()
            assert found.word == "not mixed" and len(found.reasons) == 2 and short.verdict is found
            assert re.search(r"^half the step changes .* sd, which leaves it not mixed\.$", found.reasons[1])  # fmt: skip
        assert set(threads) == {1}
    finally:
        torch.set_num_threads(before)
    assert "sampling" in capsys.readouterr().err
    short.step_halving(progress=False)
    assert capsys.readouterr().err == ""


def test_half_the_step_halves_the_heat():
    """Of independent noise the heat of a momentum goes as sqrt(h): a quarter of h, half of it."""
    from sgld.torch.verdict import half_the_step

    x, y = digits_like(400)
    hot = st.sample(
        torch.nn.Linear(5, 3), F.cross_entropy, (x, y), prior_sd=1.0, step_size=0.004, batch_size=20,
        burn_in=100, num_draws=500, thin=2, progress=False,
    )  # fmt: skip
    change, failed = half_the_step(*hot._run)
    assert not failed and not change.agrees
    assert np.median(change.sd_ratio) > 1.05


@pytest.mark.parametrize(
    "heat, share",
    [({"b": 1.2}, 0.5), ({}, None), ({"noise": 3.0}, None), ({"failed": True}, 0.25)],
    ids=["too warm", "right", "not known", "failed"],
)
def test_the_step_is_halved_where_a_temperature_is_too_high_and_nowhere_else(heat, share):
    """A temperature that is not known within .03 is no reason: half the step would say as little."""
    from sgld.torch.verdict import smaller

    rng = np.random.default_rng(0)
    kinetic = 1 + heat.get("noise", 0.1) * rng.standard_normal((4, 200, 2))
    kinetic[..., 1] += heat.get("b", 1.0) - 1
    verdict = judge_predictions(Seen(
        "means", rng.normal(size=(4, 200, 3, 1)), kinetic, np.full((4, 200), 1 / 800),
        Layers(("a", "b"), (64, 64)), ("chain 1 ran away.",) if "failed" in heat else (),
    ))  # fmt: skip
    assert "temperature" in verdict.reasons[0] or not {"b", "noise"} & set(heat)
    chains = SimpleNamespace(motion=SimpleNamespace(h=0.08))
    assert smaller(chains, verdict) == (None if share is None else 0.08 * share)


def test_stages_that_diverge_are_taken_back_with_a_smaller_step(monkeypatch):
    """delta^2 lambda = 40, where 4 is stable, and then 10, and 2.5."""
    monkeypatch.setattr("sgld.inference.tuning.network_rules.STABLE_STIFFNESS", 40.0)
    model, data, mean, covariance = linear(100)
    ensemble = st.sample(
        model, squares, data, prior_sd=1.0, burn_in=100, num_draws=200, thin=4, progress=False
    )
    chains = ensemble._run[0]
    assert bool(torch.isfinite(chains.motion.root).all())
    assert (chains.record.failed_at < 0).all()
    draws = torch.stack([torch.cat([s["weight"][0], s["bias"]]) for s in ensemble.states]).numpy()
    assert (np.abs(draws.mean(0) - mean) < 0.5 * np.sqrt(np.diag(covariance))).all()


def test_a_run_whose_chains_fail_is_made_again_from_its_starts(monkeypatch):
    monkeypatch.setattr("sgld.inference.tuning.network_rules.MAX_RUN_SECONDS", 1.0)
    module = importlib.import_module("sgld.torch.sample")

    tuned = module.tuned
    # delta^2 lambda is about 10 then, where 4 is stable
    monkeypatch.setattr(module, "tuned", lambda *args: tuned(*args)._replace(h=10.0))
    model, data, *_ = linear(100)
    ensemble = st.sample(model, squares, data, prior_sd=1.0, progress=False)
    assert ensemble.verdict.word != "biased", ensemble.verdict
    assert 0.05 < ensemble.info["step_size"] <= 10 / 4


@pytest.mark.parametrize(
    "prior",
    [
        sgld.networks.normal_prior({"*weight": 1.4, "*": 0.5}, fan_in=True),
        sgld.networks.normal_prior({"*weight": 1.4, "*": 0.5}, fan_in=True, learnt=True),
        sgld.networks.laplace_prior(0.7),
        sgld.networks.student_t_prior({"*weight": 1.4, "*": 0.5}, degrees=3.0),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_priors_are_those_of_jax(prior):
    import jax

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()  # fmt: skip
    x = torch.randn(20, 3).double()
    target = target_of(model, squares, (x, x[:, 0]), prior)
    z = 2 * torch.randn(2, target.dimension, dtype=torch.float64)
    named = target.weights.named(z)
    batch = target.rows.first(20)
    with jax.enable_x64(True):
        density = lambda w: prior(w)  # noqa: E731
        for chain in range(2):
            position = {name: jax.numpy.asarray(value[chain].numpy()) for name, value in named.items()}  # fmt: skip
            slope = jax.grad(density)(position)
            wanted = np.concatenate([np.ravel(slope[name]) for name in named])
            np.testing.assert_allclose(-target.prior.slope(z)[chain], wanted, rtol=1e-10)
    again = type(target.prior).from_dict(target.prior.to_dict(), z)
    torch.testing.assert_close(again.slope(z), target.prior.slope(z), rtol=1e-6, atol=0)
    assert bool((target.prior.precision(z) > 0).all())
    root = torch.rand(target.dimension, dtype=torch.float64) + 0.5
    v = torch.randn(z.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    exact = target.curvature(z, batch, 1.0, root)(v)
    target.exact = False
    differences = target.curvature(z, batch, 1.0, root)(v)
    torch.testing.assert_close(differences, exact, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("rows", "alone"), [(300, True), (2**22, False)])
def test_a_step_of_little_work_takes_one_thread(rows, alone, monkeypatch):
    few_threads = importlib.import_module("sgld.torch.sample").few_threads
    model, data, *_ = linear()
    target = target_of(model, squares, data)
    monkeypatch.setattr(type(target.rows), "num_data", rows, raising=False)
    asked = Asked(
        chains=4, seed=0, max_seconds=None, tolerance=0.05, step_size=None, batch_size=None,
        num_draws=None, burn_in=None, thin=None,
    )  # fmt: skip
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with few_threads(target, asked):
            assert torch.get_num_threads() == (1 if alone else 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
