"""The plan as an object: printed, run again, carried over to a longer table."""

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import UsageError

N, D = 4000, 3
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N + 40, D)).astype(np.float32)
Y = (X @ [1.0, -0.5, 0.2] + RNG.normal(size=N + 40)).astype(np.float32)
POSTERIOR = sgld.Posterior(
    lambda b: -0.5 * jnp.sum(b**2) / 100, lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
)


def exact(rows):
    precision = X[:rows].T @ X[:rows] + np.eye(D) / 100
    return np.linalg.solve(precision, X[:rows].T @ Y[:rows]), np.sqrt(
        np.diag(np.linalg.inv(precision))
    )


@pytest.fixture(scope="module")
def draws():
    return sgld.sample(POSTERIOR, (X[:N], Y[:N]), jnp.zeros(D), progress=False)


def test_a_plan_is_printed_and_run_again(draws):
    assert "ControlVariates" in str(draws.plan) and "batch_size" in str(draws.plan)
    arguments = {**draws.plan.arguments(), "seed": 7, "num_draws": 500}
    again = sgld.sample(POSTERIOR, (X[:N], Y[:N]), draws.mean(), progress=False, **arguments)
    assert again.info["plan"]["step_size"] == draws.info["plan"]["step_size"]
    assert again.info["plan"]["noise_correction"] and again.num_draws == 500
    np.testing.assert_allclose(again.sd(), exact(N)[1], rtol=0.08)


def test_a_warm_restart_on_one_percent_more_rows(draws):
    more = N + 40
    plan = draws.plan.for_rows(np.int64(more))
    assert plan.num_data == draws.plan.for_rows(more).num_data and type(plan.num_data) is int
    burn_in = 24
    assert burn_in * plan.setup.batch_size <= 0.1 * more  # a tenth of a pass
    arguments = {**plan.arguments(), "burn_in": burn_in}
    warm = sgld.sample(POSTERIOR, (X, Y), draws.mean(), progress=False, **arguments)
    mean, sd = exact(more)
    np.testing.assert_allclose((warm.mean() - mean) / sd, 0, atol=0.1)
    np.testing.assert_allclose(warm.sd() / sd, 1, atol=0.06)
    assert warm.verdict.word == "trusted"


def test_the_rejection_rate_at_the_runs_own_step(draws):
    own = sgld.rejection_rate(POSTERIOR, (X[:N], Y[:N]), draws)
    h, matrix = float(draws.step_size[0, -1]), draws.plan.setup.preconditioner
    given = sgld.rejection_rate(POSTERIOR, (X[:N], Y[:N]), draws, h, preconditioner=matrix)
    assert own == given and 0.005 < own < 0.3
    with pytest.raises(UsageError, match="step_size is missing"):
        sgld.rejection_rate(POSTERIOR, (X[:N], Y[:N]), jnp.zeros(D))
