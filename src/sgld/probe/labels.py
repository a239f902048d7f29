"""Labels beyond the classes of a network, which JAX's indexing answers with another class.

Nobody says which part of a datum is its label. It is the whole number y for which

    log p(datum with y = k | theta) = log softmax(predict(theta, datum))[k]      k = 0, 1, ..., K - 1.

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
from jaxtyping import Array, Float, Int

from ..errors import DataError
from ..layout import leaf_names
from ..problem.problem import Problem
from ..problem.rows import each_row
from ..problem.target import Target
from ..pytree import as_pytree
from .predictions import Predictions, predictions_of

__all__ = ["check_labels"]

PyTree = Any
TRIED = 8  # of the classes, the first and the last among them
SAME = 1e-3  # of log probabilities
MOVED = 0.1  # from where the weights begin


def check_labels(problem: Problem, seed: int) -> None:
    """DataError for a row whose label is no class that the network has; `seed` has shuffled the rows."""
    predictions = predictions_of(problem)
    if predictions.predict is None:
        return
    count = jax.eval_shape(predictions.at, problem.target, problem.start).shape[1]
    if count < 2:
        return
    datum = jax.eval_shape(_first, predictions.rows)
    for place, (name, leaf) in enumerate(
        zip(leaf_names(datum), jax.tree.leaves(datum), strict=True)
    ):
        if leaf.ndim or not jnp.issubdtype(leaf.dtype, jnp.integer):
            continue
        classes = np.unique(np.linspace(0, count - 1, min(count, TRIED)).round().astype(int))
        apart = _apart(predictions, problem.target, problem.start, place, tuple(classes.tolist()))
        if float(apart) < SAME:
            silent = partial(_says_nothing, predictions, problem, place)
            _within(problem, seed, _Leaf(place), name, count, silent)


def _first(rows: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], rows)


@partial(jax.jit, static_argnames=("place", "classes"))
def _apart(
    predictions: Predictions, target: Target, z: Array, place: int, classes: tuple[int, ...]
) -> Array:
    """What log likelihoods of the first row differ by from log probabilities, the leaf at `place` being its class."""
    position, k = _moved(target, z), jnp.array(classes)
    logp = jax.nn.log_softmax(predictions.of_position(target, position)[0])
    found = _labelled(predictions, target, position, place, k)
    apart = jnp.max(jnp.abs(found - logp[k]) / (1 + jnp.abs(logp[k])))
    return jnp.where(jnp.ptp(logp[k]) > 100 * SAME, apart, jnp.inf)


def _moved(target: Target, z: Array) -> PyTree:
    """A position near the start: of weights that are all 0 every class has one probability."""
    return target.position(z + MOVED * jax.random.normal(jax.random.key(0), z.shape, z.dtype))


def _labelled(
    predictions: Predictions, target: Target, position: PyTree, place: int, k: Int[Array, " m"]
) -> Float[Array, " m"]:
    """Log likelihoods of the first row with each of these labels."""
    likelihood = target.posterior.log_likelihood
    assert likelihood is not None
    leaves, treedef = jax.tree.flatten(_first(predictions.rows))

    def at(k: Array) -> Array:
        own = [*leaves[:place], k.astype(leaves[place].dtype), *leaves[place + 1 :]]
        return likelihood(position, treedef.unflatten(own))

    return jax.vmap(at)(k)


def _says_nothing(predictions: Predictions, problem: Problem, place: int, label: int) -> bool:
    target = problem.target
    position = _moved(target, problem.start)
    return float(_labelled(predictions, target, position, place, jnp.array([label]))[0]) == 0


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
