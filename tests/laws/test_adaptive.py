"""Metrics and estimators that learn along the run: every step by hand, and the law that Gamma keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.pytrees import Layout
from sgld.data.memory import InMemory
from sgld.inference import chunk
from sgld.model.problem import Problem, Target

N = 10
ROWS = np.random.default_rng(2).normal(size=(N, 2)).astype(np.float32)
START = np.array([0.4, -0.3], np.float32)
POSTERIOR = sgld.Posterior(
    lambda t: -0.5 * jnp.sum(t**2), lambda t, x: jnp.dot(x, t) - jnp.exp(jnp.dot(x, t))
)


def likelihood(q, rows):
    """Gradients of the rows' log likelihoods."""
    return rows * (1 - np.exp(rows @ q))[:, None]


def noise(chain, steps):
    """A run's normals, for seed 0."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 0), chain)
    shape = (chunk.block_steps(2), 2)
    return np.asarray(jax.random.normal(jax.random.fold_in(key, 0), shape), np.float64)[:steps]


def run(h, steps, **kwargs):
    return sgld.sample(
        POSTERIOR, ROWS, START, step_size=h, num_chains=2, num_draws=steps, thin=1,
        progress=False, **{"burn_in": 0, **kwargs},
    )  # fmt: skip


# -- metrics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("T", [0.5, 4.0])
@pytest.mark.parametrize("freeze", [True, False], ids=["frozen", "adapting"])
@pytest.mark.parametrize("gamma", [True, False], ids=["gamma", "no gamma"])
def test_every_step_by_hand_with_rmsprop(gamma, freeze, T):
    """theta' = theta + h (D grad + T Gamma) + sqrt(2 h T D) xi, D frozen with the burn-in."""
    a, epsilon, h, burn_in, steps = 0.8, 0.3, 0.02, 12, 30
    metric = sgld.RMSprop(a, epsilon, gamma=gamma, freeze=freeze)
    draws = run(
        h, steps, gradient=sgld.Full(), preconditioner=metric, temperature=T, burn_in=burn_in
    )
    for chain in range(2):
        q, v, count, path = START.astype(np.float64), np.zeros(2), 0, []
        for k, xi in enumerate(noise(chain, burn_in + steps)):
            path.append(q)
            e = np.exp(ROWS.astype(float) @ q)
            g = -q + likelihood(q, ROWS.astype(float)).sum(0)
            Gamma = np.zeros(2)
            if k < burn_in or not freeze:
                v, count = a * v + (1 - a) * (g / N) ** 2, count + 1
                root, share = np.sqrt(v / (1 - a**count)), 1 - a**count
                slope = (-1 - (ROWS.astype(float) ** 2 * e[:, None]).sum(0)) / N
                Gamma = -(1 - a) * (g / N) * slope / share / root / (epsilon + root) ** 2
            D = 1 / (epsilon + np.sqrt(v / (1 - a**count)))
            q = q + h * (D * g + gamma * T * Gamma) + np.sqrt(2 * h * T * D) * xi
        np.testing.assert_allclose(draws.position[chain], path[burn_in:], rtol=2e-3, atol=2e-3)


def test_the_accumulators_after_known_gradients():
    layout, gradients = Layout.of(jnp.zeros(3)), np.array([[1.0, -2.0, 0.0], [3.0, 0.5, 0.0]])
    a, epsilon = 0.9, 1e-3
    exact = {
        "RMSprop": ((1 - a) * (a * gradients[0] ** 2 + gradients[1] ** 2) / (1 - a**2)),
        "AdaGrad": gradients[0] ** 2 + gradients[1] ** 2,
    }
    for metric in (sgld.RMSprop(a, epsilon), sgld.AdaGrad(epsilon)):
        metric = metric.prepare(layout)
        memory = metric.start(jnp.zeros(3))
        np.testing.assert_array_equal(metric.at(memory).array, metric.at(memory).array[0])
        for g in gradients:
            memory = metric.after(memory, jnp.asarray(g, jnp.float32))
        v = exact[type(metric).__name__]
        v[2] = v[:2].mean()  # no gradient seen: the others' mean, not the noise of 1 / epsilon
        found = metric.at(memory).array
        np.testing.assert_allclose(found, 1 / (epsilon + np.sqrt(v)), rtol=1e-5)


