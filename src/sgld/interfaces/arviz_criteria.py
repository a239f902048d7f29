"""Leave-one-out cross-validation, WAIC and model comparison, also from a subsample of rows.

    elpd = sum_i elpd_i,   elpd_i = log p(y_i | y_-i)

elpd_i is computed from the posterior's own draws by Pareto-smoothed importance sampling (Vehtari,
Gelman & Gabry 2017; the smoothing is ArviZ's). If N rows are too many, m rows are drawn without
replacement. a_i, an approximation of elpd_i that is cheap at all rows, covers the others
(Magnusson et al. 2020, equations 7 to 9):

    elpd = sum_i a_i + N/m sum_{i in m} (elpd_i - a_i)
    subsampling se^2 = N^2 (1 - m/N) s^2 / m,   s^2 the variance of elpd_i - a_i in the subsample

a_i is log p(y_i | mean of theta), or the WAIC of row i from a few draws, log mean p(y_i | theta)
- var log p(y_i | theta), whichever is closer in the subsample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from ..core.progress import progress_shown, report_count, stage
from ..core.validation import check_seed, one_of, whole_number
from ..core.versions import compare_weights, elpd_data
from ..errors import UsageError
from ..results.draws import Draws
from ..results.late import Printed
from .arviz_pointwise import Pointwise, check_target, subject_of
from .arviz_rows import Chosen, choose

if TYPE_CHECKING:
    import pandas
    from arviz_stats.utils import ELPDData

# -- result --------------------------------------------------------------------------------


MAX_NAMED_ROWS = 8  # rows listed in a sentence
WEIGHTING_METHODS = ("stacking", "bb-pseudo-bma", "pseudo-bma")


@dataclass(frozen=True, repr=False)
class Criterion(Printed):
    """Expected log predictive density of a model; larger is better.

    Attributes:
      kind: "loo" or "waic".
      outcome: the name of the outcome.
      elpd: the sum over all rows of the log predictive density of a row that is left out.
      se: the standard error of elpd, with the rows as a sample of a larger population.
      p: the effective number of parameters.
      subsampling_se: the standard error that the subsample adds; 0 if all rows were used.
      num_data, num_draws: the number of all rows, and of the draws that were used.
      numbers: [m], the rows at which the criterion was computed, counted from 0.
      rows: [m], the user's numbers of these rows, for example those of a table.
      elpd_i: [m], the elpd of each row.
      pareto_k: [m], Pareto k of each row; for "waic" the variance of its log likelihood.
      limit: the value of pareto_k above which a row is not reliable.
      approximation: [N], a_i at all rows, if not all rows were used.
      resampled: whether the draws had weights and were resampled.
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
        """User's numbers of the rows above the limit, the worst first."""
        bad = np.flatnonzero(~(self.pareto_k <= self.limit))
        return self.rows[bad[np.argsort(-self.pareto_k[bad], kind="stable")]]

    def to_arviz(self, *, subsample_alone: bool = False) -> ELPDData:
        """Return ArviZ's own object, for `arviz_stats.compare` and `arviz_plots.plot_khat`.

        With `subsample_alone` the result covers only the rows of the subsample.

        Args:
          subsample_alone: leave out the rows that were not computed.
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
        """Return the printed lines: numbers first, then the rows that are not reliable."""
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
        named = ", ".join(str(row) for row in bad[:MAX_NAMED_ROWS]) + (
            ", ..." if len(bad) > MAX_NAMED_ROWS else ""
        )
        rows = f"row {named}" if len(bad) == 1 else f"{len(bad)} rows: {named}"
        return [*lines, f"{what} is above {self.limit:.2g} at {rows}; {self._remedy(len(bad))}"]

    def _remedy(self, bad: int) -> str:
        it = "it" if bad == 1 else "them"
        if self.kind == "waic":
            return "waic is not reliable there; use sgld.loo."
        return (
            f"inspect {it}. Sample without {it} and add the log predictive density of {it} yourself, or use a model "
            "that expects such rows (a longer tail, a larger dispersion)."
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())


def compare_models(
    models: Mapping[str, Any], *, method: Literal["stacking", "bb-pseudo-bma", "pseudo-bma"] = "stacking"
) -> pandas.DataFrame:  # fmt: skip
    """Compare models of the same rows, the best first.

        elpd_diff = elpd_best - elpd,    dse = sqrt(N var_i(elpd_best_i - elpd_i))

    The table is the same with every supported ArviZ; only the weights come from ArviZ's `compare`.
    For subsamples the differences are those of the difference estimator (Magnusson et al. 2020).

    Args:
      models: a mapping from names to results of `sgld.loo`. Draws or results of `sgld.fit` are
        accepted too, and `sgld.loo` is computed for them. For subsamples use the same seed: then
        the differences are more precise than each elpd.
      method: the method of the weights.

    Returns: a table with a row for each model, numbers not rounded: `rank`, from 0; `elpd`; `p`;
    `elpd_diff`, how much lower elpd is than that of the best (never negative without a subsample);
    `weight`; `se` of elpd; `dse` of elpd_diff; `warning`, whether a Pareto k is above its limit;
    for subsamples `subsampling_dse`, the part of dse that the subsample adds.

    Raises: UsageError for fewer than two models, for models of other rows or another outcome (a
    density of log(y) is not one of y), or as for `sgld.loo`.

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

    one_of("method", method, WEIGHTING_METHODS)
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


