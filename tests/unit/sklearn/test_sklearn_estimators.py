"""The scikit-learn estimators: manners, words, and what they share with the engine."""

import pickle
import pickletools
import warnings

import jax
import joblib
import numpy as np
import pandas
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import sgld
from sgld import SGLDClassifier, SGLDRegressor
from sgld.errors import DataError, UsageError
from sgld.inference.chunk import run_chunk
from sgld.inference.tuning.gaussian import misfit_notes
from sgld.model import sums
from sgld.results.verdict import Verdict
from sgld.sklearn import draws_of

X, Y = load_diabetes(return_X_y=True)
FEW = slice(0, 60)  # rows for which draws are made in closed form: nothing is compiled


@pytest.fixture(scope="module")
def regressor():
    return SGLDRegressor(random_state=0).fit(X[FEW], Y[FEW])


@pytest.fixture(scope="module")
def classifier():
    """Three columns, two classes with names."""
    cells, y = load_breast_cancer(return_X_y=True)
    return SGLDClassifier(random_state=0).fit(cells[:, :3], np.array(["bad", "good"])[y])


def test_the_closed_form_and_the_engine_agree():
    """On the same posterior: the engine where there are rows enough, the closed form by hand."""
    from sgld.interfaces.sklearn_exact import exact_draws
    from sgld.interfaces.sklearn_models import Form, distinct, model_of

    fitted = SGLDRegressor(random_state=0).fit(X[:, :3], Y)
    rows = distinct(X[:, :3], Y, np.ones(len(Y)))
    exact = exact_draws(model_of(rows, Form("gaussian", ("x0", "x1", "x2")), 0), rows, 0)
    assert fitted.verdict_.word == "trusted" and "closed form" not in str(fitted.verdict_)
    assert fitted.draws_.names == exact.names
    assert fitted.draws_.info["num_data"] == len(Y)
    table = sgld.compare(fitted.draws_, exact)
    assert np.abs(table.mean_error).max() < 0.1 and np.abs(table.sd_ratio - 1).max() < 0.07


def test_predictions_of_a_regression(regressor):
    mean, sd, ends = regressor.predict(X, return_std=True, return_interval=0.8)
    np.testing.assert_array_equal(mean, regressor.predict(X))
    assert (sd > regressor.draws_.mean()["sigma"]).all()  # the noise is included
    assert ends.shape == (len(X), 2) and (ends[:, 0] < mean).all() and (mean < ends[:, 1]).all()
    wider = regressor.predict(X, return_interval=True)[1]
    assert (np.ptp(wider, axis=1) > np.ptp(ends, axis=1)).all()
    with pytest.raises(sgld.errors.UsageError, match="return_interval must lie between 0 and 1"):
        regressor.predict(X, return_interval=90)


def test_shapes_of_what_is_fitted(regressor, classifier):
    assert regressor.coef_.shape == (10,) and isinstance(regressor.intercept_, float)
    assert classifier.coef_.shape == (1, 3) and classifier.intercept_.shape == (1,)
    assert list(classifier.classes_) == ["bad", "good"]
    proba = classifier.predict_proba(load_breast_cancer().data[:, :3])
    assert proba.shape == (569, 2) and np.allclose(proba.sum(1), 1)
    bare = SGLDRegressor(random_state=0, fit_intercept=False).fit(X[FEW], Y[FEW])
    assert bare.intercept_ == 0.0 and "intercept" not in bare.draws_.position


def test_a_fit_is_a_function_of_the_rows_and_the_seed():
    order = np.random.default_rng(0).permutation(60)
    one = SGLDRegressor(random_state=3).fit(X[FEW], Y[FEW])
    other = SGLDRegressor(random_state=3).fit(X[FEW][order], Y[FEW][order])
    np.testing.assert_array_equal(one.draws_.position["coef"], other.draws_.position["coef"])
    another = SGLDRegressor(random_state=4).fit(X[FEW], Y[FEW])
    assert (one.coef_ != another.coef_).all()
    weighed = SGLDRegressor(random_state=3).fit(X[FEW], Y[FEW], np.full(60, 4.0))
    ratio = weighed.draws_.sd()["intercept"] / one.draws_.sd()["intercept"]
    assert ratio == pytest.approx(0.5, rel=0.15)


