"""What `sgld.loo` and `sgld.waic` find, and models beside one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from ..core.versions import compare_weights, elpd_data
from ..errors import UsageError
from ..results.draws import Draws

if TYPE_CHECKING:
    import pandas
    from arviz_stats.utils import ELPDData

__all__ = ["Criterion", "compare_models"]

NAMED = 8  # rows in a sentence
METHODS = ("stacking", "bb-pseudo-bma", "pseudo-bma")


@dataclass(frozen=True, repr=False)
class Criterion:
    """An expected log predictive density; larger is better.

    Attributes:
      kind: "loo" or "waic".
      outcome: the name of what is predicted.
      elpd: the sum over all rows of the log predictive density of a row left out.
      se: its standard error, of the rows as a sample of all there could be.
      p: the effective number of parameters.
      subsampling_se: the standard error that the subsample adds; 0 where all rows were taken.
      num_data, num_draws: rows in all, and draws that were used.
      numbers: [m], the rows at which it was computed, counted from 0.
      rows: [m], what the user calls them: their numbers in a table, say.
      elpd_i: [m], of each.
      pareto_k: [m], of each; of "waic" the variance of its log likelihood.
      limit: above which a row's value cannot be relied on.
      approximation: [N], at all rows, where not all were taken.
      resampled: whether the draws had weights, and were resampled.
    """

    kind: Literal["loo", "waic"]
    outcome: str
    elpd: float
    se: float
    p: float
    subsampling_se: float
    num_data: int
    num_draws: int
    numbers: Int[np.ndarray, " m"]
    rows: Int[np.ndarray, " m"]
    elpd_i: Float[np.ndarray, " m"]
    pareto_k: Float[np.ndarray, " m"]
    limit: float
    approximation: Float[np.ndarray, " N"] | None = None
    resampled: bool = False

    @property
    def bad_rows(self) -> Int[np.ndarray, " bad"]:
        """The rows above the limit, by what the user calls them, the worst first."""
        bad = np.flatnonzero(~(self.pareto_k <= self.limit))
        return self.rows[bad[np.argsort(-self.pareto_k[bad], kind="stable")]]

    def to_arviz(self, *, subsample_alone: bool = False) -> ELPDData:
        """ArviZ's own object: for `arviz_stats.compare`, `arviz_plots.plot_khat`.

        With `subsample_alone` as if there were no other rows than those that were taken.
        """
        from xarray import DataArray

        about = None if subsample_alone else self.approximation
        some = about is not None
        every = np.arange(self.num_data) if some else self.numbers

        def full(values: np.ndarray, name: str) -> DataArray:
            out = np.full(len(every), np.nan)
            out[np.searchsorted(every, self.numbers)] = values
            return DataArray(out, dims=["row"], coords={"row": every}, name=name)

        subsample = {
            "subsampling_se": self.subsampling_se, "subsample_size": len(self.numbers),
            "loo_subsample_observations": self.numbers, "elpd_loo_approx": DataArray(about, dims=["row"]),
        } if some else None  # fmt: skip
        return elpd_data(
            self.kind, subsample, elpd=self.elpd, se=self.se, p=self.p, n_samples=self.num_draws,
            n_data_points=len(every), scale="log", warning=bool(len(self.bad_rows)), good_k=self.limit,
            elpd_i=full(self.elpd_i, "elpd_i"),
            pareto_k=full(self.pareto_k, "pareto_k") if self.kind == "loo" else None,
        )  # fmt: skip

    def lines(self) -> list[str]:
        """What it says, a sentence or a number to a line."""
        taken = f"{self.num_data:,} rows"
        lines = [f"elpd_{self.kind:<5}{self.elpd:>14,.1f}  se {self.se:,.1f}"]
        if self.approximation is not None:
            taken = f"{len(self.numbers):,} of {self.num_data:,} rows, the others approximated"
            lines[0] += f", of the subsample {self.subsampling_se:,.2g}"
        lines.append(f"p_{self.kind:<8}{self.p:>14,.1f}")
        draws = f"{self.num_draws:,} draws" + (
            ", resampled to equal weights" if self.resampled else ""
        )
        lines.append(f"of {self.outcome!r}, {taken}, {draws}")
        bad, what = self.bad_rows, "Pareto k" if self.kind == "loo" else "variance"
        if not len(bad):
            return [*lines, f"{what} is at most {self.limit:.2g} at every row taken: reliable."]
        named = ", ".join(str(row) for row in bad[:NAMED]) + (", ..." if len(bad) > NAMED else "")
        rows = f"row {named}" if len(bad) == 1 else f"{len(bad)} rows: {named}"
        return [
            *lines,
            f"{what} is above {self.limit:.2g} at {rows}; {self._remedy(len(bad))}",
        ]

    def _remedy(self, bad: int) -> str:
        it = "it" if bad == 1 else "them"
        if self.kind == "waic":
            return "waic is not to be relied on there: use sgld.loo."
        return (
            f"look at {it}, then sample without {it} and add the log predictive density of {it} by hand, or let the "
            "model expect such rows (a longer tail, a larger dispersion)."
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from ..notebook.views import view

        return view(self)


def compare_models(
    models: Mapping[str, Any], *, method: Literal["stacking", "bb-pseudo-bma", "pseudo-bma"] = "stacking"
) -> pandas.DataFrame:  # fmt: skip
    """Compare models of the same rows, the best first.

        elpd_diff = elpd_best - elpd,    dse = sqrt(N var_i(elpd_best_i - elpd_i))

    The table is the same with every supported ArviZ, whose `compare` gives the weights alone. Of
    subsamples the differences are those of the difference estimator (Magnusson et al. 2020).

    Args:
      models: by name: what `sgld.loo` found of each, or draws, or what `sgld.fit` returned, of which
        `sgld.loo` is computed. Of subsamples take the same seed: then the differences are known better
        than each elpd is.
      method: of the weights.

    Returns: a table with a row for each model, numbers not rounded: `rank`, from 0; `elpd`; `p`;
    `elpd_diff`, how much lower elpd is than that of the best (never negative without a subsample);
    `weight`; `se` of elpd; `dse` of elpd_diff; `warning`, whether a Pareto k is above its limit; of
    subsamples `subsampling_dse`, the part of dse that the subsample adds.

    Raises: UsageError for fewer than two models, for models of other rows or another outcome (a
    density of log(y) is none of y), or as `sgld.loo`.

    Example:
      >>> import numpy as np, sgld
      >>> rng = np.random.default_rng(0)
      >>> x = rng.normal(size=400)
      >>> table = {"x": x, "y": rng.poisson(np.exp(0.5 * x))}
      >>> fits = {
      ...     formula: sgld.fit(table, formula, family="poisson", progress=False)
      ...     for formula in ("y ~ 1", "y ~ x")}
      >>> found = sgld.compare_models(fits)
      >>> list(found.index), bool(found.elpd_diff.iloc[1] > 4 * found.dse.iloc[1])
      (['y ~ x', 'y ~ 1'], True)
    """
    from .criteria import loo

    if method not in METHODS:
        raise UsageError(f"method must be one of {', '.join(METHODS)}. Got {method!r}.")
    if not isinstance(models, Mapping):
        raise UsageError(
            'models must be a mapping, by name: {"with x": one, "without": other}. '
            f"Got a {type(models).__name__}."
        )
    if len(models) < 2:
        raise UsageError(f"models must be two or more, by name. Got {len(models)}.")
    found: dict[str, Criterion] = {}
    for name, model in models.items():
        if isinstance(model, Criterion):
            found[name] = model
            continue
        found[name] = loo(model if isinstance(model, Draws) else getattr(model, "draws", model))
    _check_alike(found)
    return _table(found, method)


def _table(found: Mapping[str, Criterion], method: str) -> pandas.DataFrame:
    """The rows of `compare_models`, in the order of elpd."""
    import pandas

    from .criteria import differences

    # the weights of a subsample are those of its rows: ArviZ's meet the NaN of all others
    weight = compare_weights(
        {name: one.to_arviz(subsample_alone=True) for name, one in found.items()}, method
    )
    ranked = sorted(found, key=lambda name: -found[name].elpd)
    best = found[ranked[0]]
    rows = []
    for rank, name in enumerate(ranked):
        one = found[name]
        apart = differences(best, one)
        rows.append({
            "rank": rank, "elpd": one.elpd, "p": one.p, "elpd_diff": apart.total,
            "weight": float(weight[name]), "se": one.se, "dse": apart.se,
            "warning": bool(len(one.bad_rows)), "subsampling_dse": apart.subsampling_se,
        })  # fmt: skip
    table = pandas.DataFrame(rows, index=pandas.Index(ranked))
    return table if best.approximation is not None else table.drop(columns="subsampling_dse")


def _check_alike(found: dict[str, Criterion]) -> None:
    """UsageError where two models are not of the same rows, outcome and kind."""
    first, *others = found
    for name in others:
        a, b = found[first], found[name]
        for what, one, other in (
            ("rows", f"{a.num_data:,}", f"{b.num_data:,}"),
            ("outcome", repr(a.outcome), repr(b.outcome)),
            ("criterion", a.kind, b.kind),
        ):
            if one != other:
                raise UsageError(
                    f"models are compared on the same rows and outcome; {first!r} has the {what} {one}, {name!r} {other}."
                )
        if (a.approximation is None) != (b.approximation is None) or not np.array_equal(
            a.numbers, b.numbers
        ):
            raise UsageError(
                f"models are compared on the same rows; {first!r} and {name!r} were computed at others: give both the "
                "same subsample and seed."
            )
