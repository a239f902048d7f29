"""`SGLDRegressor` and `SGLDClassifier`: scikit-learn estimators on the engine of `sgld.sample`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from ..core.validation import fraction, unmasked
from ..errors import DataError, UsageError
from .base import Estimator, joined
from .model import Form, distinct

__all__ = ["SGLDClassifier", "SGLDRegressor"]


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
        below)), biases normal(0, 1), or all of them `prior`. Draws are of these weights.
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
