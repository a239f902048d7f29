"""Predictions of regressions and classifiers for new rows, in NumPy and in bounded memory.

Over draws b_s with weights w_s the linear predictor of a row has the mean m and the variance v,

    m = sum_s w_s x'b_s,     v = |R x|^2,     R of the QR decomposition of sqrt(w_s) (b_s - b).

If it is normal, no draw is read again:

    P(y = 1) = int sigmoid(m + sqrt(v) z) phi(z) dz               by Gauss-Hermite quadrature,
    y = m + sqrt(u) (z + k (z^3 - 3 z) / 24),  u = v + E sigma^2,  k = 3 Var(sigma^2) / u^2,

the quantile at the normal quantile z, corrected for the tails of a noise whose sd is uncertain
(Cornish & Fisher 1938). After a fit both ways are compared at rows of the training data. Rows whose
v is larger than where they agree are averaged over draws, one by one as they come, so that a
prediction does not depend on the other rows. Several classes are averaged over few draws, in pairs
that are symmetric about the mean, if that agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.polynomial.hermite_e import hermegauss
from scipy import special

from ..regression.predictive import in_pieces
from ..results.draws import Draws
from .sklearn_models import Kind, Standard

PyTree = Any
MAX_PREDICTIVE_DRAWS = 4000  # draws that a prediction averages over
PREDICTED_NUMBERS = 4_000_000  # numbers in memory at once
QUADRATURE_NODES, MAX_QUADRATURE_SD = 20, 2.0  # up to that sd its error is 1e-5
SPREAD_ROWS, COMPARED_ROWS = (
    2048,
    64,
)  # training rows whose v is known, and where both ways are compared
MAX_DISAGREEMENT_SDS = 0.05  # posterior sds; the Monte Carlo error of 2,000 effective draws is .022
MIN_DISAGREEMENT = 1e-5  # of probabilities near 0 and 1, whose sd is as small
FARTHER = (1, 2, 4)  # rows are compared this many times as far from their mean, too
PAIRED_DRAWS = 64
MOMENT_ROWS = 1024  # which fit the processor's cache; products of more rows wait for threads


class Normal(NamedTuple):
    """Mean and variance of linear predictors.

    Attributes:
      center: [p + 1], the mean of coefficients and intercept.
      root: R [p + 1, p + 1].
      limit: the largest sd of a linear predictor that is treated as normal.
    """

    center: Float[np.ndarray, " p1"]
    root: Float[np.ndarray, "p1 p1"]
    limit: float = 0.0

    @classmethod
    def of(cls, coef: np.ndarray, intercept: np.ndarray, weight: np.ndarray) -> Normal:
        """Return the moments of draws of coefficients [S, p] and intercepts [S]."""
        flat = np.column_stack([coef, intercept])
        center = weight @ flat
        root = np.linalg.qr(np.sqrt(weight)[:, None] * (flat - center), mode="r")
        return cls(center, np.asarray(root))

    def moments(self, x: Float[np.ndarray, "n p"]) -> tuple[np.ndarray, np.ndarray]:
        """Return means [n] and sds [n] of the rows' linear predictors."""
        mean, sd, to_spread = np.empty(len(x)), np.empty(len(x)), self.root[:, :-1].T.copy()
        for start in range(0, len(x), MOMENT_ROWS):
            rows = slice(start, start + MOMENT_ROWS)
            mean[rows] = x[rows] @ self.center[:-1] + self.center[-1]
            spread = x[rows] @ to_spread + self.root[:, -1]
            sd[rows] = np.sqrt(np.einsum("np,np->n", spread, spread))
        return mean, sd


