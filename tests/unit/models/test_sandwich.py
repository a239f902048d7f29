"""Sandwich intervals of a run of `sgld fit`: names and scale kept, widths those of the textbook."""

import json

import numpy as np
import pyarrow
import pyarrow.csv
import pytest

import sgld
from sgld.data.tables import bundled, read_table
from sgld.errors import RunError, UsageError
from sgld.regression.fit import fit, sandwich_of_run

COLUMNS = ["lncoins", "idp", "physlm", "disea"]


def newton(X, gradient_and_curvature):
    beta = np.zeros(X.shape[1])
    for _ in range(50):
        g, J = gradient_and_curvature(beta)
        beta = beta + np.linalg.solve(J, g)
    return beta


@pytest.mark.slow
def test_visits_to_a_doctor(tmp_path):
    """RAND: visits vary seven times as much as a Poisson says, so that robust errors are wider."""
    run = tmp_path / "run"
    draws = fit(
        bundled("randhie"), "mdvis ~ " + " + ".join(COLUMNS), family="poisson", out=run,
        progress=False,
    ).draws  # fmt: skip
    found = sandwich_of_run(run)
    table = read_table(bundled("randhie"))
    y = table["mdvis"].to_numpy().astype(float)
    X = np.column_stack([np.ones(len(y)), *(table[name].to_numpy() for name in COLUMNS)])
    rate = lambda beta: np.exp(X @ beta)  # noqa: E731
    both = lambda beta: (X.T @ (y - rate(beta)), (X.T * rate(beta)) @ X)  # noqa: E731
    beta = newton(X, both)
    cover = np.linalg.inv(both(beta)[1])
    scores = X * (y - rate(beta))[:, None]
    robust = np.sqrt(np.diag(cover @ (scores.T @ scores) @ cover))
    assert found.names == draws.names == ("Intercept", *COLUMNS)
    sd = found.sd()["coefficients"]
    np.testing.assert_allclose(sd, robust, rtol=0.08)
    assert np.all(sd > 2 * np.sqrt(np.diag(cover)))
    # nothing but the spread moves
    mean = draws.mean()["coefficients"]
    np.testing.assert_allclose(found.mean()["coefficients"], mean, atol=1e-3)
    assert np.all(np.abs(mean - beta) < 0.15 * robust)
    ordinary = np.corrcoef(found.position["coefficients"].reshape(-1, 5), rowvar=False)
    expected = cover @ (scores.T @ scores) @ cover / np.outer(robust, robust)
    np.testing.assert_allclose(ordinary, expected, atol=0.08)
    assert found.verdict.word == "unknown" and found.info["target"] == "sandwich"
    low, high = found.interval(0.9)
    np.testing.assert_allclose(
        (high["coefficients"] - low["coefficients"]) / (2 * 1.645 * robust), 1, rtol=0.1
    )
    assert "physlm" in str(found.summary())


@pytest.mark.slow
def test_a_gaussian_run_with_its_sigma(tmp_path, rng):
    """Noise that grows with |x|: White's errors of the slope, 1.7 times the model's."""
    x = rng.normal(size=2000)
    y = 40 + 1000 * (x + np.abs(x) * rng.normal(size=2000))
    pyarrow.csv.write_csv(pyarrow.table({"x": 7 + 0.01 * x, "y": y}), tmp_path / "rows.csv")
    fit(tmp_path / "rows.csv", "y ~ x", out=tmp_path / "run", progress=False)
    found = sandwich_of_run(tmp_path / "run")
    X = np.column_stack([np.ones(2000), 7 + 0.01 * x])
    cover = np.linalg.inv(X.T @ X)
    left = y - X @ (cover @ (X.T @ y))
    robust = np.sqrt(np.diag(cover @ (X.T * left**2) @ X @ cover))
    np.testing.assert_allclose(found.sd()["coefficients"], robust, rtol=0.08)
    # of log sigma: (kurtosis - 1) / 4 / N of the residuals
    kurtosis = np.mean(left**4) / np.mean(left**2) ** 2
    sigma = np.sqrt(np.mean(left**2))
    np.testing.assert_allclose(
        found.sd()["sigma"], sigma * np.sqrt((kurtosis - 1) / 4 / 2000), rtol=0.12
    )
    assert np.all(found.position["sigma"] > 0)


@pytest.mark.slow
def test_what_is_refused(tmp_path):
    posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
    x = np.arange(20.0)
    sgld.sample(
        posterior, x, 0.0, step_size=0.01, num_draws=20, path=tmp_path / "run", progress=False
    )
    with pytest.raises(RunError, match=r"was not made by sgld\.fit;"):
        sandwich_of_run(tmp_path / "run")
    hot = sgld.sample(
        posterior, x, 0.0, step_size=0.01, num_draws=20, temperature=2.0, progress=False
    )
    with pytest.raises(UsageError, match="not all draws have temperature 1"):
        sgld.sandwich(posterior, x, hot)
    pyarrow.csv.write_csv(pyarrow.table({"x": x, "y": x % 3}), tmp_path / "rows.csv")
    fit(tmp_path / "rows.csv", "y ~ x", out=tmp_path / "fit", num_draws=50, progress=False)
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n")
    with pytest.raises(RunError, match="has changed"):
        sandwich_of_run(tmp_path / "fit")
    assert json.loads((tmp_path / "fit" / "run.json").read_text())["kind"] == "formula"
