"""Draws of equal weight, for tools that know no weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ..results.draws import Draws
from ..results.statistics import systematic

__all__ = ["Chosen", "choose", "equal_weights"]

ALIKE = 1e-6  # relative difference of weights that is rounding


@dataclass(frozen=True)
class Chosen:
    """Draws of equal weight among the healthy chains' draws.

    Attributes:
      at: [chain, draw], places among the draws of the healthy chains, flat: chain by chain.
      resampled: whether some draws stand twice, or not at all, because weights differ.
    """

    at: Int[np.ndarray, "chain draw"]
    resampled: bool

    @property
    def count(self) -> int:
        """S, the number of draws."""
        return self.at.size

    def of(self, draws: Draws, tree: Any) -> Any:
        """The chosen draws of a pytree of [chain, draw, ...], flat: [S, ...]."""
        return jax.tree.map(lambda leaf: self.leaf(draws, leaf), tree)

    def leaf(self, draws: Draws, leaf: Any) -> np.ndarray:
        """The chosen draws of one array [chain, draw, ...], flat: [S, ...]."""
        leaf = np.asarray(leaf)[draws.healthy]
        return leaf.reshape(-1, *leaf.shape[2:])[self.at.ravel()]


def choose(draws: Draws, most: int | None = None, *, weights: bool = True) -> Chosen:
    """At most `most` draws that stand for all with equal weights: systematic resampling.

    Chains stay apart where each weighs the same; where chains hold modes of unlike mass, the
    draws of all are taken together, and what is called a chain then is a part of that row.
    Where all weights are equal every draw stands once, or every k-th where there are more than
    `most`. With `weights` False they are not looked at.
    """
    w = draws.weights
    chains, count = w.shape
    per_chain = count if most is None else max(1, min(count, most // chains))
    if not weights or equal_weights(w).all():
        places = (np.arange(per_chain) + 0.5) * count / per_chain
        at = np.arange(chains)[:, None] * count + places.astype(int)
        return Chosen(at, False)
    totals = w.sum(axis=1)
    if np.allclose(totals, totals[0], rtol=ALIKE):
        rows = [systematic(row, per_chain) + i * count for i, row in enumerate(w)]
        return Chosen(np.stack(rows), True)
    return Chosen(systematic(w.ravel(), chains * per_chain).reshape(chains, per_chain), True)


def equal_weights(weights: Float[np.ndarray, "chain draw"]) -> Bool[np.ndarray, "chain draw"]:
    """Where a weight is that of the heaviest draw, but for rounding."""
    return weights >= (1 - ALIKE) * weights.max()
