"""A preconditioner as a matrix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..model.problem import Problem
from ..samplers.gradients.full import Full, Minibatch

__all__ = ["factor_of", "settled"]

LEARNING = 100  # gradients after which an adaptive preconditioner has settled


def factor_of(D: Any, problem: Problem) -> Float[np.ndarray, "d d"]:
    """P with D = P P^T, in float64."""
    eye = jnp.eye(problem.dimension, dtype=problem.layout.dtype)
    return np.asarray(jax.vmap(D.noise, in_axes=1, out_axes=1)(eye), np.float64)


def settled(D: Any, problem: Problem, z: Any) -> Any:
    """The matrix itself; of an adaptive preconditioner, what it will be near z."""
    return _learnt(D, problem, problem.array(z)) if D.adapts else D


@jax.jit
def _learnt(D: Any, problem: Problem, z: Any) -> Any:
    """What an adaptive preconditioner would be after some gradients at z."""
    estimator: Any = Minibatch() if problem.has_rows else Full()
    count = max(1, problem.num_data)
    blocks = problem.num_blocks

    def learn(memory, k):
        g = estimator.at(problem, k % blocks)(z)
        return D.after(memory, g / count), None

    return D.at(jax.lax.scan(learn, D.start(z), jnp.arange(LEARNING, dtype=jnp.int32))[0])