def _at_all_rows(one: Criterion) -> Criterion:
    """Return a criterion whose uncomputed rows hold the approximation; ArviZ has NaN there."""
    if one.approximation is None:
        return one
    elpd_i = one.approximation.copy()
    elpd_i[one.numbers] = one.elpd_i
    every = np.arange(one.num_data)
    return replace(
        one, numbers=every, rows=every, elpd_i=elpd_i, pareto_k=np.zeros(len(every)), approximation=None,
    )  # fmt: skip


def _table(found: Mapping[str, Criterion], method: str) -> pandas.DataFrame:
    """Return the table of `compare_models`, sorted by elpd."""
    import pandas

    weight = compare_weights(
        {name: _at_all_rows(one).to_arviz() for name, one in found.items()}, method
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
    """Raise UsageError if two models differ in rows, outcome or kind."""
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
                    f"models must have the same rows and outcome; {first!r} has the {what} {one}, {name!r} has {other}."
                )
        if (a.approximation is None) != (b.approximation is None) or not np.array_equal(
            a.numbers, b.numbers
        ):
            raise UsageError(
                f"models must have the same rows; {first!r} and {name!r} were computed at different rows. Give both the "
                "same subsample and seed."
            )


# -- criteria ------------------------------------------------------------------------------


MAX_PSIS_ROWS = 10_000  # rows that are all used: some 3 seconds of PSIS
SUBSAMPLE_ROWS = 1000
MAX_PSIS_DRAWS = 4000
APPROXIMATION_DRAWS = 64  # draws for the approximation at all rows
MAX_WAIC_VARIANCE = 0.4  # variance of a log likelihood above which WAIC fails (Vehtari et al. 2017)
MAX_GOOD_PARETO_K = 0.7


class Pointwisely(NamedTuple):
    """Values of some rows: elpd_i, lpd_i - elpd_i, and the diagnostic (Pareto k or variance)."""

    elpd: Float[np.ndarray, " n"]
    p: Float[np.ndarray, " n"]
    sign: Float[np.ndarray, " n"]


def loo(
    draws: Any,
    posterior: Any = None,
    data: Any = None,
    *,
    subsample: int | Literal["auto"] | None = "auto",
    max_draws: int = MAX_PSIS_DRAWS,
    seed: int = 0,
    progress: bool = True,
) -> Criterion:
    """Return the expected log predictive density of a left-out row (PSIS-LOO).

    The method is Pareto-smoothed importance sampling. Weighted draws are resampled to equal weights. `.bad_rows` lists the rows whose Pareto k is
    above .7: leaving out one of them moves the posterior further than its draws reach.

    Args:
      draws: draws of the posterior itself (`sgld.sample`, `sgld.reference`), or a result of
        `sgld.fit`.
      posterior: the posterior of the draws, if the draws do not know it (a loaded run of
        user-supplied functions).
      data: the data of the draws, likewise.
      subsample: the number of rows at which it is computed; the difference estimator of Magnusson
        et al. (2020) covers the others. None: all rows; "auto": 1000 if there are more than 10,000.
      max_draws: the largest number of draws that is used.
      seed: the seed of the subsample.
      progress: show the progress.

    Returns: a Criterion: `.elpd`, `.se`, `.subsampling_se`, `.bad_rows`; print it.

    Raises: UsageError if the draws do not know their posterior, have no rows, or follow another
    distribution (a temperature, a sandwich, an approximation).

    Example:
      >>> import jax.numpy as jnp, numpy as np, sgld
      >>> y = np.random.default_rng(0).normal(size=300).astype(np.float32)
      >>> posterior = sgld.Posterior(
      ...     lambda t: -0.5 * (t / 10) ** 2,
      ...     lambda t, y: -0.5 * (y - t) ** 2 - 0.5 * jnp.log(2 * jnp.pi))
      >>> draws = sgld.sample(posterior, y, 0.0, progress=False)
      >>> found = sgld.loo(draws)
      >>> round(found.p), len(found.bad_rows)       # one parameter, no influential row
      (1, 0)
    """
    arguments = (subsample, max_draws, seed, progress)
    return _criterion("loo", draws, posterior, data, *arguments)


