"""Priors with heavy tails and learnt scales in the PyTorch door: metric, where optimisers end, a run."""

import math

import numpy as np
import pytest

import sgld

torch = pytest.importorskip("torch")

from torch_parts import F  # noqa: E402

import sgld.torch as st  # noqa: E402
from sgld.inference.tuning.network_backend import information  # noqa: E402
from sgld.torch.likelihood import checked  # noqa: E402
from sgld.torch.rows import read_rows  # noqa: E402
from sgld.torch.target import (  # noqa: E402
    Target,
    Weights,
    prior_of,
)
from sgld.torch.tuning import Asked, TorchBackend, _optimised, starts  # noqa: E402
from sgld.torch.verdict import _failures  # noqa: E402

LEARNT = sgld.networks.normal_prior({"*weight": 1.4, "*": 1.0}, fan_in=True, learnt=True)
NORMAL = sgld.networks.normal_prior({"*weight": 1.4, "*": 1.0}, fan_in=True)
CAUCHY = sgld.networks.student_t_prior({"*weight": 1.4, "*": 1.0}, fan_in=True, degrees=1.0)
ASKED = Asked(2, 0, 0.05, None, None, None, None, None, None)


def digits(num_data):
    """Of 0 to 3, between 0 and 1."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return (x[y < 4] / 16).astype(np.float32)[:num_data], y[y < 4][:num_data]


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))


def target_of(prior):
    model = network()
    weights = Weights.of(model)
    rows = read_rows(digits(60), weights.device, 0)
    law = prior_of(prior, None, None, weights)
    return Target(checked(model, F.cross_entropy, rows), rows, weights, law)


@pytest.mark.parametrize("far", [1.0, 1e2, 1e6])
@pytest.mark.parametrize("prior", [LEARNT, CAUCHY], ids=lambda prior: type(prior).__name__)
def test_the_metric_is_of_the_order_of_the_prior_however_far_out_the_chains_are(prior, far):
    """Where they were far D was wider, without end, and its steps took them further."""
    target = target_of(prior)
    xi = np.random.default_rng(0).standard_normal((2, target.dimension)).astype(np.float32)
    z = far * target.prior.scale * torch.from_numpy(xi)
    found = information(TorchBackend(target, ASKED, None), z) ** -0.5
    assert (found <= 1.001 * target.prior.scale.numpy()).all()


def test_optimisers_climb_with_the_scales_as_they_are_held_to_be():
    """Integrated out, they make a peak at 0, where a network predicts the same of all rows."""
    ends = []
    for prior in (LEARNT, NORMAL):
        target = target_of(prior)
        ends.append(
            _optimised(target, ASKED, 60, math.inf, starts(target_of(NORMAL), ASKED, False))
        )
    torch.testing.assert_close(*ends, rtol=0, atol=0)


def test_a_run_with_learnt_scales_stays_where_the_data_are_predicted():
    """By NUTS: first biases .6 of their scale on average, their 95% quantile 1.3; log likelihoods of all rows near -3.

    Chains were at a million scales, or were said to run away.
    """
    x, y = digits(300)
    ensemble = st.sample(
        network(), F.cross_entropy, (x, y), prior=LEARNT, chains=2, burn_in=600, num_draws=100, thin=4,
        progress=False,
    )  # fmt: skip
    assert ensemble.draws_of("0.bias").square().mean().sqrt() < 12
    right = ensemble.predict_proba(torch.tensor(x))[np.arange(len(y)), y].log()
    assert right.sum() > -20


def test_a_step_that_nobody_gave_is_not_to_be_made_smaller_by_hand():
    given = Asked(2, 0, 0.05, None, 0.1, None, None, None, None)
    for asked, what in (
        (ASKED, "use a smaller tolerance."),
        (given, "use a smaller step_size, or"),
    ):
        (said,) = _failures(np.array([-1, 7]), asked)
        assert said.startswith("chain 1 ran away") and what in said
