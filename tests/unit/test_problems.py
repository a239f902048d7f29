"""The reference problems of benchmarks/: their truths, and the table that is made from them."""

import importlib.util
import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))


def _load(name, path, folder=None):
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folder)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


problems = _load("problems", FOLDER / "problems" / "__init__.py", [str(FOLDER / "problems")])
accuracy = _load("benchmark_accuracy", FOLDER / "accuracy.py")
truth = sys.modules["problems.truth"]


@pytest.fixture
def lax():
    """Models here are written as users write them, with NumPyro's mixed dtypes and ranks."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_a_grid_and_a_mixture_give_the_moments_and_quantiles_of_known_laws():
    x = np.linspace(0, 60, 60_001)
    found = truth.grid(x, 7 * x**2 * np.exp(-x))
    np.testing.assert_allclose(found, truth.law(stats.gamma(3.0)), rtol=1e-5)
    # Student's t with 8 degrees of freedom: normal given its precision
    p = np.linspace(1e-6, 12, 20_001)
    mixed = truth.mixture(p**3 * np.exp(-4 * p), np.zeros_like(p), 1 / np.sqrt(p))
    np.testing.assert_allclose(mixed, truth.law(stats.t(8)), rtol=1e-4, atol=1e-6)


def test_the_tied_means_have_the_published_moments():
    found = problems.PROBLEMS["tied_means"]().truth
    np.testing.assert_allclose(found.mean, [0.48999, 0.05930], atol=2e-5)
    np.testing.assert_allclose(found.sd, [0.7695, 1.5097], atol=1e-4)


@pytest.mark.parametrize("centred", [True, False])
def test_eight_schools_agree_with_weighted_draws_of_their_prior(centred):
    schools = sys.modules["problems.hierarchical"]
    rng = np.random.default_rng(0)
    n = 400_000
    mu, tau = 5 * rng.standard_normal(n), 5 * np.abs(rng.standard_cauchy(n))
    eta = rng.standard_normal((n, 8))
    theta = mu[:, None] + tau[:, None] * eta
    w = np.exp(-0.5 * (((schools.EFFECT - theta) / schools.ERROR) ** 2).sum(1))
    w /= w.sum()
    columns = [mu, tau, *theta.T] if centred else [*eta.T, mu, tau]
    x = np.stack(columns)
    mean = x @ w
    found = schools.eight_schools_truth(centred)
    assert 1 / (w**2).sum() > 20_000
    error = np.sqrt(((x - mean[:, None]) ** 2) @ w**2)
    assert np.all(np.abs(found.mean - mean) < 4.5 * error)
    sd = np.sqrt((x - mean[:, None]) ** 2 @ w)
    np.testing.assert_allclose(found.sd, sd, rtol=0.04)
    below = (x[None] < found.quantiles[:, :, None]) @ w
    np.testing.assert_allclose(below, np.tile([[0.05], [0.5], [0.95]], 10), atol=0.012)


@pytest.mark.usefixtures("lax")
def test_a_stored_reference_of_other_data_is_refused():
    problem = problems.PROBLEMS["logistic_small"]()
    found = problems.truth_of(problem)
    assert found.origin == "NUTS" and found.mean.shape == found.sd.shape == (5,)
    X, y = problem.data
    with pytest.raises(ValueError, match="another model or other data"):
        problems.truth_of(problem._replace(data=(X[:-5], y[:-5])))


def test_every_problem_without_a_closed_form_has_a_stored_run_that_says_how_good_it_is():
    stored = json.loads((FOLDER / "references.json").read_text())
    assert set(stored) <= {*problems.PROBLEMS, *problems.STRUCTURED}
    for name, entry in stored.items():
        lengths = {len(entry[key]) for key in ("names", "mean", "sd", "q05", "q50", "q95")}
        assert len(lengths) == 1, name
        if entry["word"] == "trusted":
            assert min(entry["ess"], entry["ess_square"]) > 2000 and entry["r_hat"] < 1.01, name


def _row(name, word, ratio, mean=0.0, said=1.0):
    return {
        "name": name, "seed": 0, "word": word, "reason": "", "sd_ratio": [1.0, ratio],
        "mean_error": [mean, 0.0], "said": [1.0, said], "r2": [0.5, 0.95], "nu": 0.1, "nu_at_mode": 0.2, "steps": 10,
        "epochs": 1.0, "seconds": 2.0, "nuts_seconds": None, "plan": {"sampler": "SGLD", "gradient": "Full"},
    }  # fmt: skip


def test_the_summary_finds_the_silent_miss():
    rows = [
        _row("good", "trusted", 1.02, said=1.01),
        _row("shy", "unknown", 0.99, said=0.98),
        _row("slight", "trusted", 1.09, said=1.08),
        _row("wide", "trusted", 1.2, said=1.05),
        _row("aside", "trusted", 1.0, mean=-0.4, said=1.01),
        _row("flagged", "biased", 1.5, said=1.5),
        {"name": "none", "seed": 0, "word": "refused", "reason": "no.", "seconds": 1.0,
         "nuts_seconds": None},
    ]  # fmt: skip
    text = accuracy.summary(rows)
    assert "2 of 7 right" in text and "5 off: 2 of these flagged" in text
    assert "and a miss: slight\n" in text
    assert "0.3 sd): wide, aside\n" in text
    assert "2 of 3 with every sd within 5% are trusted; not: shy" in text
    assert "median 0.0100" in text
    assert "1.200  1.050   0.50" in accuracy.line(rows[3])
    assert accuracy.line(rows[6]).endswith("refused: no.")