def waic(
    draws: Any,
    posterior: Any = None,
    data: Any = None,
    *,
    subsample: int | Literal["auto"] | None = "auto",
    max_draws: int = MAX_PSIS_DRAWS,
    seed: int = 0,
    progress: bool = True,
) -> Criterion:
    """Return the widely applicable information criterion, on the scale of `sgld.loo`.

        elpd_i = log mean_s p(y_i | theta_s) - var_s log p(y_i | theta_s)

    `sgld.loo` is the better estimate (Vehtari, Gelman & Gabry 2017) and reports where it fails.
    WAIC fails at rows whose variance is above .4, which `.bad_rows` lists.

    Args:
      draws: as for `sgld.loo`.
      posterior: as for `sgld.loo`.
      data: as for `sgld.loo`.
      subsample: as for `sgld.loo`.
      max_draws: as for `sgld.loo`.
      seed: as for `sgld.loo`.
      progress: as for `sgld.loo`.

    Returns: as for `sgld.loo`.

    Raises: as for `sgld.loo`.

    Example:
      >>> import jax.numpy as jnp, numpy as np, sgld
      >>> y = np.random.default_rng(0).normal(size=300).astype(np.float32)
      >>> posterior = sgld.Posterior(
      ...     lambda t: -0.5 * (t / 10) ** 2,
      ...     lambda t, y: -0.5 * (y - t) ** 2 - 0.5 * jnp.log(2 * jnp.pi))
      >>> draws = sgld.sample(posterior, y, 0.0, progress=False)
      >>> abs(sgld.waic(draws).elpd - sgld.loo(draws).elpd) < 0.1
      True
    """
    return _criterion("waic", draws, posterior, data, subsample, max_draws, seed, progress)


def _criterion(
    kind: Literal["loo", "waic"], draws: Any, posterior: Any, data: Any, subsample: Any,
    max_draws: int, seed: int, progress: bool,
) -> Criterion:  # fmt: skip
    draws = getattr(draws, "draws", draws)  # a Fit holds its draws
    if not isinstance(draws, Draws):
        raise UsageError(f"draws must be Draws, or a Fit. Got {type(draws).__name__}.")
    whole_number("max_draws", max_draws, 100)
    check_seed(seed)
    check_target(draws, kind)
    with progress_shown(progress), stage(kind):
        subject = subject_of(draws, posterior, data)
        rows = subject.needed_rows(kind)
        chosen = choose(draws, max_draws)
        positions = subject.position(chosen.of(draws, draws.position))
        each = _psis(draws, chosen) if kind == "loo" else _waic
        numbers = _numbers(rows.count, subsample, seed)
        found = _over(rows, numbers, chosen.count, lambda n: each(rows.values(positions, n)))
        every, about = Pointwisely(*map(np.concatenate, zip(*found, strict=True))), None
        if len(numbers) < rows.count:
            few = choose(draws, APPROXIMATION_DRAWS)
            some = subject.position(few.of(draws, draws.position))
            approximation = _nearest(rows, numbers, every.elpd, positions, some)
            about = np.concatenate(_over(rows, np.arange(rows.count), few.count, approximation))
    return _result((kind, subject.outcome), rows, numbers, every, about, chosen)


def _numbers(count: int, subsample: Any, seed: int) -> Int[np.ndarray, " m"]:
    """Return the rows at which a criterion is computed, in order."""
    if subsample == "auto":
        subsample = SUBSAMPLE_ROWS if count > MAX_PSIS_ROWS else None
    if subsample is None or subsample == count:
        return np.arange(count)
    whole_number("subsample", subsample, 2)
    if subsample > count:
        raise UsageError(f"subsample must be at most the number of rows, {count}. Got {subsample}.")
    return np.sort(np.random.default_rng([seed, 8]).choice(count, subsample, replace=False))


def _nearest(
    rows: Pointwise, numbers: np.ndarray, elpd: np.ndarray, positions: Any, few: Any
) -> Callable[[np.ndarray], Float[np.ndarray, " n"]]:
    """Return a_i: the approximation that is closer to elpd_i in the subsample.

    The value at the mean is close if the posterior is narrow compared with the information in a
    row, as with many rows. A few draws are better if the mean of positions has no meaning, as in
    networks.
    """
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=0, keepdims=True), positions)
    both = (lambda n: rows.values(mean, n)[:, 0], lambda n: _waic(rows.values(few, n)).elpd)
    spread = [np.std(elpd - about(numbers)) for about in both]
    return both[int(np.argmin(np.where(np.isfinite(spread), spread, np.inf)))]


