"""Evaluate log likelihoods of single rows at draws, in pieces of bounded memory.

If the log likelihood of a network is that of a choice among classes,

    log p(y_i | theta, x_i) = log softmax(predict(theta, x_i))[y_i],

the class y_i of a row is identified too: no argument says which part of a row it is, so it is the
class whose log probability equals the row's log likelihood.

The module also resamples draws to equal weights, for tools that do not support weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from ..core.devices import sent
from ..data.source import Source
from ..data.validate import as_source, check_data, is_source
from ..results.draws import Draws
from ..results.statistics import systematic

PyTree = Any
MAX_HELD_CELLS = 2**23  # draws x rows in memory at once
MAX_DRAW_ROW_NUMBERS = 2**21  # numbers in the rows x draws that are evaluated together


@dataclass(frozen=True)
class Rows:
    """N rows, and the log likelihood of one row.

    Attributes:
      log_likelihood: (position, datum) -> scalar.
      data: a pytree of arrays in the user's order; None for a source.
      source: the rows of a user-supplied source.
      count: N.
      called: [N], the user's numbers of the rows, if these are not 0, 1, 2, ...
      seed: the seed of the run, from which a Source derives the numbers of its rows.
    """

    log_likelihood: Callable
    data: Any
    source: Source | None
    count: int
    called: Int[np.ndarray, " N"] | None = None
    seed: int = 0

    @classmethod
    def of(cls, log_likelihood: Callable, data: Any, *, called: Any = None, seed: int = 0) -> Rows:
        """Check the data and return their rows; raise the errors of `sgld.sample`."""
        if is_source(data):
            source = as_source(data, seed)
            return cls(log_likelihood, None, source, source.num_data, called, seed)
        data = check_data(data)
        return cls(log_likelihood, data, None, len(jax.tree.leaves(data)[0]), called, seed)

    def names(self, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Return the user's numbers of these rows."""
        if self.called is not None:
            return self.called[numbers]
        return numbers if self.source is None else self.source.original_rows(numbers, self.seed)

    def take(self, numbers: Int[np.ndarray, " n"]) -> PyTree:
        """Return rows by number, leaves [n, ...]."""
        if self.source is not None:
            return self.source.take(sent(numbers, np.int32))
        return jax.tree.map(lambda leaf: leaf[numbers], self.data)

    def block(self, draws: int) -> int:
        """Return how many rows are evaluated together at this many draws."""
        return max(1, min(self.count, MAX_HELD_CELLS // draws))

    def values(self, positions: PyTree, numbers: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n S"]:
        """Return the log likelihoods of rows at positions [S, ...], in float64."""
        draws = len(jax.tree.leaves(positions)[0])
        size = min(self.block(draws), len(numbers))
        out = np.empty((len(numbers), draws))
        for start in range(0, len(numbers), size):
            here = numbers[start : start + size]
            # pad to one shape, so that the function is compiled once
            rows = self.take(np.append(here, np.repeat(here[-1:], size - len(here))))
            width = sum(leaf[:1].size for leaf in jax.tree.leaves(rows))
            together = max(1, min(draws, MAX_DRAW_ROW_NUMBERS // (size * width)))
            found = _values(self.log_likelihood, positions, rows, together=together)
            out[start : start + len(here)] = np.asarray(found, np.float64).T[: len(here)]
        return out


@partial(jax.jit, static_argnames="together")
def _values(
    log_likelihood: Callable, positions: PyTree, rows: PyTree, *, together: int
) -> Float[jax.Array, "S n"]:
    every = jax.vmap(log_likelihood, (None, 0))
    return jax.lax.map(lambda position: every(position, rows), positions, batch_size=together)


# -- choice --------------------------------------------------------------------------------


MAX_PROB_LEVELS = 12  # levels of an outcome whose probabilities are examined one by one
MAX_LIKELIHOOD_ERROR = 1e-3  # relative difference of a log likelihood and a log probability
NETWORK_ROWS = 4096  # rows per call of a network


@dataclass(frozen=True)
class Choice:
    """Labels of all rows, and probabilities of their classes.

    Attributes:
      predict: (position, datum) -> logits or log probabilities [k].
      labels: [N].
    """

    predict: Callable
    rows: Rows
    labels: Int[np.ndarray, " N"]

    @classmethod
    def of(cls, predict: Callable, rows: Rows, position: PyTree) -> Choice | None:
        """Return the choice that matches the rows' log likelihood; None if there is none.

        It is None unless `predict` returns log probabilities of a few classes at `position`, and
        the log likelihood of every row is one of them.
        """
        numbers = np.arange(rows.count)
        one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], position)
        try:
            width = _log_p(predict, one, rows.take(numbers[:1])).shape[2]
            if not 2 <= width <= MAX_PROB_LEVELS:
                return None
            logp = _of_rows(predict, rows, one, numbers)[0]
        except Exception:  # the network does not return a vector of logits
            return None
        likelihood = rows.values(one, numbers)[:, 0]
        apart = np.abs(logp - likelihood[:, None])
        same = apart <= MAX_LIKELIHOOD_ERROR * (1 + np.abs(likelihood[:, None]))
        if not same.any(axis=1).all():
            return None
        return cls(predict, rows, apart.argmin(axis=1))

    def levels(self, positions: PyTree, numbers: Any) -> Float[np.ndarray, "S n k"]:
        """Return the probabilities of the classes at positions [S, ...]."""
        return np.exp(_of_rows(self.predict, self.rows, positions, np.asarray(numbers)))

    def replicate(self, positions: PyTree, numbers: Any, seed: int) -> dict[str, np.ndarray]:
        """Draw classes for rows, [S, n]."""
        p = self.levels(positions, numbers)
        u = np.random.default_rng([seed, 11]).random(p.shape[:2])
        made = (u[..., None] > np.cumsum(p, axis=-1)[..., :-1]).sum(axis=-1)
        return {"outcome": made}


def _of_rows(
    predict: Callable, rows: Rows, positions: PyTree, numbers: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "S n k"]:
    """Return log probabilities by one compiled function, for NETWORK_ROWS rows at a time."""
    size, found = min(NETWORK_ROWS, len(numbers)), []
    for start in range(0, len(numbers), size):
        here = numbers[start : start + size]
        padded = np.append(here, np.repeat(here[-1:], size - len(here)))
        found.append(np.asarray(_log_p(predict, positions, rows.take(padded)))[:, : len(here)])
    return np.concatenate(found, axis=1)


@jax.jit
def _log_p(predict: Callable, positions: PyTree, rows: PyTree) -> Float[jax.Array, "S n k"]:
    def one(position: PyTree) -> Any:
        def row(datum: PyTree) -> Any:
            (found,) = jax.tree.leaves(predict(position, datum))
            return jax.nn.log_softmax(found)

        return jax.vmap(row)(rows)

    return jax.lax.map(one, positions)


# -- resampled -----------------------------------------------------------------------------


MAX_WEIGHT_ROUNDING = 1e-6  # relative difference of weights that counts as rounding


@dataclass(frozen=True)
class Chosen:
    """Draws of equal weight among the healthy chains' draws.

    Attributes:
      at: [chain, draw], flat indices of the draws of the healthy chains, chain by chain.
      resampled: whether some draws are repeated or left out because weights differ.
    """

    at: Int[np.ndarray, "chain draw"]
    resampled: bool

    @property
    def count(self) -> int:
        """Number of draws, S."""
        return self.at.size

    def of(self, draws: Draws, tree: Any) -> Any:
        """Return the chosen draws of a pytree of [chain, draw, ...], flat: [S, ...]."""
        return jax.tree.map(lambda leaf: self.leaf(draws, leaf), tree)

    def leaf(self, draws: Draws, leaf: Any) -> np.ndarray:
        """Return the chosen draws of one array [chain, draw, ...], flat: [S, ...]."""
        leaf = np.asarray(leaf)[draws.healthy]
        return leaf.reshape(-1, *leaf.shape[2:])[self.at.ravel()]


def choose(draws: Draws, most: int | None = None, *, weights: bool = True) -> Chosen:
    """Choose at most `most` draws that represent all with equal weights, by systematic resampling.

    Chains stay separate if they all weigh the same. If chains hold modes of different mass, the
    draws of all chains are resampled together, and a "chain" of the result is a part of that
    sequence. If all weights are equal, every draw occurs once, or every k-th if there are more than
    `most`. With `weights=False` the weights are ignored.
    """
    w = draws.weights
    chains, count = w.shape
    per_chain = count if most is None else max(1, min(count, most // chains))
    if not weights or equal_weights(w).all():
        places = (np.arange(per_chain) + 0.5) * count / per_chain
        at = np.arange(chains)[:, None] * count + places.astype(int)
        return Chosen(at, False)
    totals = w.sum(axis=1)
    if np.allclose(totals, totals[0], rtol=MAX_WEIGHT_ROUNDING):
        rows = [systematic(row, per_chain) + i * count for i, row in enumerate(w)]
        return Chosen(np.stack(rows), True)
    return Chosen(systematic(w.ravel(), chains * per_chain).reshape(chains, per_chain), True)


def equal_weights(weights: Float[np.ndarray, "chain draw"]) -> Bool[np.ndarray, "chain draw"]:
    """Return a mask of weights that equal the largest weight up to rounding."""
    return weights >= (1 - MAX_WEIGHT_ROUNDING) * weights.max()
