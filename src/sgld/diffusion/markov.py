"""Finite Markov chains: stationary vector, evolution, paths."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike
from scipy.sparse import csgraph

from ..errors import UsageError
from .checks import positive

__all__ = ["markov_evolve", "markov_path", "stationary_distribution"]


def stationary_distribution(A: ArrayLike, *, periodic: bool = False) -> Float[np.ndarray, " n"]:
    """The stationary distribution pi of a finite Markov chain, pi = A^T pi, summing to 1.

    A_ij is the probability of i -> j, so that A^T moves a distribution one step (Calvin's A^t x
    needs the transpose). One recurrent class makes pi unique; an aperiodic one makes (A^T)^t x
    converge to it; a periodic one has time averages that do. Solved by elimination without
    subtractions (Grassmann, Taksar & Heyman 1985): every entry is accurate.

    Args:
      A: [n, n], rows summing to 1.
      periodic: also accept a periodic chain, whose time averages (only) converge to pi.

    Raises UsageError where A is not a transition matrix, has several recurrent classes (no unique
    pi), or is periodic though `periodic` is False.

    Example:
      >>> from sgld.diffusion import stationary_distribution
      >>> [round(float(p), 6) for p in stationary_distribution([[0.9, 0.1], [0.3, 0.7]])]
      [0.75, 0.25]
    """
    A = _transition_matrix(A)
    _, label = csgraph.connected_components(A > 0, connection="strong")
    leaving = {int(label[i]) for i, j in np.argwhere(A > 0) if label[i] != label[j]}
    recurrent = sorted(set(label.tolist()) - leaving)
    if len(recurrent) > 1:
        first = sorted(int(np.flatnonzero(label == c)[0]) for c in recurrent)
        raise UsageError(
            f"A has {len(recurrent)} recurrent classes (states {first[0]} and {first[1]} never "
            "reach each other), so its stationary distribution is not unique; choose one class."
        )
    states = np.flatnonzero(label == recurrent[0])
    P = A[np.ix_(states, states)]
    level = csgraph.dijkstra(P > 0, unweighted=True, indices=0).astype(int)
    i, j = np.nonzero(P > 0)
    period = int(np.gcd.reduce(level[i] + 1 - level[j]))
    if period > 1 and not periodic:
        raise UsageError(
            f"A is periodic with period {period}, so (A^T)^t x has no limit; pass periodic=True "
            "for the distribution that its time averages converge to."
        )
    for k in range(len(P) - 1, 0, -1):  # censor state k: later ones are already gone
        P[:k, k] /= P[k, :k].sum()
        P[:k, :k] += np.outer(P[:k, k], P[k, :k])
    weight = np.ones(len(P))
    for k in range(1, len(P)):
        weight[k] = weight[:k] @ P[:k, k]
    pi = np.zeros(len(A))
    pi[states] = weight / weight.sum()
    return pi


def markov_evolve(A: ArrayLike, x: ArrayLike, t: int) -> Float[np.ndarray, "*batch n"]:
    """The distribution (A^T)^t x of a chain t steps after x [n] (or a batch of them in rows).

    Raises UsageError where A is not a transition matrix.

    Example:
      >>> from sgld.diffusion import markov_evolve
      >>> [round(float(p), 6) for p in markov_evolve([[0.5, 0.5], [0.0, 1.0]], [1.0, 0.0], 3)]
      [0.125, 0.875]
    """
    return np.asarray(x, float) @ np.linalg.matrix_power(_transition_matrix(A), t)


def markov_path(
    A: ArrayLike, state: int, *, num_steps: int, key: Array
) -> Int[Array, " {num_steps}+1"]:
    """A simulated path of states from `state`; its time averages are the chain's ergodic averages.

    Raises UsageError where A is not a transition matrix, or `num_steps` is not positive.

    Example:
      >>> import jax
      >>> from sgld.diffusion import markov_path
      >>> markov_path([[0.0, 1.0], [1.0, 0.0]], 0, num_steps=3, key=jax.random.key(0)).tolist()
      [0, 1, 0, 1]
    """
    positive(num_steps=num_steps)
    cumulative = jnp.asarray(np.cumsum(_transition_matrix(A), axis=1)[:, :-1], float)

    def one_step(i: Array, u: Array) -> tuple[Array, Array]:
        i = jnp.sum(u >= cumulative[i], dtype=jnp.int32)
        return i, i

    uniforms = jax.random.uniform(key, (num_steps,), cumulative.dtype)
    path = jax.lax.scan(one_step, jnp.int32(state), uniforms)[1]
    return jnp.concatenate([jnp.array([state], jnp.int32), path])


def _transition_matrix(A: ArrayLike) -> np.ndarray:
    """A in float64 with rows summing to 1 exactly, or UsageError."""
    A = np.array(A, float)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or not A.size:
        raise UsageError(f"A must be a square matrix of probabilities. Got shape {A.shape}.")
    if not (A >= 0).all():
        i, j = np.argwhere(~(A >= 0))[0]
        raise UsageError(f"A must hold probabilities. Got {A[i, j]:g} at [{i}, {j}].")
    sums = A.sum(axis=1)
    if not np.allclose(sums, 1, atol=1e-5):
        row = int(np.argmax(np.abs(sums - 1)))
        turn = "; the columns do: transpose A" if np.allclose(A.sum(axis=0), 1, atol=1e-5) else ""
        raise UsageError(
            f"A's rows must sum to 1 (A_ij is i -> j). Row {row} sums to {sums[row]:g}{turn}."
        )
    return A / sums[:, None]
