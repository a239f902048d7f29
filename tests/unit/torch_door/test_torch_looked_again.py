"""A module's gradients along lines between draws, and rows that no probe row stands for."""

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch_parts import squares  # noqa: E402

import sgld.torch as st  # noqa: E402
from sgld.diagnostics.hidden_mass import MAX_GRADIENT_MISFIT  # noqa: E402
from sgld.torch.likelihood import checked  # noqa: E402
from sgld.torch.network import floating  # noqa: E402
from sgld.torch.rows import read_rows  # noqa: E402
from sgld.torch.target import (  # noqa: E402
    Target,
    Weights,
    prior_of,
)
from sgld.torch.verdict import misses_of_gradients, other_rows  # noqa: E402

RNG = np.random.default_rng(0)
MANY = 10**6
X = torch.from_numpy(RNG.uniform(-2, 2, (200, 2)).astype(np.float32))
Y = torch.round(2 * X[:, 0])


def network(outputs=1, unit=torch.nn.Tanh):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 6), unit(), torch.nn.Linear(6, outputs))


def of(loss, model, x=X):
    weights = Weights.of(model)
    rows = read_rows((x, Y), torch.device("cpu"), 0, floating(model))
    return Target(checked(model, loss, rows), rows, weights, prior_of(None, 1.0, None, weights))


def rounded(outputs, target):
    return 0.5 * (target - torch.round(outputs[:, 0])) ** 2


def beta_nll(outputs, target):
    mean, s = outputs.T
    return s.exp().detach() ** 0.5 * 0.5 * ((target - mean) ** 2 * torch.exp(-s) + s)


@pytest.mark.parametrize(("loss", "model", "belongs"), [
    (squares, network(), True), (squares, network(unit=torch.nn.ReLU), True),
    (rounded, network(), False), (beta_nll, network(2), False),
])  # fmt: skip
def test_gradients_that_are_another_functions_are_found(loss, model, belongs):
    target = of(loss, model)
    z = 0.5 * RNG.normal(size=(4, 10, target.dimension)).astype(np.float32)
    assert (misses_of_gradients(target, z) <= MAX_GRADIENT_MISFIT) == belongs


def test_there_is_an_end_of_it_when_the_time_is_up():
    target = of(rounded, network())
    z = 0.5 * RNG.normal(size=(4, 10, target.dimension)).astype(np.float32)
    assert np.isnan(misses_of_gradients(target, z, time.monotonic()))


class Cast(torch.nn.Module):
    """Float32 weights, computed with in half precision."""

    def __init__(self):
        super().__init__()
        self.inside = network()

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.inside(x)


@pytest.mark.parametrize("model", [network().to(torch.bfloat16), Cast()])
def test_the_rounding_of_half_precision_is_not_taken_for_a_jump(model):
    sharp = lambda outputs, target: squares(outputs.float(), target) / 0.01  # noqa: E731
    target = of(sharp, model)
    z = 0.5 * RNG.normal(size=(4, 10, target.dimension)).astype(np.float32)
    assert misses_of_gradients(target, z) is None


def test_a_run_by_another_functions_gradients_is_not_trusted():
    ensemble = st.sample(
        network(), rounded, (X, Y), prior_sd=1.0, num_draws=600, thin=5, burn_in=100, step_size=0.04,
        progress=False,
    )  # fmt: skip
    assert ensemble.verdict.word == "biased"
    assert "not that of the log density" in ensemble.verdict.reasons[0]


class Two(torch.nn.Module):
    """Rows with a second input above 2 are another network's."""

    def __init__(self):
        super().__init__()
        self.one, self.other = network(), network()

    def forward(self, x):
        return torch.where(x[:, 1:] > 2, self.other(x), self.one(x))


def test_a_few_rows_in_which_chains_stand_apart_are_seen():
    order = read_rows((X, Y), torch.device("cpu"), 0).order
    x = X.clone()
    x[order[100:103], 1] = 2.5  # none of the first 64
    target = of(squares, Two(), x)
    z = 0.1 * RNG.normal(size=(4, 50, target.dimension)).astype(np.float32)
    half, even = target.dimension // 2, np.full((4, 50), 1 / 200)
    probe = target.rows.first(64).inputs
    found = other_rows(target, probe, z, MANY)
    assert len(found.rows) == 200 - 64
    assert found.r_hat(even) < 1.2
    there = z[0, :6].copy()
    there[:3, half:] -= 3.0
    assert found.unlike(there) == 3
    z[1, :, half:] += 2.0
    assert other_rows(target, probe, z, MANY).r_hat(even) > 1.2
    assert other_rows(target, (x[:64] + 1,), z, MANY) is None  # probe rows of the user's own
