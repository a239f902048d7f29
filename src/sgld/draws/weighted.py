"""Weighted statistics on plain arrays [chain, draw, parameter].

ESS, R-hat and MCSE are ArviZ's (`mixing` has them for all parameters at once); none of its
statistics takes draw weights, so the mean, variance, quantile and the share of the ESS that unequal
weights leave are here (Teh, Thiery & Vollmer 2016: a draw's weight is the step taken from it).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtri

from . import mixing
from .mixing import GROUPS, MANY_CHAINS

__all__ = [
    "Estimates",
    "ess",
    "max_r_hat",
    "mcse_mean",
    "mean",
    "quantile",
    "r_hat",
    "systematic",
    "var",
    "weight_share",
]

Values = Float[np.ndarray, "chain draw parameter"]
Weights = Float[np.ndarray, "chain draw"]

LEAST_R_HAT = 1.01
# kurtosis up to which ranks of c^2 mix as its mean does; of a shoulder with 225 they had 36,000 effective draws and it 2,000
LIGHT = 5.0
CHANCE = 0.005  # of an alarm at one of all parameters; R-hat is the larger of two


def mean(values: Values, weights: Weights) -> Float[np.ndarray, " parameter"]:
    """sum w x / sum w."""
    return np.einsum("cdp,cd->p", values, weights, dtype=np.float64) / weights.sum()


def var(values: Values, weights: Weights) -> Float[np.ndarray, " parameter"]:
    """Weighted variance, with the divisor 1 - sum w^2 / (sum w)^2 (n - 1 at equal weights)."""
    centred = values - mean(values, weights)
    spread = mean(centred**2, weights)
    share = (weights**2).sum() / weights.sum() ** 2
    return spread / (1 - share) if share < 1 else np.full_like(spread, np.nan)


def systematic(weights: Float[np.ndarray, " m"], count: int) -> Int[np.ndarray, " count"]:
    """`count` places that stand, with equal weights, for all m: each as often as its share says, to within one."""
    total = np.cumsum(weights)
    found = np.searchsorted(total, (np.arange(count) + 0.5) / count * total[-1])
    return np.minimum(found, weights.size - 1)


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


def ess(
    values: Values, weights: Weights, method: mixing.Method = "bulk"
) -> Float[np.ndarray, " parameter"]:
    """Effective sample size (bulk, mean, or tail at 5% and 95%) times the weights' share."""
    return mixing.ess(values, method) * weight_share(weights)


def r_hat(values: Values) -> Float[np.ndarray, " parameter"]:
    """Rank-normalised split R-hat (Vehtari et al. 2021); of groups where chains are many."""
    return mixing.r_hat(values)


def max_r_hat(
    ess: np.ndarray | float, num_chains: int, num_parameters: int = 1, chance: float = CHANCE
) -> np.ndarray:
    """The R-hat up to which chains may be of one law: 1.01, more where the ESS leaves more to chance.

    The means of 2 M halves of chains vary by 2 M / ESS times the variance, so that R-hat^2 is about
    1 + (2 M / ESS) x with x ~ chi^2_{2M-1} / (2M - 1); the limit takes its 1 - chance / d quantile,
    for the worst of d parameters. The ESS is that of the chains by themselves: what lies between
    them makes that of all small, and a limit by it would rise as the chains part. Of many chains
    R-hat is that of groups, and M their number.
    """
    M = num_chains if num_chains <= MANY_CHAINS else GROUPS
    q = chdtri(2 * M - 1, chance / max(1, num_parameters)) / (2 * M - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = np.sqrt(1 + 2 * M / np.asarray(ess, np.float64) * q)
    return np.asarray(np.fmax(LEAST_R_HAT, limit))


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
        share = (self.weights**2).sum() / self.weights.sum() ** 2
        second = self._central[0]
        return np.sqrt(second / (1 - share)) if share < 1 else np.full_like(second, np.nan)

    @cached_property
    def _central(self) -> Float[np.ndarray, "2 parameter"]:
        """Means of c^2 and c^4, of blocks of parameters side by side."""
        out, size = np.empty((2, len(self.mean))), max(1, mixing.BLOCK // self.weights.size)

        def one(begin: int) -> None:
            here = slice(begin, begin + size)
            squares = (self.values[..., here] - self.mean[here]) ** 2
            out[0, here] = mean(squares, self.weights)
            out[1, here] = mean(squares**2, self.weights)

        mixing.side_by_side(one, range(0, len(self.mean), size))
        return out

    @cached_property
    def mixing(self) -> mixing.Mixing:
        """ESS of theta and c^2, R-hat, and how far apart the chains are, in one pass."""
        found, share = mixing.mixing(self.values, self.mean), weight_share(self.weights)
        return found._replace(
            ess=found.ess * share,
            ess_square=found.ess_square * share,
            ess_alone=found.ess_alone * share,
        )

    @property
    def ess(self) -> Float[np.ndarray, " parameter"]:
        """Bulk ESS of theta."""
        return self.mixing.ess

    @property
    def ess_square(self) -> Float[np.ndarray, " parameter"]:
        """Bulk ESS of c^2."""
        return self.mixing.ess_square

    @property
    def r_hat(self) -> Float[np.ndarray, " parameter"]:
        """Rank-normalised split R-hat."""
        return self.mixing.r_hat

    @cached_property
    def kurtosis(self) -> Float[np.ndarray, " parameter"]:
        """Mean c^4 / (mean c^2)^2: 3 for a Gaussian; NaN where the draws do not move."""
        second, fourth = self._central
        with np.errstate(divide="ignore", invalid="ignore"):
            return fourth / second**2

    @cached_property
    def mean_se(self) -> Float[np.ndarray, " parameter"]:
        """Monte Carlo standard error of the mean."""
        return mcse_mean(self.values, self.weights)

    @cached_property
    def ess_sd(self) -> Float[np.ndarray, " parameter"]:
        """ESS of the mean of c^2, which is not that of its ranks where a few draws make up most of it."""
        heavy = np.nan_to_num(self.kurtosis) > LIGHT
        if not heavy.any():
            return self.ess_square
        found = self.ess_square.copy()
        squares = (self.values[..., heavy] - self.mean[heavy]) ** 2
        found[heavy] = np.fmin(found[heavy], ess(squares, self.weights, "mean"))
        return found

    @cached_property
    def sd_se(self) -> Float[np.ndarray, " parameter"]:
        """Monte Carlo standard error of the sd, as a share of the sd."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt((self.kurtosis - 1) / (4 * self.ess_sd))
