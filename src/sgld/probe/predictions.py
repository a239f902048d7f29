"""What a posterior says of some rows, as a function of the position.

Weights of a network have many equivalent places, and single ones hardly ever mix; what the network
says of rows does. Of classes the log probabilities are looked at, of anything else what `predict`
returns; where it cannot be had, the log likelihood of each row stands for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.devices import sent
from ..core.pytrees import as_pytree
from ..core.user_code import of_the_user
from ..errors import UsageError
from ..model.modules import Overheard
from ..model.problem import Problem, Target
from .classes import said_of

__all__ = ["CLASSES", "LIKELIHOODS", "MEANS", "PROBE_ROWS", "Kind", "Predictions", "predictions_of"]

PyTree = Any
Kind = Literal["classes", "means", "log likelihoods"]
CLASSES: Kind = "classes"
MEANS: Kind = "means"
LIKELIHOODS: Kind = "log likelihoods"
PROBE_ROWS, FEWEST_ROWS = 64, 8
MOST_NUMBERS = 2**12  # of all rows together
SHIFT = 3.0  # added to all that a network returns: log odds do not change


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
        """At a free position: log probabilities of k classes, k means, or one log likelihood a row."""
        return self.of_position(target, target.position(z))

    def of_position(self, target: Target, position: PyTree) -> Float[Array, "m k"]:
        """The same at a position as the user sees it."""
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
    """At rows of the problem's own, whose order is random, or at those that the posterior names.

    UsageError where those are too many. UsageError and the like of a function `predict` of the user's are raised; what is overheard from
    a log likelihood, and cannot be, is done without.
    """
    predict, target = problem.posterior.predict, problem.target
    given, count = problem.posterior.predict_at, min(PROBE_ROWS, problem.num_data)
    if given is None:
        rows = problem.source.take(sent(np.arange(count), np.int32))
    else:
        rows, count = jax.tree.map(jnp.asarray, given), len(jax.tree.leaves(given)[0])
    whole = Predictions(rows, predict, MEANS)
    if isinstance(predict, Overheard):
        try:
            width = jax.eval_shape(whole.at, target, problem.start).shape[1]
        except Exception:  # whatever the user's function does with what it is given
            return Predictions(rows, None, LIKELIHOODS)
    elif predict is None:
        return Predictions(rows, None, LIKELIHOODS)
    else:
        width = _checked_width(target, predict, rows, problem.start)
    fewer = max(FEWEST_ROWS, MOST_NUMBERS // max(1, width))
    if given is not None and width * count > MOST_NUMBERS:
        raise UsageError(
            f"predict_at has {count:,} rows of {width:,} numbers each; every draw keeps them, so give "
            f"{max(1, MOST_NUMBERS // width):,} rows at most."
        )
    if given is None and fewer < count:
        rows = jax.tree.map(lambda leaf: leaf[:fewer], rows)
    one_vector = width > 1 and _is_one_vector(target, predict, rows, problem.start)
    kind = CLASSES if one_vector and _are_classes(target, predict, rows, problem.start) else MEANS
    return Predictions(rows, predict, kind)


def _checked_width(target: Target, predict: Any, rows: PyTree, z: Any) -> int:
    """How many numbers the user's `predict` returns for a row; UsageError where that is none, or no real ones."""
    row = jax.tree.map(lambda leaf: leaf[0], rows)
    with of_the_user("predict"):
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
    """Whether a row's prediction is one array of one axis, as the logits of one choice are."""
    row = jax.tree.map(lambda leaf: leaf[0], rows)
    found = jax.tree.leaves(jax.eval_shape(lambda z: predict(target.position(z), row), z))
    return len(found) == 1 and len(found[0].shape) == 1


def _are_classes(target: Target, predict: Any, rows: PyTree, z: Any) -> bool:
    """Whether predictions are log probabilities, or a log likelihood knows them up to a constant."""
    if not isinstance(predict, Overheard):
        given = Predictions(rows, predict, MEANS)
        sure = np.all(np.abs(np.asarray(_log_sums(given, target, z))) < 1e-3)
        return bool(sure) or any(said.is_label for said in said_of(given, target, z))
    try:
        one, other = (np.asarray(_likelihoods(target, predict, rows, z, c)) for c in (0.0, SHIFT))
    except Exception:  # as above: of a network that returns no numbers to add to
        return False
    return bool(np.allclose(one, other, rtol=1e-4, atol=1e-4))


@jax.jit
def _log_sums(predictions: Predictions, target: Target, z: Array) -> Float[Array, " m"]:
    return jax.nn.logsumexp(predictions.at(target, z), axis=1)


@jax.jit
def _likelihoods(
    target: Target, predict: Overheard, rows: PyTree, z: Array, shift: Any
) -> Float[Array, " m"]:
    position = target.position(z)
    shift = jnp.asarray(shift, target.layout.dtype)
    return jax.vmap(lambda row: predict.shifted(position, row, shift))(rows)