@dataclass(frozen=True, eq=False)
class Predictor:
    """Draws of a model, and the standardisation of its columns and outcome.

    Attributes:
      kind: the distribution of the outcome.
      position: leaves [S, ...]; linear models on the original scale of the columns.
      weight: [S], weights of the draws; they sum to 1.
      standard: the standardisation of a network's columns and outcome; None for linear models.
      normal: the moments of a linear model's coefficients, except for several classes.
      few: a predictor of the same classes from fewer draws, if it agrees.
    """

    kind: Kind
    position: PyTree
    weight: Float[np.ndarray, " S"]
    standard: Standard | None
    normal: Normal | None = None
    few: Predictor | None = None

    @classmethod
    def of(
        cls, kind: Kind, draws: Draws, standard: Standard | None, x: Float[np.ndarray, "n p"]
    ) -> Predictor:
        """Take at most MAX_PREDICTIVE_DRAWS of the healthy chains' draws, evenly spaced.

        The rows x of the training data decide which predictions need the draws.
        """
        weight = draws.weights.ravel()
        at = np.unique(
            np.linspace(0, weight.size - 1, min(MAX_PREDICTIVE_DRAWS, weight.size))
            .round()
            .astype(int)
        )

        def flat(leaf: Any) -> np.ndarray:
            leaf = np.asarray(leaf)[draws.healthy]
            return leaf.reshape(-1, *leaf.shape[2:])[at].astype(np.float64)

        position = {name: _map(flat, part) for name, part in draws.position.items()}
        whole = cls(kind, position, weight[at] / weight[at].sum(), standard)
        return whole if standard is not None else whole._quick(x[:: max(1, len(x) // SPREAD_ROWS)])

    def _quick(self, x: Float[np.ndarray, "n p"]) -> Predictor:
        """Return the predictor with the shorter ways that agree with the draws at rows like x."""
        if self.kind == "categorical":
            few, rows = self._paired(), x[:: max(1, len(x) // COMPARED_ROWS)]
            mean, sd = self._of_draws(rows, lambda eta: special.softmax(eta, axis=-1))
            return (
                replace(self, few=few) if _agree(few.probabilities(rows), mean, sd).all() else self
            )
        coef = self.position["coef"]
        intercept = self.position.get("intercept", np.zeros(len(coef)))
        normal = Normal.of(coef, intercept, self.weight)
        middle = x.mean(axis=0)
        x = np.concatenate([middle + far * (x - middle) for far in FARTHER])
        mean, sd = normal.moments(x)
        rows = np.argsort(sd)[np.linspace(0, len(x) - 1, min(len(x), COMPARED_ROWS)).astype(int)]
        mean, sd, x = mean[rows], sd[rows], x[rows]
        if self.kind == "bernoulli":
            agree = _agree(expected_logistic(mean, sd), *self._of_draws(x, special.expit))
            agree &= sd <= MAX_QUADRATURE_SD
        else:
            ends, unit = self._drawn_interval(x, 0.9), np.hypot(sd, self._noise()[0] ** 0.5)
            agree = _agree(self._normal_interval(mean, sd, 0.9), ends, unit[:, None]).all(axis=1)
        first = np.logical_and.accumulate(agree).sum()
        return replace(self, normal=normal._replace(limit=float(sd[first - 1]) if first else 0.0))

    def _of_draws(
        self, x: np.ndarray, of: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd over draws of a function of the linear predictors."""
        each = np.concatenate([of(eta) for eta in self._chunks(x)], axis=1)
        mean = np.tensordot(self.weight, each, 1)
        return mean, np.sqrt(np.tensordot(self.weight, (each - mean) ** 2, 1))

    def _paired(self) -> Predictor:
        """Return a predictor from some draws and their reflections about the mean."""
        at = np.linspace(0, len(self.weight) - 1, PAIRED_DRAWS).astype(int)

        def both(leaf: np.ndarray) -> np.ndarray:
            return np.concatenate([leaf[at], 2 * np.tensordot(self.weight, leaf, 1) - leaf[at]])

        weight = np.full(2 * PAIRED_DRAWS, 0.5 / PAIRED_DRAWS)
        return Predictor(self.kind, _map(both, self.position), weight, None)

    def _by_row(
        self, x: np.ndarray, quick: Callable[[np.ndarray, np.ndarray], np.ndarray],
        by_draws: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:  # fmt: skip
        """Return quick(mean, sd) of rows with a normal linear predictor, and by_draws of the others."""
        if self.normal is None:
            return by_draws(x)
        mean, sd = self.normal.moments(x)
        near = sd <= self.normal.limit
        found = quick(mean, np.where(near, sd, 0.0))
        if not near.all():
            found[~near] = by_draws(x[~near])
        return found

    def probabilities(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n K"]:
        """Return the mean over draws of each class's probability."""
        if self.few is not None:
            return self.few.probabilities(x)
        if self.kind == "bernoulli":
            p = self._by_row(x, expected_logistic, lambda x: self._average(x, special.expit))
            return np.column_stack([1 - p, p])
        return self._average(x, lambda eta: special.softmax(eta, axis=-1))

    def most_probable(self, x: Float[np.ndarray, "n p"]) -> np.ndarray:
        """Return the index [n] of the most probable class of each row."""
        if self.normal is None:
            return self.probabilities(x).argmax(axis=1)
        draws = lambda x: self._average(x, special.expit) > 0.5  # noqa: E731
        return self._by_row(x, lambda mean, sd: mean > 0, draws).astype(int)

    def _average(self, x: np.ndarray, of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the mean over draws of a function of the linear predictors."""
        return np.concatenate([np.tensordot(self.weight, of(eta), 1) for eta in self._chunks(x)])

    def mean(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        """Return the mean of y."""
        return np.concatenate([self.weight @ eta for eta in self._chunks(x)])

    def sd(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        """Return the sd of y from the sd of its mean and the noise around it."""
        noise = self._noise()[0]
        if self.normal is not None:
            return np.sqrt(self.normal.moments(x)[1] ** 2 + noise)
        each = [self.weight @ (eta - self.weight @ eta) ** 2 for eta in self._chunks(x)]
        return np.sqrt(np.concatenate(each) + noise)

    def _noise(self) -> tuple[float, float]:
        """Return mean and variance of sigma^2; 0 for classes."""
        squares = self.position.get("sigma", np.zeros(len(self.weight))) ** 2
        mean = float(self.weight @ squares)
        return mean, float(self.weight @ (squares - mean) ** 2)

    def interval(self, x: Float[np.ndarray, "n p"], prob: float) -> Float[np.ndarray, "n 2"]:
        """Return the ends of a central interval that holds y with probability `prob`.

        The ends are quantiles of one outcome per draw. The noises are normal quantiles at levels
        that match the draws' weights, in an arbitrary order and the same for every row. The noise
        itself therefore adds almost no Monte Carlo error.
        """
        quick = lambda mean, sd: self._normal_interval(mean, sd, prob)  # noqa: E731
        return self._by_row(x, quick, lambda x: self._drawn_interval(x, prob))

    def _normal_interval(self, mean: np.ndarray, sd: np.ndarray, prob: float) -> np.ndarray:
        noise, spread = self._noise()
        u = (sd**2 + noise)[:, None]
        z = special.ndtri([(1 - prob) / 2, (1 + prob) / 2])
        return mean[:, None] + np.sqrt(u) * (z + spread / u**2 * (z**3 - 3 * z) / 8)

    def _drawn_interval(self, x: np.ndarray, prob: float) -> np.ndarray:
        order = np.random.default_rng(0).permutation(self.weight.size)
        place = np.cumsum(self.weight[order]) - self.weight[order] / 2
        noise = np.empty(self.weight.size)
        noise[order] = special.ndtri(place)
        tails = [(1 - prob) / 2, (1 + prob) / 2]
        noise *= self.position["sigma"]
        parts = []
        for eta in self._chunks(x):
            y = eta + noise[:, None]
            by = np.argsort(y, axis=0)
            ends = np.cumsum(self.weight[by], axis=0)
            at = [np.minimum((ends < q).sum(axis=0), len(y) - 1) for q in tails]
            y = np.take_along_axis(y, by, axis=0)
            parts.append(np.column_stack([np.take_along_axis(y, k[None], 0)[0] for k in at]))
        return np.concatenate(parts)

    def _chunks(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """Yield linear predictors [S, rows, ...] of a few rows at once, on the outcome's scale."""
        layers, coef = self.position.get("hidden", ()), self.position["coef"]
        if self.standard is not None:
            x = self.standard.columns(x)
        wide = max([np.prod(coef.shape[2:]), *(layer["bias"].shape[1] for layer in layers)])
        size = max(1, int(PREDICTED_NUMBERS // (len(coef) * wide)))
        for start in range(0, len(x), size):
            h = x[start : start + size]
            for layer in layers:
                h = np.tanh(h @ layer["kernel"] + layer["bias"][:, None])
            if coef.ndim == 2 and not layers:
                eta = coef @ h.T
            else:
                eta = h @ (coef if coef.ndim == 3 else coef[..., None])
                eta = eta if coef.ndim == 3 else eta[..., 0]
            if "intercept" in self.position:
                eta = eta + self.position["intercept"][:, None]
            if self.standard is not None:
                eta = self.standard.shift + self.standard.stretch * eta
            yield eta


def _agree(quick: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    return np.abs(quick - mean) <= MAX_DISAGREEMENT_SDS * sd + MIN_DISAGREEMENT


def expected_logistic(
    mean: Float[np.ndarray, " n"], sd: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return the expectation of sigmoid(mean + sd z) for a standard normal z."""
    found, (nodes, weights) = np.empty(len(mean)), hermegauss(QUADRATURE_NODES)

    def fill(rows: slice) -> None:
        values = special.expit(mean[rows] + np.multiply.outer(nodes, sd[rows]))
        found[rows] = weights @ values / weights.sum()

    in_pieces(fill, len(mean), QUADRATURE_NODES)
    return found


def _map(function: Any, part: Any) -> Any:
    if isinstance(part, (tuple, list)):
        return tuple(_map(function, item) for item in part)
    if isinstance(part, dict):
        return {name: _map(function, item) for name, item in part.items()}
    return function(part)
