"""Leave-one-out and WAIC against closed forms and ArviZ's own, and the sentences where there is none."""

import pickle
import warnings
from dataclasses import replace

import arviz_stats
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import UsageError
from sgld.interfaces.arviz_criteria import difference
from sgld.interfaces.arviz_rows import choose
from sgld.regression.formula import FormulaModel
from sgld.results.plan import Origin

HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


def log_likelihood(t, y):
    return -0.5 * (y - t) ** 2 - HALF_LOG_2PI


POSTERIOR = sgld.Posterior(lambda t: 0.0 * t, log_likelihood)


def exact(y):
    """log p(y_i | y_-i) of a normal mean under a flat prior: N(mean of the others, 1 + 1/(n - 1))."""
    others = (y.sum() - y) / (len(y) - 1)
    variance = 1 + 1 / (len(y) - 1)
    return -0.5 * (y - others) ** 2 / variance - 0.5 * np.log(variance) - HALF_LOG_2PI


def draws_of(y, rng, shape=(4, 1000), origin=True):
    t = rng.normal(y.mean(), 1 / np.sqrt(len(y)), shape)
    return sgld.Draws.of({"t": t} if not origin else t, origin=Origin(POSTERIOR, y))


@pytest.fixture
def y(rng):
    return rng.normal(1.0, 1.0, 250).astype(np.float32)


def test_loo_is_the_predictive_density_of_a_row_left_out(y, rng):
    draws, truth = draws_of(y, rng), exact(y.astype(float))
    for criterion in (sgld.loo, sgld.waic):
        found = criterion(draws, progress=False)
        np.testing.assert_allclose(found.elpd_i, truth, atol=5e-3)
        assert abs(found.elpd - truth.sum()) < 0.05
        assert abs(found.se - np.sqrt(len(y)) * truth.std()) < 0.05
        assert 0.85 < found.p < 1.15 and found.subsampling_se == 0
        assert len(found.bad_rows) == 0 and "reliable" in str(found)


def test_loo_is_that_of_arviz_on_what_arviz_is_given(y, rng):
    draws = draws_of(y, rng)
    ours, theirs = (
        sgld.loo(draws, progress=False),
        arviz_stats.loo(draws.to_arviz(), pointwise=True),
    )
    np.testing.assert_allclose(ours.elpd_i, theirs.elpd_i, atol=1e-6)
    np.testing.assert_allclose(ours.pareto_k, theirs.pareto_k, atol=1e-6)
    np.testing.assert_allclose([ours.elpd, ours.p], [theirs.elpd, theirs.p])
    # arviz-stats divides the sum of squares by N up to 1.2 and by N - 1 since
    assert any(np.isclose(ours.se * factor, theirs.se) for factor in (1, np.sqrt(250 / 249)))
    kept = ours.to_arviz()
    assert kept.elpd == ours.elpd and not kept.warning and kept.n_data_points == 250


def test_rows_that_say_nothing_add_nothing(y, rng):
    """As those of a mask: no tail can be smoothed of numbers that are all 0."""
    posterior = sgld.Posterior(
        lambda t: 0.0 * t, lambda t, row: jnp.where(row[1], log_likelihood(t, row[0]), 0.0)
    )
    some = draws_of(y, rng)
    seen = np.arange(250) % 5 > 0
    draws = replace(some, origin=Origin(posterior, (y, seen)))
    found = sgld.loo(draws, progress=False)
    assert (found.elpd_i[~seen] == 0).all() and len(found.bad_rows) == 0
    alone = sgld.loo(replace(some, origin=Origin(POSTERIOR, y[seen])), progress=False)
    np.testing.assert_allclose(found.elpd, alone.elpd, rtol=1e-5)


def test_the_difference_estimator_is_that_of_arviz(y, rng):
    tree = draws_of(y, rng).to_arviz()
    whole, rows = arviz_stats.loo(tree, pointwise=True), np.arange(0, 250, 5)
    theirs = arviz_stats.loo_subsample(tree, observations=rows)
    lpd = np.asarray(theirs.elpd_loo_approx)
    found = difference(np.asarray(whole.elpd_i)[rows], lpd[rows], lpd)
    np.testing.assert_allclose(
        [found.total, found.subsampling_se, found.se],
        [theirs.elpd, theirs.subsampling_se, theirs.se],
    )


