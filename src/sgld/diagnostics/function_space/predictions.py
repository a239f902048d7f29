"""Predictions of a posterior at some rows, as a function of the position.

Weights of a network have many equivalent positions, and single weights rarely mix. Predictions mix.
For classes the module uses log probabilities, otherwise the result of `predict`, and if neither is
available the log likelihood of each row.

The module also finds which leaf of a datum is its label. The label is the integer y for which

    log p(datum with y = k | theta) = log softmax(predict(theta, datum))[k]      k = 0, 1, ..., K - 1

at two positions near the start: if all weights are 0, every class has one probability. A label
beyond the classes of a network is an error, because JAX's indexing would use another class. A
negative y with log likelihood 0 means that the row has no label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...core.devices import sent
from ...core.pytrees import as_pytree, leaf_names
from ...core.user_code import user_errors
from ...errors import DataError, UsageError
from ...model.modules import ModuleOutputs
from ...model.problem import Problem, Target
from ...model.sums import each_row

# -- classes -------------------------------------------------------------------------------


PyTree = Any
MAX_TRIED_CLASSES = 8  # of the classes, the first and the last among them
LOGIT_ERROR = 1e-3  # of log probabilities
START_DISTURBANCE = 0.1  # from where the weights begin


class Said(NamedTuple):
    """Log likelihoods of the first row for every class of a label leaf, with log probabilities and outputs."""

    name: str
    place: int
    found: Float[np.ndarray, "2 m"]
    log_p: Float[np.ndarray, "2 m"]
    outputs: Float[np.ndarray, "2 m"]

    @property
    def is_label(self) -> bool:
        """Return whether the two agree."""
        return self._are(self.log_p)

    @property
    def mistake(self) -> str | None:
        """Return what is wrong with the log likelihood of classes, with the remedy, or None."""
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
        return bool(
            np.ptp(self.log_p, axis=1).min() > 100 * LOGIT_ERROR and apart.max() < LOGIT_ERROR
        )


def said_of(predictions: Predictions, target: Target, z: Array) -> Iterator[Said]:
    """Evaluate every integer leaf of a datum as a label, if a row's prediction has two or more numbers."""
    count = jax.eval_shape(predictions.at, target, z).shape[1]
    if count < 2:
        return
    datum = jax.eval_shape(_first, predictions.rows)
    classes = np.unique(
        np.linspace(0, count - 1, min(count, MAX_TRIED_CLASSES)).round().astype(int)
    )
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
    """Return a position near the start."""
    return target.position(
        z + START_DISTURBANCE * jax.random.normal(jax.random.key(seed), z.shape, z.dtype)
    )


def of_labels(
    predictions: Predictions, target: Target, position: PyTree, place: int, k: Int[Array, " m"]
) -> Float[Array, " m"]:
    """Return the log likelihoods of the first row with each of these labels."""
    likelihood = target.posterior.log_likelihood
    assert likelihood is not None
    leaves, treedef = jax.tree.flatten(_first(predictions.rows))

    def at(k: Array) -> Array:
        own = [*leaves[:place], k.astype(leaves[place].dtype), *leaves[place + 1 :]]
        return likelihood(position, treedef.unflatten(own))

    return jax.vmap(at)(k)


# -- predictions ---------------------------------------------------------------------------


Kind = Literal["classes", "means", "log likelihoods"]
CLASSES: Kind = "classes"
MEANS: Kind = "means"
LIKELIHOODS: Kind = "log likelihoods"
MAX_PROBE_ROWS, MIN_PROBE_ROWS = 64, 8
MAX_PROBE_NUMBERS = 2**12  # of all rows together
LOGIT_SHIFT = 3.0  # added to all that a network returns: log odds do not change


@as_pytree
@dataclass(frozen=True)
class Predictions:
    """Predictions at probe rows.

    Attributes:
      rows: leaves [m, ...].
      predict: (position, datum) -> pytree; None where the log likelihood stands for it.
      kind: what the numbers are.
    """

    rows: PyTree
    predict: Any
    kind: Kind = field(metadata={"static": True})

    def at(self, target: Target, z: Float[Array, " d"]) -> Float[Array, "m k"]:
        """Evaluate at a free position: log probabilities of k classes, k means, or one log likelihood a row."""
        return self.of_position(target, target.position(z))

    def of_position(self, target: Target, position: PyTree) -> Float[Array, "m k"]:
        """Evaluate at a position in the user's form."""
        found = jax.vmap(lambda row: self._one(target, position, row))(self.rows)
        return jax.nn.log_softmax(found) if self.kind == CLASSES else found

    def _one(self, target: Target, position: PyTree, row: PyTree) -> Float[Array, " k"]:
        if self.predict is not None:
            leaves = jax.tree.leaves(self.predict(position, row))
            dtype = target.layout.dtype
            return jnp.concatenate([jnp.ravel(jnp.asarray(leaf, dtype)) for leaf in leaves])
        likelihood = target.posterior.log_likelihood
        assert likelihood is not None
        return jnp.reshape(likelihood(position, row), (1,))


