"""What `sgld.fit` returns: the draws of a formula's model, and what one asks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.progress import stage
from ..data.tables import as_table
from ..results.draws import Draws
from ..results.summary import Summary
from ..results.verdict import Verdict
from ..typing import PlotKind, PredictionKind
from .formula import FormulaModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Fit"]


@dataclass(frozen=True, repr=False)
class Fit:
    """The posterior of a formula's model.

    Attributes:
      draws: on the original scale, with the formula's names.
      model: the formula, its priors and its rows.
      asked: what was asked for, as run.json of a run directory holds it.

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
        """How far the draws can be trusted."""
        return self.draws.verdict

    def summary(self) -> Summary:
        """The table of the parameters, the verdict last."""
        return self.draws.summary()

    def predict(
        self, new: Any, *, kind: PredictionKind = "outcome", prob: float = 0.9,
        sep: str | None = None, decimal: str | None = None,
    ) -> Any:  # fmt: skip
        """Predictions for other rows, in their order.

        Args:
          new: a table with the predictors' columns, as `sgld.fit` takes it, or the path of one.
          kind: "outcome" predicts what will be seen, "mean" its expectation, and "class" the
            likeliest of the levels of a bernoulli or categorical outcome.
          prob: of the interval, which is central.
          sep, decimal: of a file of text, as for `sgld.fit`; by default those of the fit's own, if that
            ends in the same letters (.csv, .tsv).

        Returns:
          A table of the kind of `new` (a DataFrame with its index; a dict of arrays for a dict; a
          pyarrow.Table for a path): `mean` and `sd` of the outcome, its noise included (of its
          expectation for kind "mean"); `lower` and `upper` of an interval that holds it with
          probability `prob`; for bernoulli also `probability`; of a categorical outcome, and for
          kind "class", `class` and probabilities. Rows with a missing cell are empty where the fit
          was to drop such rows, and refused otherwise.

        Raises: DataError for the rows, UsageError for `kind` and `prob`.
        """
        from ..data.table_source import TableSource
        from .predicting import Predicting, rows_in

        seed, path = int(self.asked.get("seed", 0)), isinstance(new, (str, Path))
        predicting = Predicting(self.model, self.draws, prob=prob, seed=seed, kind=kind)
        told = self.asked.get("data")
        given = TableSource.like(told, new, sep, decimal) if path else as_table(new)
        with stage("predicting"):
            return _like(None if path else new, predicting.together(rows_in(given)))

    def report(self, path: str | Path) -> Path:
        """Write the page of the run, one file that needs nothing else, to `path`; return it.

        Raises: RunError where it cannot be written, MissingExtra without matplotlib.
        """
        from ..report.page import of_formula, report_of

        find = of_formula(self.draws, self.asked, lambda: self.model)
        return report_of(self.draws, path, self.asked, find)

    def plot(
        self, kind: PlotKind = "forest", *, names: Sequence[str] | None = None, **how: Any
    ) -> Figure:
        """A matplotlib figure of the fit: "forest", "trace", "marginal", "pair", "ppc" or "verdict".

        Args:
          kind, names, how: as for `Draws.plot`.

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

    def _repr_html_(self) -> str:
        from ..notebook.views import view

        return view(self)


def _like(given: Any, found: dict[str, np.ndarray]) -> Any:
    """The columns as a table of the kind that was given."""
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
