"""What ArviZ is given: every group that is known, on the user's scale, the rows under their numbers."""

import builtins

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sgld
from sgld.core import progress
from sgld.errors import MissingExtra, RunError, SGLDWarning, UsageError
from sgld.regression.families import FAMILIES
from sgld.regression.formula import FormulaModel
from sgld.regression.result import prior_draws
from sgld.results.plan import Origin

GROUPS = {
    "posterior", "sample_stats", "log_likelihood", "posterior_predictive", "observed_data", "constant_data", "prior",
}  # fmt: skip


def made_up(model, shape=(2, 300), spread=0.01):
    """Draws about the start of a formula's model."""
    rng = np.random.default_rng(5)
    free = jax.tree.map(
        lambda leaf: np.asarray(leaf) + spread * rng.random((*shape, *leaf.shape)),
        model.posterior.init,
    )
    origin = Origin(model.posterior, model.data, model)
    return sgld.Draws.of(model.to_original(free), names=model.names, origin=origin)


@pytest.fixture
def table(rng):
    n = 120
    x = rng.normal(5.0, 2.0, n)
    return {
        "x": x, "count": rng.poisson(np.exp(0.3 * x - 1)), "yes": (x > 5) * 1.0, "tries": np.full(n, 7.0),
        "y": 1000 + 50 * x + 20 * rng.normal(size=n), "g": np.array(["a", "b", "c"])[rng.integers(0, 3, n)],
        "years": rng.uniform(0.5, 2.0, n), "w": rng.integers(1, 3, n) * 1.0,
    }  # fmt: skip


OUTCOMES = {
    "gaussian": "y ~ x + C(g)", "student-t": "y ~ x", "bernoulli": "yes ~ x", "binomial": "count ~ x", "categorical": "g ~ x",
    "poisson": "count ~ x + offset(log(years))", "negative-binomial": "count ~ x", "gamma": "y ~ x",
    "lognormal": "y ~ x",
}  # fmt: skip


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_formula_fills_every_group(table, family):
    trials = "tries" if family == "binomial" else None
    table["count"] = np.minimum(table["count"], 7)
    model = FormulaModel.build(table, OUTCOMES[family], family, weights="w", trials=trials)
    tree = made_up(model).to_arviz(max_bytes=8 * 600 * 120)
    assert set(tree.children) == GROUPS
    outcome = OUTCOMES[family].split(" ~ ")[0]
    observed = tree["observed_data"][outcome].values
    given = table[outcome] if outcome != "g" else np.searchsorted(["a", "b", "c"], table["g"])
    np.testing.assert_allclose(observed, given, rtol=1e-5)
    constant = tree["constant_data"]
    np.testing.assert_allclose(constant["x"].values, table["x"], rtol=1e-5)
    np.testing.assert_allclose(constant["weight"].values, table["w"])
    assert "Intercept" not in constant
    if "offset" in OUTCOMES[family]:
        np.testing.assert_allclose(constant["offset"].values, np.log(table["years"]), atol=1e-6)
    # what the model would make has the means that it predicts
    made = tree["posterior_predictive"][outcome].values
    assert made.shape == tree["log_likelihood"][outcome].shape == (2, 300, 120)
    predicted = model.predict(
        model.to_standardised(jax.tree.map(np.asarray, made_up(model).position)), table
    )
    if outcome == "g":
        expected, sd = predicted["probability[b]"], 0.5
        made = made == 1
    else:
        expected, sd = predicted["mean"], predicted["sd"]
    z = (made.mean(axis=(0, 1)) - expected) / (sd / np.sqrt(600))
    assert np.abs(z).mean() < 1.2


def test_axes_are_called_as_terms_and_levels_are(table):
    model = FormulaModel.build(table, "g ~ x", "categorical")
    posterior = made_up(model).to_arviz()["posterior"]["coefficients"]
    assert posterior.dims == ("chain", "draw", "level", "term")
    assert list(posterior["level"].values) == ["b", "c"]
    assert list(posterior["term"].values) == ["Intercept", "x"]
    terms = made_up(FormulaModel.build(table, "y ~ x + C(g)", "gaussian")).to_arviz()
    labels = ["Intercept", "x", "C(g)[T.b]", "C(g)[T.c]"]
    for group in ("posterior", "prior"):
        assert list(terms[group]["coefficients_dim"].values) == labels
    # of a category 0 and 1, not what standardising in float32 has made of them
    assert set(np.unique(terms["constant_data"]["C(g)[T.b]"].values)) == {0.0, 1.0}