def predictions_of(problem: Problem) -> Predictions:
    """Return the predictions at random rows of the problem, or at the rows that the posterior names.

    Raises UsageError if those rows are too many. Errors of a user-supplied `predict` are raised; if a log
    likelihood has no recognisable outputs, the log likelihood of each row is used.
    """
    predict, target = problem.posterior.predict, problem.target
    given, count = problem.posterior.predict_at, min(MAX_PROBE_ROWS, problem.num_data)
    if given is None:
        rows = problem.source.take(sent(np.arange(count), np.int32))
    else:
        rows, count = jax.tree.map(jnp.asarray, given), len(jax.tree.leaves(given)[0])
    whole = Predictions(rows, predict, MEANS)
    if isinstance(predict, ModuleOutputs):
        try:
            width = jax.eval_shape(whole.at, target, problem.start).shape[1]
        except Exception:  # whatever the user's function does with what it is given
            return Predictions(rows, None, LIKELIHOODS)
    elif predict is None:
        return Predictions(rows, None, LIKELIHOODS)
    else:
        width = _checked_width(target, predict, rows, problem.start)
    fewer = max(MIN_PROBE_ROWS, MAX_PROBE_NUMBERS // max(1, width))
    if given is not None and width * count > MAX_PROBE_NUMBERS:
        raise UsageError(
            f"predict_at has {count:,} rows of {width:,} numbers each; every draw keeps them, so give "
            f"{max(1, MAX_PROBE_NUMBERS // width):,} rows at most."
        )
    if given is None and fewer < count:
        rows = jax.tree.map(lambda leaf: leaf[:fewer], rows)
    one_vector = width > 1 and _is_one_vector(target, predict, rows, problem.start)
    kind = CLASSES if one_vector and _are_classes(target, predict, rows, problem.start) else MEANS
    return Predictions(rows, predict, kind)


def _checked_width(target: Target, predict: Any, rows: PyTree, z: Any) -> int:
    """Return how many numbers a user-supplied `predict` returns for a row; UsageError for none, or no real ones."""
    row = jax.tree.map(lambda leaf: leaf[0], rows)
    with user_errors("predict"):
        found = jax.tree.leaves(jax.eval_shape(lambda z: predict(target.position(z), row), z))
    odd = [leaf.dtype for leaf in found if not jnp.issubdtype(leaf.dtype, jnp.floating)]
    width = sum(math.prod(leaf.shape) for leaf in found)
    if odd or not width:
        got = str(odd[0]) if odd else f"shapes {[leaf.shape for leaf in found]}, no number at all"
        raise UsageError(
            "predict must return floating-point numbers for one datum: the mean, say, or the log probability of every "
            f"class, not the class. Got {got}."
        )
    return width


def _is_one_vector(target: Target, predict: Any, rows: PyTree, z: Any) -> bool:
    """Return whether a row's prediction is one array with one axis, like the logits of one choice."""
    row = jax.tree.map(lambda leaf: leaf[0], rows)
    found = jax.tree.leaves(jax.eval_shape(lambda z: predict(target.position(z), row), z))
    return len(found) == 1 and len(found[0].shape) == 1


def _are_classes(target: Target, predict: Any, rows: PyTree, z: Any) -> bool:
    """Return whether predictions are log probabilities, up to a constant of a log likelihood."""
    if not isinstance(predict, ModuleOutputs):
        given = Predictions(rows, predict, MEANS)
        sure = np.all(np.abs(np.asarray(_log_sums(given, target, z))) < 1e-3)
        return bool(sure) or any(said.is_label for said in said_of(given, target, z))
    try:
        one, other = (
            np.asarray(_likelihoods(target, predict, rows, z, c)) for c in (0.0, LOGIT_SHIFT)
        )
    except Exception:  # as above: of a network that returns no numbers to add to
        return False
    return bool(np.allclose(one, other, rtol=1e-4, atol=1e-4))


@jax.jit
def _log_sums(predictions: Predictions, target: Target, z: Array) -> Float[Array, " m"]:
    return jax.nn.logsumexp(predictions.at(target, z), axis=1)


@jax.jit
def _likelihoods(
    target: Target, predict: ModuleOutputs, rows: PyTree, z: Array, shift: Any
) -> Float[Array, " m"]:
    position = target.position(z)
    shift = jnp.asarray(shift, target.layout.dtype)
    return jax.vmap(lambda row: predict.shifted(position, row, shift))(rows)


# -- labels --------------------------------------------------------------------------------


def check_labels(problem: Problem, seed: int) -> None:
    """Raise DataError for a row whose label the network does not have; `seed` has shuffled the rows.

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
    """One leaf of a datum."""

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
