"""`SGLDRegressor` and `SGLDClassifier`: scikit-learn estimators on the engine of `sgld.sample`.

What both estimators have in common: their arguments, their rows, the fit, and what is kept of it.

Draws of a fitted pipeline, by the names that its steps give to columns.

What an estimator says while it is fitted: nothing by default, as scikit-learn's do.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..core.progress import SAMPLING_STAGES, told
from ..core.validation import check_tolerance, fraction, positive_number, unmasked, whole_number
from ..errors import DataError, UsageError, did_you_mean
from ..inference.sample import sample
from ..inference.tuning.gaussian import misfit_notes
from ..regression.priors import parse_prior
from ..results.draws import Draws
from .sklearn_exact import exact_draws, is_for
from .sklearn_models import Form, Kind, Model, Predictor, Rows, distinct, model_of

# -- named ---------------------------------------------------------------------------------


def draws_of(fitted: Any) -> Draws:
    """The draws of a fitted estimator, pipeline or search, parameters by the names of their columns.

    An estimator knows what it is fitted to: a data frame with names, an array without. What a
    ColumnTransformer or an encoder hands on is an array (but for `set_output(transform="pandas")`), and only
    the pipeline knows how its columns are called: its `get_feature_names_out` is asked here.

    Args:
      fitted: an SGLDRegressor or SGLDClassifier, a Pipeline that ends with one, or a search over one
        (GridSearchCV and the like, refitted).

    Returns: `draws_`; with the names x0, x1, ... where no step gives others.

    Raises: UsageError for what holds no such estimator, or is not fitted.

    Example:
      >>> import numpy as np, pandas
      >>> from sgld import SGLDRegressor
      >>> from sgld.sklearn import draws_of
      >>> from sklearn.compose import make_column_transformer
      >>> from sklearn.pipeline import make_pipeline
      >>> from sklearn.preprocessing import OneHotEncoder, StandardScaler
      >>> table = pandas.DataFrame({"age": np.arange(12.0), "town": ["a", "b", "c"] * 4})
      >>> columns = make_column_transformer(
      ...     (StandardScaler(), ["age"]), (OneHotEncoder(drop="first"), ["town"]),
      ...     verbose_feature_names_out=False)
      >>> model = make_pipeline(columns, SGLDRegressor(random_state=0)).fit(table, np.cos(table.age))
      >>> draws_of(model).names
      ('age', 'town_b', 'town_c', 'Intercept', 'sigma')
    """
    found = getattr(fitted, "best_estimator_", fitted)
    last = found[-1] if isinstance(found, Pipeline) else found
    draws = getattr(last, "draws_", None)
    if not isinstance(draws, Draws):
        raise UsageError(
            "fitted must be an SGLDRegressor or SGLDClassifier after fit, a Pipeline that ends with one, or a search "
            f"over one. Got {type(fitted).__name__}."
        )
    if last is found or hasattr(last, "feature_names_in_") or len(found) == 1:
        return draws
    try:
        names: Any = found[:-1].get_feature_names_out()
    except (
        AttributeError,
        ValueError,
        NotFittedError,
    ):  # a step that gives none, or needs those it was given
        return draws
    return replace(draws, names=_renamed(draws.names, list(map(str, names))))


def _renamed(names: tuple[str, ...], columns: list[str]) -> tuple[str, ...]:
    """x3 and x3[setosa] by the name of column 3; what is no column's stays."""
    called = {f"x{j}": name for j, name in enumerate(columns)}

    def one(name: str) -> str:
        column, bracket, rest = name.partition("[")
        return called.get(column, column) + bracket + rest

    return tuple(one(name) for name in names)


# -- telling -------------------------------------------------------------------------------


