"""Stein-corrected moments: exact on Gaussians whatever law the draws follow."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from sgld.approximation.laplace import Laplace
from sgld.diagnostics.stein import corrected_moments, explained
from sgld.model.problem import Problem
from sgld.results.statistics import mean, var

MODE = np.array([1.0, -2.0, 0.5])
J = np.array([[4.0, 1.0, 0.3], [1.0, 2.0, -0.4], [0.3, -0.4, 1.0]])
COVARIANCE = np.linalg.inv(J)
LAPLACE = Laplace(MODE, J, np.linalg.cholesky(COVARIANCE), 1.0, np.ones(len(MODE)))
OUT = np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]])  # two reported parameters, linear in theta
PROBLEM = Mock(spec=Problem, target=SimpleNamespace(jacobian=lambda z: OUT))


def wrong_draws(T=1.0, wide=1.6, shift=0.4, noise=0.0, count=2000, seed=0):
    """Draws [4, count, 3] that are too wide and off centre, and the gradients there."""
    rng = np.random.default_rng(seed)
    xi = rng.standard_normal((4, count, 3))
    thetas = MODE + shift + wide * np.sqrt(T) * xi @ np.linalg.cholesky(COVARIANCE).T
    gradients = -(thetas - MODE) @ J + noise * rng.standard_normal((4, count, 3))
    return thetas, gradients


def moments(thetas, gradients, T, weights=None):
    of = LAPLACE.marginals(PROBLEM)
    weights = np.full(thetas.shape[:2], 1.0) if weights is None else weights
    flat, w = thetas.reshape(-1, 3), weights.reshape(-1)
    centred = flat - w @ flat / w.sum()
    cov = centred.T @ (w[:, None] * centred) / w.sum()
    phi = of.phi(thetas)
    run = (w @ phi.reshape(-1, 2) / w.sum(), np.diag(OUT @ cov @ OUT.T))
    return corrected_moments(phi, of.gamma(gradients), of.variance, weights, T, run), cov


@pytest.mark.parametrize("T", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_full_gradients_give_the_truth_exactly(T, weighted):
    thetas, gradients = wrong_draws(T)
    weights = np.random.default_rng(1).random(thetas.shape[:2]) if weighted else None
    found, cov = moments(thetas, gradients, T, weights)
    true_sd = np.sqrt(T * np.diag(OUT @ COVARIANCE @ OUT.T))
    np.testing.assert_allclose(found.sd, true_sd, rtol=1e-9)
    assert np.abs(found.ratio_se).max() < 1e-9
    run_sd = np.sqrt(np.diag(OUT @ cov @ OUT.T))
    np.testing.assert_allclose(found.ratio, run_sd / true_sd, rtol=1e-9)
    assert found.ratio == pytest.approx(1.6, rel=0.03)
    centre = np.average(
        thetas.reshape(-1, 3), axis=0, weights=None if weights is None else weights.ravel()
    )
    np.testing.assert_allclose(found.mean_shift, OUT @ (MODE - centre), rtol=1e-8)


@pytest.mark.parametrize("T", [1.0, 3.0])
def test_noisy_gradients_give_it_within_their_standard_error(T):
    errors = []
    for seed in range(20):
        thetas, gradients = wrong_draws(T, noise=1.0, seed=seed)
        found, _ = moments(thetas, gradients, T)
        true_sd = np.sqrt(T * np.diag(OUT @ COVARIANCE @ OUT.T))
        assert found.sd == pytest.approx(true_sd, rel=0.06)
        errors.append((found.sd / true_sd - 1) / (found.ratio_se / found.ratio))
    spread = np.std(errors)
    assert 0.6 < spread < 1.6  # the jackknife's standard error is honest


def test_unequal_weights_keep_the_standard_error_honest():
    errors = []
    for seed in range(20):
        thetas, gradients = wrong_draws(noise=1.0, seed=seed)
        weights = np.random.default_rng(seed).random(thetas.shape[:2])
        found, _ = moments(thetas, gradients, 1.0, weights)
        true_sd = np.sqrt(np.diag(OUT @ COVARIANCE @ OUT.T))
        errors.append((found.sd / true_sd - 1) / (found.ratio_se / found.ratio))
    assert 0.6 < np.std(errors) < 1.6


def test_a_mode_that_is_a_little_off_changes_no_sd():
    """Around another centre phi has a mean, whose square is no variance."""
    thetas, _ = wrong_draws(wide=1.3)
    weights = np.random.default_rng(3).random(thetas.shape[:2])
    thetas += MODE - mean(thetas, weights)  # draws in the right place
    gradient = -(thetas - MODE) @ J
    off = replace(LAPLACE, center=MODE + np.array([0.3, -0.4, 0.5])).marginals(PROBLEM)
    phi = off.phi(thetas)
    run = (mean(phi, weights), var(phi, weights))
    found = corrected_moments(phi, off.gamma(gradient), off.variance, weights, 1.0, run)
    np.testing.assert_allclose(found.sd, np.sqrt(np.diag(OUT @ COVARIANCE @ OUT.T)), rtol=1e-6)
    np.testing.assert_allclose(found.mean_shift, 0, atol=1e-9)


def test_without_the_correction_the_run_would_be_believed():
    """The same gradients in the wrong place do not correct: the meter uses them."""
    thetas, gradients = wrong_draws()
    found, _ = moments(thetas, -gradients, 1.0)
    assert np.abs(found.ratio - 1.6).max() > 0.3


def test_explained_is_1_on_a_gaussian_and_less_away_from_it():
    thetas, gradients = wrong_draws(wide=1.0, shift=0.0)
    z = LAPLACE.whiten(thetas).reshape(-1, 3)
    flat = gradients.reshape(-1, 3)
    of = LAPLACE.marginals(PROBLEM)
    phi = of.phi(thetas).reshape(-1, 2)

    def r2(first, second):
        return explained(phi, of.gamma(first), of.gamma(second))

    np.testing.assert_allclose(r2(flat, flat), 1.0, atol=1e-10)
    rng = np.random.default_rng(2)
    noisy = [flat + 2.0 * rng.standard_normal(flat.shape) for _ in range(2)]
    # two independent batches: the gradients' noise cancels; one batch twice would not
    assert r2(*noisy).min() > 0.9
    assert r2(noisy[0], noisy[0]).max() < 0.6
    cubic = flat - 0.5 * np.sum((z**3)[..., None] * J[None], axis=1)
    assert r2(cubic, cubic).max() < 0.9