def test_a_subsample_says_how_far_off_it_is(rng):
    y = rng.normal(size=4000).astype(np.float32)
    draws = draws_of(y, rng, (4, 500))
    whole = sgld.loo(draws, subsample=None, progress=False)
    some = [sgld.loo(draws, subsample=50, seed=s, progress=False) for s in range(12)]
    z = np.array([(one.elpd - whole.elpd) / one.subsampling_se for one in some])
    assert 0.5 < np.sqrt(np.mean(z**2)) < 1.7 and abs(z.mean()) < 0.9
    assert all(abs(one.elpd - whole.elpd) < whole.se for one in some)
    assert abs(some[0].se / whole.se - 1) < 0.1 and len(some[0].numbers) == 50
    assert "50 of 4,000 rows" in str(some[0])
    # of a posterior that is narrow beside a row the approximation at its mean is nearly all
    assert all(one.subsampling_se < 0.05 * whole.se for one in some)
    auto = sgld.loo(draws, subsample="auto", progress=False)
    assert auto.approximation is None and auto.elpd == whole.elpd


def test_where_a_mean_is_none_a_few_draws_approximate(rng):
    """The sign of t does not matter, so that no row is like its likelihood at the mean, 0."""
    y = rng.normal(2.0, 1.0, 3000).astype(np.float32)
    folded = sgld.Posterior(lambda t: 0.0 * t, lambda t, y: log_likelihood(jnp.abs(t), y))
    t = rng.normal(y.mean(), 1 / np.sqrt(len(y)), (4, 500)) * np.array([[1], [-1], [1], [-1]])
    draws = sgld.Draws.of(t, origin=Origin(folded, y))
    found = sgld.loo(draws, subsample=100, progress=False)
    assert found.subsampling_se < 0.2 * found.se
    assert abs(found.elpd - exact(y.astype(float)).sum()) < 4 * found.subsampling_se


def test_more_rows_than_are_taken_at_once_are_a_subsample(rng):
    y = rng.normal(size=20_000).astype(np.float32)
    found = sgld.loo(draws_of(y, rng, (4, 100)), progress=False)
    assert len(found.numbers) == 1000 and found.approximation.shape == (20_000,)
    assert abs(found.elpd - exact(y.astype(float)).sum()) < 1.0


def test_rows_that_are_taken_block_by_block_are_the_same(y, rng, monkeypatch):
    draws = draws_of(y, rng, (2, 100))
    whole = sgld.waic(draws, progress=False)
    monkeypatch.setattr(
        "sgld.interfaces.arviz_rows.MAX_HELD_CELLS", 200 * 37
    )  # 37 rows at 200 draws
    blocks = sgld.waic(draws, progress=False)
    np.testing.assert_allclose(blocks.elpd_i, whole.elpd_i, rtol=1e-6)
    monkeypatch.setattr(
        "sgld.interfaces.arviz_rows.MAX_DRAW_ROW_NUMBERS", 37 * 8
    )  # 8 draws at a time
    np.testing.assert_allclose(sgld.waic(draws, progress=False).elpd_i, whole.elpd_i, rtol=1e-6)
    tree = draws.to_arviz()["log_likelihood"]["outcome"].values
    np.testing.assert_allclose(
        tree, log_likelihood(draws.position[..., None], y), rtol=1e-5, atol=1e-5
    )


def test_rows_that_the_draws_do_not_reach_are_named(rng):
    y = np.append(rng.normal(size=30), [25.0, -14.0]).astype(np.float32)
    found = sgld.loo(draws_of(y, rng), progress=False)
    assert list(found.bad_rows[:1]) == [30] and found.pareto_k[30] > 0.7
    assert "Pareto k is above 0.7 at" in str(found) and "30" in str(found).splitlines()[-1]
    assert found.to_arviz().warning
    unsure = sgld.waic(draws_of(y, rng), progress=False)
    assert 30 in unsure.bad_rows and "use sgld.loo" in str(unsure)


def test_weights_count(y, rng):
    """Draws of a wider law whose weights make them those of the posterior."""
    mean, sd = y.mean(), 1 / np.sqrt(len(y))
    t = rng.normal(mean, 2 * sd, (4, 2000))
    log_weight = -0.5 * ((t - mean) / sd) ** 2 + 0.5 * ((t - mean) / (2 * sd)) ** 2
    draws = sgld.Draws.of(t, log_weight=log_weight, origin=Origin(POSTERIOR, y))
    found = sgld.loo(draws, progress=False)
    assert found.resampled and "resampled to equal weights" in str(found)
    assert abs(found.elpd - exact(y.astype(float)).sum()) < 0.1 and abs(found.p - 1) < 0.2


