"""Schedules: exact values, float32 accuracy over all 32-bit steps, conversions, conditions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgld.errors import UsageError
from sgld.samplers.schedules import (
    Constant,
    as_schedule,
    check_values,
    constant,
    cosine_cycles,
    from_learning_rate,
    from_welling_teh,
    polynomial,
    polynomial_between,
    power,
    robbins_monro,
)

LAST = 2**31 - 1
STEPS = np.unique(np.concatenate([np.arange(100), np.geomspace(1, LAST, 500).astype(np.int64)]))


def compare(schedule, exact, rtol=1e-5):
    """Under jit with the schedule as an argument, under vmap, and one Python step at a time."""
    steps = jnp.asarray(STEPS, jnp.int32)
    values = jax.jit(lambda s, k: s(k))(schedule, steps)
    assert values.dtype == jnp.float32 and not values.weak_type and values.shape == STEPS.shape
    np.testing.assert_allclose(values, exact(STEPS.astype(float)), rtol=rtol)
    np.testing.assert_allclose(jax.vmap(schedule)(steps), values, rtol=1e-6)
    for k in (0, 7, LAST):
        np.testing.assert_allclose(schedule(k), exact(np.float64(k)), rtol=rtol)


def test_constant():
    compare(constant(0.3), lambda k: np.full(np.shape(k), 0.3))


@pytest.mark.parametrize("b", [0.1, 231.07, 1e9, 1e12])
@pytest.mark.parametrize("gamma", [0.33, 0.55, 1.0])
def test_polynomial(b, gamma):
    compare(polynomial(2.0, b, gamma), lambda k: 2.0 * (b + k) ** -gamma)


@pytest.mark.parametrize(
    "first, last, num_steps, gamma",
    [
        (0.01, 0.0001, 10**6, 0.55),
        (0.01, 0.00999, 10, 0.55),  # b = 5e3
        (1e-3, 1e-3 * (1 - 1e-9), 100, 1.0),  # b = 1e11
        (1.0, 1e-6, LAST, 0.51),
        (1e-6, 1e-9, 1, 1.0),
    ],
)
def test_polynomial_between_meets_its_ends(first, last, num_steps, gamma):
    h = polynomial_between(first, last, num_steps, gamma)
    assert h.a * h.b**-h.gamma == pytest.approx(first, rel=1e-12)
    assert h.a * (h.b + num_steps) ** -h.gamma == pytest.approx(last, rel=1e-12)
    np.testing.assert_allclose([h(0), h(num_steps)], [first, last], rtol=2e-6)


def test_constants_of_the_mixture_example():
    eps = polynomial_between(0.01, 0.0001, 10**6, 0.55)
    assert (round(eps.a, 5), round(eps.b, 2)) == (0.19955, 231.07)
    h = from_welling_teh(eps)
    assert (round(h.a, 5), h.b, h.gamma) == (0.09978, eps.b, eps.gamma)
    np.testing.assert_allclose([h(0), h(10**6)], [0.005, 0.00005], rtol=2e-6)


def test_power():
    compare(power(3.0, 0.6), lambda k: (3.0 / (k + 1)) ** 0.6)
    compare(power(3.0, 0.6, start=50), lambda k: (3.0 / np.maximum(k + 1, 50)) ** 0.6)
    compare(
        power(3.0, 0.6, start=50, floor=1e-3),
        lambda k: np.maximum((3.0 / np.maximum(k + 1, 50)) ** 0.6, 1e-3),
    )
    h = power(3.0, 0.6, start=50)
    assert h(0) == h(49) > h(50)  # t = 50 is step 49


@pytest.mark.parametrize("length", [1, 7, 100_000])
def test_cosine_cycles_to_the_end_of_a_cycle(length):
    h = cosine_cycles(0.2, length)
    k = np.array([0, length - 1, length, 3 * length - 1, LAST])
    exact = 0.2 * np.sin(0.5 * np.pi * (length - k % length) / length) ** 2
    values = jax.jit(lambda h, k: h(k))(h, jnp.asarray(k, jnp.int32))
    np.testing.assert_allclose(values, exact, rtol=1e-5)
    paper = 0.1 * (1 + np.cos(np.pi * (k % length) / length))
    np.testing.assert_allclose(exact, paper, rtol=1e-5)


@pytest.mark.parametrize("exploration", [0.0, 0.1, 0.3, 0.7, 0.94])
def test_exploration_share_is_exact(exploration):
    h = cosine_cycles(0.2, 50, exploration)
    steps = jnp.arange(200, dtype=jnp.int32)
    expected = np.arange(200) % 50 >= round(exploration * 50)
    np.testing.assert_array_equal(jax.jit(lambda h, k: h.sampling(k))(h, steps), expected)
    T = h.temperature(0.5)
    np.testing.assert_array_equal(jax.jit(lambda T, k: T(k))(T, steps), 0.5 * expected)
    check_values(T, 200, "temperature")


def test_converters_halve_and_divide_every_kind():
    kinds = [
        constant(0.3),
        polynomial(1.0, 2.0, 0.6),
        power(2.0, 0.6, start=3, floor=0.2),
        cosine_cycles(0.3, 10, 0.2),
        optax.exponential_decay(0.3, 10, 0.9),
        lambda step: 0.3 / (1 + jnp.asarray(step, float)),
    ]
    steps = jnp.arange(40, dtype=jnp.int32)
    for eps in kinds:
        expected = jax.vmap(eps)(steps)
        np.testing.assert_allclose(jax.vmap(from_welling_teh(eps))(steps), expected / 2, rtol=1e-6)
        h = from_learning_rate(eps, 400)
        values = jax.jit(lambda h, k: jax.vmap(h)(k))(h, steps)  # every result is a pytree
        np.testing.assert_allclose(values, expected / 400, rtol=1e-5)
        assert values.dtype == jnp.float32 and not values.weak_type
    assert from_welling_teh(0.3) == Constant(0.15)
    assert from_learning_rate(0.3, 100).value == pytest.approx(0.003)


def test_a_sweep_is_a_vmap_and_new_numbers_compile_nothing():
    count = 0

    @jax.jit
    def value(schedule, step):
        nonlocal count
        count += 1
        return schedule(step)

    for a in (1.0, 2.0, 3.0):
        np.testing.assert_allclose(value(polynomial(a, 1.0, 0.5), jnp.int32(3)), a / 2, rtol=1e-6)
    assert count == 1
    sweep = jax.tree.map(
        lambda *x: jnp.stack(x),
        *[jax.tree.map(jnp.asarray, polynomial(a, 1.0, 0.5)) for a in (1.0, 2.0)],
    )
    np.testing.assert_allclose(jax.vmap(lambda s: s(3))(sweep), [0.5, 1.0], rtol=1e-6)
    np.testing.assert_allclose(
        jax.vmap(lambda v: as_schedule(v, "step_size")(0))(jnp.arange(3.0)), [0, 1, 2]
    )


@pytest.mark.parametrize(
    "schedule, expected",
    [
        (constant(0.1), (True, False, False)),
        (0.1, (True, False, False)),
        (constant(0.0), (False, True, True)),
        (polynomial(1, 1, 0.33), (True, False, True)),
        (polynomial(1, 1, 0.5), (True, False, True)),
        (polynomial(1, 1, 0.5000001), (True, True, True)),
        (polynomial(1, 1, 1.0), (True, True, True)),
        (polynomial(1, 1, 1.01), (False, True, True)),
        (power(1, 0.5), (True, False, True)),
        (power(1, 1.0, start=100), (True, True, True)),
        (power(1, 1.0, start=100, floor=1e-9), (True, False, False)),
        (power(1, 2.0, floor=1e-9), (True, False, False)),
        (cosine_cycles(1.0, 10), (True, False, False)),
        (from_welling_teh(polynomial(1, 1, 0.55)), (True, True, True)),
        (from_learning_rate(power(1, 0.4), 100), (True, False, True)),
        (optax.constant_schedule(0.1), (None, None, None)),
        (from_welling_teh(lambda step: 0.1), (None, None, None)),
        (jax.tree.map(lambda x: jnp.full(2, x), polynomial(1, 1, 0.55)), (None, None, None)),
    ],
)
def test_robbins_monro(schedule, expected):
    result = robbins_monro(schedule)
    assert (result.sum_diverges, result.squares_summable, result.vanishes) == expected
    assert result.hold is (None if None in expected else all(expected))
    assert result.sentence.endswith(".")


def test_robbins_monro_while_tracing():
    seen = []
    jax.jit(lambda gamma: seen.append(robbins_monro(polynomial(1, 1, gamma)).hold) or gamma)(0.6)
    assert seen == [None]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: as_schedule(-0.1, "step_size"), "step_size must be positive. Got -0.1."),
        (lambda: as_schedule(0, "step_size"), "step_size must be positive. Got 0."),
        (lambda: as_schedule(constant(0.0), "step_size"), "step_size must be positive. Got 0."),
        (
            lambda: as_schedule(-1, "temperature", zero=True),
            "temperature must be zero or positive.",
        ),
        (lambda: as_schedule(np.nan, "step_size"), "step_size must be finite. Got nan."),
        (lambda: as_schedule("fast", "step_size"), "step_size must be a number or a function"),
        (lambda: as_schedule([0.1, 0.2], "step_size"), "step_size must be a number or a function"),
        (lambda: as_schedule(None, "step_size"), "step_size must be a number or a function"),
        (lambda: as_schedule(True, "step_size"), "step_size must be a number or a function"),
        (lambda: constant(-1), "value must be zero or positive. Got -1."),
        (lambda: polynomial(1, 0, 0.5), "b must be positive. Got 0."),
        (lambda: polynomial(1, 1, np.inf), "gamma must be finite. Got inf."),
        (lambda: polynomial_between(0.1, 0.2, 10, 0.5), "last must be below first."),
        (lambda: polynomial_between(0.1, 0.1, 10, 0.5), "use sgld.constant"),
        (lambda: polynomial_between(1.0, 1e-30, 10, 1e-3), "gamma is too small"),
        (lambda: power(0, 1), "C must be positive. Got 0."),
        (lambda: power(1, 1, floor=-1), "floor must be positive. Got -1."),
        (lambda: cosine_cycles(0.1, 10.5), "cycle_length must be a whole number"),
        (lambda: cosine_cycles(0.1, 10, 1.0), "exploration must be in"),
        (lambda: cosine_cycles(0.1, 10, 0.96), "exploration must be in"),
        (lambda: from_learning_rate(0.1, 0), "num_data must be positive. Got 0."),
    ],
)
def test_mistakes_are_answered(call, message):
    with pytest.raises(UsageError) as caught:
        call()
    assert message in str(caught.value)


def test_as_schedule_accepts_every_kind_of_number_and_function():
    for number in (1, 1.0, np.float32(1), np.array(1.0), jnp.float32(1), jnp.array(1)):
        assert as_schedule(number, "step_size") == Constant(1.0)
    assert as_schedule(0, "temperature", zero=True) == Constant(0.0)
    h = polynomial(1.0, 1.0, 0.5)
    assert as_schedule(h, "step_size") is h
    function = as_schedule(lambda step: 0.5, "step_size")
    assert jax.jit(lambda f: f(0))(function) == 0.5  # a pytree: passes through jit


def test_check_schedule():
    for good in (constant(0.1), power(1, 1), optax.linear_schedule(0.1, 0.0, 1000)):
        check_values(good, 1000, "step_size")
    check_values(lambda step: 0.1, 0, "step_size")
    check_values(polynomial(1.0, 1.0, 0.5), LAST, "step_size")
    late = lambda step: jnp.where(step < 1000, 0.1, -0.125)  # noqa: E731
    check_values(late, 999, "step_size")
    with pytest.raises(UsageError, match=r"step_size .* Got -0\.125 at step 1000\."):
        check_values(late, 1000, "step_size")
    with pytest.raises(UsageError, match=r"step_size .* Got inf at step 0\."):
        check_values(lambda step: 1 / jnp.asarray(step, float), 1000, "step_size")
    with pytest.raises(UsageError, match=r"temperature .* trace; replace `if`"):
        check_values(lambda step: 0.1 if step < 10 else 0.0, 1000, "temperature")
    with pytest.raises(UsageError, match=r"one number per step. Got an array of shape \(2,\)"):
        check_values(lambda step: jnp.ones(2), 1000, "step_size")
    with pytest.raises(UsageError, match="num_steps"):
        check_values(constant(1), 2**31, "step_size")
