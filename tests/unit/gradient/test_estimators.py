"""Sums over pieces, the table of control variates, and a constrained multi-leaf position."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.pytrees import Layout
from sgld.data.memory import InMemory
from sgld.errors import UsageError
from sgld.model import sums
from sgld.model.problem import Problem, Target

ROWS = np.random.default_rng(0).normal(size=(101, 2)).astype(np.float32)
POSTERIOR = sgld.Posterior(
    lambda t: -0.5 * jnp.sum(t["b"] ** 2) - t["a"] ** 4,
    lambda t, x: -jnp.logaddexp(0.0, jnp.dot(x, t["b"]) + t["a"]) - 0.1 * jnp.sum(x) * t["a"],
)
POSITION = {"a": jnp.float32(0.4), "b": jnp.array([0.3, -1.0])}
TARGET = Target(POSTERIOR, Layout.of(POSITION))
Z = TARGET.layout.ravel(POSITION)


def density(z):
    return TARGET.log_prior(z) + TARGET.log_likelihood(z, jnp.asarray(ROWS))


@pytest.mark.parametrize("piece", [sums.MAX_PIECE_NUMBERS, 40])
def test_sums_in_pieces_equal_the_whole(piece, monkeypatch):
    monkeypatch.setattr(sums, "MAX_PIECE_NUMBERS", piece)
    # compiled afresh: MAX_PIECE_NUMBERS is read while tracing
    run = lambda f, *args: jax.jit(lambda *a: f.__wrapped__(*a))(*args)  # noqa: E731
    source = InMemory.build(ROWS, 101, "reshuffle")
    value, gradient = run(sums.value_and_gradient, Problem(TARGET, source), Z)
    np.testing.assert_allclose(value, density(Z), rtol=1e-5)
    np.testing.assert_allclose(gradient, jax.grad(density)(Z), rtol=1e-4)
    curvature = run(sums.curvature, Problem(TARGET, source), Z)
    np.testing.assert_allclose(curvature, -jax.hessian(density)(Z), rtol=1e-4, atol=1e-4)
    zs = jnp.stack([Z, 2 * Z])
    each = jax.vmap(jax.grad(density))(zs)
    np.testing.assert_allclose(
        run(sums._gradients, Problem(TARGET, source), zs), each, rtol=1e-4, atol=1e-4
    )


def test_block_gradients_add_up():
    source = InMemory.build(ROWS, 7, "reshuffle")
    table = sums.block_gradients(Problem(TARGET, source), Z)
    assert table.shape == (source.num_blocks, 3)
    np.testing.assert_allclose(
        table.sum(0), sums.likelihood_gradient(Problem(TARGET, source), Z), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("order", ["reshuffle", "subset"])
def test_control_variates_are_exact_at_their_centre(order):
    source = InMemory.build(ROWS, 7, order)
    gradient = sgld.ControlVariates(POSITION).prepare(Problem(TARGET, source), None)
    for x in source.chunk((0, 0), 0, 5):
        found = gradient.at(Problem(TARGET, source), jnp.asarray(x))(Z)
        np.testing.assert_allclose(found, jax.grad(density)(Z), rtol=1e-3, atol=1e-3)


def test_control_variates_need_data():
    with pytest.raises(UsageError, match="needs data"):
        sgld.ControlVariates().prepare(Problem(TARGET), Z)


def test_finite_differences():
    for i in range(3):
        e = 1e-2 * jnp.eye(3)[i]
        slope = (density(Z + e) - density(Z - e)) / 2e-2
        assert float(slope) == pytest.approx(float(jax.grad(density)(Z)[i]), rel=2e-2, abs=2e-2)
