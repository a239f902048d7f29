"""Draws of a fitted pipeline, by the names that its steps give to columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from ..errors import UsageError
from ..results.draws import Draws

__all__ = ["draws_of"]


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
