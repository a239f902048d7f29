"""Weighted statistics on plain arrays [chain, draw, parameter].

ESS, R-hat and MCSE use ArviZ's definitions (`mixing` computes them for all parameters at once).
ArviZ's statistics take no draw weights. This module therefore provides the weighted mean, variance
and quantile, and the share of the ESS that unequal weights leave (Teh, Thiery & Vollmer 2016: the
weight of a draw is the step taken from it).

It also provides:

- quantiles of draws that were not kept, from histograms that the run accumulates;
- means and variances of draws that were not kept, with the standard error of the means;
- predictions from draws;
- estimates from chains that stay in regions of known mass (strata).

With M_g the mass of region g, and mu_g and s_g^2 the mean and variance there,

    mean = sum M_g mu_g,      variance = sum M_g (s_g^2 + (mu_g - mean)^2),

and the errors of M, of covariance C, propagate to first order: d mean = sum mu_g dM_g, d variance =
sum (s_g^2 + (mu_g - mean)^2) dM_g. Chains of different regions are expected to differ, so R-hat and
ESS are computed within regions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtri

from ..core.user_code import COMPILED_REMEDY, shapes_of, user_errors
from ..core.validation import fraction
from ..errors import UsageError
from . import mixing
from .late import late
from .mixing import CHAIN_GROUPS, MAX_PLAIN_CHAINS

if TYPE_CHECKING:
    from .draws import Draws

Values = Float[np.ndarray, "chain draw parameter"]
Weights = Float[np.ndarray, "chain draw"]

MIN_R_HAT_LIMIT = 1.01
# kurtosis up to which the ranks of c^2 mix like its mean; at a kurtosis of 225 the ESS was 36,000 and 2,000
MAX_LIGHT_KURTOSIS = 5.0
MAX_FALSE_ALARM = 0.005  # probability of an alarm at any parameter; R-hat is the larger of two


def mean(values: Values, weights: Weights) -> Float[np.ndarray, " parameter"]:
    """Return the weighted mean, sum w x / sum w."""
    return np.einsum("cdp,cd->p", values, weights, dtype=np.float64) / weights.sum()


def var(values: Values, weights: Weights) -> Float[np.ndarray, " parameter"]:
    """Return the weighted variance.

    The divisor is 1 - sum w^2 / (sum w)^2, which is (n - 1) / n for n equal weights.
    """
    centred = values - mean(values, weights)
    spread = mean(centred**2, weights)
    share = (weights**2).sum() / weights.sum() ** 2
    return spread / (1 - share) if share < 1 else np.full_like(spread, np.nan)


def systematic(weights: Float[np.ndarray, " m"], count: int) -> Int[np.ndarray, " count"]:
    """Return `count` indices that represent the m draws with equal weights (systematic resampling).

    Each index occurs as often as its share of the weight says, to within one.
    """
    total = np.cumsum(weights)
    found = np.searchsorted(total, (np.arange(count) + 0.5) / count * total[-1])
    return np.minimum(found, weights.size - 1)


def quantile(values: Values, weights: Weights, q: float) -> Float[np.ndarray, " parameter"]:
    """Return the weighted quantile, linear between draws; numpy's default at equal weights."""
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
    """Return (sum w)^2 / (number of draws x sum w^2), which is 1 at equal weights."""
    return float(weights.sum() ** 2 / (weights.size * (weights**2).sum()))


def ess(
    values: Values, weights: Weights, method: mixing.Method = "bulk"
) -> Float[np.ndarray, " parameter"]:
    """Return the ESS (bulk, mean, or tail at 5% and 95%) times the share of the weights."""
    return mixing.ess(values, method) * weight_share(weights)


def r_hat(values: Values) -> Float[np.ndarray, " parameter"]:
    """Return rank-normalised split R-hat (Vehtari et al. 2021); of groups if chains are many."""
    return mixing.r_hat(values)


