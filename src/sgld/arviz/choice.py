"""The classes that a network chooses among, where its log likelihood is that of one choice.

    log p(y_i | theta, x_i) = log softmax(predict(theta, x_i))[y_i]

Nobody says which part of a row is y. It is the class whose log probability the row's log likelihood is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .rows import Rows

__all__ = ["MOST_LEVELS", "Choice"]

PyTree = Any
MOST_LEVELS = 12  # of an outcome whose probabilities are looked at one by one
SAME = 1e-3  # of a log likelihood, and of log probabilities
AT_ONCE = 4096  # rows that a network is called with


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
        """None where what is predicted at `position` is no log probability of a few classes, or not of these rows."""
        numbers = np.arange(rows.count)
        one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], position)
        try:
            width = _log_p(predict, one, rows.take(numbers[:1])).shape[2]
            if not 2 <= width <= MOST_LEVELS:
                return None
            logp = _of_rows(predict, rows, one, numbers)[0]
        except Exception:  # whatever a network returns that is no list of logits
            return None
        likelihood = rows.values(one, numbers)[:, 0]
        apart = np.abs(logp - likelihood[:, None])
        same = apart <= SAME * (1 + np.abs(likelihood[:, None]))
        if not same.any(axis=1).all():
            return None
        return cls(predict, rows, apart.argmin(axis=1))

    def levels(self, positions: PyTree, numbers: Any) -> Float[np.ndarray, "S n k"]:
        """Probabilities of the classes at positions [S, ...]."""
        return np.exp(_of_rows(self.predict, self.rows, positions, np.asarray(numbers)))

    def replicate(self, positions: PyTree, numbers: Any, seed: int) -> dict[str, np.ndarray]:
        """Classes drawn for rows, [S, n]."""
        p = self.levels(positions, numbers)
        u = np.random.default_rng([seed, 11]).random(p.shape[:2])
        made = (u[..., None] > np.cumsum(p, axis=-1)[..., :-1]).sum(axis=-1)
        return {"outcome": made}


def _of_rows(
    predict: Callable, rows: Rows, positions: PyTree, numbers: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "S n k"]:
    """Log probabilities, AT_ONCE rows at a time, by one compiled function."""
    size, found = min(AT_ONCE, len(numbers)), []
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
