"""JAX and PyTorch implement one interface: metric, curvature and step size agree at the same positions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.inference.tuning import network_rules as rule
from sgld.inference.tuning.network import JaxBackend
from sgld.inference.tuning.network_backend import log_masses, lost_chains
from sgld.model.prepare import prepare
from sgld.model.problem import Request

torch = pytest.importorskip("torch")

from torch_parts import F  # noqa: E402

from sgld.torch.likelihood import checked  # noqa: E402
from sgld.torch.rows import read_rows  # noqa: E402
from sgld.torch.target import Target, Weights, prior_of  # noqa: E402
from sgld.torch.tuning import Asked, TorchBackend  # noqa: E402

RNG = np.random.default_rng(0)
# inputs of one sign: the largest curvature is far above the next, so that few iterations find it
X = RNG.normal(1.5, 1.0, (400, 5)).astype(np.float32)
Y = (X[:, :3] + RNG.gumbel(size=(400, 3))).argmax(1)
NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")  # in the order of the module
ASK = Request("auto", "auto", 0.05, 1.0, *["auto"] * 8, 0)


def logits(w, x):
    return w["2.weight"] @ jnp.tanh(w["0.weight"] @ x + w["0.bias"]) + w["2.bias"]


@pytest.fixture(scope="module")
def engines():
    """Both backends, positions [chain, d] in the order of JAX, and that order in the module's."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    weights = Weights.of(model)
    rows = read_rows((torch.tensor(X), torch.tensor(Y)), weights.device, 0)
    law = prior_of(None, 1.0, None, weights)
    target = Target(checked(model, F.cross_entropy, rows), rows, weights, law)
    asked = Asked(4, 0, 0.05, None, None, None, None, None, None)
    posterior = sgld.Posterior(
        sgld.networks.normal_prior(1.0),
        lambda w, row: jax.nn.log_softmax(logits(w, row[0]))[row[1]],
        predict=lambda w, row: logits(w, row[0]),
    )
    init = {name: jnp.asarray(p.detach().numpy()) for name, p in model.named_parameters()}
    problem = prepare(posterior, (X, Y.astype(np.int32)), init, seed=0).as_one_batch()
    jax_backend = JaxBackend(problem, replace(ASK, num_chains=4), sgld.BAOA(), sgld.Full(), 1.0)
    sizes = [init[name].size for name in NAMES]
    parts = dict(zip(NAMES, np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]), strict=True))
    order = np.concatenate([parts[name] for name in sorted(NAMES)])
    z = 0.3 * np.random.default_rng(1).normal(size=(4, sum(sizes))).astype(np.float32)
    return jax_backend, TorchBackend(target, asked, None), z, order


def test_metric_and_step_size_are_the_same(engines):
    one, other, z, order = engines
    z = np.repeat(z[:1], 4, axis=0)  # each chain sees other rows, and all of them together see all
    D, V, curvature = one.measured(jnp.asarray(z[:, order]))
    root, other_V, other_curvature = other.measured(torch.tensor(z))
    np.testing.assert_allclose(np.asarray(D.array), root.numpy()[order] ** 2, rtol=1e-5)
    assert V == other_V == 0
    steps = [rule.largest_step(V, value, 0.05, 1.0) for value in (curvature, other_curvature)]
    assert steps[0] == pytest.approx(steps[1], rel=0.01)


def test_densities_up_to_a_constant_and_masses_are_the_same(engines):
    one, other, z, order = engines
    near, far = z, 30 * z
    for backend, of in ((one, lambda z: jnp.asarray(z[:, order])), (other, torch.tensor)):
        assert lost_chains(backend, of(near), of(far)).all()
        assert not lost_chains(backend, of(far), of(near)).any()
    masses = log_masses(one, jnp.asarray(z[:, order])), log_masses(other, torch.tensor(z))
    np.testing.assert_allclose(*(values - values[0] for values in masses), atol=1e-2)
