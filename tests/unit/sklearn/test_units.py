"""Predictions follow the units of X and y: means, sds, intervals, sigma."""

import jax
import numpy as np
import pytest

import sgld
from sgld import SGLDRegressor
from sgld.interfaces import sklearn
from sgld.results.verdict import Verdict

COVERAGES = (0.5, 0.8, 0.9)


@pytest.fixture
def constant_draws(monkeypatch):
    """Replace sampling: all draws are the start, with a sigma of half the outcome's sd."""
    starts = []

    def sample(posterior, data, start, **_):
        starts.append(start)
        draws = jax.tree.map(lambda leaf: np.zeros((2, 50, 1)) + np.ravel(leaf), posterior.init)
        position = jax.tree.map(
            lambda leaf, like: leaf.reshape(2, 50, *np.shape(like)), draws, posterior.init
        )
        position["sigma"] = np.full((2, 50), 0.5)
        names = [f"w{i}" for i in range(sum(map(np.size, jax.tree.leaves(posterior.init))))]
        names[-1] = "sigma"
        moment = np.full(len(names), 0.5)
        verdict = Verdict("trusted", (), mean_corrected=moment, sd_corrected=moment)
        return sgld.Draws.of(position, names=tuple(names), verdict=verdict)

    monkeypatch.setattr(sklearn, "sample", sample)
    return starts


@pytest.mark.parametrize("unit", [1e-3, 1.0, 100.0, 1e4])
def test_a_networks_noise_is_in_the_unit_of_y(constant_draws, rng, unit):
    X, y = rng.normal(size=(40, 2)), unit * (3 + rng.normal(size=40))
    fitted = SGLDRegressor(hidden_layer_sizes=(2,), random_state=0).fit(X, y)
    sigma = 0.5 * y.std()
    _, sd, ends = fitted.predict(X, return_std=True, return_interval=0.9)
    np.testing.assert_allclose(sd, sigma, rtol=1e-5)
    np.testing.assert_allclose(np.diff(ends)[:, 0], 2 * 1.645 * sigma, rtol=0.05)
    assert fitted.draws_.mean()["sigma"] == pytest.approx(sigma)
    verdict = fitted.verdict_
    assert verdict.mean_corrected[-1] == verdict.sd_corrected[-1] == pytest.approx(sigma)
    assert (verdict.mean_corrected[:-1] == 0.5).all()
    # more rows, with another sd: the search begins at the same sigma
    fitted.partial_fit(X, 3 * y)
    all_rows = np.concatenate([y, 3 * y])
    assert constant_draws[-1]["sigma"] * all_rows.std() == pytest.approx(sigma)


@pytest.mark.long
@pytest.mark.parametrize(
    ("hidden", "unit", "origin"),
    [((), 1e-3, 0.0), ((), 1.0, 5.0), ((), 1e4, -3e4), ((3,), 1e4, -3e4)],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_intervals_cover_new_outcomes_in_every_unit(hidden, unit, origin):
    """0.06 is 4 sds of a share of 1,000 rows, and what a network of 3 units misses of the curve."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1300, 2))
    y = np.tanh(x[:, 0]) if hidden else x[:, 0]
    y = unit * (y + 0.5 * x[:, 1] + 0.5 * rng.normal(size=1300)) + origin
    X = x / unit + origin
    seconds = 40 if hidden else None
    fit = SGLDRegressor(hidden_layer_sizes=hidden, random_state=0, max_seconds=seconds)
    fitted = fit.fit(X[:300], y[:300])
    _, sd = fitted.predict(X[300:], return_std=True)
    assert sd.mean() == pytest.approx(0.5 * unit, rel=0.1)
    assert fitted.draws_.mean()["sigma"] == pytest.approx(0.5 * unit, rel=0.1)
    for probability in COVERAGES:
        _, ends = fitted.predict(X[300:], return_interval=probability)
        inside = (ends[:, 0] < y[300:]) & (y[300:] < ends[:, 1])
        assert inside.mean() == pytest.approx(probability, abs=0.06)
