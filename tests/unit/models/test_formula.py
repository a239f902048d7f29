import json
import re
import warnings
from types import SimpleNamespace

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

from sgld.data.tables import bundled, read_table
from sgld.errors import DataError, SGLDWarning, UsageError
from sgld.regression import design, predictive
from sgld.regression.families import find_family
from sgld.regression.formula import FormulaModel
from sgld.regression.priors import gamma_of_two
from sgld.regression.result import Predicting, rows_in

RNG = np.random.default_rng(7)
N = 60
YEAR = np.arange(N) % 31 + 1990.0
TABLE = pa.table(
    {
        "y": 1e4 + 3.0 * (YEAR - 2000) + RNG.normal(0, 2, N),
        "b": RNG.random(N) < 0.4,
        "n": RNG.poisson(3.0, N),
        "year": YEAR,
        "x": RNG.gamma(2.0, 1.0, N) + 0.1,
        "g": np.array(["low", "mid", "high"])[np.arange(N) % 3],
        "k": np.arange(N) % 4,
        "two words": RNG.normal(size=N),
    }
)
RICH = "y ~ np.log(x) + poly(x, 3) + bs(year, df=4) + C(k) + g:`two words` + center(x):b"


def with_cell(name, row, value):
    values = TABLE[name].to_pylist()
    values[row] = value
    return TABLE.set_column(TABLE.column_names.index(name), name, pa.array(values))


def with_column(name, values):
    return TABLE.append_column(name, pa.array(values))


def draws(model, count=200, chains=2):
    """Positions scattered about the start, [chain, draw, ...]."""
    rng = np.random.default_rng(1)
    scatter = lambda v: rng.normal(v, 0.1, (chains, count, *np.shape(v)))  # noqa: E731
    position = {k: scatter(np.asarray(v)) for k, v in model.posterior.init.items()}
    return {k: v if k == "coefficients" else np.abs(v) for k, v in position.items()}


