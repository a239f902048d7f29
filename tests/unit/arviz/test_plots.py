"""Figures show the draws that they are given, with their weights; the report is there for any run."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

import sgld
from sgld.errors import UsageError
from sgld.interfaces import plots
from sgld.regression.formula import FormulaModel
from sgld.results.plan import Origin
from sgld.results.verdict import Verdict


@pytest.fixture(scope="module")
def draws():
    rng = np.random.default_rng(0)
    b = rng.normal([1.0, -2.0], [0.1, 0.3], (4, 250, 2))
    return sgld.Draws.of({"b": b, "sigma": rng.gamma(50, 0.02, (4, 250))})


def words(figure):
    figure.canvas.draw()
    return [text.get_text() for text in figure.findobj(plt.Text) if text.get_text()]


@pytest.mark.parametrize("kind", ["forest", "trace", "marginal", "pair", "verdict"])
def test_every_kind_is_a_figure_that_names_its_parameters(draws, kind):
    open_before = plt.get_fignums()
    figure = draws.plot(kind)
    assert isinstance(figure, Figure) and plt.get_fignums() == open_before
    assert {"b[0]", "b[1]", "sigma"} <= set(words(figure))
    one = words(draws.plot(kind, names=["b"]))
    assert "b[0]" in one and "sigma" not in one


def test_a_forest_stands_where_the_weighted_draws_are(draws):
    """Weights that double the mean of sigma's square move its interval."""
    log_weight = 20 * draws.position["sigma"]
    heavy = sgld.Draws.of(draws.position, log_weight=log_weight)
    x = {}
    for name, given in (("plain", draws), ("heavy", heavy)):
        axes = given.plot("forest", names=["sigma"]).axes[1]
        points = [np.asarray(line.get_xdata()) for line in axes.lines]
        points += [p.get_offsets()[:, 0] for p in axes.collections if len(p.get_offsets())]
        x[name] = np.concatenate([np.ravel(p) for p in points])
    assert x["heavy"].min() > x["plain"].min() + 0.1
    assert x["heavy"].min() <= heavy.mean()["sigma"] <= x["heavy"].max()


def test_many_parameters_are_those_that_mix_worst(rng):
    x = rng.normal(size=(2, 200, 30))
    x[..., 17] = np.cumsum(x[..., 17], axis=1)
    figure = sgld.Draws.of({"b": x}).plot("marginal")
    said = words(figure)
    assert "b[17]" in said and sum(text.startswith("b[") for text in said) == 16
    assert any("16 of 30 parameters, those with the lowest ESS" in text for text in said)


def test_of_many_chains_the_first_are_traced(rng):
    figure = sgld.Draws.of({"a": rng.normal(size=(20, 50))}).plot("trace")
    (traced,) = [axes for axes in figure.axes if axes.get_xlabel() == "Draw"]
    assert len(traced.lines) == plots.MAX_PLOTTED_CHAINS


def test_the_verdict_is_drawn_with_its_numbers(draws):
    verdict = Verdict("biased", ("the sd of 'sigma' is 1.4 times too wide",), sd_ratio=np.array([1.0, 1.02, 1.4]), sd_ratio_se=np.full(3, 0.01))  # fmt: skip
    figure = draws.with_verdict(verdict).plot("verdict")
    said = words(figure)
    assert "biased" in said and any("1.4 times too wide" in text for text in said)
    ratios = np.concatenate([line.get_xdata() for line in figure.axes[0].lines if line.get_marker() == "o"])  # fmt: skip
    assert set(np.round(ratios, 2)) == {1.0, 1.02, 1.4}
    assert "not measured for these draws" in words(draws.plot("verdict"))


def of_formula(outcome, family):
    rng = np.random.default_rng(1)
    x = rng.normal(size=300)
    table = {
        "x": x, "count": rng.poisson(np.exp(0.5 * x)), "yes": (rng.random(300) < 1 / (1 + np.exp(-x))) * 1.0,
        "y": 3 + 2 * x + rng.normal(size=300),
    }  # fmt: skip
    model = FormulaModel.build(table, f"{outcome} ~ x", family)
    start = {n: np.asarray(v, float) for n, v in model.posterior.init.items()}
    position = {n: v + 0.01 * rng.normal(size=(2, 150, *v.shape)) for n, v in start.items()}
    origin = Origin(model.posterior, model.data, model)
    return sgld.Draws.of(model.to_original(position), names=model.names, origin=origin), table


@pytest.mark.parametrize(
    "outcome, family, plot",
    [("count", "poisson", "rootogram"), ("yes", "bernoulli", "pava"), ("y", "gaussian", "dist")],
)
def test_the_predictive_check_fits_the_outcome(outcome, family, plot, monkeypatch):
    draws, table = of_formula(outcome, family)
    used, arviz = [], plots._arviz

    def noted(function, tree, **how):
        used.append((function, tree))
        return arviz(function, tree, **how)

    monkeypatch.setattr(plots, "_arviz", noted)
    assert isinstance(draws.plot("ppc"), Figure)
    ((function, tree),) = used
    assert function == f"plot_ppc_{plot}"
    np.testing.assert_allclose(tree["observed_data"][outcome].values, table[outcome], rtol=1e-5)
    assert tree["posterior_predictive"][outcome].shape == (2, 100, 300)


def test_what_cannot_be_drawn_is_told(draws):
    for given, how, said in (
        ("tarce", {}, "Did you mean 'trace'"),
        ("trace", {"names": ["sgima"]}, "'sgima', which is not a parameter.*Did you mean 'sigma'"),
        ("pair", {"names": ["sigma"]}, "at least two parameters"),
        ("ppc", {}, "do not know their posterior"),
    ):
        with pytest.raises(UsageError, match=said):
            draws.plot(given, **how)
    flat = sgld.Posterior(lambda t: 0.0, lambda t, y: -0.5 * (y - t["sigma"]) ** 2)
    y = np.ones(20, np.float32)
    with pytest.raises(UsageError, match=r"outcome=.*simulate="):
        draws.plot("ppc", posterior=flat, data=y)
    figure = draws.plot("ppc", posterior=flat, data={"y": y + 0.5}, outcome="y", simulate=lambda key, t, row: row["y"])  # fmt: skip
    assert isinstance(figure, Figure)


def test_any_run_has_its_report(draws, tmp_path):
    page = draws.report(tmp_path / "page.html").read_text()
    assert "unknown" in page and "sigma" in page and "Does the model fit?" not in page
    table, _ = of_formula("y", "gaussian")
    page = table.report(tmp_path / "table.html").read_text()
    assert "y ~ x" in page and "Does the model fit?" in page and "half-normal" in page