@contextmanager
def told_of_fit(estimator: Any, rows: int, columns: int) -> Iterator[None]:
    """With `verbose`, the stages of a fit while it goes on, and at its end a line that stays.

    A search, or a cross-validation, makes many fits, of which each is over before the first telling
    where there is no terminal: their lines say how far it is.
    """
    if not estimator.verbose:
        yield
        return
    began = time.monotonic()
    with told(True, SAMPLING_STAGES, summary=False):
        yield
    if sys.stderr is not None:
        seconds = time.monotonic() - began
        print(
            f"[{type(estimator).__name__}] {rows:,} rows x {columns:,} columns: {estimator.verdict_.word}, "
            f"{seconds:.1f} s",
            file=sys.stderr, flush=True,
        )  # fmt: skip


# -- base ----------------------------------------------------------------------------------


PRIOR_OF_PENALTY = {"l2": "normal(0, {})", "l1": "laplace(0, {})"}


class Estimator(BaseEstimator):
    """What both have in common: the arguments, the rows, the fit."""

    n_features_in_: int

    def __init__(
        self,
        *,
        prior: str | None = None,
        penalty: str | None = None,
        C: float = 1.0,
        fit_intercept: bool = True,
        hidden_layer_sizes: Sequence[int] = (),
        tolerance: float = 0.05,
        max_seconds: float | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.prior = prior
        self.penalty = penalty
        self.C = C
        self.fit_intercept = fit_intercept
        self.hidden_layer_sizes = hidden_layer_sizes
        self.tolerance = tolerance
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    def _rows(self, X: Any, y: Any, sample_weight: Any, *, first: bool, numeric: bool) -> tuple:
        """Checked arrays X [n, p], y [n] as they came, and weights [n]."""
        for name, values in {"X": X, "y": y, "sample_weight": sample_weight}.items():
            unmasked(name, values)
        _refuse_twins(X)
        with _naming_words(X):
            X, y = validate_data(self, X, y, reset=first, dtype=np.float64, y_numeric=numeric)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if (weight < 0).any():
            raise DataError(f"sample_weight must not be negative. Got {weight.min():g}.")
        if not weight.any():  # which scikit-learn 1.6 lets pass
            raise DataError("sample_weight must contain at least one non-zero number.")
        return X, y, weight

    def _form(self, kind: Kind, labels: tuple[str, ...] = ()) -> Form:
        """The structure of the model, from the arguments."""
        check_tolerance(self.tolerance)
        sizes = np.atleast_1d(np.asarray(self.hidden_layer_sizes, dtype=object))
        for size in sizes:
            whole_number("hidden_layer_sizes", size)
        density = slopes = None
        if self.prior is not None and self.penalty is not None:
            raise UsageError("prior and penalty are two ways to say the same; give one of them.")
        if self.penalty is None and self.C != 1.0:
            raise UsageError(
                f"C is the strength of a penalty, and there is none. Got C={self.C!r}; add "
                'penalty="l2" (or "l1"), or leave C and say the prior itself: prior="normal(0, 1)".'
            )
        if self.prior is not None:
            density = parse_prior(self.prior)
        elif self.penalty is not None:
            if self.penalty not in PRIOR_OF_PENALTY:
                raise UsageError(
                    f"penalty must be None or one of {', '.join(PRIOR_OF_PENALTY)}. Got {self.penalty!r}."
                    + did_you_mean(self.penalty, PRIOR_OF_PENALTY)
                )
            positive_number("C", self.C)
            scale = self.C**0.5 if self.penalty == "l2" else self.C
            density, slopes = parse_prior(PRIOR_OF_PENALTY[self.penalty].format(float(scale))), True
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        return Form(
            kind, tuple(map(str, names)), labels, bool(self.fit_intercept),
            tuple(int(size) for size in sizes), density, bool(slopes),
        )  # fmt: skip

    def _fit(self, rows: Rows, form: Form, *, first: bool) -> Self:
        """Draw, judge, and keep what predictions need."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        model = model_of(rows, form, seed)
        with told_of_fit(self, rows.count, len(form.names)):
            if is_for(model, rows):
                draws = exact_draws(model, rows, seed)
            else:
                start = None if first else _resumed(model, self.draws_)
                draws = sample(
                    model.posterior, model.data, start, seed=seed, tolerance=self.tolerance,
                    max_seconds=self.max_seconds, progress=bool(self.verbose),
                )  # fmt: skip
                if form.hidden:  # linear models have an output that does this
                    draws = _unstandardised(draws, form, model.standard.stretch)
            self.verdict_ = draws.verdict
        self.draws_ = _alone(draws, rows)
        self._seen = rows
        self._predictor = Predictor.of(form.kind, draws, model.standard if form.hidden else None)
        self._set_coefficients(form)
        if self.verdict_.word != "trusted":
            said = (
                f"{type(self).__name__} is fitted, and its draws are not trusted: {self.verdict_}"
            )
            warnings.warn(said, ConvergenceWarning, stacklevel=3)
        return self

    def _set_coefficients(self, form: Form) -> None:
        """Posterior means, in scikit-learn's shapes; none of networks, whose weights change places."""
        if form.hidden:
            for name in ("coef_", "intercept_"):  # of a fit before
                vars(self).pop(name, None)
            return
        mean = self.draws_.mean()
        constant = mean.get("intercept", np.zeros(form.tail))
        if form.kind == "gaussian":
            self.coef_, self.intercept_ = mean["coef"], float(constant)
        else:
            self.coef_ = np.atleast_2d(mean["coef"].T)
            self.intercept_ = np.atleast_1d(constant)

    def _columns(self, X: Any) -> Float[np.ndarray, "n p"]:
        check_is_fitted(self)
        with _naming_words(unmasked("X", X)):
            return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))