def test_a_refit_with_hidden_layers_has_no_coefficients(regressor):
    """Those of a linear fit before do not stay."""
    network = pickle.loads(pickle.dumps(regressor)).set_params(hidden_layer_sizes=(2,))
    network._set_coefficients(network._form("gaussian"))
    assert not hasattr(network, "coef_") and not hasattr(network, "intercept_")


def test_partial_fit_is_a_fit_on_all_rows_so_far():
    whole = SGLDRegressor(random_state=0).fit(X[FEW], Y[FEW])
    parts = SGLDRegressor(random_state=0).partial_fit(X[:20], Y[:20])
    assert parts.draws_.info["num_data"] == 20
    parts.partial_fit(X[20:60], Y[20:60])
    np.testing.assert_array_equal(whole.coef_, parts.coef_)
    after = SGLDRegressor(random_state=0).fit(X[:20], Y[:20]).partial_fit(X[20:60], Y[20:60])
    np.testing.assert_array_equal(whole.coef_, after.coef_)


def test_partial_fit_of_the_engine_begins_where_the_last_fit_ended(classifier, monkeypatch):
    from sgld.interfaces import sklearn

    cells = load_breast_cancer().data
    seen, engine = [], sklearn.sample

    def watched(posterior, data, init, **rest):
        seen.append((posterior, init))
        return engine(posterior, data, init, **rest)

    monkeypatch.setattr(sklearn, "sample", watched)
    again = pickle.loads(pickle.dumps(classifier))
    again.partial_fit(cells[:1, :3] + 0.01, ["good"])
    ((posterior, init),) = seen
    reported = posterior.output({name: jax.numpy.asarray(leaf) for name, leaf in init.items()})
    np.testing.assert_allclose(reported["coef"], classifier.coef_[0], rtol=1e-3)
    np.testing.assert_allclose(reported["intercept"], classifier.intercept_[0], rtol=1e-3)
    assert again.draws_.info["num_data"] == 570


# -- scikit-learn's manners -------------------------------------------------------------------


def test_a_fitted_estimator_is_pickled_as_arrays_and_words(regressor, classifier, tmp_path):
    cells = load_breast_cancer().data[:, :3]
    for fitted, rows in ((regressor, X), (classifier, cells)):
        stored = pickle.dumps(fitted)
        modules = {
            str(argument).split(" ")[0].split(".")[0]
            for opcode, argument, _ in pickletools.genops(stored)
            if opcode.name == "GLOBAL"
        }
        assert modules <= {"numpy", "sgld", "sklearn", "builtins", "copyreg"}
        assert b"jax" not in stored
        joblib.dump(fitted, tmp_path / "fitted")
        for again in (pickle.loads(stored), joblib.load(tmp_path / "fitted")):
            np.testing.assert_array_equal(again.predict(rows), fitted.predict(rows))
            assert str(again.draws_.summary()) == str(fitted.draws_.summary())
            assert again.verdict_.word == fitted.verdict_.word
        with pytest.raises(AttributeError):
            clone(fitted).draws_  # noqa: B018


def test_a_data_frame_names_the_parameters():
    frame = pandas.DataFrame(X[:, :2], columns=["age", "sex"])
    fitted = SGLDRegressor(random_state=0).fit(frame[:20], Y[:20])
    assert list(fitted.feature_names_in_) == ["age", "sex"]
    assert fitted.draws_.names == ("age", "sex", "Intercept", "sigma")
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["sex", "age"]])


def test_a_polars_frame_is_taken():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(X[:20, :2], schema=["age", "sex"])
    fitted = SGLDRegressor(random_state=0).fit(frame, Y[:20])
    assert fitted.draws_.names[:2] == ("age", "sex")


