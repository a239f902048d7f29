"""Two looks more at a run that would be trusted: gradients along lines, rows that no probe row stands for."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.diagnostics.hidden_mass import MAX_GRADIENT_MISFIT
from sgld.inference.function_space import misses_of_gradients, other_rows
from sgld.model.prepare import prepare

RNG = np.random.default_rng(0)
MANY = 10**6
X = RNG.uniform(-2, 2, (300, 2)).astype(np.float32)
Y = np.round(2 * X[:, 0]).astype(np.float32)


def network(outputs="scalar", activation=jnp.tanh, depth=1):
    return eqx.nn.MLP(2, outputs, 8, depth, activation=activation, key=jax.random.key(0))


def problem_of(log_likelihood, net, rows=300):
    posterior = sgld.Posterior(sgld.networks.normal_prior(1.0), log_likelihood)
    x, y = (np.resize(values, (rows, *values.shape[1:])) for values in (X, Y))
    return prepare(posterior, (x, y), net)


def misses(log_likelihood, net, rows=300, apart=0.5, seed=0, **until):
    problem = problem_of(log_likelihood, net, rows)
    z = apart * np.random.default_rng(seed).normal(size=(10, 4, problem.dimension))
    return misses_of_gradients(problem, z, **until)


def squares(net, row):
    return -0.5 * ((row[1] - net(row[0])) / 0.3) ** 2


def with_a_sharp_kink(net, row):
    return -0.5 * ((row[1] - jnp.sqrt(net(row[0]) ** 2 + 1e-6)) / 0.3) ** 2


def wrong_labels(net, row):
    return jnp.where(jnp.sign(net(row[0])) == jnp.sign(row[1]), 0.0, -2.0)


def rounded(net, row):
    return -0.5 * (row[1] - jnp.round(net(row[0]))) ** 2


def beta_nll(net, row):
    mean, s = net(row[0])
    return -jax.lax.stop_gradient(jnp.exp(s)) ** 0.5 * (0.5 * (row[1] - mean) ** 2 * jnp.exp(-s) + 0.5 * s)  # fmt: skip


@pytest.mark.parametrize(("log_likelihood", "net", "rows"), [
    (squares, network(), 300), (squares, network(activation=jax.nn.relu, depth=3), 300),
    (squares, network(), 30_000), (with_a_sharp_kink, network(), 300),
])  # fmt: skip
def test_gradients_of_networks_belong_to_their_densities(log_likelihood, net, rows):
    # of relu the kinks of seed 5 vanish slowly
    for seed, apart in enumerate((0.05, 0.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0)):
        assert misses(log_likelihood, net, rows, apart, seed) <= MAX_GRADIENT_MISFIT


@pytest.mark.parametrize(("log_likelihood", "net"), [
    (wrong_labels, network()), (rounded, network()), (beta_nll, network(2)),
])  # fmt: skip
def test_gradients_of_another_function_are_found(log_likelihood, net):
    for apart in (0.5, 2.0):
        assert misses(log_likelihood, net, apart=apart) > MAX_GRADIENT_MISFIT


def test_there_is_an_end_of_it_when_the_time_is_up():
    assert np.isnan(misses(rounded, network(), until=time.monotonic()))
    assert misses(squares, network(), until=time.monotonic() + 600) <= MAX_GRADIENT_MISFIT


def in_half_precision(net, row):
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_array(leaf) else leaf, net)
    return -0.5 * ((row[1] - half(row[0].astype(jnp.bfloat16)).astype(jnp.float32)) / 0.1) ** 2


def test_the_rounding_of_half_precision_is_not_taken_for_a_jump():
    assert misses(in_half_precision, network()) is None


def test_a_run_by_another_functions_gradients_is_not_trusted():
    """Its chains agree, each at temperature 1: it has drawn from the prior."""
    posterior = sgld.Posterior(sgld.networks.normal_prior(1.0), wrong_labels)
    ask = {"burn_in": 200, "thin": 5, "num_draws": 1000, "step_size": 0.04, "sampler": sgld.BAOA()}
    draws = sgld.sample(posterior, (X, Y), network(), **ask, progress=False)
    assert draws.verdict.word == "biased"
    assert "not that of the log density" in draws.verdict.reasons[0]
    assert draws.verdict.extra["predictions"]["gradient_misses"] > MAX_GRADIENT_MISFIT


class Two(eqx.Module):
    """Rows with a third input above 0 are another network's."""

    one: eqx.nn.MLP
    other: eqx.nn.MLP

    def __call__(self, x):
        return jnp.where(x[2] > 0, self.other(x[:2]), self.one(x[:2]))


def test_a_few_rows_without_a_probe_row_in_which_chains_stand_apart_are_seen():
    net = Two(network(), network())
    x = np.concatenate([X, np.zeros((300, 1), np.float32)], axis=1)
    problem = prepare(sgld.Posterior(sgld.networks.normal_prior(1.0), squares), (x, Y), net)
    order = np.asarray(problem.source.take(jnp.arange(300))[0])
    rare = (order[100:103, None] == x).all(axis=2).any(axis=0)  # none of the first 64
    x[rare, 2] = 1
    problem = prepare(sgld.Posterior(sgld.networks.normal_prior(1.0), squares), (x, Y), net)
    z = 0.1 * RNG.normal(size=(50, 4, problem.dimension))
    even = np.full((4, 50), 1 / 200)
    found = other_rows(problem, z, MANY)
    assert len(found.rows) == 300 - 64
    assert found.r_hat(even) < 1.2
    sizes = [leaf.size for leaf in jax.tree.leaves(eqx.filter(net.one, eqx.is_array))]
    there = z[:6, 0].copy()
    assert found.unlike(there) == 0
    there[:3, sum(sizes) :] -= 3.0  # of the other network alone
    assert found.unlike(there) == 3
    z[:, 1, sum(sizes) :] += 2.0
    assert other_rows(problem, z, MANY).r_hat(even) > 1.2


def test_rows_are_not_looked_at_where_the_user_named_them():
    posterior = sgld.Posterior(
        sgld.networks.normal_prior(1.0), squares, predict=lambda n, row: n(row[0]), predict_at=(X[:5], Y[:5])
    )  # fmt: skip
    problem = prepare(posterior, (X, Y), network())
    assert other_rows(problem, RNG.normal(size=(50, 4, problem.dimension)), MANY) is None
