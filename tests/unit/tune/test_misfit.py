"""Rows' scores that vary other than the model implies are told, and only those."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.inference.tuning.gaussian import misfit_notes


def plan(log_likelihood, X, y, prior=1.0):
    posterior = sgld.Posterior(lambda t: -0.5 * prior * jnp.sum(t**2), log_likelihood)
    data = (X.astype(np.float32), y.astype(np.float32))
    draws = sgld.sample(posterior, data, jnp.zeros(X.shape[1]), max_steps=200, progress=False)
    return draws.plan


def poisson(t, row):
    return row[1] * (row[0] @ t) - jnp.exp(row[0] @ t)


def logistic(t, row):
    return row[1] * (row[0] @ t) - jnp.logaddexp(0.0, row[0] @ t)


@pytest.mark.parametrize(("shape", "told"), [(None, False), (0.5, True)])
def test_counts_with_more_variance_than_poisson_are_told(shape, told):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(2000), rng.standard_normal((2000, 3))])
    mean = np.exp(X @ np.array([1.0, 0.2, -0.2, 0.1]))
    if shape is not None:
        mean = mean * rng.gamma(shape, 1 / shape, 2000)
    found = plan(poisson, X, rng.poisson(mean))
    assert found.misfit is not None
    assert (found.misfit > 2) is told
    assert any("looks misspecified" in note for note in found.notes) is told


@pytest.mark.parametrize(
    ("misfit", "noted"), [(1.4, False), (1.5, True), (0.6, False), (0.4, True)]
)
def test_sds_that_are_a_fifth_too_small_are_worth_a_note(misfit, noted):
    assert any("misspecified" in note for note in misfit_notes(misfit, 1000)) is noted


def test_the_spread_is_over_what_the_data_determine_and_fitting_takes():
    # of a Gaussian with known variance, in closed form: the residuals of a ridge regression
    rng = np.random.default_rng(2)
    N, d, prior = 400, 40, 300.0
    X = rng.standard_normal((N, d)) * np.sqrt(np.linspace(0.2, 3, d))
    beta = rng.standard_normal(d) / np.sqrt(prior)
    found = plan(
        lambda t, r: -0.5 * (r[1] - r[0] @ t) ** 2, X, X @ beta + rng.standard_normal(N), prior
    )
    assert found.misfit == pytest.approx(1.0, abs=0.2)


def test_few_rows_and_a_strong_prior_are_no_sign_of_a_bad_model():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 80)) / 4
    y = rng.random(60) < 1 / (1 + np.exp(-X @ rng.standard_normal(80)))
    found = plan(logistic, X, y)
    assert found.misfit is None
    assert not any("misspecified" in note for note in found.notes)


def test_a_few_rows_that_do_not_belong_are_told_and_a_few_that_decide_are_not():
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(2000), rng.standard_normal(2000)])
    y = rng.poisson(np.exp(X @ np.array([-2.0, 0.3])))
    y[:5] = 60
    found = plan(poisson, X, y)
    assert found.misfit is not None and found.misfit > 10
    assert any("sgld.loo" in note for note in found.notes)
    found = plan(logistic, X, np.arange(2000) < 3)
    assert found.misfit is None
