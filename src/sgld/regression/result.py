"""The result of `sgld.fit`: the draws of a formula's model, its predictions and prior draws.

Predictions read tables of any length in pieces, and come in pieces. Prior draws use NumPy and the densities
of `priors`.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Bool, Float

from ..core.progress import report_count, stage
from ..core.validation import fraction
from ..data.cache import stamp_of
from ..data.delimited import renumbered
from ..data.source import check_names
from ..data.table_source import Chained, TableSource
from ..data.tables import as_table, check_named
from ..errors import DataError, SGLDWarning, need
from ..results.draws import Draws
from ..results.late import Shown, late
from ..results.summary import Summary
from ..results.verdict import Verdict
from ..typing import PlotKind, PredictionKind
from .design import UnknownLevelError
from .formula import FormulaModel
from .predictive import check_kind, predict_rows
from .priors import (
    DISPERSIONS,
    MIN_OF_DISPERSION,
    gamma_of_two,
    half_normal,
    inverse_root,
    laplace,
    normal,
    root,
    student_t,
)
from .rows import complete

if TYPE_CHECKING:
    import pyarrow
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Fit(Shown):
    """The posterior of a formula's model.

    Attributes:
      draws: on the original scale, with the formula's names.
      model: the formula, its priors and its rows.
      asked: the settings of the call, as run.json of a run directory holds them.

    Example:
      >>> import numpy as np, sgld
      >>> x = np.linspace(-1.0, 1.0, 200)
      >>> rows = {"x": x, "y": 1 + 2 * x + 0.1 * np.cos(9 * x)}
      >>> fit = sgld.fit(rows, "y ~ x", progress=False)
      >>> fit.verdict.word, round(fit.summary().parameters["x"]["mean"], 1)
      ('trusted', 2.0)
      >>> fit.predict({"x": [0.5]})["mean"].round(1)
      array([2.])
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     fit.report(f"{folder}/report.html").name
      'report.html'
    """

    draws: Draws
    model: FormulaModel
    asked: dict[str, Any]

    @property
    def verdict(self) -> Verdict:
        """The verdict on whether the draws can be trusted."""
        return self.draws.verdict

    def summary(self) -> Summary:
        """Return the table of the parameters, with the verdict last."""
        return self.draws.summary()

    def predict(
        self, new: Any, *, kind: PredictionKind = "outcome", prob: float = 0.9,
        sep: str | None = None, decimal: str | None = None,
    ) -> Any:  # fmt: skip
        """Predict other rows, in their order.

        Args:
          new: a table with the predictors' columns, as `sgld.fit` takes it, or the path of one.
          kind: "outcome" predicts the observation, "mean" its expectation, and "class" the
            likeliest of the levels of a bernoulli or categorical outcome.
          prob: of the interval, which is central.
          sep: of a text file, as for `sgld.fit`; by default the fit's, for the same extension (.csv, .tsv).
          decimal: as `sep`.

        Returns:
          A table of the kind of `new` (a DataFrame with its index; a dict of arrays for a dict; a
          pyarrow.Table for a path): `mean` and `sd` of the outcome, including its noise (of its
          expectation for kind "mean"); `lower` and `upper` of an interval that holds it with
          probability `prob`; for bernoulli also `probability`; for a categorical outcome, and for
          kind "class", `class` and probabilities. Rows with a missing cell are empty if the fit
          dropped such rows, and otherwise raise an error. Rows with a level that the fit does not have are
          empty, with a warning that counts them.

        Raises: DataError for the rows, UsageError for `kind` and `prob`.
        """
        from ..data.table_source import TableSource

        seed, path = int(self.asked.get("seed", 0)), isinstance(new, (str, Path))
        predicting = Predicting(self.model, self.draws, prob=prob, seed=seed, kind=kind)
        trained_on = self.asked.get("data")
        given = TableSource.like(trained_on, new, sep, decimal) if path else as_table(new)
        with stage("predicting"):
            return _like(None if path else new, predicting.together(rows_in(given)))

    def report(self, path: str | Path, *, title: str = "") -> Path:
        """Write the report of the run, one self-contained page, to `path`; return it.

        Args:
          path: the file of the page, such as "report.html".
          title: the heading of the page; by default the formula.

        Raises: RunError where it cannot be written, MissingExtra without matplotlib.
        """
        find = late("formula_report")(self.draws, self.asked, lambda: self.model)
        return late("report_of")(self.draws, path, self.asked, find, title)

    def plot(
        self, kind: PlotKind = "forest", *, names: Sequence[str] | None = None, **how: Any
    ) -> Figure:
        """Plot the fit with matplotlib: "forest", "trace", "marginal", "pair", "ppc" or "verdict".

        Args:
          kind: as for `Draws.plot`.
          names: as for `Draws.plot`.
          **how: as for `Draws.plot`.

        Raises: as `Draws.plot`.

        Example:
          >>> import numpy as np, sgld
          >>> x = np.random.default_rng(0).normal(size=300)
          >>> fit = sgld.fit({"x": x, "y": (x > 0.3) + 0.0}, "y ~ x", progress=False)
          >>> type(fit.plot("ppc")).__name__
          'Figure'
        """
        return self.draws.plot(kind, names=names, **how)

    def __repr__(self) -> str:
        summary = str(self.summary())
        return f"{self.model!r}\n{summary}"


def _like(given: Any, found: dict[str, np.ndarray]) -> Any:
    """Return the columns as a table of the given kind."""
    if isinstance(given, dict):
        return found
    library = type(given).__module__.split(".")[0]
    if library == "pandas":
        import pandas

        return pandas.DataFrame(found, index=given.index)
    if library == "polars":
        import polars  # pyright: ignore[reportMissingImports]

        return polars.DataFrame(found)
    import pyarrow

    return pyarrow.table(found)


# -- predicting ----------------------------------------------------------------------------


PREDICTED_ROWS = 16_384  # rows of a piece, which takes one to three seconds


class Predicting:
    """`FormulaModel.predict` for draws on the original scale, applied to pieces of a table.

    Attributes:
      blank: the predictions of no row, by name.

    Raises: UsageError for `kind` and `prob`.
    """

    def __init__(
        self, model: FormulaModel, draws: Draws, *, prob: float, seed: int, kind: PredictionKind
    ) -> None:
        fraction("prob", prob)
        check_kind(model.family, kind)
        position = jax.tree.map(lambda leaf: np.asarray(leaf)[draws.healthy], draws.position)
        self._model, self._position = model, model.to_standardised(position)
        self._how: dict[str, Any] = {"kind": kind, "prob": prob, "weights": draws.weights}
        self._seed = seed
        typical = predict_rows(
            model.family, model.spec, self._position, np.zeros((1, len(model.center))),
            {"trials": np.ones(1)} if model.spec.get("trials") else {}, seed=0, max_draws=1, **self._how,
        )  # fmt: skip
        self.blank = {name: values[:0] for name, values in typical.items()}

    @property
    def rows_at_once(self) -> int:
        """The rows of a piece: all, if a term uses the row before."""
        formula = self._model.spec["design"]["formula"]
        return sys.maxsize if "lag(" in formula.replace(" ", "") else PREDICTED_ROWS

    def __call__(
        self, rows: Rows, ids: Sequence[str] = ()
    ) -> Iterator[tuple[pyarrow.Table, dict[str, np.ndarray]]]:
        """Yield the pieces, with `ids` and the columns needed, and the predictions of their rows.

        Predictions are empty (NaN or None) for a row with a missing cell, if the run dropped such rows, and
        for a row with a level that the training data did not have; a warning counts the latter.

        Raises: DataError for the rows, for a missing column, and if no row can be predicted.
        """
        columns = self._columns(rows.schema.empty_table(), ids)
        drops = self._model.spec.get("missing") == "drop"
        first, predicted, began, table = 0, 0, time.monotonic(), None
        unknown, example = 0, ""
        for number, table in enumerate(rows.pieces(columns, self.rows_at_once)):
            if rows.num_rows:
                rate = first / (time.monotonic() - began) if first else 0.0
                report_count(first, rows.num_rows, "rows", rate=rate)
            whole, keep = table, np.ones(len(table), bool)
            if drops:
                whole, keep = complete(table, columns[len(ids) :])
            found = self.blank
            while len(whole):
                try:
                    found = self._model.predict(self._position, whole, seed=self._seed + number, **self._how)  # fmt: skip
                    break
                except DataError as error:
                    located = renumbered(error, first + np.flatnonzero(keep))
                    if not isinstance(error, UnknownLevelError):
                        raise located from error.__cause__
                    keep = keep.copy()
                    keep[np.flatnonzero(keep)[error.rows]] = False
                    whole = table.filter(need("pyarrow", "tables").array(keep))
                    unknown, example = unknown + int(error.rows.sum()), example or str(located)
            first, predicted = first + len(keep), predicted + len(whole)
            yield table, {name: _spread(values, keep) for name, values in found.items()}
        if first and not predicted:
            self._model.design(table)  # raises: no row is complete and has known levels
        if unknown:
            warnings.warn(
                f"{unknown:,} of {first:,} rows have a level that the fit does not have, and their predictions are "
                f"empty: {example}", SGLDWarning, stacklevel=2,
            )  # fmt: skip

    def together(self, rows: Rows) -> dict[str, np.ndarray]:
        """Return the predictions of all rows."""
        parts = [found for _, found in self(rows)]
        return {name: np.concatenate([part[name] for part in parts]) for name in self.blank}

    def _columns(self, table: pyarrow.Table, ids: Sequence[str]) -> list[str]:
        """Return the `ids`, then the columns that the predictions need."""
        for name in ids:
            check_named(table, name)
            if name in self.blank:
                raise DataError(f"the predictions also have a column {name!r}; rename the table's column.")  # fmt: skip
        return [*ids, *self._model.predictors(table)]


def _spread(values: np.ndarray, keep: Bool[np.ndarray, " m"]) -> np.ndarray:
    """Place the values of the kept rows among all rows; NaN, or None for words, elsewhere."""
    if keep.all():
        return values
    numbers = values.dtype.kind == "f"
    out = np.full(len(keep), np.nan) if numbers else np.full(len(keep), None, object)
    out[keep] = values
    return out


@runtime_checkable
class Rows(Protocol):
    """A table that is read in pieces; `num_rows` is 0 while it is unknown."""

    schema: pyarrow.Schema
    num_rows: int

    def pieces(self, columns: Sequence[str], size: int) -> Iterator[pyarrow.Table]:
        """Yield all rows of these columns, or of more, `size` at a time."""
        ...


def rows_in(given: TableSource | pyarrow.Table) -> Rows:
    """Return the rows of a table in memory or on disk. Raises as `TableSource.batches`."""
    return OnDisk(given) if isinstance(given, TableSource) else InMemory(given)


class InMemory:
    """The rows of a table in memory."""

    def __init__(self, table: pyarrow.Table) -> None:
        self._table, self.schema, self.num_rows = table, table.schema, table.num_rows

    def pieces(self, columns: Sequence[str], size: int) -> Iterator[pyarrow.Table]:
        """Yield slices of all columns, as `Rows`."""
        for start in range(0, self.num_rows, size):
            yield self._table.slice(start, size)


class OnDisk:
    """The rows of files, of a database, or of a query."""

    def __init__(self, source: TableSource) -> None:
        self._source = source
        self._before = self._stamps()
        self._table = Chained([source], None)
        check_names(list(self._table.schema), self._table.name)
        self.num_rows = self._table.num_rows
        self.schema = need("pyarrow", "tables").schema(list(self._table.schema.items()))

    def pieces(self, columns: Sequence[str], size: int) -> Iterator[pyarrow.Table]:
        """Yield pieces as `Rows`. Raises DataError without rows, or if rows change meanwhile."""
        arrow, read = need("pyarrow", "tables"), 0
        held: list[Any] = []
        for batch in self._table.batches(list(dict.fromkeys(columns))):
            while batch.num_rows:
                held.append(batch.slice(0, size - read % size))
                read, batch = read + len(held[-1]), batch.slice(len(held[-1]))
                if read % size == 0:
                    yield arrow.Table.from_batches(held)
                    held = []
        if self._stamps() != self._before:
            raise DataError(f"{self._source.data} changed while it was read; read it again.")
        if held:
            yield arrow.Table.from_batches(held)
        if not read:
            raise DataError(f"{self._table.name} has no row; at least one is needed.")

    def _stamps(self) -> list[Any]:
        return [stamp_of(path) for path in self._source.files()]


# -- prior draws ---------------------------------------------------------------------------


PyTree = Any


def prior_draws(model: FormulaModel, count: int, seed: int) -> PyTree:
    """Return `count` draws of the prior on the original scale, leaves [count, ...].

    The seed determines the draws.

    Example:
      >>> import numpy as np
      >>> from sgld.regression.formula import FormulaModel
      >>> from sgld.regression.result import prior_draws
      >>> table = {"x": np.arange(50.0), "y": np.arange(50.0) % 7}
      >>> model = FormulaModel.build(table, "y ~ x", "gaussian", "normal(0, 3)")
      >>> found = prior_draws(model, 20_000, seed=0)
      >>> found["coefficients"].shape, [round(float(sd)) for sd in found["coefficients"].std(axis=0)]
      ((20000, 2), [3, 3])
    """
    rng, prior = np.random.default_rng([seed, 7]), model.posterior.log_prior
    args: tuple[Any, ...] = getattr(prior, "args")  # noqa: B009
    *_, scales = args
    start: Any = model.posterior.init
    shape = np.shape(start["coefficients"])
    rest = {name: _dispersion(rng, name, float(scales[name]), count) for name in scales}
    if model.spec["prior"] is None:
        mean, sd = (np.asarray(part, np.float64) for part in args[:2])
        z = mean + sd * rng.standard_normal((count, *shape))
    else:
        size = int(np.prod(shape))
        b = _coefficients(rng, args[0], (count, size))
        matrix, offset = model.matrix[:size, :size], model.offset[:size]
        z = np.linalg.solve(matrix, (b - offset).T).T.reshape(count, *shape)
    return model.to_original({"coefficients": z, **rest})


def _coefficients(
    rng: np.random.Generator, density: Any, shape: tuple[int, ...]
) -> Float[np.ndarray, "count m"]:
    """Draw from the density that `parse_prior` built from the user's text."""
    numbers = [float(value) for value in density.args]
    *df, loc, scale = numbers
    if density.func is normal:
        return rng.normal(loc, scale, shape)
    if density.func is student_t:
        return loc + scale * rng.standard_t(df[0], shape)
    assert density.func is laplace
    return rng.laplace(loc, scale, shape)


def _dispersion(
    rng: np.random.Generator, name: str, scale: float, count: int
) -> Float[np.ndarray, " count"]:
    """Draw from a dispersion's prior, in the sampler's units."""
    density = DISPERSIONS[name].log_density
    if density is half_normal:
        return np.abs(rng.normal(0.0, scale, count))
    if density is root:
        return rng.normal(0.0, scale, count) ** 2.0
    if density is inverse_root:
        return rng.normal(0.0, scale, count) ** -2.0
    assert density is gamma_of_two
    found = rng.gamma(2.0, 1 / scale, count)
    while (low := found <= MIN_OF_DISPERSION[name]).any():
        found[low] = rng.gamma(2.0, 1 / scale, int(low.sum()))
    return found
