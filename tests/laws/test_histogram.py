"""Histograms that widen: what they count is what a histogram of all draws counts, and quantiles are within a bin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import RunError
from sgld.inference import kept
from sgld.inference.kept import HISTOGRAM_BINS, begin_bins, with_values
from sgld.results.statistics import Histogram

NORMAL = sgld.Posterior(lambda x: -0.5 * jnp.sum(((x - jnp.array([1e3, 0.0])) / 3.0) ** 2))
HOW = {"step_size": 0.5, "burn_in": 100, "num_draws": 4000, "num_chains": 3, "progress": False}


def counted(draws, weights, dtype=np.float32):
    """Bins after draws [draw, chain, m]."""

    def one(bins, pair):
        return with_values(bins, *pair), None

    begun = begin_bins(*draws.shape[1:], dtype)
    rows = (jnp.asarray(draws, dtype), jnp.asarray(weights, dtype))
    return jax.jit(lambda rows: jax.lax.scan(one, begun, rows)[0])(rows)


def test_every_draw_is_in_the_bin_where_it_belongs():
    rng = np.random.default_rng(0)
    # whole multiples of 1/64, in double precision, so that no edge is rounded; heavy tails, and numbers far from 0
    draws = np.round(rng.standard_t(1.5, size=(800, 2, 3)) * 64) / 64 + [0.0, 512.0, -2048.0]
    weights = rng.integers(1, 5, 800)
    with jax.enable_x64(True):
        low, width, weight = map(np.asarray, counted(draws, weights, np.float64))
    for c, j in np.ndindex(2, 3):
        edges = low[c, j] + width[c, j] * np.arange(HISTOGRAM_BINS + 1)
        assert edges[0] <= draws[:, c, j].min() and draws[:, c, j].max() < edges[-1]
        assert HISTOGRAM_BINS * width[c, j] <= 4 * np.ptp(draws[:, c, j])
        by_hand, _ = np.histogram(draws[:, c, j], edges, weights=weights)
        np.testing.assert_array_equal(weight[c, j], by_hand)


def test_what_is_not_finite_or_weighs_nothing_is_left_out():
    draws = np.array([np.nan, 1.0, 1e30, np.inf, 2.0, -np.inf])[:, None, None]
    low, width, weight = counted(draws, [1.0, 1.0, 0.0, 1.0, 3.0, 1.0])
    assert float(weight.sum()) == 4.0 and float(HISTOGRAM_BINS * width[0, 0]) < 4.0
    found = Histogram(*map(np.asarray, (low, width, weight)))
    assert found.quantile(0.2, np.array([0]))[0] == pytest.approx(1.0, abs=float(width[0, 0]))
    never = Histogram(*map(np.asarray, counted(np.full((3, 1, 1), np.nan), np.ones(3))))
    assert np.isnan(never.quantile(0.5, np.array([0])))[0]


def test_quantiles_of_several_chains_are_those_of_the_chains_together():
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(5000, 2, 1)) * [[1.0], [4.0]] + [[-3.0], [2.0]]
    found = Histogram(*map(np.asarray, counted(draws, np.ones(5000))))
    bin_ = float(found.width.max())
    for q in (0.01, 0.3, 0.5, 0.99):
        assert found.quantile(q, np.arange(2))[0] == pytest.approx(np.quantile(draws, q), abs=bin_)
        one = found.quantile(q, np.array([1]))[0]
        assert one == pytest.approx(np.quantile(draws[:, 1], q), abs=bin_)


def test_a_run_that_keeps_no_draw_has_their_quantiles(tmp_path):
    whole = sgld.sample(NORMAL, None, jnp.zeros(2), **HOW)
    run = sgld.sample(NORMAL, None, jnp.zeros(2), keep="moments", path=tmp_path / "run", **HOW)
    bins = run.moments.histogram
    assert (bins.width.max(axis=0) < 0.15 * whole.sd()).all()
    for draws in (run, sgld.load(tmp_path / "run")):
        for q in (0.05, 0.5, 0.95):
            apart = np.abs(draws.quantile(q) - whole.quantile(q))
            assert (apart <= bins.width.max(axis=0)).all()
        assert draws.interval(0.8)[0][0] == draws.quantile(0.1)[0]
        assert draws.summary().parameters["x[1]"]["q95"] == draws.quantile(0.95)[1]


def test_of_too_many_numbers_there_are_none(monkeypatch):
    assert kept.MAX_HISTOGRAMS >= 10_000
    monkeypatch.setattr("sgld.inference.kept.MAX_HISTOGRAMS", 1)
    other = sgld.Posterior(lambda x: -0.5 * jnp.sum(x**2))  # nothing of which is compiled yet
    run = sgld.sample(other, None, jnp.zeros(2), keep="moments", **{**HOW, "num_draws": 50})
    assert run.moments.histogram is None and run.summary().parameters["x[0]"]["q50"] is None
    with pytest.raises(RunError, match="mean, var, sd of the position"):
        run.quantile(0.5)


def test_bins_of_other_chains_are_refused():
    with pytest.raises(ValueError, match="do not belong together"):
        Histogram(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 4, HISTOGRAM_BINS)))