@contextmanager
def _naming_words(X: Any) -> Iterator[None]:
    """scikit-learn's error for cells that are no numbers, with the column of a data frame where they stand."""
    try:
        yield
    except ValueError as error:
        for name in getattr(X, "columns", ()) if "could not convert" in str(error) else ():
            for cell in X[name]:
                try:
                    float(cell)
                except (TypeError, ValueError):
                    raise DataError(
                        f"column {str(name)!r} of X holds {cell!r}, which is no number (could not convert it to float); "
                        "encode it (sklearn.preprocessing.OneHotEncoder), or fit a formula (sgld.fit)."
                    ) from error
        raise


def _refuse_twins(X: Any) -> None:
    """DataError for a data frame two of whose columns have one name."""
    names = list(map(str, getattr(X, "columns", ())))
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise DataError(
            f"X has several columns called {', '.join(map(repr, twins))}; rename them, or keep one."
        )


def joined(seen: Rows, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Rows:
    """Rows so far and more."""
    rows = distinct(
        np.concatenate([seen.x, x]),
        np.concatenate([seen.y, y]),
        np.concatenate([seen.weight, weight]),
    )
    return replace(rows, given=seen.count + int((weight > 0).sum()))


def _resumed(model: Model, draws: Draws) -> Any:
    """Where the last fit ended, as a standardised position to search from."""
    form, at, chain = model.form, model.standard, int(draws.healthy[0])
    last = jax.tree.map(lambda leaf: np.asarray(leaf[chain, -1], np.float32), draws.position)
    if jax.tree.map(np.shape, last) != jax.tree.map(np.shape, model.posterior.init):
        return None  # another structure, by set_params
    if form.hidden:  # means of weights mean nothing: units may have changed places
        return {**last, **{name: last[name] / np.float32(at.stretch) for name in form.dispersion}}
    found = {name: np.asarray(value) for name, value in draws.mean().items()}
    coef = found["coef"]
    start = {"coef": coef * at.scale.reshape(-1, *(1,) * (coef.ndim - 1)) / at.stretch}
    if form.intercept:
        start["intercept"] = (found["intercept"] + at.center @ coef - at.shift) / at.stretch
    if form.dispersion:
        start["sigma"] = found["sigma"] / at.stretch
    return {name: np.asarray(value, np.float32) for name, value in start.items()}


def _unstandardised(draws: Draws, form: Form, stretch: float) -> Draws:
    """Return a network's draws with sigma, and the verdict's moments of it, in the unit of y."""
    position = {**draws.position, **{n: draws.position[n] * stretch for n in form.dispersion}}
    unit = np.where(np.isin(draws.names, form.dispersion), stretch, 1.0)
    verdict = draws.verdict
    moments = {
        name: value * unit
        for name in ("mean_corrected", "sd_corrected")
        if (value := getattr(verdict, name)) is not None
    }
    return replace(draws, position=position, verdict=replace(verdict, **moments))


def _alone(draws: Draws, rows: Rows) -> Draws:
    """Arrays and words alone, to be pickled, and the number of the user's rows: without padding, equal ones counted."""
    info = {**draws.info, "num_data": rows.count}
    if draws.plan is not None:
        misread = ()
        if not (rows.weight == 1).all():  # a row's score counts as often as the row, not once
            misread = misfit_notes(draws.plan.misfit, draws.plan.num_data)
        notes = [rows.said(note) for note in draws.plan.notes if note not in misread]
        info["plan"] = {**draws.plan.describe(), "notes": notes}
    return replace(draws, info=info, plan=None, origin=None)


# -- estimators ----------------------------------------------------------------------------


class SGLDRegressor(RegressorMixin, Estimator):
    """Bayesian linear regression (or a neural network), with a verdict on its draws.

        y ~ N(intercept + x' coef, sigma^2)

    Args:
      prior: "normal(mean, sd)", "student_t(df, loc, scale)" or "laplace(loc, scale)" of every
        coefficient, the intercept included, on the scale of X and y. None: independent normals with
        sd 2.5 times the outcome's per sd of the column, the intercept's about the mean outcome at the
        columns' means. sigma is half-normal with the outcome's sd.
      penalty: instead of prior: "l2", normal(0, sqrt(C)) of every slope; "l1", laplace(0, C). The
        intercept keeps its default.
      C: of penalty; UsageError where it is given without.
      fit_intercept: whether there is an intercept.
      hidden_layer_sizes: units of the hidden layers of a network with tanh units; () for a linear
        model. Columns and outcome are standardised, weights of a layer ~ normal(0, 2.5 / sqrt(units
        below)), biases normal(0, 1), or all of them `prior`. Draws are of these weights, and of sigma
        in the unit of y.
      tolerance: acceptable relative error of the posterior sd, in (0, .5].
      max_seconds: of one fit, compilation apart.
      random_state: a seed, a RandomState, or None for another seed at each fit.
      verbose: 0 says nothing; 1 shows the stages on standard error, and a line for each fit.

    Attributes:
      coef_, intercept_: posterior means, [p] and a number; of linear models.
      draws_: `sgld.Draws` of {"coef", "intercept", "sigma"}: `draws_.summary()`, `draws_.to_arviz()`.
      verdict_: what the run says of itself; where it is not `trusted`, `fit` warns with it once.
      n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    A row of weight w counts as w equal rows; rows of weight 0 are left out. With fewer than 10 rows
    for each coefficient, or next to no noise, and a normal prior, draws are independent, in closed
    form (sigma is then at least a thousandth of the outcome's sd).

    Example:
      >>> import numpy as np
      >>> from sgld import SGLDRegressor
      >>> X = np.linspace(-1.0, 1.0, 15)[:, None]
      >>> y = 1 + 2 * X[:, 0] + 0.1 * np.cos(9 * X[:, 0])
      >>> model = SGLDRegressor(random_state=0).fit(X, y)
      >>> model.coef_.round(1), round(model.intercept_, 1), model.verdict_.word
      (array([2.]), 1.0, 'trusted')
      >>> mean, sd = model.predict([[0.5]], return_std=True)
      >>> mean.round(1), sd.round(1)
      (array([2.]), array([0.1]))
      >>> round(model.score(X, y), 1)
      1.0
      >>> model.partial_fit(X + 0.01, y).coef_.round(1)  # 15 more rows
      array([2.])
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw from the posterior.

        Args:
          X: [n, p], finite.
          y: [n].
          sample_weight: [n], not negative: what each row counts. None: 1.

        Raises: DataError and ValueError for other rows; UsageError for a wrong argument of the estimator.
        """
        X, y, weight = self._rows(X, y, sample_weight, first=True, numeric=True)
        return self._fit(distinct(X, y, weight), self._form("gaussian"), first=True)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit again on all rows so far and these, beginning where the last fit ended.

        Args:
          X, y, sample_weight: as for `fit`.

        The posterior is that of one `fit` on all of them; the estimator keeps its rows for that.
        """
        first = not hasattr(self, "_seen")
        X, y, weight = self._rows(X, y, sample_weight, first=first, numeric=True)
        rows = distinct(X, y, weight) if first else joined(self._seen, X, y, weight)
        return self._fit(rows, self._form("gaussian"), first=first)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 of the posterior means of y, as of any regressor.

        Args:
          X: [n, p].
          y: [n].
          sample_weight: [n], not negative: what each row counts. None: 1.

        Raises: DataError where cells of y or of sample_weight are masked.
        """
        return super().score(X, unmasked("y", y), unmasked("sample_weight", sample_weight))

    def predict(
        self, X: Any, return_std: bool = False, return_interval: bool | float = False
    ) -> Any:
        """Posterior mean of y for every row of X, and how far y may lie from it.

        Args:
          X: [n, p].
          return_std: also return the sd of y [n], its noise included.
          return_interval: also return the ends [n, 2] of a central interval that holds y with this
            probability; True: .9.

        Returns: the means [n], or a tuple of them and what else was asked for, in this order.
        """
        X = self._columns(X)
        linear = hasattr(self, "coef_")
        mean = X @ self.coef_ + self.intercept_ if linear else self._predictor.mean(X)
        if not return_std and return_interval is False:
            return mean
        found = [mean]
        if return_std:
            found.append(self._predictor.sd(X))
        if return_interval is not False:
            prob = 0.9 if return_interval is True else return_interval
            fraction("return_interval", prob)
            found.append(self._predictor.interval(X, prob))
        return tuple(found)


class SGLDClassifier(ClassifierMixin, Estimator):
    """Bayesian logistic regression (or a neural network), with a verdict on its draws.

        P(y = 1) = sigmoid(intercept + x' coef);  of K > 2 classes softmax(intercept + coef x)

    Args:
      prior: "normal(mean, sd)", "student_t(df, loc, scale)" or "laplace(loc, scale)" of every
        coefficient, intercepts included, on the scale of X. None: independent normals with sd 2.5
        per sd of the column, the intercepts' about the classes' shares at the columns' means.
      penalty: instead of prior: "l2", normal(0, sqrt(C)) of every slope; "l1", laplace(0, C). The
        posterior's mode is then what LogisticRegression finds with that penalty and C, but for the
        intercept, which keeps its default prior.
      C: of penalty; UsageError where it is given without.
      fit_intercept: whether there is an intercept.
      hidden_layer_sizes: units of the hidden layers of a network, as in `SGLDRegressor`.
      tolerance: acceptable relative error of the posterior sd, in (0, .5].
      max_seconds: of one fit, compilation apart.
      random_state: a seed, a RandomState, or None for another seed at each fit.
      verbose: 0 says nothing; 1 shows the stages on standard error, and a line for each fit.

    Attributes:
      classes_: [K], in order.
      coef_, intercept_: posterior means, [1, p] and [1] of two classes (the log odds of the second),
        else [K, p] and [K]; of linear models.
      draws_: `sgld.Draws` of {"coef", "intercept"}, coef [p] or [p, K].
      verdict_: what the run says of itself; where it is not `trusted`, `fit` warns with it once.
      n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    A row of weight w counts as w equal rows; rows of weight 0 are left out.

    Example:
      >>> from sklearn.datasets import load_breast_cancer
      >>> from sgld import SGLDClassifier
      >>> X, y = load_breast_cancer(return_X_y=True)
      >>> model = SGLDClassifier(random_state=0).fit(X[:, :3], y)
      >>> model.predict_proba(X[3:4, :3]).round(1), model.verdict_.word
      (array([[0.1, 0.9]]), 'trusted')
      >>> model.predict(X[:2, :3])
      array([0, 0])
      >>> round(model.score(X[:, :3], y), 1)
      0.9
      >>> few = SGLDClassifier(random_state=0)  # rows that come one part after another
      >>> few.partial_fit(X[:100, :3], y[:100], classes=[0, 1]).classes_
      array([0, 1])
    """

    classes_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw from the posterior.

        Args:
          X: [n, p], finite.
          y: [n], classes of at least two kinds.
          sample_weight: [n], not negative: what each row counts. None: 1.

        Raises: DataError and ValueError for other rows; UsageError for a wrong argument of the estimator.
        """
        X, y, weight = self._rows(X, y, sample_weight, first=True, numeric=False)
        check_classification_targets(y)
        self.classes_ = np.unique(y[weight > 0])
        self._check_classes()
        codes = np.searchsorted(self.classes_, np.where(weight > 0, y, self.classes_[0]))
        return self._fit(distinct(X, codes, weight), self._class_form(), first=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Fit again on all rows so far and these, beginning where the last fit ended.

        Args:
          X, y, sample_weight: as for `fit`; y may lack classes.
          classes: all classes there are; needed at the first call, and then fixed.

        The posterior is that of one `fit` on all of them; the estimator keeps its rows for that.
        """
        first = not hasattr(self, "_seen")
        if first and classes is None:
            raise UsageError("classes must be given on the first call to partial_fit.")
        X, y, weight = self._rows(X, y, sample_weight, first=first, numeric=False)
        check_classification_targets(y)
        if first:
            self.classes_ = np.unique(np.asarray(classes))
            self._check_classes()
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise UsageError(
                f"classes must be those of the first call, {list(self.classes_)}. Got {list(classes)}."
            )
        codes = self._codes(y)
        rows = distinct(X, codes, weight) if first else joined(self._seen, X, codes, weight)
        return self._fit(rows, self._class_form(), first=first)

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n K"]:
        """Posterior mean of each class's probability for every row of X, in the order of classes_."""
        X = self._columns(X)
        return self._predictor.probabilities(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows whose class is predicted, as of any classifier.

        Args:
          X: [n, p].
          y: [n], classes.
          sample_weight: [n], not negative: what each row counts. None: 1.

        Raises: DataError where cells of y or of sample_weight are masked.
        """
        return super().score(X, unmasked("y", y), unmasked("sample_weight", sample_weight))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class [n] for every row of X."""
        most = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most]

    def _check_classes(self) -> None:
        if len(self.classes_) < 2:
            raise DataError(
                f"y holds one class alone, {self.classes_.tolist()[0]!r}; a classifier needs rows of two at least."
            )

    def _codes(self, y: np.ndarray) -> np.ndarray:
        """Classes by their number. Raises DataError for one that is not in classes_."""
        bad = ~np.isin(y, self.classes_)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(
                f"y is {y[row]!r} in row {row}, which is none of the classes {list(self.classes_)}; name "
                "all classes at the first call to partial_fit, or fit anew."
            )
        return np.searchsorted(self.classes_, y)

    def _class_form(self) -> Form:
        if len(self.classes_) == 2:
            return self._form("bernoulli")
        return self._form("categorical", tuple(map(str, self.classes_)))