def test_systematic_resampling_keeps_weights_and_chains(rng):
    log_weight = np.log(np.tile(np.linspace(1, 3, 500), (2, 1)))
    x = np.tile(np.arange(500.0), (2, 1)) + np.array([[0.0], [1000.0]])
    draws = sgld.Draws.of(x, log_weight=log_weight)
    chosen = choose(draws)
    values = chosen.of(draws, draws.position).reshape(2, 500)
    assert chosen.resampled and (values[0] < 1000).all() and (values[1] >= 1000).all()
    np.testing.assert_allclose(values.mean(), draws.mean(), atol=1.0)
    unlike = replace(draws, log_weight=log_weight + np.log([[1.0], [3.0]]))
    values = choose(unlike, 400).of(unlike, unlike.position)
    assert abs(np.mean(values >= 1000) - 0.75) < 0.01 and len(values) == 400
    few = choose(replace(draws, log_weight=0 * log_weight), 50)
    assert not few.resampled and few.at.shape == (2, 25) and len(np.unique(few.at)) == 50


def test_a_source_of_ones_own_is_asked_for_its_rows(y, rng):
    from sgld.data.memory import InMemory

    source = InMemory.of(y, seed=3)
    draws = replace(draws_of(y, rng), info={"seed": 3})
    ours = sgld.loo(draws, progress=False)
    theirs = sgld.loo(draws, POSTERIOR, source, progress=False)
    np.testing.assert_allclose(theirs.elpd, ours.elpd, rtol=1e-5)
    np.testing.assert_allclose(theirs.elpd_i, ours.elpd_i[theirs.rows], rtol=1e-4)


def formula_draws(table, formula="y ~ x", **how):
    """A formula's model, and draws of about its posterior: whatever stands in for a run."""
    model = FormulaModel.build(table, formula, "gaussian", missing="drop", **how)
    rng = np.random.default_rng(1)
    z = {"coefficients": np.array([0.0, 0.9]) + 0.02 * rng.normal(size=(4, 200, 2))}
    position = model.to_original({**z, "sigma": 0.4 + 0.01 * rng.random((4, 200))})
    origin = Origin(model.posterior, model.data, model)
    return sgld.Draws.of(position, names=model.names, origin=origin), model


def test_rows_of_a_table_are_named_as_the_table_numbers_them(rng):
    x = rng.normal(size=60)
    y = x + 0.4 * rng.normal(size=60)
    x[3], y[40] = np.nan, 30.0
    draws, _ = formula_draws({"x": x, "y": y})
    found = sgld.loo(draws, progress=False)
    assert found.num_data == 59 and found.outcome == "y"
    assert 3 not in found.rows and found.rows[np.argmin(found.elpd_i)] == 40


def test_models_are_compared_on_the_same_rows(y, rng):
    other = sgld.Posterior(lambda t: 0.0 * t, lambda t, y: log_likelihood(t, y) - 0.1)
    draws = draws_of(y, rng)
    models = {
        "worse": replace(draws, origin=Origin(other, y)),
        "better": sgld.loo(draws, progress=False),
    }
    table = sgld.compare_models(models)
    assert list(table.index) == ["better", "worse"]
    np.testing.assert_allclose(table.elpd_diff["worse"], 25.0, rtol=1e-4)
    np.testing.assert_allclose(table.weight["better"], 1.0, atol=1e-3)
    some = {
        name: sgld.loo(
            replace(draws, origin=Origin(p, y)), subsample=60, max_draws=1000, progress=False
        )
        for name, p in (("worse", other), ("better", POSTERIOR))
    }
    table = sgld.compare_models(some)
    np.testing.assert_allclose(table.elpd_diff["worse"], 25.0, rtol=1e-3)
    np.testing.assert_allclose(table.weight["better"], 1.0, atol=1e-3)
    assert table.subsampling_dse["worse"] < 0.01
    short = draws_of(y[:100], rng)
    for given, said in (
        ({"a": draws}, "two or more"),
        ({"a": draws, "b": short}, "rows 250, 'b' has 100"),
        ({"a": draws, "b": sgld.waic(draws)}, "criterion loo, 'b' has waic"),
        ({"a": draws, "b": some["better"]}, "same subsample and seed"),
    ):
        with pytest.raises(UsageError, match=said):
            sgld.compare_models(given)
    with pytest.raises(UsageError, match="method must be one of stacking"):
        sgld.compare_models(models, method="aic")