def test_more_than_max_bytes_is_a_subsample_that_is_named(table):
    table["x"][17] = np.nan
    model = FormulaModel.build(table, "y ~ x", "gaussian", missing="drop")
    tree = made_up(model).to_arviz(max_bytes=8 * 600 * 40, seed=3)
    rows = tree["log_likelihood"]["row"].values
    assert len(rows) == 40 and 17 not in rows and (np.diff(rows) > 0).all()
    for group in ("log_likelihood", "posterior_predictive", "observed_data", "constant_data"):
        np.testing.assert_array_equal(tree[group]["row"].values, rows)
        assert "40 of 119 rows" in tree[group].attrs["subsample"]
    np.testing.assert_allclose(tree["observed_data"]["y"].values, table["y"][rows], rtol=1e-5)
    whole = made_up(model).to_arviz()["log_likelihood"]["y"]
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values, whole.sel(row=rows).values)
    assert "subsample" not in whole.attrs


@pytest.mark.parametrize(
    "prior, mean, sd",
    [
        (None, 0.0, None),
        ("normal(2, 3)", 2.0, 3.0),
        ("laplace(1, 2)", 1.0, 2.0 * np.sqrt(2)),
        ("student_t(8, 1, 2)", 1.0, 2 * np.sqrt(8 / 6)),
    ],
)
def test_draws_of_the_prior_have_its_law(table, prior, mean, sd):
    model = FormulaModel.build(table, "y ~ x", "gaussian", prior)
    found = prior_draws(model, 40_000, 0)
    slope, scale = found["coefficients"][:, 1], np.std(table["y"])
    sd = 2.5 * scale / np.std(table["x"]) if sd is None else sd
    assert abs(slope.mean() - mean) < 0.03 * sd and abs(slope.std() / sd - 1) < 0.03
    np.testing.assert_allclose(np.quantile(found["sigma"], 0.5), 0.6745 * scale, rtol=0.03)


@pytest.mark.parametrize("family, name", [("negative-binomial", "overdispersion"), ("gamma", "shape")])  # fmt: skip
def test_draws_of_a_dispersion_s_prior(table, family, name):
    formula = "count ~ x" if family == "negative-binomial" else "y ~ x"
    found = prior_draws(FormulaModel.build(table, formula, family), 40_000, 0)[name]
    spread = found**0.5 if name == "overdispersion" else found**-0.5
    np.testing.assert_allclose(np.quantile(spread, [0.5, 0.9]), [0.6745, 1.645], rtol=0.03)
    tails = prior_draws(FormulaModel.build(table, "y ~ x", "student-t"), 40_000, 0)["df"]
    np.testing.assert_allclose([tails.mean(), tails.std()], [20, 20 / np.sqrt(2)], rtol=0.03)
    assert tails.min() > 1