def max_r_hat(
    ess: np.ndarray | float,
    num_chains: int,
    num_parameters: int = 1,
    chance: float = MAX_FALSE_ALARM,
) -> np.ndarray:
    """Return the R-hat up to which chains are consistent with one distribution: 1.01 or more.

    The means of 2 M halves of chains vary by 2 M / ESS times the variance, so R-hat^2 is about 1 +
    (2 M / ESS) x with x ~ chi^2_{2M-1} / (2M - 1). The limit takes the 1 - chance / d quantile of
    x, for the worst of d parameters.

    The ESS must be that of the chains one by one. The ESS of all chains together falls as the
    chains move apart, so a limit based on it would rise. With many chains, R-hat compares groups
    and M is their number.
    """
    M = num_chains if num_chains <= MAX_PLAIN_CHAINS else CHAIN_GROUPS
    q = chdtri(2 * M - 1, chance / max(1, num_parameters)) / (2 * M - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = np.sqrt(1 + 2 * M / np.asarray(ess, np.float64) * q)
    return np.asarray(np.fmax(MIN_R_HAT_LIMIT, limit))


def mcse_mean(values: Values, weights: Weights) -> Float[np.ndarray, " parameter"]:
    """Return the Monte Carlo standard error of the weighted mean: sd / sqrt(ESS of the mean)."""
    return np.sqrt(var(values, weights) / ess(values, weights, "mean"))


@dataclass(frozen=True)
class Estimates:
    """Means and sds of draws with their Monte Carlo errors, each computed on first access.

    The error of an sd comes from the draws' own squares, c^2 with c = theta - mean. It therefore
    includes heavy tails, and squares that mix more slowly than theta:

        se(sd) / sd = sqrt((kurtosis - 1) / (4 ESS(c^2)))

    Attributes:
      values: [chain, draw, parameter].
      weights: [chain, draw].
    """

    values: Values
    weights: Weights

    @cached_property
    def mean(self) -> Float[np.ndarray, " parameter"]:
        """Weighted mean."""
        return mean(self.values, self.weights)

    @cached_property
    def sd(self) -> Float[np.ndarray, " parameter"]:
        """Square root of the weighted variance."""
        share = (self.weights**2).sum() / self.weights.sum() ** 2
        second = self._central[0]
        return np.sqrt(second / (1 - share)) if share < 1 else np.full_like(second, np.nan)

    @cached_property
    def _central(self) -> Float[np.ndarray, "2 parameter"]:
        """Return the means of c^2 and c^4, computed for blocks of parameters in parallel."""
        out, size = np.empty((2, len(self.mean))), max(1, mixing.BLOCK_NUMBERS // self.weights.size)

        def one(begin: int) -> None:
            here = slice(begin, begin + size)
            squares = (self.values[..., here] - self.mean[here]) ** 2
            out[0, here] = mean(squares, self.weights)
            out[1, here] = mean(squares**2, self.weights)

        mixing.side_by_side(one, range(0, len(self.mean), size))
        return out

    @cached_property
    def mixing(self) -> mixing.Mixing:
        """Mixing statistics in one pass: ESS of theta and of c^2, R-hat, gap between chains."""
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
        """ESS of the mean of c^2.

        It is smaller than the ESS of the ranks of c^2 where a few draws make up most of the mean.
        """
        heavy = np.nan_to_num(self.kurtosis) > MAX_LIGHT_KURTOSIS
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


# -- histogram -----------------------------------------------------------------------------


QUANTILE_HALVINGS = 60  # bisections of the range of all draws


@dataclass(frozen=True)
class Histogram:
    """Histograms of every parameter of every chain: equal bins with the weight of their draws.

    Attributes:
      low, width: [chain, parameter], the lower end of the first bin, and the width of a bin.
      weight: [chain, parameter, bin].
    """

    low: Float[np.ndarray, "chain parameter"]
    width: Float[np.ndarray, "chain parameter"]
    weight: Float[np.ndarray, "chain parameter bin"]

    def __post_init__(self) -> None:
        if self.weight.ndim != 3 or not self.low.shape == self.width.shape == self.weight.shape[:2]:
            raise ValueError("bins and their weights do not belong together")

    def quantile(self, q: float, chains: Int[np.ndarray, " ok"]) -> Float[np.ndarray, " parameter"]:
        """Return the q-quantile over these chains, which weigh the same.

        Draws count as uniform within a bin. The result is NaN for a parameter that was never
        finite.

        Example:
          >>> import numpy as np
          >>> three = Histogram(np.zeros((1, 1)), np.ones((1, 1)), np.array([[[1.0, 2.0, 1.0]]]))
          >>> three.quantile(0.5, np.array([0])).round(6)
          array([1.5])
        """
        low, width = (a[chains].astype(np.float64) for a in (self.low, self.width))
        share = self.weight[chains].astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            share /= share.sum(axis=-1, keepdims=True)
        below = np.concatenate([np.zeros((*share.shape[:2], 1)), share.cumsum(axis=-1)], axis=-1)
        left, right = low.min(axis=0), (low + share.shape[-1] * width).max(axis=0)
        for _ in range(QUANTILE_HALVINGS):
            middle = (left + right) / 2
            under = _distribution(below, (middle - low) / np.where(width > 0, width, 1.0)) < q
            left, right = np.where(under, middle, left), np.where(under, right, middle)
        return np.where(np.isfinite(share).all(axis=(0, 2)), right, np.nan)


def _distribution(
    below: Float[np.ndarray, "chain parameter edge"], at: Float[np.ndarray, "chain parameter"]
) -> Float[np.ndarray, " parameter"]:
    """Return the mean over chains of the share of draws below `at`, in bins from the first one."""
    at = np.clip(at, 0, below.shape[-1] - 1)
    bin_ = np.minimum(at.astype(int), below.shape[-1] - 2)[..., None]
    start, end = (np.take_along_axis(below, bin_ + i, axis=-1)[..., 0] for i in (0, 1))
    return (start + (at - bin_[..., 0]) * (end - start)).mean(axis=0)


# -- moments -------------------------------------------------------------------------------


Chains = Int[np.ndarray, " ok"]
MomentValues = Float[np.ndarray, " parameter"]


@dataclass(frozen=True)
class Moments:
    """Weighted moments of every chain, with the parameters in one row.

    Attributes:
      chain_mean, chain_square: [chain, parameter], mean, and mean squared deviation from it.
      between: [chain, parameter], mean squared deviation of the means of batches of draws.
      weight, squared_weights: sums over a chain's draws of the weight and of its square.
      num_batches, num_draws: numbers of batches and draws of a chain.
      histogram: histograms of all draws, for quantiles; None if there are too many parameters.
    """

    chain_mean: Float[np.ndarray, "chain parameter"]
    chain_square: Float[np.ndarray, "chain parameter"]
    between: Float[np.ndarray, "chain parameter"]
    weight: float
    squared_weights: float
    num_batches: int
    num_draws: int
    histogram: Histogram | None = None

    def mean(self, chains: Chains) -> MomentValues:
        """Return the mean over these chains, which weigh the same."""
        return self.chain_mean[chains].mean(axis=0, dtype=np.float64)

    def var(self, chains: Chains) -> MomentValues:
        """Return the variance over these chains' draws, with the divisor of weighted draws."""
        means = self.chain_mean[chains].astype(np.float64)
        square = self.chain_square[chains].mean(axis=0, dtype=np.float64) + means.var(axis=0)
        share = self.squared_weights / self.weight**2 / len(chains)
        return square / (1 - share) if share < 1 else np.full_like(square, np.nan)

    def mcse(self, chains: Chains) -> MomentValues:
        """Return the Monte Carlo standard error of the mean from the means of batches of draws."""
        if self.num_batches < 2:
            return np.full(self.chain_mean.shape[1], np.nan)
        square = self.between[chains].mean(axis=0, dtype=np.float64)
        return np.sqrt(square / ((self.num_batches - 1) * len(chains)))

    def ess(self, chains: Chains) -> MomentValues:
        """Return the effective number of draws for the mean, (sd / mcse)^2; NaN if constant."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.var(chains) / self.mcse(chains) ** 2

    def r_hat(self, chains: Chains) -> MomentValues:
        """Return Gelman & Rubin's (1992) R-hat from the means of whole chains; NaN for one chain.

        If there are many chains, it compares the means of CHAIN_GROUPS groups, as `mixing.r_hat`
        does.
        """
        if len(chains) < 2:
            return np.full(self.chain_mean.shape[1], np.nan)
        groups = len(chains) if len(chains) <= MAX_PLAIN_CHAINS else CHAIN_GROUPS
        chains = chains[: len(chains) // groups * groups].reshape(groups, -1)
        means = self.chain_mean[chains].astype(np.float64)
        square = self.chain_square[chains].mean(axis=1, dtype=np.float64) + means.var(axis=1)
        within, between = square.mean(axis=0), means.mean(axis=1).var(axis=0, ddof=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(1 + between / within)


# -- prediction ----------------------------------------------------------------------------


PyTree = Any


class Prediction(NamedTuple):
    """Weighted mean, sd and interval over draws, each of the shape that f returns."""

    mean: PyTree
    sd: PyTree
    lower: PyTree
    upper: PyTree

    def _repr_html_(self) -> str:
        return late("html")(self)


def predict(
    draws: Draws, f: Callable[[PyTree, PyTree], PyTree], x: PyTree, interval: float
) -> Prediction:
    """Compute `Draws.predict`."""
    if not callable(f):
        raise UsageError(
            f"f must be a function of a position and x, as in draws.predict(f, x). Got {type(f).__name__}."
        )
    fraction("interval", interval)
    of_x = lambda position: f(position, x)  # noqa: E731
    with calling(draws, x):
        jax.eval_shape(jax.vmap(jax.vmap(of_x)), draws.position)
    values, restore = draws.flat(of_x)
    tails = [(1 - interval) / 2, (1 + interval) / 2]
    lower, upper = (quantile(values, draws.weights, q) for q in tails)
    sd = np.sqrt(var(values, draws.weights))
    parts = (mean(values, draws.weights), sd, lower, upper)
    return Prediction(*(restore(part) for part in parts))


def calling(draws: Draws, x: PyTree) -> AbstractContextManager[None]:
    """Return a context that adds the most likely remedy to an error of f at a position and x."""
    remedy = COMPILED_REMEDY
    if draws.origin is not None and draws.origin.path is not None and isinstance(draws.position, dict):  # fmt: skip
        remedy = (
            "loaded draws hold the arrays of a module as a dict; if init was a module, pass "
            "sgld.networks.restore(draws, init)."
        )
    elif any(hasattr(leaf, "iloc") for leaf in jax.tree.leaves(x)):
        remedy = "x is a table, but f takes arrays; pass its numbers, x.to_numpy()."
    return user_errors(f"f of x of shape {shapes_of(x)}", remedy=remedy)


# -- strata --------------------------------------------------------------------------------


PerParameter = Float[np.ndarray, " parameter"]


def strata_of(draws: Draws, values: Float[np.ndarray, "ok draw m"]) -> Strata | None:
    """Return the strata of a run whose chains stay in separate modes; None for any other run.

    `values` are those of the healthy chains.
    """
    modes = draws.modes
    if modes is None or modes.chain is None or modes.group is None:
        return None
    count, group = int(modes.group.max()) + 1, modes.group
    mass = np.bincount(group, modes.mass, count)
    covariance = np.zeros((count, count))
    if modes.covariance is not None:
        np.add.at(covariance, np.ix_(group, group), modes.covariance)
    return Strata(values, modes.chain[draws.healthy], mass, covariance)


@dataclass(frozen=True)
class Strata:
    """Values [chain, draw, parameter], the region of each chain, the regions' masses, and C."""

    values: Float[np.ndarray, "chain draw parameter"]
    region: Int[np.ndarray, " chain"]
    mass: Float[np.ndarray, " region"]
    covariance: Float[np.ndarray, "region region"]

    @property
    def occupied(self) -> Int[np.ndarray, " g"]:
        """Regions that hold a chain."""
        return np.unique(self.region)

    @cached_property
    def each(self) -> dict[int, Estimates]:
        """Estimates of every occupied region."""
        of = {int(g): self.values[self.region == g] for g in self.occupied}
        return {g: Estimates(v, np.full(v.shape[:2], 1 / v[..., 0].size)) for g, v in of.items()}

    def _stacked(self, name: str) -> Float[np.ndarray, "g parameter"]:
        return np.stack([getattr(own, name) for own in self.each.values()])

    @property
    def _share(self) -> Float[np.ndarray, "g 1"]:
        share = self.mass[list(self.each)]
        return (share / share.sum())[:, None]

    @cached_property
    def mean(self) -> PerParameter:
        """Mean over regions, sum M_g mu_g."""
        return np.sum(self._share * self._stacked("mean"), axis=0)

    @cached_property
    def sd(self) -> PerParameter:
        """Square root of the variance over regions."""
        return np.sqrt(np.sum(self._share * self._second, axis=0))

    @property
    def _second(self) -> Float[np.ndarray, "g parameter"]:
        return self._stacked("sd") ** 2 + (self._stacked("mean") - self.mean) ** 2

    @property
    def r_hat(self) -> PerParameter:
        """Largest R-hat within a region."""
        return self._stacked("r_hat").max(axis=0)

    def ess(self, method: mixing.Method = "bulk") -> PerParameter:
        """Return the ESS of the regions' draws together, 1 / sum (M_g^2 / ESS_g)."""
        own = np.stack([ess(e.values, e.weights, method) for e in self.each.values()])
        return 1 / np.sum(self._share**2 / own, axis=0)

    @cached_property
    def mean_se(self) -> PerParameter:
        """Standard error of the mean: Monte Carlo error, and the error of the masses."""
        own = np.sum((self._share * self._stacked("mean_se")) ** 2, axis=0)
        return np.sqrt(own + self._mass_variance(self._stacked("mean")))

    @cached_property
    def sd_se(self) -> PerParameter:
        """Standard error of the sd, as a share of the sd."""
        mean, sd = self._stacked("mean"), self._stacked("sd")
        se = (2 * sd**2 * self._stacked("sd_se")) ** 2
        se += (2 * (mean - self.mean) * self._stacked("mean_se")) ** 2
        own = np.sum(self._share**2 * se, axis=0)
        return np.sqrt(own + self._mass_variance(self._second)) / (2 * self.sd**2)

    def _mass_variance(self, slope: Float[np.ndarray, "g parameter"]) -> PerParameter:
        """Return the variance of sum slope_g M_g."""
        at = list(self.each)
        part = self.covariance[np.ix_(at, at)]
        # errors of masses sum to 0, so a value common to all regions contributes nothing
        apart = slope - np.sum(self._share * slope, axis=0)
        return np.einsum("gm,gh,hm->m", apart, part, apart).clip(0)