def test_what_has_no_loo_is_told_why(y, rng):
    draws = draws_of(y, rng)
    alone = sgld.Posterior(lambda t: -0.5 * t**2)
    scaled = sgld.Posterior(lambda t: 0.0 * t, log_likelihood, output=lambda t: 2 * t)
    cases = [
        (replace(draws, origin=None), "as posterior= and data="),
        (replace(draws, origin=Origin(POSTERIOR, y, kept=True)), "sample without keep"),
        (replace(draws, origin=Origin(alone, None)), "one log density"),
        (replace(draws, origin=Origin(scaled, y)), "posterior without output"),
        (replace(draws, temperature=np.full((4, 1000), 0.5)), "the cold posterior"),
        (replace(draws, info={"method": "laplace"}), "a Gaussian approximation"),
        (replace(draws, info={"target": "sandwich"}), "sandwich"),
    ]
    for given, said in cases:
        with pytest.raises(UsageError, match=said):
            sgld.loo(given, progress=False)
    for how, said in (
        ({"subsample": 0}, "subsample must be"),
        ({"subsample": 999}, "at most the number of rows, 250"),
        ({"max_draws": 10}, "max_draws must be"),
        ({"seed": -1}, "seed"),
    ):
        with pytest.raises(UsageError, match=said):
            sgld.loo(draws, progress=False, **how)
    with pytest.raises(UsageError, match="draws must be Draws"):
        sgld.loo({"t": 1})
    with pytest.raises(UsageError, match="models must be a mapping, by name"):
        sgld.compare_models([draws, draws])
    with pytest.raises(UsageError, match=r"posterior must be an sgld\.Posterior"):
        sgld.loo(draws, {"t": 1}, y)


@pytest.mark.slow
def test_every_door_knows_its_posterior(tmp_path, y):
    """sample, a loaded run with its functions, fit, a loaded run of a table, the referee; not a pickle."""
    flat = sgld.Posterior(lambda t: -0.5 * (t / 10) ** 2, log_likelihood)
    how = {"num_chains": 2, "num_draws": 200, "progress": False}
    draws = sgld.sample(flat, y, np.float32(0), path=tmp_path / "run", **how)
    found = sgld.loo(draws, progress=False)
    loaded = sgld.load(tmp_path / "run")
    with pytest.raises(UsageError, match="do not know their posterior"):
        sgld.loo(loaded, progress=False)
    assert sgld.loo(loaded, flat, y, progress=False).elpd == found.elpd
    assert sgld.resume(tmp_path / "run", flat, y).origin is not None
    assert pickle.loads(pickle.dumps(loaded)).origin is None
    exact_draws = sgld.reference(flat, y, np.float32(0), num_chains=2, num_draws=200)
    assert abs(sgld.loo(exact_draws, progress=False).elpd - found.elpd) < 0.3
    table = tmp_path / "rows.csv"
    np.savetxt(table, np.column_stack([y, y**2]), delimiter=",", header="y,z", comments="")
    fit = sgld.fit(table, "y ~ z", out=tmp_path / "fit", **how)
    again = sgld.loo(sgld.load(tmp_path / "fit"), progress=False)
    np.testing.assert_allclose(again.elpd, sgld.loo(fit, progress=False).elpd, rtol=1e-6)


def test_what_keep_made_has_no_loo(y):
    flat = sgld.Posterior(lambda t: -0.5 * (t / 10) ** 2, log_likelihood)
    how = {"num_chains": 2, "num_draws": 100, "step_size": 1e-3, "progress": False}
    kept = sgld.sample(flat, y, np.float32(0), keep=lambda t: 2 * t, **how)
    with pytest.raises(UsageError, match="sample without keep"):
        sgld.loo(kept, progress=False)
    assert set(kept.to_arviz().children) == {"posterior", "sample_stats"}


def test_the_table_of_pandas_does_not_warn(y, rng):
    found = sgld.loo(draws_of(y, rng), progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sgld.compare_models({"a": found, "b": replace(found, elpd=found.elpd - 1)})


def test_single_rows_of_pytrees(rng):
    """Rows with several leaves, positions that are dicts, more rows than one block holds."""
    x = rng.normal(size=(37, 3)).astype(np.float32)
    rows = {"x": x, "y": (x @ np.array([1.0, 0.0, -1.0], np.float32))}
    posterior = sgld.Posterior(
        lambda p: jnp.float32(0.0), lambda p, r: log_likelihood(r["x"] @ p["b"], r["y"])
    )
    b = rng.normal(size=(2, 50, 3))
    found = sgld.waic(sgld.Draws.of({"b": b}), posterior, rows, progress=False)
    values = -0.5 * (rows["y"][:, None] - x @ b.reshape(-1, 3).T) ** 2 - HALF_LOG_2PI
    lpd = np.log(np.exp(values).mean(axis=1))
    np.testing.assert_allclose(found.elpd_i, lpd - values.var(axis=1, ddof=1), rtol=2e-4, atol=1e-4)