@pytest.fixture
def numpyro_promotes():
    """NumPyro's own code promotes ranks and dtypes: its models run under JAX's own rules."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def regression(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 3.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    numpyro.deterministic("twice", 2 * slope)
    with numpyro.plate("groups", 2):
        numpyro.sample("level", dist.Normal(1.0, 0.5))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(slope * x, sigma), obs=y)


def test_a_numpyro_model_fills_every_group(rng, numpyro_promotes):
    x = rng.normal(size=50).astype(np.float32)
    y = (2 * x).astype(np.float32)
    posterior, _ = sgld.from_numpyro(regression, x, y=y)
    b = (2.0 + 0.01 * rng.normal(size=(2, 400))).astype(np.float32)
    level = np.ones((2, 400, 2), np.float32)
    position = {"level": level, "sigma": 0 * b + 0.5, "slope": b, "twice": 2 * b}
    draws = sgld.Draws.of(position, origin=Origin(posterior, posterior.data))
    tree = draws.to_arviz()
    assert set(tree.children) == GROUPS
    assert tree["posterior"]["level"].dims == ("chain", "draw", "groups")
    np.testing.assert_array_equal(tree["observed_data"]["y"].values, y)
    assert list(tree["constant_data"].data_vars) == ["x"]
    expected = dist.Normal(2.0 * x, 0.5).log_prob(y)
    np.testing.assert_allclose(
        tree["log_likelihood"]["y"].mean(("chain", "draw")).values, expected, atol=5e-3
    )
    made = tree["posterior_predictive"]["y"].values
    np.testing.assert_allclose(made.std(axis=(0, 1)), 0.5, rtol=0.15)
    np.testing.assert_allclose(made.mean(axis=(0, 1)), 2 * x, atol=0.1)
    assert abs(np.corrcoef(made[..., 0].ravel(), made[..., 1].ravel())[0, 1]) < 0.12
    prior = tree["prior"]
    np.testing.assert_allclose(float(prior["slope"].std()), 3.0, rtol=0.1)
    np.testing.assert_allclose(prior["twice"].values, 2 * prior["slope"].values, rtol=1e-6)
    assert prior["level"].shape == (1, 1000, 2) and sgld.loo(draws, progress=False).outcome == "y"


def masked(x, seen, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 3.0))
    with numpyro.plate("rows", len(x)), numpyro.handlers.mask(mask=seen):
        numpyro.sample("y", dist.Normal(slope * x, 0.5), obs=y)


def imputed(x, seen, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 3.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(slope * x, 0.5), obs=y, obs_mask=seen)


@pytest.mark.parametrize("model", [masked, imputed])
def test_what_a_mask_leaves_out_was_not_observed(rng, numpyro_promotes, model):
    x, seen = rng.normal(size=50).astype(np.float32), np.arange(50) % 5 > 0
    y = np.where(seen, 2 * x, -99.0).astype(np.float32)
    posterior, _ = sgld.from_numpyro(model, x, seen, y=y)
    slope = (2.0 + 0.01 * rng.normal(size=(2, 200))).astype(np.float32)
    draws = sgld.Draws.of({"slope": slope}, origin=Origin(posterior, posterior.data))
    (observed,) = draws.to_arviz()["observed_data"].data_vars.values()
    np.testing.assert_array_equal(observed.values, np.where(seen, y, np.nan))
    assert (sgld.loo(draws, progress=False).elpd_i[~seen] == 0).all()
    axes = draws.plot("ppc").axes[0]
    assert axes.get_xlim()[0] > -50


def test_of_too_many_predictions_some_draws_are_made_and_named(monkeypatch, rng, numpyro_promotes):
    x = rng.normal(size=50).astype(np.float32)
    posterior, _ = sgld.from_numpyro(regression, x, y=2 * x)
    slope = np.repeat(np.linspace(0, 90, 10, dtype=np.float32)[None], 2, axis=0)
    level, sigma = np.ones((2, 10, 2), np.float32), np.full((2, 10), 0.1, np.float32)
    position = {"level": level, "sigma": sigma, "slope": slope, "twice": 2 * slope}
    draws = sgld.Draws.of(position, origin=Origin(posterior, posterior.data))
    monkeypatch.setattr("sgld.interfaces.arviz.MAX_OUTCOMES", 400)
    tree = draws.to_arviz()
    made = tree["posterior_predictive"]
    assert made["y"].shape == (2, 4, 50) and made["draw"].values.tolist() == [0, 3, 6, 9]
    assert made.attrs["draws"].startswith("one of 3 draws") and tree["log_likelihood"][
        "y"
    ].shape == (2, 10, 50)
    np.testing.assert_allclose(made["y"].values[0, 2], 60 * x, atol=3)


def schools(sd, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("school", len(sd)):
        effect = numpyro.sample("effect", dist.Normal(mu, 3.0))
        numpyro.sample("y", dist.Normal(effect, sd), obs=y)


def test_members_of_a_model_that_is_one_density_have_log_likelihoods_too(rng, numpyro_promotes):
    sd, y = np.array([15.0, 10.0, 16.0], np.float32), np.array([28.0, 8.0, -3.0], np.float32)
    posterior, _ = sgld.from_numpyro(schools, sd, y=y)
    assert posterior.log_likelihood is None
    effect = rng.normal(4.0, 1.0, (2, 500, 3)).astype(np.float32)
    position = {"effect": effect, "mu": effect.mean(axis=-1)}
    tree = sgld.Draws.of(position, origin=Origin(posterior, None)).to_arviz()
    expected = dist.Normal(effect, sd).log_prob(y)
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values, expected, rtol=1e-4)
    assert tree["posterior"]["effect"].dims == ("chain", "draw", "school")
    made = tree["posterior_predictive"]["y"].values
    np.testing.assert_allclose(made.std(axis=(0, 1)), np.hypot(sd, 1.0), rtol=0.1)
    np.testing.assert_array_equal(tree["observed_data"]["y"].values, y)


def test_a_posterior_of_two_functions_is_told_its_outcome(rng):
    x = rng.normal(size=30).astype(np.float32)
    y = (x + 1).astype(np.float32)
    posterior = sgld.Posterior(lambda t: 0.0 * t, lambda t, row: -0.5 * (row[1] - row[0] - t) ** 2)
    t = rng.normal(1.0, 0.1, (2, 400)).astype(np.float32)
    draws = sgld.Draws.of(t, origin=Origin(posterior, (x, y)))
    assert set(draws.to_arviz().children) == {
        "posterior", "sample_stats", "log_likelihood", "constant_data",
    }  # fmt: skip
    simulate = lambda key, t, row: row[0] + t + jax.random.normal(key)  # noqa: E731
    tree = draws.to_arviz(outcome=1, simulate=simulate)
    np.testing.assert_array_equal(tree["observed_data"]["data[1]"].values, y)
    assert list(tree["constant_data"].data_vars) == ["data[0]"]
    made = tree["posterior_predictive"]["data[1]"].values
    np.testing.assert_allclose(made.mean(axis=(0, 1)), x + 1, atol=0.2)
    np.testing.assert_allclose(made.std(), np.sqrt(1.01 + x.var()), rtol=0.05)
    with pytest.raises(UsageError, match=r"one of the data, data\[0\], data\[1\]. Got 2"):
        draws.to_arviz(outcome=2)


def test_draws_with_weights_are_resampled_and_that_is_said(rng):
    x = rng.normal(size=(2, 3000, 2))
    draws = sgld.Draws.of({"b": x}, log_weight=1.0 * x[..., 0])
    with pytest.warns(SGLDWarning, match="resampled to equal weights"):
        tree = draws.to_arviz()
    mean = tree["posterior"]["b"].mean(("chain", "draw")).values
    np.testing.assert_allclose(mean, draws.mean()["b"], atol=5e-3)
    assert "resampled" in tree["posterior"].attrs
    assert np.ptp(tree["sample_stats"]["log_weight"].values) == 0
    kept = draws.to_arviz(weights="keep")
    np.testing.assert_array_equal(kept["posterior"]["b"].values, x)
    assert "resampled" not in kept["posterior"].attrs


def test_what_cannot_be_given_is_told(rng, monkeypatch):
    draws = sgld.Draws.of({"b": rng.normal(size=(2, 100))})
    for how, said in (
        ({"weights": "none"}, 'weights must be "resample" or "keep"'),
        ({"max_bytes": 0}, "max_bytes must be"),
        ({"seed": 0.5}, "seed"),
    ):
        with pytest.raises(UsageError, match=said):
            draws.to_arviz(**how)
    moments = sgld.sample(
        sgld.Posterior(lambda t: -0.5 * t**2), None, 0.0, keep="moments", num_draws=100, progress=False,
        step_size=0.1,
    )  # fmt: skip
    with pytest.raises(RunError, match="kept only moments"):
        moments.to_arviz()
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "arviz":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"before 1\.0.*pip install 'arviz<1'"):
        draws.to_inferencedata()


def test_inferencedata_is_made_of_the_same_groups(rng, monkeypatch):
    """ArviZ before 1.0 takes its groups by name."""
    import sys
    import types

    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(InferenceData=dict))
    draws = sgld.Draws.of({"b": rng.normal(size=(2, 100))})
    found = draws.to_inferencedata(weights="keep")
    assert set(found) == {"posterior", "sample_stats"}
    assert found["posterior"]["b"].shape == (2, 100) and jnp.ndim(draws.position["b"]) == 2


def test_a_terminal_sees_what_is_computed(table, monkeypatch, capsys):
    seen = []
    inner = progress._Stages.enter
    monkeypatch.setattr(
        progress._Stages, "enter", lambda self, *given: seen.append(given[0]) or inner(self, *given)
    )
    draws = made_up(FormulaModel.build(table, OUTCOMES["gaussian"], "gaussian"))
    draws.to_arviz(max_bytes=10**4)
    assert seen == ["loading ArviZ", "data", "log likelihoods and predictions", "prior"]
    seen.clear()
    draws.to_arviz(max_bytes=10**4, progress=False)
    assert not seen and capsys.readouterr().err == ""
