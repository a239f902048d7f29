"""Predictions without reading draws: where they agree with the draws, and only there."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special, stats

import sgld
from sgld.interfaces.sklearn_predictor import Predictor, expected_logistic

ROWS = np.random.default_rng(1).normal(size=(300, 3))


def coefficients(of, scale, tail=()):
    """Draws of three coefficients and an intercept around 0.3, of equal weight."""
    coef = 0.3 + scale * of(size=(4, 1000, 3, *tail))
    return {"coef": coef, "intercept": scale * of(size=(4, 1000, *tail))}


def normal(size):
    return np.random.default_rng(2).standard_normal(size)


def skewed(size):
    return np.random.default_rng(2).exponential(size=size) - 1


def predictor(kind, position):
    return Predictor.of(kind, sgld.Draws.of(position), None, ROWS)


@pytest.mark.parametrize("sd", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("mean", [-4.0, 0.0, 1.0])
def test_an_expected_probability_is_the_integral(mean, sd):
    exact, _ = integrate.quad(
        lambda z: special.expit(mean + sd * z) * stats.norm.pdf(z), -12, 12, epsabs=1e-10
    )
    assert expected_logistic(np.array([mean]), np.array([sd]))[0] == pytest.approx(exact, abs=1e-5)


def test_a_normal_posterior_predicts_probabilities_without_its_draws():
    found = predictor("bernoulli", coefficients(normal, 0.2))
    by_draws = replace(found, normal=None)
    assert found.normal.limit > 0.5
    apart = found.probabilities(ROWS) - by_draws.probabilities(ROWS)
    assert 0 < np.abs(apart).max() < 2e-3  # an sd of a probability is about .08
    np.testing.assert_array_equal(
        found.most_probable(ROWS), found.probabilities(ROWS).argmax(axis=1)
    )


def test_a_skewed_posterior_is_averaged_over_draws():
    found = predictor("bernoulli", coefficients(skewed, 1.5))
    whole = replace(found, normal=None).probabilities(ROWS)
    far = found.normal.moments(ROWS)[1] > found.normal.limit
    assert far.mean() > 0.5
    np.testing.assert_array_equal(found.probabilities(ROWS)[far], whole[far])


def test_a_row_is_predicted_the_same_among_others_and_alone():
    found = predictor("bernoulli", coefficients(skewed, 1.5))
    alone = np.concatenate([found.probabilities(row[None]) for row in ROWS[:40]])
    np.testing.assert_allclose(found.probabilities(ROWS)[:40], alone, rtol=1e-12)


@pytest.mark.parametrize(("spread", "prob"), [(0.02, 0.9), (0.15, 0.99), (0.6, 0.9)])
def test_intervals_hold_what_they_say(spread, prob):
    """With a small and a large uncertainty of sigma; the mixture's distribution function is exact."""
    position = coefficients(normal, 0.1)
    position["sigma"] = np.exp(spread * np.random.default_rng(3).standard_normal((4, 1000)))
    found, x = predictor("gaussian", position), ROWS[:20]
    eta = position["intercept"].reshape(-1, 1) + position["coef"].reshape(-1, 3) @ x.T
    sigma, tail = position["sigma"].reshape(-1, 1), (1 - prob) / 2
    for end, q in zip(found.interval(x, prob).T, (tail, 1 - tail), strict=True):
        inside = stats.norm.cdf((end - eta) / sigma).mean(0)
        np.testing.assert_allclose(inside, q, atol=0.16 * tail)
    np.testing.assert_allclose(found.sd(x), replace(found, normal=None).sd(x), rtol=1e-10)


@pytest.mark.parametrize(("of", "scale", "few"), [(normal, 0.1, True), (skewed, 1.5, False)])
def test_several_classes_are_averaged_over_few_draws_where_they_agree(of, scale, few):
    found = predictor("categorical", coefficients(of, scale, tail=(3,)))
    assert (found.few is not None) is few
    whole = replace(found, few=None).probabilities(ROWS)
    np.testing.assert_allclose(found.probabilities(ROWS), whole, atol=3e-3 if few else 0)
