"""What a fitted model says of new rows: arrays alone, in NumPy and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import special

from ..results.draws import Draws
from .model import Kind, Standard

__all__ = ["Predictor"]

PyTree = Any
PREDICTIVE_DRAWS = 4000  # that a prediction is averaged over, at most
CELLS = 4_000_000  # numbers held at once


@dataclass(frozen=True, eq=False)
class Predictor:
    """Draws of a model, and how its columns and outcome are standardised.

    Attributes:
      kind: the law of the outcome.
      position: leaves [S, ...]: linear models on the scale of the columns as they came.
      weight: [S], of the draws; they sum to 1.
      standard: of a network's columns and outcome; None for linear models.
    """

    kind: Kind
    position: PyTree
    weight: Float[np.ndarray, " S"]
    standard: Standard | None

    @classmethod
    def of(cls, kind: Kind, draws: Draws, standard: Standard | None) -> Predictor:
        """From at most DRAWS of the healthy chains' draws, evenly spaced."""
        weight = draws.weights.ravel()
        at = np.unique(
            np.linspace(0, weight.size - 1, min(PREDICTIVE_DRAWS, weight.size)).round().astype(int)
        )

        def flat(leaf: Any) -> np.ndarray:
            leaf = np.asarray(leaf)[draws.healthy]
            return leaf.reshape(-1, *leaf.shape[2:])[at].astype(np.float64)

        position = {name: _map(flat, part) for name, part in draws.position.items()}
        return cls(kind, position, weight[at] / weight[at].sum(), standard)

    def probabilities(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n K"]:
        """Mean over draws of each class's probability."""
        parts = []
        for eta in self._chunks(x):
            if self.kind == "bernoulli":
                p = np.tensordot(self.weight, special.expit(eta), 1)
                parts.append(np.column_stack([1 - p, p]))
            else:
                parts.append(np.tensordot(self.weight, special.softmax(eta, axis=-1), 1))
        return np.concatenate(parts)

    def mean(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        """Mean of y."""
        return np.concatenate([self.weight @ eta for eta in self._chunks(x)])

    def sd(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        """sd of y, its noise included: that of its mean and that around it."""
        noise = self.weight @ self.position["sigma"] ** 2
        each = [self.weight @ (eta - self.weight @ eta) ** 2 for eta in self._chunks(x)]
        return np.sqrt(np.concatenate(each) + noise)

    def interval(self, x: Float[np.ndarray, "n p"], prob: float) -> Float[np.ndarray, "n 2"]:
        """Ends of a central interval that holds y with probability `prob`.

        Quantiles of one outcome per draw. The noises are those quantiles of a normal that cut it
        in parts of the draws' weights, in an arbitrary order and the same for every row: the
        noise itself adds next to no Monte Carlo error.
        """
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
        """Linear predictors [S, rows, ...] of a few rows at a time, outcomes on their own scale."""
        layers, coef = self.position.get("hidden", ()), self.position["coef"]
        if self.standard is not None:
            x = self.standard.columns(x)
        wide = max([np.prod(coef.shape[2:]), *(layer["bias"].shape[1] for layer in layers)])
        size = max(1, int(CELLS // (len(coef) * wide)))
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


def _map(function: Any, part: Any) -> Any:
    if isinstance(part, (tuple, list)):
        return tuple(_map(function, item) for item in part)
    if isinstance(part, dict):
        return {name: _map(function, item) for name, item in part.items()}
    return function(part)
