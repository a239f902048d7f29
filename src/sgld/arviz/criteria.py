"""Leave-one-out cross-validation and WAIC of draws, for many rows from a subsample of them.

    elpd = sum_i elpd_i,   elpd_i = log p(y_i | y_-i)

elpd_i is found from the posterior's own draws by Pareto-smoothed importance sampling (Vehtari,
Gelman & Gabry 2017; the smoothing is ArviZ's). Of N rows, too many for that, m are drawn without
replacement, and a_i, an approximation of elpd_i that is cheap at all rows, carries the rest
(Magnusson et al. 2020, equations 7 to 9):

    elpd = sum_i a_i + N/m sum_{i in m} (elpd_i - a_i)
    subsampling se^2 = N^2 (1 - m/N) s^2 / m,   s^2 the variance of elpd_i - a_i in the subsample

Here a_i is log p(y_i | mean of theta), or the WAIC of row i by a few draws, log mean p(y_i | theta)
- var log p(y_i | theta): the one that is nearer in the subsample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from ..core.progress import counted, stage, told
from ..core.validation import check_seed, whole_number
from ..errors import UsageError
from ..results.draws import Draws
from .resampled import Chosen, choose
from .result import Criterion
from .subject import Pointwise, check_target, subject_of

__all__ = ["Difference", "difference", "differences", "loo", "waic"]

MOST_ROWS = 10_000  # that are all taken: some 3 seconds of PSIS
SUBSAMPLE = 1000
MOST_DRAWS = 4000
FEW_DRAWS = 64  # of the approximation at all rows
UNCERTAIN = 0.4  # variance of a log likelihood above which WAIC fails (Vehtari et al. 2017)
LARGEST_K = 0.7


class Pointwisely(NamedTuple):
    """Of some rows: elpd_i, lpd_i - elpd_i, and what tells whether that can be relied on."""

    elpd: Float[np.ndarray, " n"]
    p: Float[np.ndarray, " n"]
    sign: Float[np.ndarray, " n"]


def loo(
    draws: Any,
    posterior: Any = None,
    data: Any = None,
    *,
    subsample: int | Literal["auto"] | None = "auto",
    max_draws: int = MOST_DRAWS,
    seed: int = 0,
    progress: bool = True,
) -> Criterion:
    """The expected log predictive density of a row left out, by Pareto-smoothed importance sampling.

    Weighted draws are resampled to equal weights. Rows whose Pareto k is above .7 are named
    (`.bad_rows`): leaving one of them out moves the posterior further than its draws reach.

    Args:
      draws: of the posterior itself: `sgld.sample`, `sgld.reference`; or what `sgld.fit` returned.
      posterior, data: those the draws are of, where the draws do not know them (a loaded run of
        functions of your own).
      subsample: the number of rows at which it is computed, the rest by the difference estimator of
        Magnusson et al. (2020); None for all rows, "auto" for 1000 where there are more than 10,000.
      max_draws: at most so many draws are used.
      seed: of the subsample.
      progress: show how far it is.

    Returns: a Criterion: `.elpd`, `.se`, `.subsampling_se`, `.bad_rows`; print it.

    Raises: UsageError where the draws do not know their posterior, have no rows, or follow another
    law (a temperature, a sandwich, an approximation).

    Example:
      >>> import jax.numpy as jnp, numpy as np, sgld
      >>> y = np.random.default_rng(0).normal(size=300).astype(np.float32)
      >>> posterior = sgld.Posterior(
      ...     lambda t: -0.5 * (t / 10) ** 2,
      ...     lambda t, y: -0.5 * (y - t) ** 2 - 0.5 * jnp.log(2 * jnp.pi))
      >>> draws = sgld.sample(posterior, y, 0.0, progress=False)
      >>> found = sgld.loo(draws)
      >>> round(found.p), len(found.bad_rows)       # one parameter, no row that stands out
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
    max_draws: int = MOST_DRAWS,
    seed: int = 0,
    progress: bool = True,
) -> Criterion:
    """The widely applicable information criterion, on the scale of `sgld.loo`.

        elpd_i = log mean_s p(y_i | theta_s) - var_s log p(y_i | theta_s)

    `sgld.loo` is the better estimate (Vehtari, Gelman & Gabry 2017), and tells where it fails; rows
    whose variance is above .4, where WAIC does, are named.

    Args:
      draws, posterior, data, subsample, max_draws, seed, progress: as for `sgld.loo`.

    Returns, Raises: as `sgld.loo`.

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
    draws = getattr(draws, "draws", draws)  # of what sgld.fit returned
    if not isinstance(draws, Draws):
        raise UsageError(f"draws must be Draws, or a Fit. Got {type(draws).__name__}.")
    whole_number("max_draws", max_draws, 100)
    check_seed(seed)
    check_target(draws, kind)
    with told(progress), stage(kind):
        subject = subject_of(draws, posterior, data)
        rows = subject.needed_rows(kind)
        chosen = choose(draws, max_draws)
        positions = subject.position(chosen.of(draws, draws.position))
        each = _psis(draws, chosen) if kind == "loo" else _waic
        numbers = _numbers(rows.count, subsample, seed)
        found = _over(rows, numbers, chosen.count, lambda n: each(rows.values(positions, n)))
        every, about = Pointwisely(*map(np.concatenate, zip(*found, strict=True))), None
        if len(numbers) < rows.count:
            few = choose(draws, FEW_DRAWS)
            some = subject.position(few.of(draws, draws.position))
            approximation = _nearest(rows, numbers, every.elpd, positions, some)
            about = np.concatenate(_over(rows, np.arange(rows.count), few.count, approximation))
    return _result((kind, subject.outcome), rows, numbers, every, about, chosen)


def _numbers(count: int, subsample: Any, seed: int) -> Int[np.ndarray, " m"]:
    """The rows at which a criterion is computed, in order."""
    if subsample == "auto":
        subsample = SUBSAMPLE if count > MOST_ROWS else None
    if subsample is None or subsample == count:
        return np.arange(count)
    whole_number("subsample", subsample, 2)
    if subsample > count:
        raise UsageError(f"subsample must be at most the number of rows, {count}. Got {subsample}.")
    return np.sort(np.random.default_rng([seed, 8]).choice(count, subsample, replace=False))


def _nearest(
    rows: Pointwise, numbers: np.ndarray, elpd: np.ndarray, positions: Any, few: Any
) -> Callable[[np.ndarray], Float[np.ndarray, " n"]]:
    """a_i: of two approximations the one that is nearer to elpd_i in the subsample.

    At the mean where the posterior is narrow beside what a row says, as with many rows; by a few
    draws where a mean of positions is none, as in networks.
    """
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=0, keepdims=True), positions)
    both = (
        lambda n: rows.values(mean, n)[:, 0],
        lambda n: _waic(rows.values(few, n)).elpd,
    )
    spread = [np.std(elpd - about(numbers)) for about in both]
    return both[int(np.argmin(np.where(np.isfinite(spread), spread, np.inf)))]


def _over(
    rows: Pointwise, numbers: Int[np.ndarray, " n"], draws: int, function: Callable[[Any], Any]
) -> list[Any]:
    """function(numbers) of blocks of rows, told on the way."""
    size, parts = rows.block(draws), []
    for start in range(0, len(numbers), size):
        parts.append(function(numbers[start : start + size]))
        counted(min(start + size, len(numbers)), len(numbers), "rows")
    return parts


def _psis(draws: Draws, chosen: Chosen) -> Callable[[np.ndarray], Pointwisely]:
    """PSIS-LOO of rows [n, S], by ArviZ."""
    from arviz_stats.base.array import array_stats

    shape = chosen.at.shape
    flat, _ = draws.flat()
    values = np.moveaxis(flat.reshape(-1, flat.shape[-1])[chosen.at], -1, 0)
    moving = values[values.std(axis=(1, 2)) > 0]
    ess = np.asarray(array_stats.ess(moving, method="mean")) if len(moving) else chosen.count
    share = float(min(1.0, np.mean(ess) / chosen.count))

    def each(values: np.ndarray) -> Pointwisely:
        # of a row that says nothing, as one that is masked, no tail can be smoothed
        found = Pointwisely(values[:, 0].astype(np.float64), *np.zeros((2, len(values))))
        says = np.ptp(values, axis=1) > 0
        if says.any():
            elpd, k, p = array_stats.loo(values[says].reshape(-1, *shape), r_eff=share)
            for into, part in zip(found, (elpd, p, k), strict=True):
                into[says] = part
        return found

    return each


def _waic(values: Float[np.ndarray, "n S"]) -> Pointwisely:
    """WAIC of rows."""
    lpd = np.asarray(logsumexp(values, axis=1)) - np.log(values.shape[1])
    variance = values.var(axis=1, ddof=1)
    return Pointwisely(lpd - variance, variance, variance)


@dataclass(frozen=True)
class Difference:
    """A sum over N rows from m of them: the estimate, and the standard error of the subsample."""

    total: float
    subsampling_se: float
    se: float


def difference(
    exact: Float[np.ndarray, " m"],
    about: Float[np.ndarray, " m"],
    every: Float[np.ndarray, " N"],
) -> Difference:
    """The difference estimator (Magnusson et al. 2020, equations 7 to 9).

    Args:
      exact: e_i of the subsample.
      about: a_i of the subsample.
      every: a_i of all rows.

    Returns: `total`, the sum of e over all rows; `subsampling_se`; `se`, that of N values of e,
    sqrt(N var e), as if all were known.

    Example:
      >>> import numpy as np
      >>> from sgld.arviz.criteria import difference
      >>> e = np.arange(100.0)
      >>> difference(e[:10], e[:10] - 1, e - 1).total      # a that is off by a constant
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
    limit = LARGEST_K if kind == "loo" else UNCERTAIN
    good_k = min(1 - 1 / np.log10(chosen.count), limit) if kind == "loo" else limit
    return Criterion(
        kind, outcome, found.total, found.se, p, found.subsampling_se, total, chosen.count, numbers,
        np.asarray(rows.names(numbers)), every.elpd, every.sign, good_k, about, chosen.resampled,
    )  # fmt: skip
