"""Labels beyond the classes of a network, which JAX's indexing answers with another class.

A negative y for which the log likelihood is 0 says that there is no label, and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ..core.pytrees import as_pytree
from ..errors import DataError, UsageError
from ..model.problem import Problem
from ..model.sums import each_row
from .classes import moved, of_labels, said_of
from .predictions import Predictions, predictions_of

__all__ = ["check_labels"]

PyTree = Any


def check_labels(problem: Problem, seed: int) -> None:
    """DataError for a row whose label is no class that the network has; `seed` has shuffled the rows.

    UsageError where the log likelihood is something of its class, and not its log probability.
    """
    predictions = predictions_of(problem)
    if predictions.predict is None:
        return
    count = jax.eval_shape(predictions.at, problem.target, problem.start).shape[1]
    for said in said_of(predictions, problem.target, problem.start):
        if said.is_label:
            silent = partial(_says_nothing, predictions, problem, said.place)
            _within(problem, seed, _Leaf(said.place), said.name, count, silent)
        elif said.mistake is not None:
            raise UsageError(said.mistake)


def _says_nothing(predictions: Predictions, problem: Problem, place: int, label: int) -> bool:
    target = problem.target
    position = moved(target, problem.start)
    return float(of_labels(predictions, target, position, place, jnp.array([label]))[0]) == 0


@as_pytree
@dataclass(frozen=True)
class _Leaf:
    """One of a datum's."""

    place: int = field(metadata={"static": True})


def _looked_at(problem: Problem, leaf: _Leaf, rows: PyTree) -> Int[Array, " n"]:
    return jax.tree.leaves(rows)[leaf.place]


def _within(
    problem: Problem, seed: int, leaf: _Leaf, name: str, count: int, silent: Callable[[int], bool]
) -> None:
    silent = lru_cache(silent)
    for numbers, found in each_row(_looked_at, problem, leaf, 1):
        bad = (found < 0) | (found >= count)
        bad[bad] = [y >= 0 or not silent(y) for y in found[bad].tolist()]
        if bad.any():
            rows = problem.source.original_rows(numbers[bad], seed)
            first = int(np.argmin(rows))
            raise DataError(
                f"labels must lie between 0 and {count - 1}, the classes that the network has outputs for. Got "
                f"{found[bad][first]} in row {rows[first]} of {name!r}."
            )
