"""Numbers that cannot be meant, at doors that are not `sgld.sample`."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import UsageError

MODEL = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
DATA = jnp.arange(6.0)
MOVES = sgld.gradient_statistics(MODEL, DATA, 0.0)


def mode(**how):
    return sgld.find_map(MODEL, DATA, 0.0, **how)


def drawn(**how):
    return sgld.sample(MODEL, DATA, 0.0, step_size=0.01, num_draws=4, progress=False, **how)


def fitted(**how):
    return sgld.bayes_by_backprop(MODEL, DATA, 0.0, progress=False, **how)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: mode(num_steps=-3), "num_steps must be a whole number, at least 1. Got -3."),
        (lambda: mode(num_steps=2.5), "num_steps must be a whole number"),
        (lambda: mode(record=-3), "record must be a whole number, at least 1. Got -3."),
        (lambda: mode(record=True), "record must be a whole number"),
        (lambda: mode(batch_size=2.5), "batch_size must be a whole number"),
        (lambda: mode(batch_size="x"), "batch_size must be a whole number"),
        (lambda: drawn(gradient=sgld.SVRG(period=0)), "SVRG's period must be a whole number"),
        (lambda: drawn(gradient=sgld.SVRG(period=2.5)), "SVRG's period .* step. Got 2.5."),
        (lambda: drawn(preconditioner=sgld.RMSprop(decay="x")), r"decay must lie .* Got 'x'."),
        (lambda: drawn(preconditioner=sgld.RMSprop(decay=jnp.zeros(2))), r"decay must lie in"),
        (lambda: drawn(gradient=sgld.SVRG(period=jnp.ones(2, int))), "SVRG's period must be a whole"),
        (lambda: drawn(preconditioner=sgld.RMSprop(decay=jnp.float32(1))), r"decay must lie in"),
        (lambda: drawn(preconditioner=sgld.RMSprop(decay=1.0)), r"decay must lie in \[0, 1\). Got 1"),
        (lambda: fitted(init_sd=True), "init_sd must be a positive number. Got True."),
        (lambda: MOVES.batch_covariance(2.5), "batch_size must be a whole number"),
        (lambda: MOVES.batch_covariance(7), "batch_size must be at most the number of rows, 6"),
        (lambda: MOVES.alpha("x", 2), "step_size must be a number. Got 'x'."),
        (lambda: MOVES.alpha(0.1, 2, temperature=np.nan), "temperature must be finite"),
        (lambda: sgld.gradient_statistics(MODEL, DATA, 0.0, num_rows=2.5), "num_rows must be a whole"),
    ],
)  # fmt: skip
def test_one_sentence(call, said):
    with pytest.raises(UsageError, match=said):
        call()


def test_a_step_of_a_plan_is_a_number():
    assert MOVES.alpha(jnp.float32(0.1), 2) == pytest.approx(MOVES.alpha(0.1, 2), rel=1e-6)
