"""From which draws, with which step and in which metric a rejection rate proposes."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

import sgld

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))


def test_a_chain_that_failed_proposes_nothing(rng):
    x = rng.standard_normal((3, 400, 2)).astype(np.float32)
    alone = sgld.rejection_rate(GAUSSIAN, None, sgld.Draws.of(x[[0, 2]]), 0.5)
    x[1] = np.nan
    failed = sgld.Draws.of(x, status=("ok", "chain 1 failed", "ok"))
    assert sgld.rejection_rate(GAUSSIAN, None, failed, 0.5) == alone


def test_the_step_of_a_run_is_its_last():
    """A run that ends with a small step is judged by that one."""
    h = sgld.polynomial_between(0.8, 0.01, 400, 1.0)
    draws = sgld.sample(
        GAUSSIAN, None, jnp.zeros(2), step_size=h, num_draws=400, burn_in=0, progress=False
    )
    own = sgld.rejection_rate(GAUSSIAN, None, draws)
    last = sgld.rejection_rate(GAUSSIAN, None, draws, float(draws.step_size[0, -1]))
    first = sgld.rejection_rate(GAUSSIAN, None, draws, float(draws.step_size[0, 0]))
    assert own == last < first / 10
    failed = replace(
        draws, status=("chain 0 failed", *draws.status[1:]),
        step_size=np.where(np.arange(4)[:, None] == 0, 0.8, draws.step_size),
    )  # fmt: skip
    assert sgld.rejection_rate(GAUSSIAN, None, failed) < first / 10
