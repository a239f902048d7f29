"""Weighted statistics against closed forms, on plain arrays [chain, draw, parameter]."""

import numpy as np
import pytest

import sgld
from sgld.results import statistics

CHAINS, DRAWS = 4, 4000


def autoregressive(rho, rng, chains=CHAINS, draws=DRAWS):
    """x' = rho x + sqrt(1 - rho^2) xi from its stationary law N(0, 1)."""
    xi = rng.standard_normal((chains, draws))
    x = xi.copy()
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * xi[:, t]
    return x[..., None]


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_ess_of_an_autoregression(rng, rho):
    """n (1 - rho) / (1 + rho), and of its square the same with rho^2."""
    x, n = autoregressive(rho, rng), CHAINS * DRAWS
    weights = np.full((CHAINS, DRAWS), 1 / n)
    assert statistics.ess(x, weights)[0] == pytest.approx(n * (1 - rho) / (1 + rho), rel=0.2)
    square = n * (1 - rho**2) / (1 + rho**2)
    assert statistics.ess(x**2, weights)[0] == pytest.approx(square, rel=0.2)
    mcse = np.sqrt((1 + rho) / (1 - rho) / n)
    assert statistics.mcse_mean(x, weights)[0] == pytest.approx(mcse, rel=0.15)


def test_r_hat_is_of_chains_and_not_of_draws(rng):
    x = autoregressive(0.0, rng, draws=1000)
    assert statistics.r_hat(x)[0] == pytest.approx(1.0, abs=0.01)
    apart = x + np.arange(CHAINS)[:, None, None]
    # between chains the variance is that of 0, 1, 2, 3
    assert statistics.r_hat(apart)[0] == pytest.approx(np.sqrt(1 + 5 / 3), rel=0.1)


def test_a_quantile_of_nearly_equal_weights_is_that_of_equal_ones(rng):
    x = rng.standard_normal((2, 6, 3))
    nearly = 1 + 1e-9 * rng.random((2, 6))
    for q in np.linspace(0, 1, 23):
        found = statistics.quantile(x, nearly, q)
        np.testing.assert_allclose(found, np.quantile(x.reshape(12, 3), q, axis=0), atol=1e-7)


def test_a_row_of_the_summary_is_the_law_of_its_draws(rng):
    """Draws of N(0, 3^2) that weigh as those of N(3, 3^2) do."""
    x = autoregressive(0.5, rng, draws=20_000)[..., 0]
    draws = sgld.Draws.of({"x": 3 * x}, log_weight=x - 0.5)
    row = draws.summary().parameters["x"]
    for column, exact in {
        "mean": 3.0, "sd": 3.0, "q05": 3 - 4.935, "q50": 3.0, "q95": 3 + 4.935
    }.items():  # fmt: skip
        assert row[column] == pytest.approx(exact, abs=0.18), column
    # weights exp(x) leave the share 1 / e of the draws
    share = np.exp(-1.0)
    assert row["ess_bulk"] == pytest.approx(80_000 / 3 * share, rel=0.2)
    assert row["mcse_mean"] == pytest.approx(3 * np.sqrt(3 / 80_000 / share), rel=0.2)
    assert row["r_hat"] == pytest.approx(1.0, abs=0.01)


def test_the_tails_mix_apart_from_the_bulk():
    """Signs that are fresh in each draw, and sizes that hardly move: quantiles in the tails are few."""
    rng = np.random.default_rng(2)
    size = np.exp(1.5 * autoregressive(0.99, rng)[..., 0])
    draws = sgld.Draws.of({"x": size * rng.choice([-1.0, 1.0], size.shape)})
    row = draws.summary().parameters["x"]
    assert row["ess_tail"] < 0.25 * row["ess_bulk"]


@pytest.mark.parametrize(("T", "said"), [(0.25, "cold"), (4.0, "tempered")])
def test_the_summary_names_the_law_of_a_temperature(T, said):
    draws = sgld.Draws.of(np.zeros((1, 10)), temperature=np.full((1, 10), T))
    assert f"target: the {said} posterior, p(theta | data)^(1/T) at T = {T:g}" in str(
        draws.summary()
    )


@pytest.mark.parametrize(("law", "kurtosis"), [("standard_normal", 3.0), ("random", 1.8)])
def test_independent_draws_have_the_textbooks_standard_errors(law, kurtosis):
    """Of a mean 1 / sqrt(n) of the sd, of a sd sqrt((kurtosis - 1) / 4n) of it."""
    chains, draws = 16, 500
    values = getattr(np.random.default_rng(0), law)((chains, draws, 2))
    n = chains * draws
    found = statistics.Estimates(values, np.full((chains, draws), 1 / n))
    np.testing.assert_allclose(1 / np.sqrt(found.ess), 1 / np.sqrt(n), rtol=0.15)
    np.testing.assert_allclose(found.sd_se, np.sqrt((kurtosis - 1) / (4 * n)), rtol=0.15)
    np.testing.assert_allclose(found.sd, values.std((0, 1), ddof=1), rtol=1e-12)


def test_moments_are_the_same_in_blocks_of_parameters(monkeypatch):
    """Of weighted draws; the blocks do not divide the parameters evenly."""
    rng = np.random.default_rng(1)
    values, weights = rng.standard_normal((2, 50, 7)).astype(np.float32), rng.random((2, 50))
    monkeypatch.setattr("sgld.results.mixing.BLOCK_NUMBERS", 3 * weights.size)
    found, centred = (
        statistics.Estimates(values, weights),
        values - statistics.mean(values, weights),
    )
    fourth = statistics.mean(centred**4, weights) / statistics.mean(centred**2, weights) ** 2
    np.testing.assert_allclose(found.sd, np.sqrt(statistics.var(values, weights)), rtol=1e-12)
    np.testing.assert_allclose(found.kurtosis, fourth, rtol=1e-12)


def test_systematic_resampling_takes_each_draw_as_often_as_it_weighs():
    assert statistics.systematic(np.array([0.0, 3.0, 0.0, 1.0]), 4).tolist() == [1, 1, 1, 3]
    assert statistics.systematic(np.ones(1000), 1000).tolist() == list(range(1000))
    assert statistics.systematic(np.ones(1000), 100).size == 100
