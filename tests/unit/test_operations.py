"""Operations counted in a jaxpr: what is counted, and that the constants are of the right size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.model import cost
from sgld.model.cost import Cost, cost_of, gradient_cost, row_cost
from sgld.model.prepare import prepare

VECTOR, MATRIX = jax.ShapeDtypeStruct((100,), "float32"), jax.ShapeDtypeStruct((50, 50), "float32")


def test_products_count_their_multiplications():
    assert cost_of(jnp.matmul, MATRIX, MATRIX).each == pytest.approx(50**3 * cost.PRODUCT_SECONDS)
    assert cost_of(jnp.dot, VECTOR, VECTOR).each == pytest.approx(100 * cost.PRODUCT_SECONDS)


def test_convolutions_and_pooling_count_their_windows():
    image, kernel = (
        jax.ShapeDtypeStruct((1, 3, 8, 8), "float32"),
        jax.ShapeDtypeStruct((5, 3, 3, 3), "float32"),
    )
    convolved = lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")  # noqa: E731
    made, each = 5 * 8 * 8, 3 * 3 * 3
    assert cost_of(convolved, image, kernel).each == pytest.approx(
        made * each * cost.CONVOLUTION_SECONDS
    )
    window = (1, 1, 2, 2)
    pooled = lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")  # noqa: E731
    there = 3 * 4 * 4 * 4 * cost.WINDOW_SECONDS
    assert cost_of(pooled, image).each == pytest.approx(there)
    back = cost_of(jax.grad(lambda x: jnp.sum(pooled(x))), image).each - there
    assert back == pytest.approx(3 * 4 * 4 * 4 * cost.WINDOW_MAX_SECONDS, rel=0.01)


def test_factors_count_as_cubes_and_solutions_by_their_columns():
    cubes = {"cholesky": jnp.linalg.cholesky, "eigh": lambda A: jnp.linalg.eigh(A)[1]}
    for name, function in cubes.items():
        more = cost_of(function, MATRIX).each - 50**3 * cost.FACTORISATION_SECONDS[name]
        assert 0 < more < 5e-6, name
    solve = lambda L, b: jax.scipy.linalg.solve_triangular(L, b, lower=True)  # noqa: E731
    one, many = cost_of(solve, MATRIX, VECTOR.update(shape=(50,))), cost_of(solve, MATRIX, MATRIX)
    assert many.each - one.each == pytest.approx(49 * 2500 * cost.SOLVE_COLUMN_SECONDS, rel=0.02)


def test_a_square_is_a_product_and_another_power_is_none():
    square, other = (cost_of(lambda x, p=p: jax.lax.pow(x, p), VECTOR).each for p in (2.0, 1.3))
    assert square == pytest.approx(100 * cost.NUMBER_SECONDS) and other > 10 * square


def test_what_newer_versions_write_in_one_equation_costs_as_much_as_in_several():
    """As with JAX 0.10.2, which has neither `one_minus_square` nor `polynomial`."""
    slope = cost_of(jax.grad(lambda x: jnp.sum(jnp.tanh(x))), VECTOR)
    assert slope.each == pytest.approx(1.1e-7) and slope.shared == pytest.approx(1.2e-7)
    cubic = cost_of(lambda x: jnp.polyval(jnp.arange(1.0, 5.0), x), VECTOR)
    assert cubic.each == pytest.approx(8 * 100 * cost.NUMBER_SECONDS, rel=0.3)


def test_loops_count_their_turns_and_conditions_all_branches():
    def scan(x):
        return jax.lax.scan(lambda c, v: (c + jnp.exp(v), None), 0.0, x)[0]

    found = cost_of(scan, VECTOR)
    assert found.each == pytest.approx(100 * (6e-10 + 1e-10), rel=0.01)
    assert found.shared >= 100 * cost.TURN_SECONDS
    either = lambda x: jax.lax.cond(x[0] > 0, jnp.exp, lambda x: x * 2, x)  # noqa: E731
    assert cost_of(either, VECTOR).each >= cost_of(jnp.exp, VECTOR).each + 100 * cost.NUMBER_SECONDS


def test_what_does_not_change_from_call_to_call_is_not_counted():
    table = jnp.arange(1.0, 10_001.0)
    constant = cost_of(lambda x: x + jnp.sum(jax.scipy.special.gammaln(table)), VECTOR)
    assert constant.each == pytest.approx(100 * cost.NUMBER_SECONDS)
    moving = cost_of(lambda x: x + jnp.sum(jax.scipy.special.gammaln(table * x[0])), VECTOR)
    assert moving.each > 10_000 * 1e-8


def test_the_price_of_a_posterior_is_of_all_its_rows():
    rng = np.random.default_rng(0)

    def price(N, d=5):
        X, y = rng.standard_normal((N, d)).astype(np.float32), np.zeros(N, np.float32)
        posterior = sgld.Posterior(
            lambda b: -0.5 * jnp.sum(b**2), lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
        )
        return prepare(posterior, (X, y), jnp.zeros(d))

    one, ten = gradient_cost(price(1000)), gradient_cost(price(10_000))
    assert ten.each == pytest.approx(10 * one.each, rel=0.02) and ten.shared == one.shared
    assert row_cost(price(1000)) == pytest.approx(one.each / 1000, rel=0.02)
    assert row_cost(price(1000, 500)) > 20 * row_cost(price(1000))
    plain = prepare(sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2)), None, jnp.zeros(3))
    assert gradient_cost(plain).each < 1e-8 and row_cost(plain) == 0


def test_a_cholesky_factor_inside_a_density_is_seen():
    """50 points: forward and backward tens of microseconds, a thousand times an eight-school model's."""
    squares = jnp.asarray(np.subtract.outer(np.arange(50.0), np.arange(50.0)) ** 2, jnp.float32)

    def process(p):
        K = jnp.exp(-squares * p[0]) + p[1] * jnp.eye(50)
        return -jnp.sum(jnp.log(jnp.diag(jnp.linalg.cholesky(K))))

    found = gradient_cost(prepare(sgld.Posterior(process), None, jnp.ones(2)))
    assert 2e-5 < found.each < 1e-4
    assert found.seconds(64) == found.shared + 64 * found.each
    assert Cost(1.0, 2.0).seconds(3) == 5.0
