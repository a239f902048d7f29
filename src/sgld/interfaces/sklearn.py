"""Scikit-learn estimators that sample with `sgld.sample`: `SGLDRegressor` and `SGLDClassifier`.

`draws_of` returns the draws of a fitted pipeline, with the column names that its steps produce. An
estimator prints nothing while it is fitted, unless `verbose` is set.
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
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..core.progress import SAMPLING_STAGES, progress_shown
from ..core.validation import check_tolerance, fraction, positive_number, unmasked, whole_number
from ..errors import DataError, UsageError, did_you_mean
from ..inference.sample import sample
from ..inference.tuning.gaussian import misfit_notes
from ..regression.priors import parse_prior
from ..results.draws import Draws
from .sklearn_exact import exact_draws, is_for
from .sklearn_models import Form, Kind, Model, Rows, distinct, model_of
from .sklearn_predictor import Predictor

# -- named ---------------------------------------------------------------------------------


def draws_of(fitted: Any) -> Draws:
    """Return the draws of a fitted estimator, pipeline or search, named after the columns.

    An estimator knows only its own input: a data frame has column names, an array has none. The
    output of a ColumnTransformer or an encoder is an array (unless `set_output(transform="pandas")`
    is set), and only the pipeline knows the names of its columns. This function calls its
    `get_feature_names_out`.

    Args:
      fitted: an SGLDRegressor or SGLDClassifier, a Pipeline that ends with one, or a search over
        one (such as GridSearchCV with refit).

    Returns: `draws_`; with the names x0, x1, ... if no step provides others.

    Raises: UsageError if `fitted` holds no such estimator, or is not fitted.

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
    ):  # a step without output names, or one that needs its input names
        return draws
    return replace(draws, names=_renamed(draws.names, list(map(str, names))))


def _renamed(names: tuple[str, ...], columns: list[str]) -> tuple[str, ...]:
    """Replace x3 in x3 and x3[setosa] by the name of column 3; keep other names."""
    called = {f"x{j}": name for j, name in enumerate(columns)}

    def one(name: str) -> str:
        column, bracket, rest = name.partition("[")
        return called.get(column, column) + bracket + rest

    return tuple(one(name) for name in names)


# -- telling -------------------------------------------------------------------------------


