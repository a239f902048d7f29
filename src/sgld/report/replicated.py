"""Outcomes that the model would make, for the rows of its own data.

For draws s = 1 .. S of the posterior, outcomes y_s are drawn for rows of the data: for a sample of
rows all at once, which is pictured, and for all rows in pieces, of which single numbers are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from ..regression.formula import FormulaModel
from ..results.draws import Draws
from ..results.statistics import systematic
from .totals import Totals

__all__ = ["Replicated", "replicate"]

MOST_DRAWS = 100
MOST_ROWS = 5000  # pictured
LEAST_DRAWS = 20  # for all rows
MOST_CELLS = 20_000_000  # draws times rows, of all rows; about a second
PERMUTED = 2**24  # rows whose numbers may be held all at once
LARGEST = 2_000_000  # rows, beyond which a sample of so many stands for all
PIECE = 1_000_000  # draws times rows times levels, at once


@dataclass(frozen=True)
class Replicated:
    """Rows of the data, and outcomes drawn for them.

    Attributes:
      observed: [n], on the original scale.
      replicas: [S, n], one drawn data set per row.
      mean: [n], the predicted mean of each outcome.
      outcome: the column's name.
      num_data: rows of the whole data.
      num_rows: rows that were taken; of an outcome with levels n is that many times the levels.
      totals: single numbers of all rows; by default those of the rows taken.
    """

    observed: Float[np.ndarray, " n"]
    replicas: Float[np.ndarray, "S n"]
    mean: Float[np.ndarray, " n"]
    outcome: str
    num_data: int
    num_rows: int
    totals: Totals | None = None

    def all_rows(self) -> Totals:
        """`totals`, or those of the rows taken."""
        if self.totals is not None:
            return self.totals
        totals = Totals.like(self.observed, self.mean)
        totals.add(self.observed, self.replicas, self.mean, self.num_rows)
        return totals


def replicate(
    model: FormulaModel,
    draws: Draws,
    seed: int,
    most_draws: int = MOST_DRAWS,
    most_rows: int = MOST_ROWS,
) -> Replicated:
    """Outcomes of at most `most_draws` draws for at most `most_rows` rows, and totals of all rows."""
    assert model.data is not None
    rng = np.random.default_rng([seed, 5])
    data, num_data = model.leaves(), model.num_data
    rows = _some(rng, num_data, most_rows)
    position = _positions(model, draws, most_draws)
    observed, replicas, mean = _outcomes(model, position, rng, _take(data, rows))
    totals = None
    if len(rows) < num_data:
        totals = _of_all_rows(model, draws, rng, data, Totals.like(observed, mean))
    outcome = model.spec["design"]["outcome"]
    return Replicated(observed, replicas, mean, outcome, num_data, len(rows), totals)


def _of_all_rows(
    model: FormulaModel, draws: Draws, rng: np.random.Generator, data: Any, totals: Totals
) -> Totals:
    """`totals` of every row, a piece of them at a time."""
    num_data = len(data[1])
    count = min(num_data, LARGEST)
    rows = _some(rng, num_data, count)
    position = _positions(model, draws, int(np.clip(MOST_CELLS // count, LEAST_DRAWS, MOST_DRAWS)))
    width = len(position["coefficients"]) * max(1, len(model.spec.get("levels") or ()))
    step = max(1, PIECE // width)
    for start in range(0, count, step):
        piece = rows[start : start + step]
        totals.add(*_outcomes(model, position, rng, _take(data, piece)), len(piece))
    return totals


def _some(rng: np.random.Generator, num_data: int, most: int) -> Int[np.ndarray, " n"]:
    """The numbers of all rows, or of `most` of them, in order."""
    if num_data <= most:
        return np.arange(num_data)
    if num_data <= PERMUTED:
        return np.sort(rng.permutation(num_data)[:most])
    return np.sort(rng.choice(num_data, most, replace=False, shuffle=False))


def _take(data: Any, rows: Int[np.ndarray, " n"]) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf[rows], np.float64), data)


def _positions(model: FormulaModel, draws: Draws, most: int) -> Any:
    """At most `most` standardised positions, which stand for all with equal weights."""
    weights = draws.weights.ravel()
    chosen = systematic(weights, min(most, weights.size))

    def pick(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)[draws.healthy]
        return leaf.reshape(-1, *leaf.shape[2:])[chosen]

    return model.to_standardised(jax.tree.map(pick, draws.position))


def _outcomes(
    model: FormulaModel, position: Any, rng: np.random.Generator, rows: Any
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "S n"], Float[np.ndarray, " n"]]:
    """Observed outcomes of some rows, drawn ones, and their means, on the original scale."""
    x, y, *more = rows
    given = {name: position[name][:, None] for name in model.family.dispersion}
    given |= more[0] if more else {}
    eta = np.einsum("s...p,np->sn...", position["coefficients"], x)
    if "offset" in given:
        eta = eta + given["offset"].reshape(-1, *([1] * (eta.ndim - 2)))
    observed, mean = y, model.family.mean(eta, given).mean(axis=0)
    replicas = model.family.sample(rng, eta, given)
    if model.family.levels:  # each level against the others, all levels after one another
        levels = np.arange(mean.shape[1])
        observed, mean = (y[:, None] == levels).ravel(), mean.ravel()
        replicas = (replicas[..., None] == levels).reshape(len(replicas), -1).astype(np.float64)
    if model.family.trials:
        observed, replicas, mean = (v / given["trials"] for v in (observed, replicas, mean))
    shift, stretch = model.spec["outcome_center"], model.spec["outcome_scale"]
    return shift + stretch * observed, shift + stretch * replicas, shift + stretch * mean
