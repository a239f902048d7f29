"""Which part of a datum is its label, and what a log likelihood says of classes.

Nobody says which it is. It is the whole number y for which

    log p(datum with y = k | theta) = log softmax(predict(theta, datum))[k]      k = 0, 1, ..., K - 1

at two positions near the start: of weights that are all 0 every class has one probability.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.pytrees import leaf_names
from ..model.problem import Target

if TYPE_CHECKING:
    from .predictions import Predictions

__all__ = ["Said", "moved", "of_labels", "said_of"]

PyTree = Any
TRIED = 8  # of the classes, the first and the last among them
SAME = 1e-3  # of log probabilities
MOVED = 0.1  # from where the weights begin


class Said(NamedTuple):
    """Log likelihoods of the first row, its leaf of this name being each class, beside log probabilities, and outputs."""

    name: str
    place: int
    found: Float[np.ndarray, "2 m"]
    log_p: Float[np.ndarray, "2 m"]
    outputs: Float[np.ndarray, "2 m"]

    @property
    def is_label(self) -> bool:
        """Whether they are the same."""
        return self._are(self.log_p)

    @property
    def mistake(self) -> str | None:
        """What a log likelihood of classes was written as, where it is none; the remedy."""
        said = f"log_likelihood is, of the label {self.name!r},"
        right = "return jax.nn.log_softmax(outputs)[label]."
        if self._are(-self.log_p):
            return f"{said} minus the log probability of its class: a loss has the opposite sign; {right}"
        if self._are(np.exp(self.log_p)):
            return f"{said} the probability of its class and not its logarithm; {right}"
        if not self.is_label and self._are(self.outputs):
            return f"{said} the network's output itself, and probabilities of all classes do not sum to 1; {right}"
        return None

    def _are(self, wanted: np.ndarray) -> bool:
        apart = np.abs(self.found - wanted) / (1 + np.abs(wanted))
        return bool(np.ptp(self.log_p, axis=1).min() > 100 * SAME and apart.max() < SAME)


def said_of(predictions: Predictions, target: Target, z: Array) -> Iterator[Said]:
    """Of every whole number of a datum, where a row's prediction has two numbers or more."""
    count = jax.eval_shape(predictions.at, target, z).shape[1]
    if count < 2:
        return
    datum = jax.eval_shape(_first, predictions.rows)
    classes = np.unique(np.linspace(0, count - 1, min(count, TRIED)).round().astype(int))
    named = zip(leaf_names(datum), jax.tree.leaves(datum), strict=True)
    for place, (name, leaf) in enumerate(named):
        if not leaf.ndim and jnp.issubdtype(leaf.dtype, jnp.integer):
            both = _both(predictions, target, z, place, tuple(classes.tolist()))
            yield Said(name, place, *np.asarray(both, np.float64))


def _first(rows: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], rows)


@partial(jax.jit, static_argnames=("place", "classes"))
def _both(
    predictions: Predictions, target: Target, z: Array, place: int, classes: tuple[int, ...]
) -> Float[Array, "3 2 m"]:
    k, both = jnp.array(classes), []
    for seed in (0, 1):
        position = moved(target, z, seed)
        outputs = predictions.of_position(target, position)[0]
        found = of_labels(predictions, target, position, place, k)
        both.append([found, jax.nn.log_softmax(outputs)[k], outputs[k]])
    return jnp.moveaxis(jnp.array(both), 0, 1)


def moved(target: Target, z: Array, seed: int = 0) -> PyTree:
    """A position near the start."""
    return target.position(z + MOVED * jax.random.normal(jax.random.key(seed), z.shape, z.dtype))


def of_labels(
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