def test_in_a_pipeline_under_a_grid_search():
    scaler = StandardScaler().set_output(transform="pandas")
    pipe = make_pipeline(scaler, SGLDRegressor(random_state=0))
    grid = {"sgldregressor__penalty": ["l2"], "sgldregressor__C": [1e-4, 100.0]}
    found = GridSearchCV(pipe, grid, cv=3).fit(
        pandas.DataFrame(X, columns=list("abcdefghij"))[FEW], Y[FEW]
    )
    assert found.best_params_["sgldregressor__C"] == 100.0
    assert found.best_estimator_[-1].draws_.names[:2] == ("a", "b")


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.slow
def test_folds_of_nearly_equal_length_compile_once(rng):
    """61, 62 and 63 rows of one structure: what the first fit compiled serves them all."""
    x = rng.normal(size=(93, 2))
    y = x @ [1.0, -1.0] + rng.normal(size=93)
    SGLDRegressor(random_state=0).fit(x[:61], y[:61])
    compiled = (run_chunk, sums.value_and_gradient, sums.curvature)
    before = [function._cache_size() for function in compiled]
    scores = cross_val_score(SGLDRegressor(random_state=0), x, y, cv=3)
    SGLDRegressor(random_state=0).fit(x[:63], y[:63])
    assert scores.min() > 0 and [function._cache_size() for function in compiled] == before
    SGLDRegressor(random_state=0).fit(x[:65], y[:65])
    assert sums.curvature._cache_size() > before[2]  # the test can fail


def test_the_penalty_is_that_of_its_name():
    """ "l2" is normal with variance C, "l1" Laplace of scale C, both of slopes alone."""
    regressor = SGLDRegressor(C=9.0).set_params(penalty="l2")
    regressor.n_features_in_ = 1
    forms = [regressor.set_params(penalty=name)._form("gaussian") for name in ("l2", "l1")]
    at = jax.numpy.array([0.0, 3.0])
    normal, laplace = (np.diff(np.asarray(form.density(at)))[0] for form in forms)
    assert normal == pytest.approx(-0.5) and laplace == pytest.approx(-1 / 3)
    assert all(form.slopes for form in forms)


def test_draws_are_kept_without_their_plan():
    """Plans hold functions and tables of rows; their words stay, but those that weights belie."""
    from sgld.interfaces.sklearn import _without_objects
    from sgld.interfaces.sklearn_models import Rows
    from sgld.results.plan import Plan, Setup

    setup = Setup(None, None, None, lambda step: 0.1, temperature=lambda step: 1.0)
    misread = misfit_notes(4.0, 64)
    plan = Plan(setup, num_data=64, misfit=4.0, notes=("other", *misread))
    draws = sgld.Draws.of({"a": np.zeros((1, 5))}, plan=plan)
    for weight, told in ((np.ones(3), ["other", *misread]), (np.full(3, 2.0), ["other"])):
        kept = _without_objects(draws, Rows(np.zeros((3, 1)), np.zeros(3), weight))
        assert kept.plan is None and kept.info["num_data"] == 3
        assert kept.info["plan"]["notes"] == told


def test_notes_count_the_users_rows_and_not_what_fills_them_up(rng):
    """Padded rows have weight 0, and equal rows are one of more weight."""
    from sgld.interfaces.sklearn import joined
    from sgld.interfaces.sklearn_models import distinct

    cells = np.append(
        rng.normal(size=(299, 1)), [[60.0]], axis=0
    )  # the last holds most of what is known
    y = rng.normal(size=300)
    told = SGLDRegressor(random_state=0).fit(cells, y).draws_.info["plan"]["notes"]
    assert any("1 of 300 rows is used in every batch" in note for note in told), told
    rows = distinct(cells, y, np.ones(300))
    assert rows.said("4 of 512 rows are in every batch") == "4 of 300 rows are in every batch"
    rows = joined(rows, cells, y, np.ones(300))
    assert rows.count == 600 and "of 300 different rows" in rows.said("4 of 512 rows are")
    assert rows.said("learnt on 1512 rows of 2000") == "learnt on 1512 rows of 2000"
    twice = SGLDRegressor(random_state=0).fit(np.repeat(X[:9], 3, 0), np.repeat(Y[:9], 3))
    assert twice.draws_.info["num_data"] == 27