@contextmanager
def show_fit_progress(estimator: Any, rows: int, columns: int) -> Iterator[None]:
    """Show the stages of a fit, and print a line at its end, if `verbose` is set.

    A search or a cross-validation makes many short fits. Without a terminal each ends before its
    first progress message, so the lines show the progress.
    """
    if not estimator.verbose:
        yield
        return
    began = time.monotonic()
    with progress_shown(True, SAMPLING_STAGES, summary=False):
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
    """Common base of both estimators: arguments, rows and fit."""

    n_features_in_: int

    def __init__(
        self,
        *,
        prior: str | None = None,
        penalty: str | None = None,
        C: float | None = None,
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

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: sparse matrices are taken, and made dense."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _rows(self, X: Any, y: Any, sample_weight: Any, *, first: bool, numeric: bool) -> tuple:
        """Check the arrays and return X [n, p], y [n] and weights [n]."""
        for name, values in {"X": X, "y": y, "sample_weight": sample_weight}.items():
            unmasked(name, values)
        _refuse_duplicate_columns(X)
        shape = np.asarray(y).shape
        if len(shape) == 2 and shape[1] > 1:
            several = f"sklearn.multioutput.MultiOutput{'Regressor' if numeric else 'Classifier'}"
            raise DataError(
                f"y must hold one outcome per row. Got shape {shape}; fit one model per outcome with "
                f"{several}({type(self).__name__}())."
            )
        X = _dense(X)
        with _name_bad_cells(X):
            X, y = validate_data(self, X, y, reset=first, dtype=np.float64, y_numeric=numeric)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if (weight < 0).any():
            raise DataError(f"sample_weight must not be negative. Got {weight.min():g}.")
        if not weight.any():  # scikit-learn 1.6 accepts it
            raise DataError("sample_weight must contain at least one non-zero number.")
        return X, y, weight

    def _form(self, kind: Kind, labels: tuple[str, ...] = ()) -> Form:
        """Return the structure of the model that the arguments define."""
        check_tolerance(self.tolerance)
        sizes = np.atleast_1d(np.asarray(self.hidden_layer_sizes, dtype=object))
        for size in sizes:
            whole_number("hidden_layer_sizes", size)
        density = slopes = None
        if self.prior is not None and self.penalty is not None:
            raise UsageError("prior and penalty both set the prior; give only one of them.")
        if self.penalty is None and self.C is not None:
            raise UsageError(
                f"C is the strength of a penalty, but penalty is None. Got C={self.C!r}; add "
                'penalty="l2" (or "l1"), or leave out C and set the prior: prior="normal(0, 1)".'
            )
        if self.prior is not None:
            density = parse_prior(self.prior)
        elif self.penalty is not None:
            if self.penalty not in PRIOR_OF_PENALTY:
                raise UsageError(
                    f"penalty must be None or one of {', '.join(PRIOR_OF_PENALTY)}. Got {self.penalty!r}."
                    + did_you_mean(self.penalty, PRIOR_OF_PENALTY)
                )
            strength = 1.0 if self.C is None else self.C
            positive_number("C", strength)
            scale = strength**0.5 if self.penalty == "l2" else strength
            density, slopes = parse_prior(PRIOR_OF_PENALTY[self.penalty].format(float(scale))), True
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        return Form(
            kind, tuple(map(str, names)), labels, bool(self.fit_intercept),
            tuple(int(size) for size in sizes), density, bool(slopes),
        )  # fmt: skip

    def _fit(self, rows: Rows, form: Form, *, first: bool) -> Self:
        """Sample the posterior, and store the verdict and what predictions need."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        model = model_of(rows, form, seed)
        with show_fit_progress(self, rows.count, len(form.names)):
            if is_for(model, rows):
                draws = exact_draws(model, rows, seed)
            else:
                start = None if first else _resumed(model, self.draws_)
                draws = sample(
                    model.posterior, model.data, start, seed=seed, tolerance=self.tolerance,
                    max_seconds=self.max_seconds, progress=bool(self.verbose),
                )  # fmt: skip
                if form.hidden:  # the posterior of a linear model has an output that does this
                    draws = _unstandardised(draws, form, model.standard.stretch)
            self.verdict_ = draws.verdict
        self.draws_ = _without_objects(draws, rows)
        self._seen = rows
        standard = model.standard if form.hidden else None
        self._predictor = Predictor.of(form.kind, draws, standard, rows.x)
        self._set_coefficients(form)
        if self.verdict_.word != "trusted":
            said = (
                f"{type(self).__name__} is fitted, but its draws are not trusted: {self.verdict_}"
            )
            warnings.warn(said, ConvergenceWarning, stacklevel=3)
        return self

    def _set_coefficients(self, form: Form) -> None:
        """Set posterior means in scikit-learn's shapes.

        A network has none, since its units can permute.
        """
        if form.hidden:
            for name in ("coef_", "intercept_"):  # from an earlier fit
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
        X = _dense(X)
        with _name_bad_cells(unmasked("X", X)):
            return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))


@contextmanager
def _name_bad_cells(X: Any) -> Iterator[None]:
    """Add the column of a data frame to scikit-learn's error for cells that are not numbers."""
    try:
        yield
    except ValueError as error:
        for name in getattr(X, "columns", ()) if "could not convert" in str(error) else ():
            for cell in X[name]:
                try:
                    float(cell)
                except (TypeError, ValueError):
                    raise DataError(
                        f"column {str(name)!r} of X holds {cell!r}, which is not a number (could not convert it to float); "
                        "encode it (sklearn.preprocessing.OneHotEncoder), or fit a formula (sgld.fit)."
                    ) from error
        raise


def _dense(X: Any) -> Any:
    """Return a sparse matrix as an array, and anything else as it is."""
    return X.toarray(order="C") if issparse(X) else X


def _refuse_duplicate_columns(X: Any) -> None:
    """Raise DataError for a data frame with two columns of the same name."""
    names = list(map(str, getattr(X, "columns", ())))
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise DataError(
            f"X has several columns named {', '.join(map(repr, duplicates))}; rename them, or keep one."
        )


def joined(seen: Rows, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Rows:
    """Return the previous rows and the new ones together."""
    rows = distinct(
        np.concatenate([seen.x, x]),
        np.concatenate([seen.y, y]),
        np.concatenate([seen.weight, weight]),
    )
    return replace(rows, given=seen.count + int((weight > 0).sum()))


def _resumed(model: Model, draws: Draws) -> Any:
    """Return the last position of the previous fit, standardised, as the start of the search."""
    form, at, chain = model.form, model.standard, int(draws.healthy[0])
    last = jax.tree.map(lambda leaf: np.asarray(leaf[chain, -1], np.float32), draws.position)
    if jax.tree.map(np.shape, last) != jax.tree.map(np.shape, model.posterior.init):
        return None  # set_params changed the structure
    if form.hidden:  # means of weights have no meaning, since units can permute
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


def _without_objects(draws: Draws, rows: Rows) -> Draws:
    """Return draws that hold only arrays and text, so that they can be pickled.

    The number of rows is the user's: without padding, and with equal rows counted.
    """
    info = {**draws.info, "num_data": rows.count}
    if draws.plan is not None:
        misread = ()
        if not (rows.weight == 1).all():  # the score of a row counts as often as the row
            misread = misfit_notes(draws.plan.misfit, draws.plan.num_data)
        notes = [rows.said(note) for note in draws.plan.notes if note not in misread]
        info["plan"] = {**draws.plan.describe(), "notes": notes}
    return replace(draws, info=info, plan=None, origin=None)


# -- estimators ----------------------------------------------------------------------------


class SGLDRegressor(RegressorMixin, Estimator):
    """Bayesian linear regression (or a neural network), with a verdict on its draws.

        y ~ N(intercept + x' coef, sigma^2)

    Args:
      prior: "normal(mean, sd)", "student_t(df, loc, scale)" or "laplace(loc, scale)" for every
        coefficient, the intercept included, on the scale of X and y. None: independent normals with
        sd 2.5 times the outcome's sd per sd of the column; the intercept's prior is centered at the
        mean outcome at the columns' means. sigma is half-normal with the outcome's sd.
      penalty: instead of prior: "l2", normal(0, sqrt(C)) for every slope; "l1", laplace(0, C). The
        intercept keeps its default prior.
      C: the strength of the penalty, None for 1; UsageError without `penalty`.
      fit_intercept: whether the model has an intercept.
      hidden_layer_sizes: units of the hidden layers of a network with tanh units; () for a linear
        model. Columns and outcome are standardised, weights of a layer ~ normal(0, 2.5 / sqrt(units
        below)), biases normal(0, 1), or all of them `prior`. The draws are those of these weights,
        and of sigma in the unit of y.
      tolerance: acceptable relative error of the posterior sd, in (0, .5].
      max_seconds: time limit of one fit, without compilation.
      random_state: a seed, a RandomState, or None for another seed at each fit.
      verbose: 0: print nothing; 1: show the stages on standard error, and a line for each fit.

    Attributes:
      coef_, intercept_: posterior means, [p] and a number; only for linear models.
      draws_: `sgld.Draws` of {"coef", "intercept", "sigma"}: `draws_.summary()`,
        `draws_.to_arviz()`.
      verdict_: the verdict of the run; if it is not `trusted`, `fit` warns once.
      n_features_in_, feature_names_in_: as for any scikit-learn estimator.

    A row of weight w counts as w equal rows; rows of weight 0 are left out. If there are fewer than
    10 rows for each coefficient, or almost no noise, and the prior is normal, the draws are
    independent, in closed form (sigma is then at least a millionth of the outcome's sd).

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
          X: [n, p], finite; a sparse matrix is made dense.
          y: [n].
          sample_weight: [n], not negative: the weight of each row. None: 1.

        Raises: DataError and ValueError for other rows; UsageError for a wrong argument of the
        estimator.
        """
        X, y, weight = self._rows(X, y, sample_weight, first=True, numeric=True)
        return self._fit(distinct(X, y, weight), self._form("gaussian"), first=True)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit again on all previous rows and these, starting from the end of the last fit.

        The posterior is that of one `fit` on all rows; the estimator keeps its rows for this
        purpose.

        Args:
          X: as for `fit`.
          y: as for `fit`.
          sample_weight: as for `fit`.
        """
        first = not hasattr(self, "_seen")
        X, y, weight = self._rows(X, y, sample_weight, first=first, numeric=True)
        rows = distinct(X, y, weight) if first else joined(self._seen, X, y, weight)
        return self._fit(rows, self._form("gaussian"), first=first)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the posterior means of y, as any regressor does.

        Args:
          X: [n, p].
          y: [n].
          sample_weight: [n], not negative: the weight of each row. None: 1.

        Raises: DataError if y or sample_weight has masked cells.
        """
        return super().score(X, unmasked("y", y), unmasked("sample_weight", sample_weight))

    def predict(
        self, X: Any, return_std: bool = False, return_interval: bool | float = False
    ) -> Any:
        """Return the posterior mean of y for every row of X, and optionally its sd and interval.

        Args:
          X: [n, p].
          return_std: also return the sd of y [n], noise included.
          return_interval: also return the ends [n, 2] of a central interval that holds y with this
            probability; True: .9.

        Returns: the means [n], or a tuple of the means and the other requested arrays, in this
        order.
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

        P(y = 1) = sigmoid(intercept + x' coef);  for K > 2 classes softmax(intercept + coef x)

    Args:
      prior: "normal(mean, sd)", "student_t(df, loc, scale)" or "laplace(loc, scale)" for every
        coefficient, intercepts included, on the scale of X. None: independent normals with sd 2.5
        per sd of the column; the intercepts' priors are centered at the classes' shares at the
        columns' means.
      penalty: instead of prior: "l2", normal(0, sqrt(C)) for every slope; "l1", laplace(0, C). The
        posterior's mode is then the estimate of LogisticRegression with that penalty and C, except
        for the intercept, which keeps its default prior.
      C: the strength of the penalty, None for 1; UsageError without `penalty`.
      fit_intercept: whether the model has an intercept.
      hidden_layer_sizes: units of the hidden layers of a network, as in `SGLDRegressor`.
      tolerance: acceptable relative error of the posterior sd, in (0, .5].
      max_seconds: time limit of one fit, without compilation.
      random_state: a seed, a RandomState, or None for another seed at each fit.
      verbose: 0: print nothing; 1: show the stages on standard error, and a line for each fit.

    Attributes:
      classes_: [K], in order.
      coef_, intercept_: posterior means, [1, p] and [1] for two classes (the log odds of the
        second), else [K, p] and [K]; only for linear models.
      draws_: `sgld.Draws` of {"coef", "intercept"}, coef [p] or [p, K].
      verdict_: the verdict of the run; if it is not `trusted`, `fit` warns once.
      n_features_in_, feature_names_in_: as for any scikit-learn estimator.

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
      >>> few = SGLDClassifier(random_state=0)  # rows that arrive in parts
      >>> few.partial_fit(X[:100, :3], y[:100], classes=[0, 1]).classes_
      array([0, 1])
    """

    classes_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw from the posterior.

        Args:
          X: [n, p], finite; a sparse matrix is made dense.
          y: [n], classes of at least two kinds.
          sample_weight: [n], not negative: the weight of each row. None: 1.

        Raises: DataError and ValueError for other rows; UsageError for a wrong argument of the
        estimator.
        """
        X, y, weight = self._rows(X, y, sample_weight, first=True, numeric=False)
        check_classification_targets(y)
        self.classes_ = np.unique(y[weight > 0])
        self._check_classes()
        codes = np.searchsorted(self.classes_, np.where(weight > 0, y, self.classes_[0]))
        return self._fit(distinct(X, codes, weight), self._class_form(), first=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Fit again on all previous rows and these, starting from the end of the last fit.

        The posterior is that of one `fit` on all rows; the estimator keeps its rows for this
        purpose.

        Args:
          X: as for `fit`.
          y: as for `fit`; classes may be missing.
          classes: all classes; required at the first call, and fixed afterwards.
          sample_weight: as for `fit`.
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
        """Return the posterior mean of each class's probability for every row of X.

        The columns are in the order of classes_.

        Args:
          X: [n, p].
        """
        X = self._columns(X)
        return self._predictor.probabilities(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose class is predicted correctly, as any classifier does.

        Args:
          X: [n, p].
          y: [n], classes.
          sample_weight: [n], not negative: the weight of each row. None: 1.

        Raises: DataError if y or sample_weight has masked cells.
        """
        return super().score(X, unmasked("y", y), unmasked("sample_weight", sample_weight))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class [n] for every row of X.

        Args:
          X: [n, p].
        """
        X = self._columns(X)
        return self.classes_[self._predictor.most_probable(X)]

    def _check_classes(self) -> None:
        if len(self.classes_) < 2:
            raise DataError(
                f"y holds only one class, {self.classes_.tolist()[0]!r}; a classifier needs at least two."
            )

    def _codes(self, y: np.ndarray) -> np.ndarray:
        """Return the indices of classes. Raise DataError for a class that is not in classes_."""
        bad = ~np.isin(y, self.classes_)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(
                f"y is {y[row]!r} in row {row}, which is not one of the classes {list(self.classes_)}; pass "
                "all classes at the first call to partial_fit, or fit again."
            )
        return np.searchsorted(self.classes_, y)

    def _class_form(self) -> Form:
        if len(self.classes_) == 2:
            return self._form("bernoulli")
        return self._form("categorical", tuple(map(str, self.classes_)))