def test_names_and_data():
    model = FormulaModel.build(TABLE, "y ~ year + C(k)")
    assert model.names == ("Intercept", "year", "C(k)[T.1]", "C(k)[T.2]", "C(k)[T.3]", "sigma")
    x, y = model.data
    assert x.shape == (N, 5) and y.shape == (N,) and x.dtype == y.dtype == jnp.float32
    np.testing.assert_allclose(x[:, 0], 1.0)
    np.testing.assert_allclose(np.asarray(x[:, 1:]).mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(np.asarray(x[:, 1:]).std(0), 1, rtol=1e-5)
    assert repr(model) == "FormulaModel('y ~ year + C(k)', gaussian, 6 parameters, 60 rows)"


def original_log_posterior(model, position, log_prior):
    """In float64 on the original columns, by scipy."""
    x = np.column_stack([np.ones(N), TABLE["year"], TABLE["x"]])
    eta = x @ position["coefficients"]
    y = TABLE[model.spec["design"]["outcome"]].to_numpy().astype(float)
    if model.family.name == "gaussian":
        likelihood = scipy.stats.norm(eta, position["sigma"]).logpdf(y)
        half = scipy.stats.halfnorm(scale=y.std()).logpdf(position["sigma"])
    elif model.family.name == "bernoulli":
        likelihood, half = scipy.stats.bernoulli(1 / (1 + np.exp(-eta))).logpmf(y), 0.0
    else:
        likelihood, half = scipy.stats.poisson(np.exp(eta)).logpmf(y), 0.0
    return likelihood.sum() + log_prior(position["coefficients"]) + half


PRIORS = {
    "normal(1, 300)": scipy.stats.norm(1, 300).logpdf,
    "student_t(3, 0, 250)": scipy.stats.t(3, 0, 250).logpdf,
    "laplace(0, 400)": scipy.stats.laplace(0, 400).logpdf,
}


@pytest.mark.parametrize("prior", [None, *PRIORS])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
def test_log_posterior_is_the_original_one(family, prior):
    outcome = {"gaussian": "y", "bernoulli": "b", "poisson": "n"}[family]
    model = FormulaModel.build(TABLE, f"{outcome} ~ year + x", family, prior)

    def log_prior(b):
        if prior is not None:
            return PRIORS[prior](b).sum()
        y = TABLE[outcome].to_numpy().astype(float)
        s = y.std() if family == "gaussian" else 1.0
        means = np.array([TABLE["year"].to_numpy().mean(), TABLE["x"].to_numpy().mean()])
        sds = np.array([TABLE["year"].to_numpy().std(), TABLE["x"].to_numpy().std()])
        at_means = b[0] + b[1:] @ means
        centre = y.mean() if family == "gaussian" else np.log((y.sum() + 0.5) / N)
        if family == "bernoulli":
            centre = np.log((y.sum() + 0.5) / (N - y.sum() + 0.5))
        return (
            scipy.stats.norm(centre, 2.5 * s).logpdf(at_means)
            + scipy.stats.norm(0, 2.5 * s / sds).logpdf(b[1:]).sum()
        )

    positions = draws(model, 4, 1)
    exact, ours = [], []
    for i in range(4):
        position = jax.tree.map(lambda v, i=i: jnp.asarray(v[0, i], jnp.float32), positions)
        free = model.posterior.unconstrain(position)
        log_jacobian = np.log(position["sigma"]) if family == "gaussian" else 0.0
        ours.append(
            model.posterior.log_prior_free(free)
            + model.posterior.log_likelihood_free(free, model.data)
            - log_jacobian
        )
        exact.append(original_log_posterior(model, model.to_original(position), log_prior))
    difference = np.asarray(ours, np.float64) - np.asarray(exact)
    np.testing.assert_allclose(difference, difference.mean(), atol=3e-4 * max(1, abs(ours[0]) / 99))


def test_gradient_is_the_finite_difference():
    model = FormulaModel.build(TABLE, "y ~ year + x", prior="student_t(4, 0, 50)")
    with jax.enable_x64(True):
        posterior, data = jax.tree.map(
            lambda v: jnp.asarray(v, jnp.float64), (model.posterior, model.data)
        )
        free = posterior.unconstrain(posterior.init)
        flat, unravel = jax.flatten_util.ravel_pytree(free)

        def f(z):
            return posterior.log_prior_free(unravel(z)) + posterior.log_likelihood_free(
                unravel(z), data
            )

        numeric = [(f(flat + 1e-5 * e) - f(flat - 1e-5 * e)) / 2e-5 for e in jnp.eye(flat.size)]
        np.testing.assert_allclose(jax.grad(f)(flat), jnp.stack(numeric), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("formula", ["y ~ year + x + g", "y ~ 0 + x + year", "n ~ x + year"])
def test_maps_invert_and_keep_the_linear_predictor(formula):
    model = FormulaModel.build(TABLE, formula, "poisson" if formula[0] == "n" else "gaussian")
    position = draws(model)
    original = model.to_original(position)
    assert original["coefficients"].shape == position["coefficients"].shape
    back = model.to_standardised(original)
    for name in position:
        np.testing.assert_allclose(back[name], position[name], rtol=1e-9, atol=1e-9)
    x = model.design(TABLE) * model.scale + model.center
    shift, stretch = model.spec["outcome_center"], model.spec["outcome_scale"]
    np.testing.assert_allclose(
        original["coefficients"] @ x.T,
        shift + stretch * position["coefficients"] @ model.design(TABLE).T,
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        model.flat(original), model.flat(position) @ model.matrix.T + model.offset
    )


def test_year_and_large_outcome_in_float32_find_least_squares():
    model = FormulaModel.build(TABLE, "y ~ year")
    x, y = (np.asarray(a, np.float64) for a in model.data)
    z = np.linalg.lstsq(x, y, rcond=None)[0]
    found = model.to_original({"coefficients": z, "sigma": 1.0})["coefficients"]
    raw = np.column_stack([np.ones(N), YEAR])
    exact = np.linalg.lstsq(raw, TABLE["y"].to_numpy(), rcond=None)[0]
    np.testing.assert_allclose(found, exact, rtol=1e-6)


@pytest.mark.parametrize("formula", [RICH, "y ~ 0 + C(g) + scale(x):year", "y ~ .", "y ~ I(x**2)"])
def test_spec_round_trip(formula):
    model = FormulaModel.build(TABLE, formula, prior="laplace(0, 3)")
    spec = json.loads(json.dumps(model.spec, allow_nan=False))
    again = FormulaModel.from_spec(spec, TABLE)
    assert again.names == model.names and again.prior_text == model.prior_text
    for ours, theirs in zip(model.data, again.data, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    unseen = FormulaModel.from_spec(spec)
    assert unseen.data is None
    few = TABLE.slice(17, 5).drop_columns(["y"])
    np.testing.assert_allclose(unseen.design(few), model.data[0][17:22], atol=1e-5)


def test_same_shapes_share_compiled_functions():
    first = FormulaModel.build(TABLE, "y ~ x", prior="normal(0, 1)")
    second = FormulaModel.build(TABLE, "y ~ year", prior="normal(3, 2)")
    assert jax.tree.structure(first.posterior) == jax.tree.structure(second.posterior)


def test_prior_text():
    lines = FormulaModel.build(TABLE, "n ~ x", "poisson").prior_text
    sd = TABLE["x"].to_numpy().std()
    assert lines[0].startswith("Intercept, at the predictors' means ~ normal(")
    assert lines[1] == f"x ~ normal(0, {2.5 / sd:.4g})"
    lines = FormulaModel.build(TABLE, "y ~ x", prior="normal(0, 3)").prior_text
    y_sd = TABLE["y"].to_numpy().std()
    assert lines == (
        "every coefficient, intercept included ~ normal(0, 3)",
        f"sigma ~ half-normal({y_sd:.4g})",
    )


def test_more_columns_than_rows_is_left_to_the_prior():
    table = {f"x{i}": RNG.normal(size=5) for i in range(8)} | {"n": RNG.poisson(3.0, 5)}
    assert FormulaModel.build(table, "n ~ .", "poisson").data[0].shape == (5, 9)


def test_columns_that_the_data_hardly_tell_apart_are_named():
    rng = np.random.default_rng(5)
    x, other = rng.normal(size=53), rng.normal(size=53)
    table = {"a": x, "b": x + 1e-3 * rng.normal(size=53), "c": other, "y": x + rng.normal(size=53)}
    model = FormulaModel.build(pa.table(table), "y ~ a + b + c")
    (note,) = model.posterior.notes
    again = FormulaModel.from_spec(model.spec, pa.table(table))
    assert tuple(again.posterior.notes) == (note,)
    assert note.startswith("columns 'a', 'b' are nearly combinations") and "'c'" not in note
    near = pa.table({**table, "b": x + 0.2 * rng.normal(size=53)})
    assert not tuple(FormulaModel.build(near, "y ~ a + b + c").posterior.notes)
    curve = pa.table({"x": rng.random(2000), "y": rng.normal(size=2000)})
    assert not tuple(FormulaModel.build(curve, "y ~ x + I(x**2) + I(x**3)").posterior.notes)


def test_predict_gaussian():
    model = FormulaModel.build(TABLE, "y ~ year + x")
    position = draws(model, 500)
    out = model.predict(position, TABLE.slice(0, 7), prob=0.8, seed=3)
    assert set(out) == {"mean", "sd", "lower", "upper"}
    original = model.to_original(position)
    raw = np.column_stack([np.ones(N), TABLE["year"], TABLE["x"]])[:7]
    eta = original["coefficients"].reshape(-1, 3) @ raw.T
    np.testing.assert_allclose(out["mean"], eta.mean(0), rtol=1e-9)
    expected = np.sqrt(np.mean(original["sigma"] ** 2) + eta.var(0))
    np.testing.assert_allclose(out["sd"], expected, rtol=1e-6)
    normal = scipy.stats.norm(out["mean"], out["sd"])
    assert np.all(np.abs(normal.cdf(out["lower"]) - 0.1) < 0.05)
    assert np.all(np.abs(normal.cdf(out["upper"]) - 0.9) < 0.05)
    again = model.predict(position, TABLE.slice(0, 7), prob=0.8, seed=3)
    np.testing.assert_array_equal(out["lower"], again["lower"])


def test_predict_weights_and_chunks(monkeypatch):
    model = FormulaModel.build(TABLE, "b ~ x", "bernoulli")
    position = draws(model, 50)
    weights = np.zeros((2, 50))
    weights[1, 3] = 5.0
    out = model.predict(position, TABLE, weights=weights)
    alone = model.predict({"coefficients": position["coefficients"][1, 3][None]}, TABLE)
    np.testing.assert_allclose(out["probability"], alone["probability"])
    np.testing.assert_array_equal(out["mean"], out["probability"])
    assert set(np.unique(out["upper"])) <= {0.0, 1.0}
    monkeypatch.setattr("sgld.regression.predictive.CHUNK_CELLS", 700)
    np.testing.assert_allclose(model.predict(position, TABLE, weights=weights)["sd"], out["sd"])


@pytest.mark.parametrize("count", [1, 7, 20, 999])
def test_ends_of_intervals_are_quantiles(count):
    values = np.random.default_rng(count).normal(size=(3, 2, count))
    for prob in (0.05, 0.5, 0.9, 0.999):
        expected = np.quantile(
            values, [(1 - prob) / 2, (1 + prob) / 2], axis=-1, method="inverted_cdf"
        )
        np.testing.assert_array_equal(predictive._ends(values, prob), expected)


LAWS = {
    "gaussian": lambda eta, sigma: scipy.stats.norm(eta, sigma),
    "student-t": lambda eta, df, sigma: scipy.stats.t(df, eta, sigma),
    "bernoulli": lambda eta: scipy.stats.bernoulli(scipy.special.expit(eta)),
    "binomial": lambda eta: scipy.stats.binom(9, scipy.special.expit(eta)),
    "poisson": lambda eta: scipy.stats.poisson(np.exp(eta)),
    "gamma": lambda eta, shape: scipy.stats.gamma(shape, scale=np.exp(eta) / shape),
    "lognormal": lambda eta, sigma: scipy.stats.lognorm(sigma, scale=np.exp(eta)),
}


@pytest.mark.parametrize("name", LAWS)
def test_intervals_hold_what_the_mixture_of_laws_gives_them(name):
    """P(y < lower) <= tail <= P(y <= lower) of the exact mixture, to Monte Carlo error, in 40 rows."""
    pytest.importorskip("numpyro")
    family, rng = find_family(name), np.random.default_rng(7)
    x = np.column_stack([np.ones(40), rng.normal(size=40)])
    z = rng.normal([0.5, 1.0], 0.3, (4000, 2))
    given = {name: rng.uniform(3, 5, 4000) for name in family.dispersion}
    extra = {"trials": np.full(40, 9.0)} if family.trials else {}
    how = {"prob": 0.8, "weights": None, "seed": 1, "max_draws": 4000}
    found = predictive.predictive(family, {"coefficients": z, **given}, x, extra, **how)
    law = LAWS[name](x @ z.T, **given)
    assert np.allclose(found["mean"], law.mean().mean(1), rtol=1e-9)
    error = (
        0.0
        if name == "bernoulli"
        else 4.5 * np.sqrt(0.09 / (4000 if family.location_scale else 1000))
    )
    for end, tail in (("lower", 0.1), ("upper", 0.9)):
        up_to = law.cdf(found[end][:, None]).mean(1)
        below = law.cdf(found[end][:, None] - 1).mean(1) if hasattr(law, "pmf") else up_to
        assert np.all(up_to >= tail - error) and np.all(below <= tail + error), (name, end)


def test_rows_alike_have_the_same_interval_where_noise_is_added():
    model = FormulaModel.build(TABLE, "y ~ year + x")
    same = TABLE.take([5] * 300)
    out = model.predict(draws(model, 500), same)
    assert len(np.unique(out["lower"])) == len(np.unique(out["upper"])) == 1


@pytest.mark.parametrize("name", ["poisson", "gamma", "binomial"])
def test_a_rows_interval_does_not_depend_on_the_other_rows(name):
    family, rng = find_family(name), np.random.default_rng(7)
    x, position = rng.normal(size=(90, 2)), {"coefficients": rng.normal(size=(1200, 2))}
    position |= {name: rng.uniform(3, 5, 1200) for name in family.dispersion}
    extra = {"trials": rng.integers(5, 20, 90) * 1.0} if family.trials else {}
    how = {"prob": 0.8, "weights": None, "seed": 1, "max_draws": 1200}
    every = predictive.predictive(family, position, x, extra, **how)
    for rows in ([80], [89, 3, 41]):
        given = {name: value[rows] for name, value in extra.items()}
        some = predictive.predictive(family, position, x[rows], given, **how)
        for end in ("lower", "upper"):
            np.testing.assert_allclose(some[end], every[end][rows], rtol=1e-9)


def test_predict_mistakes():
    model = FormulaModel.build(TABLE, "y ~ x + g + C(k)")
    position = draws(model, 3)
    for table, message in [
        (
            with_cell("g", 4, "huge"),
            "g is huge in data row 5, a level outside 'high', 'low', 'mid'",
        ),
        (with_cell("k", 9, 11), r"C\(k\) is 11 in data row 10, a level outside 0, 1, 2, 3"),
        (with_cell("x", 2, None), "'x' is null .* data row 3"),
        (with_cell("x", 2, float("nan")), "'x' is nan in data row 3"),
        (TABLE.drop_columns(["x"]), "names 'x', which is not a column"),
        (TABLE.set_column(4, "x", pa.array(["a"] * N)), "'x' holds string values"),
        (TABLE.set_column(5, "g", pa.array(range(N))), "give each column the type it had"),
    ]:
        with pytest.raises(DataError, match=message):
            model.predict(position, table)
    for arguments, message in [
        ({"prob": 1.0}, "prob must lie between 0 and 1"),
        ({"weights": np.ones(4)}, r"weights have shape \(4,\); the draws have \(2, 3\)"),
        ({"weights": np.full((2, 3), -1.0)}, "not negative"),
    ]:
        with pytest.raises(UsageError, match=message):
            model.predict(position, TABLE, **arguments)


def test_rows_with_a_new_level_are_empty_and_counted():
    model = FormulaModel.build(TABLE, "y ~ x + g + C(k)")
    some = SimpleNamespace(healthy=np.ones(2, bool), position=draws(model, 3), weights=None)
    predicting = Predicting(model, some, prob=0.9, seed=0, kind="mean")
    table = with_cell("g", 4, "huge").set_column(6, "k", with_cell("k", 9, 11)["k"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SGLDWarning)
        found = predicting.together(rows_in(table))["mean"]
    assert [
        re.match(r"2 of 60 rows .*g is huge in data row 5", str(w.message)) for w in caught
    ] != [None]
    assert len(caught) == 1
    assert np.flatnonzero(np.isnan(found)).tolist() == [4, 9]
    whole, known = predicting.together(rows_in(TABLE))["mean"], ~np.isnan(found)
    np.testing.assert_allclose(found[known], whole[known], rtol=1e-6)


USAGE = {
    "family": (("y ~ x", "gausian"), "Got 'gausian'. Did you mean 'gaussian'"),
    "no outcome": (("x + g",), "has no outcome"),
    "no left side": (("~ x",), "has no outcome"),
    "constant outcome": (("1 ~ x",), "has no outcome"),
    "two outcomes": (("y + n ~ x",), "several outcomes"),
    "bar": (("y ~ x | g",), r"has a '\|'"),
    "syntax": (("y ~ x +",), "cannot be read: Operator `\\+` has insufficient"),
    "bracket": (("y ~ (x",), "cannot be read"),
    "no predictors": (("y ~ 0",), "no predictors"),
    "prior name": (("y ~ x", "gaussian", "norml(0, 1)"), "Did you mean 'normal'"),
    "prior form": (("y ~ x", "gaussian", "normal"), r"normal\(mean, sd\), student_t"),
    "prior count": (("y ~ x", "gaussian", "normal(0)"), "takes 2 numbers"),
    "prior words": (("y ~ x", "gaussian", "normal(0, b)"), "numbers only"),
    "prior sd": (("y ~ x", "gaussian", "normal(0, -1)"), "sd must be positive. Got -1"),
    "prior df": (("y ~ x", "gaussian", "student_t(0, 0, 1)"), "df must be positive"),
    "prior inf": (("y ~ x", "gaussian", "laplace(inf, 1)"), "loc must be finite"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage_mistakes(case):
    arguments, message = USAGE[case]
    with pytest.raises(UsageError, match=message):
        FormulaModel.build(TABLE, *arguments)


SLIP = [str(i) for i in range(N - 1)] + ["12,5"]
DATA = {
    "unknown column": (TABLE, "y ~ yer", r"names 'yer', which is not a column.*mean 'year'"),
    "unknown function": (TABLE, "y ~ lgo(x)", "names 'lgo'.*Did you mean 'log'"),
    "unknown outcome": (TABLE, "yy ~ x", "names 'yy'"),
    "text outcome": (TABLE, "g ~ x", r"'g' holds words \('high', 'low', 'mid'\).*categorical"),
    "categorical outcome": (TABLE, "C(k) ~ x", r"outcome 'C\(k\)' is not one column"),
    "null outcome": (with_cell("y", 4, None), "y ~ x", "'y' is null .* data row 5"),
    "null": (with_cell("x", 4, None), "y ~ x", "'x' is null .* data row 5"),
    "null text": (with_cell("g", 4, None), "y ~ g", "'g' is null .* data row 5"),
    "nan": (with_cell("x", 0, float("nan")), "y ~ np.log(x)", "'x' is nan in data row 1"),
    "inf": (with_cell("x", 9, float("inf")), "y ~ x", "'x' is inf in data row 10"),
    "log 0": (with_cell("x", 9, 0.0), "y ~ np.log(x)", r"'np.log\(x\)' is -inf in data row 10"),
    "log of text": (TABLE, "y ~ np.log(g)", "cannot be evaluated"),
    "constant": (with_column("c", [2.5] * N), "y ~ x + c", r"'c' is constant \(2.5 in every row"),
    "constant outcome": (with_column("c", [2.5] * N), "c ~ x", "outcome 'c' is constant"),
    "collinear": (TABLE, "y ~ x + year + I(2*x-year)", r"x - year\)' is collinear.*'x', 'year'"),
    "backticks": (
        with_cell("two words", 1, None),
        "y ~ np.exp(`two words`)",
        "'two words' is null",
    ),
    "duplicate": (with_column("x2", TABLE["x"]), "y ~ 0 + x + x2", "'x2' is a duplicate of 'x';"),
    "scaled": (
        with_column("x2", 2 * np.asarray(TABLE["x"])),
        "y ~ 0 + x + x2",
        "'x2' is collinear.* of 'x';",
    ),
    "dummy": (
        with_column("d", [i % 4 == 1 for i in range(N)]),
        "y ~ C(k) + d",
        "'d' is a duplicate of 'C",
    ),
    "not dummy": (
        with_column("d", [i % 4 != 1 for i in range(N)]),
        "y ~ C(k) + d",
        "'d' is collinear",
    ),
    "dates": (with_column("d", pa.array(range(N), pa.date32())), "y ~ d", "date32"),
    "slip": (with_column("s", SLIP), "y ~ s", "'s' is '12,5' in data row 60, and most"),
    "nominated levels": (TABLE, "y ~ C(g, levels=['low', 'mid'])", "is high in data row 3"),
    "no rows": (TABLE.slice(0, 0), "y ~ x", "no rows"),
}


@pytest.mark.parametrize("case", DATA)
def test_data_mistakes(case):
    table, formula, message = DATA[case]
    with pytest.raises(DataError, match=message):
        FormulaModel.build(table, formula)


def test_all_columns_that_cannot_be_told_apart_are_named_at_once():
    x, year = np.asarray(TABLE["x"]), np.asarray(TABLE["year"])
    more = {"c": np.full(N, 2.5), "c2": np.zeros(N), "twin": x, "sum": x + year, "three": 3 * x}
    table = pa.table({**{name: TABLE[name] for name in ("y", "x", "year")}, **more})
    with pytest.raises(DataError) as error:
        FormulaModel.build(table, "y ~ x + year + " + " + ".join(more))
    assert str(error.value) == (
        "columns 'c' is constant (2.5 in every row), 'c2' is constant (0 in every row), 'twin' is a "
        "duplicate of 'x', 'sum' is collinear: a linear combination of 'x', 'year' and the intercept, "
        "'three' is collinear: a linear combination of 'x' and the intercept; take them out of the formula."
    )


@pytest.mark.parametrize("columns", [40, 60])
def test_more_columns_than_rows_are_no_reason_to_refuse(columns):
    """Every prior of a formula's model is proper, and so is the posterior, the scale's included."""
    rng = np.random.default_rng(0)
    table = {f"x{i}": rng.standard_normal(40) for i in range(columns)}
    table |= {"y": rng.standard_normal(40), "b": rng.integers(0, 2, 40)}
    formula = " + ".join(f"x{i}" for i in range(columns))
    assert len(FormulaModel.build(table, f"y ~ {formula}").names) == columns + 2  # sigma among them
    assert len(FormulaModel.build(table, f"b ~ {formula}", "bernoulli").names) == columns + 1
    with pytest.raises(DataError, match=r"^column 'one' is constant .*out of the formula\.$"):
        FormulaModel.build(table | {"one": np.ones(40)}, f"y ~ {formula} + one")


def test_long_ids_are_no_constants():
    table = {"y": RNG.normal(size=50), "id": 10_000_000_000_000_000 + 2 * np.arange(50)}
    with pytest.raises(
        DataError, match=r"'id' holds whole numbers .* as ids do \(10000000000000000 in"
    ):
        FormulaModel.build(table, "y ~ id")
    table["id"] = np.full(50, 1.1) + 1e-16 * np.arange(50)  # the rounding of one number
    with pytest.raises(DataError, match=r"'id' is constant \(1.1 in every row"):
        FormulaModel.build(table, "y ~ id")


def test_ids_are_not_categories():
    table = {"y": np.arange(1500.0), "id": [f"u{i}" for i in range(1500)]}
    with pytest.raises(DataError, match="text with 1500 levels"):
        FormulaModel.build(table, "y ~ id")


@pytest.mark.parametrize(("family", "outcome"), [("bernoulli", "n"), ("poisson", "x")])
def test_outcome_out_of_range(family, outcome):
    with pytest.raises(DataError, match=f"outcome '{outcome}' is .* in data row .*{family}"):
        FormulaModel.build(TABLE, f"{outcome} ~ year", family)


def test_other_data_on_resume():
    model = FormulaModel.build(TABLE, "y ~ C(k)")
    with pytest.raises(DataError, match="give the data that the run was fitted to"):
        FormulaModel.from_spec(model.spec, with_cell("k", 3, 9))


def test_randhie_laplace_matches_newton():
    """The mode and the columns' names of the demonstration, by Newton on the original columns."""
    formula = "mdvis ~ lncoins + physlm + disea + C(hlthg)"
    model = FormulaModel.build(read_table(bundled("randhie")), formula, "poisson", "normal(0, 10)")
    assert model.names == ("Intercept", "lncoins", "physlm", "disea", "C(hlthg)[T.1]")
    y = np.asarray(model.data[1], np.float64)
    standard = np.asarray(model.data[0], np.float64)
    raw = standard * model.scale + model.center
    b = np.r_[np.log(y.mean()), np.zeros(4)]
    for _ in range(20):
        mean = np.exp(raw @ b)
        hessian = raw.T @ (mean[:, None] * raw) + np.eye(5) / 100
        b += np.linalg.solve(hessian, raw.T @ (y - mean) - b / 100)
    position = model.to_standardised({"coefficients": b})
    position = {"coefficients": jnp.asarray(position["coefficients"], jnp.float32)}
    gradient = jax.grad(
        lambda z: (
            model.posterior.log_prior_free(z) + model.posterior.log_likelihood_free(z, model.data)
        )
    )(position)
    sd = np.sqrt(np.diag(np.linalg.inv(standard.T @ (np.exp(raw @ b)[:, None] * standard))))
    # the mode within 1% of a posterior sd, in float32
    assert np.all(np.abs(np.asarray(gradient["coefficients"])) * sd < 0.01)


@pytest.mark.parametrize("formula", ["y ~ x + k", "y ~ 0 + k + x", "k ~ y", "y ~ x:k + x", "y ~ C(k) + x", "log(y + 9) ~ x + offset(x)", "y ~ exp(x)"])  # fmt: skip
def test_known_columns_are_made_again_to_the_bit(formula, monkeypatch):
    """Columns as they are by a way of their own, and all others by formulaic's."""
    rng, n = np.random.default_rng(0), 70_001  # more than a block
    whole = {"x": rng.normal(3, 2, n).astype(np.float32), "k": rng.integers(0, 4, n), "y": rng.normal(size=n)}  # fmt: skip
    table = pa.table({**whole, "exp(x)": whole["k"]})
    model = FormulaModel.build(table, formula)
    learnt = []
    real = design.learn
    monkeypatch.setattr(design, "learn", lambda *args: learnt.append(args) or real(*args))
    made = FormulaModel.from_spec(json.loads(json.dumps(model.spec)), table)
    for one, other in zip(jax.tree.leaves(model.data), jax.tree.leaves(made.data), strict=True):
        assert one.dtype == other.dtype and np.array_equal(one, other)
    assert bool(learnt) == any(sign in formula for sign in (":", "("))
    for at, name in ((0, "x"), (2, "y")):
        if name in formula:
            cells = np.where(np.arange(n) == 7, np.inf, whole[name])
            with pytest.raises(DataError, match=r"row 8\b"):
                FormulaModel.from_spec(model.spec, table.set_column(at, name, pa.array(cells)))


def test_ties_leave_the_degrees_of_freedom_above_one():
    """35 of 100 outcomes are one number: at df < .5 the density would rise without end as sigma goes to 0."""
    y = np.append(np.zeros(35), RNG.normal(5, 3, 65))
    model = FormulaModel.build(pa.table({"y": y}), "y ~ 1", "student-t")
    x, ys = model.data
    assert float(x[0, 0]) == 1.0

    def at(log_sigma, df=-20.0):
        free = {"coefficients": ys[:1], "df": jnp.float32(df), "sigma": jnp.float32(log_sigma)}
        posterior = model.posterior
        return float(posterior.log_prior_free(free) + posterior.log_likelihood_free(free, (x, ys)))

    assert at(-4.0) > at(-8.0) > at(-12.0) and at(-4.0) > at(-12.0, -2.0) + 50
    start = {**model.posterior.init, "df": jnp.float32(1.0)}
    with pytest.raises(UsageError, match=r"the start of 'df' must be above 1\. Got 1"):
        model.posterior.unconstrain(start)


def test_the_prior_of_the_degrees_of_freedom_is_a_density_above_one():
    df = jnp.linspace(1.0, 200.0, 200_001)
    mass = jnp.trapezoid(jnp.exp(gamma_of_two(0.1, df)), df)
    np.testing.assert_allclose(mass, 1.0, rtol=1e-3)