def _over(
    rows: Pointwise, numbers: Int[np.ndarray, " n"], draws: int, function: Callable[[Any], Any]
) -> list[Any]:
    """Return function(numbers) for blocks of rows, and report the progress."""
    size, parts = rows.block(draws), []
    for start in range(0, len(numbers), size):
        parts.append(function(numbers[start : start + size]))
        report_count(min(start + size, len(numbers)), len(numbers), "rows")
    return parts


def _psis(draws: Draws, chosen: Chosen) -> Callable[[np.ndarray], Pointwisely]:
    """Return the function that computes PSIS-LOO of rows [n, S], by ArviZ."""
    from arviz_stats.base.array import array_stats

    shape = chosen.at.shape
    flat, _ = draws.flat()
    values = np.moveaxis(flat.reshape(-1, flat.shape[-1])[chosen.at], -1, 0)
    moving = values[values.std(axis=(1, 2)) > 0]
    ess = np.asarray(array_stats.ess(moving, method="mean")) if len(moving) else chosen.count
    share = float(min(1.0, np.mean(ess) / chosen.count))

    def each(values: np.ndarray) -> Pointwisely:
        # a row without information, such as a masked row, has no tail to smooth
        found = Pointwisely(values[:, 0].astype(np.float64), *np.zeros((2, len(values))))
        says = np.ptp(values, axis=1) > 0
        if says.any():
            elpd, k, p = array_stats.loo(values[says].reshape(-1, *shape), r_eff=share)
            for into, part in zip(found, (elpd, p, k), strict=True):
                into[says] = part
        return found

    return each


def _waic(values: Float[np.ndarray, "n S"]) -> Pointwisely:
    """Return the WAIC of rows."""
    lpd = np.asarray(logsumexp(values, axis=1)) - np.log(values.shape[1])
    variance = values.var(axis=1, ddof=1)
    return Pointwisely(lpd - variance, variance, variance)


@dataclass(frozen=True)
class Difference:
    """Estimate of a sum over N rows from m of them, and the standard error of the subsample."""

    total: float
    subsampling_se: float
    se: float


def difference(
    exact: Float[np.ndarray, " m"], about: Float[np.ndarray, " m"], every: Float[np.ndarray, " N"]
) -> Difference:
    """Apply the difference estimator (Magnusson et al. 2020, equations 7 to 9).

    Args:
      exact: e_i of the subsample.
      about: a_i of the subsample.
      every: a_i of all rows.

    Returns: `total`, the sum of e over all rows; `subsampling_se`; `se`, the standard error of N
    values of e, sqrt(N var e), as if all were computed.

    Example:
      >>> import numpy as np
      >>> from sgld.interfaces.arviz_criteria import difference
      >>> e = np.arange(100.0)
      >>> difference(e[:10], e[:10] - 1, e - 1).total      # a differs by a constant
      4950.0
    """
    total, m = len(every), len(exact)
    gap = exact - about
    scaled = total * gap.mean()
    estimate = every.sum() + scaled
    variance = total**2 * (1 - m / total) * gap.var(ddof=1) / m
    squares = (every**2).sum() + total * (exact**2 - about**2).mean()
    spread = squares - (estimate**2 - variance) / total
    return Difference(float(estimate), float(np.sqrt(variance)), float(np.sqrt(max(0.0, spread))))


def differences(best: Criterion, other: Criterion) -> Difference:
    """Return how much higher the elpd of `best` is than that of another model of the same rows."""
    apart = best.elpd_i - other.elpd_i
    if best.approximation is None or other.approximation is None:
        se = np.sqrt(len(apart) * apart.var())
        return Difference(float(best.elpd - other.elpd), 0.0, float(se))
    about = best.approximation - other.approximation
    return difference(apart, about[best.numbers], about)


def _result(
    what: tuple[Literal["loo", "waic"], str], rows: Pointwise, numbers: np.ndarray, every: Pointwisely,
    about: np.ndarray | None, chosen: Chosen,
) -> Criterion:  # fmt: skip
    kind, outcome = what
    total, m = rows.count, len(numbers)
    if about is None:
        se = float(np.sqrt(total * every.elpd.var()))
        found, p = Difference(float(every.elpd.sum()), 0.0, se), float(every.p.sum())
    else:
        found = difference(every.elpd, about[numbers], about)
        p = float(total / m * every.p.sum())
    limit = MAX_GOOD_PARETO_K if kind == "loo" else MAX_WAIC_VARIANCE
    good_k = min(1 - 1 / np.log10(chosen.count), limit) if kind == "loo" else limit
    return Criterion(
        kind, outcome, found.total, found.se, p, found.subsampling_se, total, chosen.count, numbers,
        np.asarray(rows.names(numbers)), every.elpd, every.sign, good_k, about, chosen.resampled,
    )  # fmt: skip