@pytest.mark.unchecked
def test_an_untrusted_fit_warns_once_with_the_verdict(monkeypatch):
    from sgld.interfaces import sklearn

    told = Verdict("not mixed", ("R-hat of 'x0' is 1.2.",))
    exact = sklearn.exact_draws
    monkeypatch.setattr(sklearn, "exact_draws", lambda *given: exact(*given).with_verdict(told))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SGLDRegressor(random_state=0).fit(X[FEW], Y[FEW]).predict(X)
    (warning,) = caught
    assert warning.category is ConvergenceWarning and warning.filename == __file__
    assert "not trusted: not mixed: R-hat of 'x0' is 1.2." in str(warning.message)


def mixed(rows=12):
    table = pandas.DataFrame({"age": np.arange(float(rows)), "town": list("abc") * (rows // 3)})
    return table, np.cos(np.arange(rows))


def columns():
    return make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(sparse_output=False), ["town"]))  # fmt: skip


NAMES = ("standardscaler__age", *(f"onehotencoder__town_{t}" for t in "abc"), "Intercept", "sigma")


def test_names_that_a_pipeline_gives_are_those_of_its_draws():
    table, y = mixed()
    pipe = make_pipeline(columns(), SGLDRegressor(random_state=0))
    plain = clone(pipe).fit(table, y)
    assert plain[-1].draws_.names[0] == "x0" and draws_of(plain).names == NAMES
    np.testing.assert_array_equal(
        draws_of(plain).position["coef"], plain[-1].draws_.position["coef"]
    )
    framed = clone(pipe).set_output(transform="pandas").fit(table, y)
    assert framed[-1].draws_.names == NAMES == draws_of(framed).names
    search = GridSearchCV(pipe, {"sgldregressor__tolerance": [0.05]}, cv=2).fit(table, y)
    assert draws_of(search).names == NAMES
    alone = make_pipeline(SGLDRegressor(random_state=0)).fit(table[["age"]], y)
    assert draws_of(alone).names[0] == "age"


def test_names_of_classes_stay_beside_those_of_columns():
    from sgld.interfaces.sklearn import _renamed

    found = _renamed(("x1[a]", "x0[x1]", "Intercept[a]", "sigma"), ["age", "x[0]"])
    assert found == ("x[0][a]", "age[x1]", "Intercept[a]", "sigma")


def test_a_step_that_gives_no_names_leaves_those_there_are():
    table, y = mixed()
    pipe = make_pipeline(FunctionTransformer(np.sqrt), SGLDRegressor(random_state=0))
    assert draws_of(pipe.fit(table[["age"]].to_numpy(), y)).names[0] == "x0"


@pytest.mark.parametrize("what", [make_pipeline(StandardScaler()), SGLDRegressor(), None])
def test_what_holds_no_draws_is_refused(what):
    with pytest.raises(UsageError, match="a Pipeline that ends with one"):
        draws_of(what)


def test_nothing_is_said_by_default_and_a_line_for_each_fit_with_verbose(capfd):
    SGLDRegressor(random_state=0).fit(X[FEW], Y[FEW])
    assert capfd.readouterr() == ("", "")
    told = SGLDRegressor(random_state=0, verbose=1)
    cross_val_score(told, X[FEW], Y[FEW], cv=3)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 3
    assert all(line.startswith("[SGLDRegressor] 40 rows x 10 columns: trusted, ") for line in lines)


def test_verbose_shows_the_stages_of_the_engine(monkeypatch):
    from sgld.interfaces import sklearn

    seen = []
    monkeypatch.setattr(sklearn, "is_for", lambda *given: False)
    monkeypatch.setattr(
        sklearn, "sample", lambda *given, **how: seen.append(how["progress"]) or 1 / 0
    )
    for verbose in (0, 1, 2):
        with pytest.raises(ZeroDivisionError):
            SGLDRegressor(verbose=verbose).fit(X[FEW], Y[FEW])
    assert seen == [False, True, True]


# -- bad input --------------------------------------------------------------------------------


TWICE = pandas.DataFrame(X[FEW, :2], columns=["age", "age"])


@pytest.mark.parametrize(
    ("arguments", "rows", "weight", "word"),
    [
        ({"prior": "normal(0, 1)", "penalty": "l2"}, X, None, "give only one of them"),
        ({"prior": "norml(0, 1)"}, X, None, "Did you mean 'normal'"),
        ({"penalty": "L2"}, X, None, "penalty must be None or one of l2, l1. Got 'L2'. Did you"),
        ({"penalty": "l2", "C": 0.0}, X, None, "C must be a positive number. Got 0.0"),
        ({"C": 0.1}, X, None, 'Got C=0.1; add penalty="l2"'),
        ({"hidden_layer_sizes": (5, 0)}, X, None, "hidden_layer_sizes must be a whole number"),
        ({"tolerance": 2.0}, X[FEW], None, "tolerance must lie in"),
        ({"random_state": -1}, X[FEW], None, "[Ss]eed"),
        ({}, np.where(X > 0.1, np.nan, X), None, "contains NaN"),
        ({"C": 1.0}, X, None, 'Got C=1.0; add penalty="l2"'),
        ({}, sparse.csr_array([[np.nan], [1.0]]), None, "NaN"),
        ({}, TWICE, None, "several columns named 'age'; rename them, or keep one"),
        ({}, X, -np.ones(442), "sample_weight must not be negative"),
        ({}, X, np.zeros(442), "must contain at least one non-zero"),
        ({}, X, np.full(442, np.nan), "NaN"),
    ],
)
def test_bad_input_is_answered_by_its_name(arguments, rows, weight, word):
    estimator = SGLDRegressor(**{"random_state": 0, **arguments})
    with pytest.raises((ValueError, TypeError), match=word):
        estimator.fit(rows, Y[: rows.shape[0]], weight)
    assert not hasattr(estimator, "draws_")


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "csr_matrix"])
def test_sparse_matrices_are_taken(regressor, kind):
    few = getattr(sparse, kind)(X[FEW])
    fitted = SGLDRegressor(random_state=0).fit(few, Y[FEW])
    np.testing.assert_array_equal(fitted.coef_, regressor.coef_)
    np.testing.assert_array_equal(fitted.predict(few), regressor.predict(X[FEW]))


