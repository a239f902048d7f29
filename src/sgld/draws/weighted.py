"""Weighted statistics on plain arrays [chain, draw, parameter].

ESS, R-hat and MCSE are ArviZ's; none of its statistics takes draw weights, so the mean,
variance, quantile and the share of the ESS that unequal weights leave are here
(Teh, Thiery & Vollmer 2016: a draw's weight is the step taken from it).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

__all__ = [
    "Estimates",
    "ess",
    "load",
    "max_r_hat",
    "mcse_mean",
    "mean",
    "pareto_k",
    "quantile",
    "r_hat",
    "var",
    "weight_share",
]

Values = Float[np.ndarray, "chain draw parameter"]
Weights = Float[np.ndarray, "chain draw"]

MANY_CHAINS, GROUPS = 8, 4  # more chains than these are compared in groups


def mean(values: Values, weights: Weights) -> Float[np.ndarray, " parameter"]:
    """sum w x / sum w."""
    return np.einsum("cdp,cd->p", values, weights, dtype=np.float64) / weights.sum()


def var(values: Values, weights: Weights) -> Float[np.ndarray, " parameter"]:
    """Weighted variance, with the divisor 1 - sum w^2 / (sum w)^2 (n - 1 at equal weights)."""
    centred = values - mean(values, weights)
    spread = mean(centred**2, weights)
    share = (weights**2).sum() / weights.sum() ** 2
    return spread / (1 - share) if share < 1 else np.full_like(spread, np.nan)


def quantile(values: Values, weights: Weights, q: float) -> Float[np.ndarray, " parameter"]:
    """Weighted quantile, linear between draws; numpy's default at equal weights."""
    flat, w = values.reshape(-1, values.shape[-1]), weights.reshape(-1)
    flat, w = flat[w > 0], w[w > 0]
    if np.all(w == w[0]):
        return np.quantile(flat, q, axis=0)
    order = np.argsort(flat, axis=0)
    ordered = np.take_along_axis(flat, order, axis=0)
    w = w[order]
    below = np.cumsum(w, axis=0) - w
    place = below / below[-1]
    return np.array([np.interp(q, place[:, i], ordered[:, i]) for i in range(flat.shape[1])])


def weight_share(weights: Weights) -> float:
    """(sum w)^2 / (number of draws x sum w^2): 1 at equal weights."""
    return float(weights.sum() ** 2 / (weights.size * (weights**2).sum()))


def _over_parameters(function, values: Values, **kwargs) -> Float[np.ndarray, " parameter"]:
    # a parameter whose draws are all the same has no diagnostics; ArviZ would warn
    moving = np.ptp(values, axis=(0, 1)) > 0
    out = np.full(values.shape[-1], np.nan)
    if moving.any() and values.shape[1] >= 4:
        kept = np.asarray(values[..., moving], np.float64)
        out[moving] = function(kept, chain_axis=0, draw_axis=1, **kwargs)
    return out


def load() -> None:
    """Import ArviZ, which takes a second: in a thread, while something else computes."""
    import arviz_stats.base.array  # noqa: F401


def ess(values: Values, weights: Weights, method: str = "bulk") -> Float[np.ndarray, " parameter"]:
    """Effective sample size (bulk, mean, or tail at 5% and 95%) times the weights' share."""
    from arviz_stats.base.array import array_stats

    prob = {"prob": (0.05, 0.95)} if method == "tail" else {}
    full = _over_parameters(array_stats.ess, values, method=method, **prob)
    return full * weight_share(weights)


def r_hat(values: Values) -> Float[np.ndarray, " parameter"]:
    """Rank-normalised split R-hat (Vehtari et al. 2021); of GROUPS groups of chains where they are many.

    The draws of a group, step after step, count as one chain (nested R-hat, Margossian et al. 2024):
    many short chains differ by chance however well they mix.
    """
    from arviz_stats.base.array import array_stats

    chains, draws, count = values.shape
    if chains > MANY_CHAINS:
        each = chains // GROUPS  # at most GROUPS - 1 chains are left out
        grouped = values[: GROUPS * each].reshape(GROUPS, each, draws, count)
        values = grouped.swapaxes(1, 2).reshape(GROUPS, draws * each, count)
    return _over_parameters(array_stats.rhat, values, method="rank")


def max_r_hat(ess: np.ndarray | float, num_chains: int) -> np.ndarray | np.floating:
    """The R-hat up to which chains may be of one law: 1.01, more where the ESS leaves more to chance.

    With ESS / chains effective draws each, R-hat^2 varies around 1 by about chains / ESS; R-hat
    looks at the spread too, so that the ESS of theta^2 counts. Of many chains it is that of GROUPS.
    """
    num_chains = num_chains if num_chains <= MANY_CHAINS else GROUPS
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmax(1.01, np.sqrt(1 + 4 * num_chains / np.asarray(ess, np.float64)))


def pareto_k(values: Values) -> Float[np.ndarray, " parameter"]:
    """Pareto k of the heavier tail: moments of order 1/k and above are infinite (Vehtari et al. 2024)."""
    from arviz_stats.base.array import array_stats

    with np.errstate(divide="ignore", invalid="ignore"):  # tails of equal values have no k
        return _over_parameters(array_stats.pareto_khat, values)


def mcse_mean(values: Values, weights: Weights) -> Float[np.ndarray, " parameter"]:
    """Monte Carlo standard error of the weighted mean: sd / sqrt(ESS of the mean)."""
    return np.sqrt(var(values, weights) / ess(values, weights, "mean"))


@dataclass(frozen=True)
class Estimates:
    """Means and sds of draws with their Monte Carlo errors, each computed when first asked for.

    The error of an sd comes from the draws' own squares, c^2 with c = theta - mean, so that heavy
    tails and squares that mix slower than theta count:

        se(sd) / sd = sqrt((kurtosis - 1) / (4 ESS(c^2)))

    Attributes:
      values: [chain, draw, parameter].
      weights: [chain, draw].
    """

    values: Values
    weights: Weights

    @cached_property
    def mean(self) -> Float[np.ndarray, " parameter"]:
        """The weighted mean."""
        return mean(self.values, self.weights)

    @cached_property
    def sd(self) -> Float[np.ndarray, " parameter"]:
        """The root of the weighted variance."""
        return np.sqrt(var(self.values, self.weights))

    @cached_property
    def squares(self) -> Values:
        """c^2 of every draw."""
        return (self.values - self.mean) ** 2

    @cached_property
    def ess(self) -> Float[np.ndarray, " parameter"]:
        """Bulk ESS of theta."""
        return ess(self.values, self.weights)

    @cached_property
    def ess_square(self) -> Float[np.ndarray, " parameter"]:
        """Bulk ESS of c^2."""
        return ess(self.squares, self.weights)

    @cached_property
    def kurtosis(self) -> Float[np.ndarray, " parameter"]:
        """Mean c^4 / (mean c^2)^2: 3 for a Gaussian; NaN where the draws do not move."""
        second = mean(self.squares, self.weights)
        with np.errstate(divide="ignore", invalid="ignore"):
            return mean(self.squares**2, self.weights) / second**2

    @cached_property
    def mean_se(self) -> Float[np.ndarray, " parameter"]:
        """Monte Carlo standard error of the mean."""
        return mcse_mean(self.values, self.weights)

    @cached_property
    def sd_se(self) -> Float[np.ndarray, " parameter"]:
        """Monte Carlo standard error of the sd, as a share of the sd."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt((self.kurtosis - 1) / (4 * self.ess_square))
