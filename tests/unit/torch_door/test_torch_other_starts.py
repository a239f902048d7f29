"""Chains of a module from other starts: what they predict, and the mass where they are."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

torch.set_num_threads(1)

import sgld.torch as st  # noqa: E402
from sgld.inference.tuning import network_rules as rule  # noqa: E402
from sgld.networks import laplace_prior, normal_prior, student_t_prior  # noqa: E402
from sgld.torch import verdict  # noqa: E402
from sgld.torch import verdict as others  # noqa: E402
from sgld.torch.target import (  # noqa: E402
    Weights,
    prior_of,
)
from sgld.torch.tuning import starts  # noqa: E402

X = np.random.default_rng(6).uniform(-2, 2, (24, 1)).astype(np.float32)
Y = np.where(np.arange(24) < 12, X[:, 0], -X[:, 0]).astype(np.float32)


def two_lines(outputs, target):
    """Rows on one line and on another."""
    return 1.5 * torch.log1p(((target - outputs[:, 0]) / 0.1) ** 2 / 2)


def test_a_run_near_one_of_two_functions_is_unlike_others(monkeypatch):
    monkeypatch.setattr(rule, "STRETCH_STEPS", 20)
    monkeypatch.setattr(rule, "STAGE_STEPS", 40)
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    ensemble = st.sample(
        model, two_lines, (X, Y), prior_sd=2.0, chains=1, num_draws=40, thin=2, burn_in=20,
        progress=False,
    )  # fmt: skip
    chains, asked = ensemble._run
    run = verdict.seen(chains, asked)
    found = others.from_other_starts(chains, asked, math.inf, run)
    assert found is not None and found.tried >= rule.MIN_OTHER_STARTS
    assert 0 < found.unlike(run.kind, run.predicted) < found.tried


def test_of_three_starts_one_is_of_the_prior_and_one_on_the_other_side_of_0():
    model = torch.nn.Linear(200, 1)
    with torch.no_grad():
        model.weight.fill_(3.0)
    weights = Weights.of(model)
    target = SimpleNamespace(
        weights=weights, start=weights.flat(model), prior=prior_of(normal_prior(0.5), None, None, weights)
    )  # fmt: skip
    asked = SimpleNamespace(chains=6, seed=0)
    near, found = (starts(target, asked, elsewhere)[:, :200] for elsewhere in (False, True))
    assert (found[::3] == near[::3]).all() and (found[2::3] == -near[2::3]).all()
    assert abs(float(found[1].mean())) < 0.15
    assert float(found[1].std()) == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize("prior", [
    normal_prior(0.7), normal_prior(0.7, learnt=True), laplace_prior(0.7), student_t_prior(0.7),
])  # fmt: skip
def test_the_density_of_a_prior_has_its_slope(prior):
    model = torch.nn.Linear(3, 2).double()
    found = prior_of(prior, None, None, Weights.of(model))
    z = torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z.requires_grad_(True)
    (slope,) = torch.autograd.grad(found.log_density(z).sum(), z)
    torch.testing.assert_close(-slope, found.slope(z.detach()))