def variance(gamma, T, h=0.02, n=1200, width=18.0):
    """Of the stationary law of one coordinate in D = 1 / (1 + |grad|), by its transition matrix."""
    layout = Layout.of(jnp.zeros(1))
    target = Target(sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2)), layout)
    metric = sgld.RMSprop(0.0, 1.0, gamma=gamma, freeze=False).prepare(layout)
    kernel = chunk.Kernel(
        Problem(target), sgld.Full(), metric, sgld.SGLD(None), None, None, None, jnp.int32(0),
        jnp.int32(1), False,
    )  # fmt: skip
    grid = np.linspace(-width, width, n)  # an even number: the kink at 0 lies between two
    carry = chunk.start(kernel, jnp.asarray(grid[:, None], jnp.float32))
    moving, xs = (carry.state, carry.gradient, carry.metric), None
    to = []
    for xi in (0.0, 1.0):
        inputs = (xs, jnp.float32(h), jnp.float32(T), jnp.full((n, 1), xi), jnp.int32(0))
        to.append(np.asarray(chunk._step(kernel, moving, inputs)[0][0].position[:, 0], float))
    mean, sd = to[0], to[1] - to[0]
    moves = np.exp(-0.5 * ((grid[None] - mean[:, None]) / sd[:, None]) ** 2)
    moves /= moves.sum(1, keepdims=True)
    for _ in range(12):  # 4096 steps
        moves = moves @ moves
    law = moves[n // 2]
    return float(law @ grid**2 / law.sum())


def test_gamma_keeps_the_law_where_the_metric_depends_on_the_position():
    """T = 4 on N(0, 1). Without Gamma 6.4, with Gamma but not T 5.8: wrong laws, not wide ones."""
    assert variance(True, 4.0) == pytest.approx(4.0, rel=0.02)
    assert variance(True, 1.0) == pytest.approx(1.0, rel=0.02)
    assert variance(False, 4.0) == pytest.approx(6.4, abs=0.2)


# -- estimators ------------------------------------------------------------------------------

ESTIMATORS = [
    (sgld.SVRG(period=3), "subset"),
    (sgld.SVRG(), "reshuffle"),
    (sgld.SAGA(), "replacement"),
    (sgld.SAGA(features=lambda x: x), "reshuffle"),
]


@pytest.mark.parametrize(("gradient", "order"), ESTIMATORS, ids=lambda value: str(value)[:14])
def test_every_step_by_hand_with_an_estimator_that_learns(gradient, order):
    h, n, steps = 0.02, 4, 40
    draws = run(h, steps, gradient=gradient, order=order, batch_size=n)
    source = InMemory.build(ROWS, n, order, 0)
    rows = np.asarray(source.take(np.arange(source.num_data)), np.float64)
    for chain in range(2):
        entries = source.chunk((0, chain), 0, steps)
        q, path = START.astype(np.float64), []
        center, table = q, likelihood(q, rows)
        for k, xi in enumerate(noise(chain, steps)):
            path.append(q)
            batch, scale = entries[k], N / n
            if order == "reshuffle":
                batch = np.asarray(np.array_split(np.arange(N), source.num_blocks)[batch])
                scale = source.num_blocks
            known = likelihood(center, rows) if isinstance(gradient, sgld.SVRG) else table
            fresh = likelihood(q, rows)
            g = -q + known.sum(0) + scale * (fresh[batch] - known[batch]).sum(0)
            table = table.copy()
            table[batch] = fresh[batch]
            if (k + 1) % (getattr(gradient, "period", None) or source.num_blocks) == 0:
                center = q
            q = q + h * g + np.sqrt(2 * h) * xi
        np.testing.assert_allclose(draws.position[chain], path, rtol=1e-3, atol=1e-3)
