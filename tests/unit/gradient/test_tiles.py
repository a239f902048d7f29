"""A batch's likelihood one tile after the other is that of its rows at once."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.pytrees import Layout
from sgld.data.memory import InMemory
from sgld.model import sums
from sgld.model.problem import Problem, Target
from sgld.samplers.gradients.full import Estimate

WIDTH = 6  # five columns and an outcome
MODEL = sgld.Posterior(
    lambda b: -0.5 * jnp.sum(b**2), lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
)


def problem(num_data, batch_size, order="independent"):
    rng = np.random.default_rng(0)
    rows = (
        rng.normal(size=(num_data, 5)).astype(np.float32),
        rng.normal(size=num_data).astype(np.float32),
    )
    layout = Layout.of(np.zeros(5, np.float32))
    source = InMemory.build(rows, batch_size, order)
    return Problem(Target(MODEL, layout, layout.array(1.0)), source, layout.array(np.zeros(5)))


def both(monkeypatch, problem, gradient, numbers):
    """Gradients of every block at once and in tiles of at most so many numbers."""
    zs = jnp.asarray(np.random.default_rng(1).normal(size=(3, 5)), jnp.float32)
    blocks = jnp.arange(problem.num_blocks, dtype=jnp.int32)

    def every(zs):
        memory = gradient.start(problem, zs[0]) if gradient.remembers else None
        one = lambda z, k: gradient.at(problem, k, memory)(z)  # noqa: E731
        return jax.vmap(lambda k: jax.vmap(one, (0, None))(zs, k))(blocks)

    assert sums.in_tiles(problem, blocks[0]) is None
    whole = every(zs)
    monkeypatch.setattr(sums, "MAX_TILE_NUMBERS", numbers)
    assert sums.in_tiles(problem, blocks[0]) is not None
    return whole, every(zs)


@pytest.mark.parametrize("num_data, batch_size", [(96, 48), (97, 48), (101, 34), (90, 41)])
@pytest.mark.parametrize("numbers", [12, 36, 42])
def test_tiles_add_up_to_the_block(monkeypatch, num_data, batch_size, numbers):
    of = problem(num_data, batch_size)
    whole, tiled = both(monkeypatch, of, sgld.Minibatch(), numbers)
    np.testing.assert_allclose(tiled, whole, rtol=1e-4, atol=1e-3)


def test_estimators_that_are_centred_go_by_tiles_too(monkeypatch):
    of = problem(97, 48)
    for gradient in (
        sgld.ControlVariates().prepare(of, of.array(np.ones(5))),
        sgld.SVRG().prepare(of, of.array(np.ones(5))),
    ):
        monkeypatch.undo()
        whole, tiled = both(monkeypatch, of, gradient, 60)
        np.testing.assert_allclose(tiled, whole, rtol=1e-4, atol=1e-3)


def test_rows_in_double_precision_and_positions_in_single(monkeypatch):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        of = problem(97, 48)
        double = jax.tree.map(lambda leaf: leaf.astype(np.float64), of.source.rows)
        of = replace(of, data=replace(of.source, rows=double))
        whole, tiled = both(monkeypatch, of, sgld.Minibatch(), 60)
    np.testing.assert_allclose(tiled, whole, rtol=1e-4, atol=1e-3)


def test_no_array_of_a_whole_block_is_made(monkeypatch):
    of = problem(96, 48)
    monkeypatch.setattr(sums, "MAX_TILE_NUMBERS", 60)
    gradient = sgld.Minibatch()
    compiled = jax.jit(lambda k, z: gradient.at(of, k)(z)).lower(jnp.int32(0), of.start).compile()
    assert "f32[48,5]" not in compiled.as_text()
    assert "while" in compiled.as_text()


def test_much_work_a_number_and_orders_of_rows_are_whole():
    assert sums.in_tiles(problem(10**6, 10**5), jnp.int32(0)) is not None
    assert sums.in_tiles(problem(10**6, 10**4), jnp.int32(0)) is None
    of = problem(10**6, 10**5, "subset")
    assert sums.in_tiles(of, jnp.zeros(10**5, jnp.int32)) is None
    wide = Layout.of(np.zeros(2 * WIDTH + 1, np.float32))
    target = Target(MODEL, wide, wide.array(1.0))
    of = Problem(target, problem(10**6, 10**5).data)
    assert sums.in_tiles(of, jnp.int32(0)) is None


def test_a_known_gradient_is_not_taken_again():
    seen = []

    def density(z):
        seen.append(z)
        return -0.5 * jnp.sum(z**2)

    z = jnp.ones(3)
    estimate = Estimate(density).knowing(z)
    np.testing.assert_array_equal(estimate(z), -z)
    assert len(seen) == 1
    np.testing.assert_array_equal(estimate(z + 1), -z - 1)
    assert len(seen) == 2
