"""Every schedule passes its contract suite; and the suite fails those that are wrong."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sgld
from sgld.testing import check_schedule


@pytest.mark.parametrize(
    "schedule",
    [
        sgld.constant(0.1),
        sgld.polynomial(0.1, 10.0, 0.55),
        sgld.polynomial_between(0.1, 0.01, 5000, 0.55),
        sgld.power(0.1, 0.33),
        sgld.cosine_cycles(0.1, 1000),
        sgld.from_welling_teh(sgld.constant(0.2)),
        optax.cosine_decay_schedule(0.1, 10_000),
        lambda step: 0.1 / (1.0 + jnp.asarray(step, float)),
    ],
)
def test_schedule(schedule):
    with jax.numpy_dtype_promotion("standard"):  # optax leans on it
        report = check_schedule(schedule)
        assert report.first == pytest.approx(float(schedule(jnp.int32(0))))
    assert len(report.checks) == 3 and report.num_steps == 10_000
    assert "3 checks passed" in repr(report)


CALLS = itertools.count()
LATER = itertools.count()


def late(step):
    return 0.1 - 1e-4 * jnp.asarray(step, float)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (lambda step: 1.0 / jnp.asarray(step, float), "finite and not negative. Got inf at step 0"),
        (late, r"late: the value must be finite and not negative"),
        (lambda step: 0.1 if step < 10 else 0.0, "that JAX can trace"),
        (lambda step: np.sqrt(1.0 + np.asarray(step)), "that JAX can trace"),
        (lambda step: jnp.full(2, 0.1), "one number per step"),
        (lambda step: 0.1 + 0.01 * next(CALLS), "not a function of its arguments alone"),
        (lambda step: 0.1 + 0.01 * (next(LATER) > 9), "no memory"),
        (lambda step: 0.1 if isinstance(step, int) else 0.2, "0.2 compiled, and 0.1"),
        (0.1, "a schedule is a function of the step"),
    ],
    ids=["from 1", "late", "if", "numpy", "array", "state", "state later", "number", "no function"],
)
def test_slips_are_caught(schedule, message):
    with pytest.raises(AssertionError, match=message):
        check_schedule(schedule)
