"""The result: draws, moments, words."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from regression_in_closed_form import REGRESSION, START, columns, exact, run

import sgld
from sgld.variational import elbo


def test_draws_moments_and_words():
    x, y = columns()
    q = run(REGRESSION, (x, y), START, num_steps=500)
    assert isinstance(q, sgld.Variational)
    draws = q.draws(5000)
    np.testing.assert_allclose((draws.mean() - q.mean) / q.sd, 0, atol=0.04)
    np.testing.assert_allclose(draws.sd() / q.sd, 1, atol=0.04)
    assert draws.names == ("x[0]", "x[1]", "x[2]")
    assert "underestimates variance" in str(draws.summary())
    assert "verdict: biased" in str(q.summary())
    assert q.elbo_trace.shape == (500,) and np.isfinite(q.elbo_trace).all()
    assert f"ELBO {q.elbo:.2f}" in repr(q)
    np.testing.assert_allclose(
        q.draws(7, num_chains=1).position[0], draws.position[0, :7], rtol=1e-5
    )
    flat = np.asarray(draws.position).reshape(-1, 3)
    assert len(np.unique(flat, axis=0)) == len(flat)  # no call of the compiled function repeats one
    again = q.draws(5000, seed=1)
    assert not np.array_equal(again.position, draws.position)
    laplace = sgld.laplace(REGRESSION, (x, y), START)
    table = sgld.compare(draws, laplace)
    _, J, _ = exact(x, y)
    right = np.diag(J) ** -0.5 / np.sqrt(np.diag(np.linalg.inv(J)))
    np.testing.assert_allclose(table.sd_ratio, right * q.sd * np.sqrt(np.diag(J)), rtol=0.04)
    found = elbo(REGRESSION, (x, y), q, num_samples=2000)
    assert found.value == pytest.approx(q.elbo, abs=4 * math.hypot(found.se, q.elbo_se))


def test_without_a_mode_there_is_no_measure():
    """Newton finds no curvature in |t|."""
    posterior = sgld.Posterior(lambda t: -jnp.sum(jnp.abs(t)))
    q = run(posterior, None, np.full(2, 0.3, np.float32), num_steps=200)
    assert q.verdict.word == "unknown" and q.verdict.sd_ratio is None
    assert "underestimates variance" in q.verdict.reasons[0]