@pytest.mark.parametrize("kind", ["Regressor", "Classifier"])
def test_several_outcomes_are_refused_with_the_remedy(kind):
    estimator = SGLDRegressor() if kind == "Regressor" else SGLDClassifier()
    with pytest.raises(DataError, match=rf"\(60, 2\).*multioutput.MultiOutput{kind}"):
        estimator.fit(X[FEW], np.ones((60, 2), int))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_outcome_of_one_value_is_predicted():
    fitted = SGLDRegressor(random_state=0).fit(X[FEW], np.full(60, 7.0))
    mean, sd = fitted.predict(X[FEW], return_std=True)
    np.testing.assert_allclose(mean, 7, atol=0.01)
    assert np.isfinite(sd).all()


def test_classes_that_cannot_be_are_answered():
    cells, y = load_iris(return_X_y=True)
    with pytest.raises(sgld.errors.DataError, match="y holds only one class, 1;"):
        SGLDClassifier().fit(cells, np.ones(150, int))
    with pytest.raises(sgld.errors.UsageError, match="classes must be given on the first call"):
        SGLDClassifier().partial_fit(cells, y)
    with pytest.raises(
        sgld.errors.DataError, match=r"y is np.int64\(2\) in row 100, which is not one of"
    ):
        SGLDClassifier().partial_fit(cells, y, classes=[0, 1])
    with pytest.raises(ValueError, match="Unknown label type"):
        SGLDClassifier().fit(cells, cells[:, 0])


def test_columns_of_one_value_or_of_equal_values_are_taken(rng):
    x = rng.normal(size=(20, 2))
    x = np.column_stack([x, x[:, 0], np.ones(20)])
    fitted = SGLDRegressor(random_state=0).fit(x, 4 * x[:, 0])
    coef = fitted.coef_
    assert coef[0] + coef[2] == pytest.approx(4, abs=0.05) and abs(coef[0] - coef[2]) < 1
    assert abs(coef[3]) < 1


def test_a_column_of_words_is_named():
    X = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "town": ["1", "inner", "outer"]})
    with pytest.raises(DataError, match=r"column 'town' of X holds 'inner', .*OneHotEncoder"):
        SGLDRegressor().fit(X, [1.0, 2.0, 3.0])
