"""What both estimators have in common: their arguments, their rows, the fit, and what is kept of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..core.validation import check_tolerance, positive_number, unmasked, whole_number
from ..errors import DataError, UsageError, did_you_mean
from ..inference.sample import sample
from ..inference.tuning.gaussian import misfit_notes
from ..regression.priors import parse_prior
from ..results.draws import Draws
from .exact import exact_draws, is_for
from .model import Form, Kind, Model, Rows, distinct, model_of
from .predictor import Predictor
from .telling import told_of_fit

__all__ = ["Estimator", "joined"]

PENALTIES = {"l2": "normal(0, {})", "l1": "laplace(0, {})"}


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
            if self.penalty not in PENALTIES:
                raise UsageError(
                    f"penalty must be None or one of {', '.join(PENALTIES)}. Got {self.penalty!r}."
                    + did_you_mean(self.penalty, PENALTIES)
                )
            positive_number("C", self.C)
            scale = self.C**0.5 if self.penalty == "l2" else self.C
            density, slopes = parse_prior(PENALTIES[self.penalty].format(float(scale))), True
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
        return last
    found = {name: np.asarray(value) for name, value in draws.mean().items()}
    coef = found["coef"]
    start = {"coef": coef * at.scale.reshape(-1, *(1,) * (coef.ndim - 1)) / at.stretch}
    if form.intercept:
        start["intercept"] = (found["intercept"] + at.center @ coef - at.shift) / at.stretch
    if form.dispersion:
        start["sigma"] = found["sigma"] / at.stretch
    return {name: np.asarray(value, np.float32) for name, value in start.items()}


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
