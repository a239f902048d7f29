"""The covariance of a gradient estimate, measured."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..data.order import generator
from ..device import sent
from ..problem import sums
from ..problem.problem import Problem
from ..stages import stage
from .dense import Laplace

__all__ = [
    "TUNING",
    "block_noise",
    "estimates",
    "estimator_noise",
]

GROUP = 512  # gradients taken together
NUMBERS = 2**22  # of blocks' gradients that are taken to float64 together
TUNING = 2  # the stream of the host's generator that tuning uses


@stage("rows")
def block_noise(problem: Problem, z: np.ndarray) -> Float[np.ndarray, "d d"]:
    """Covariance at z of K times a random block's gradient (divisor K): one pass."""
    table, K = np.asarray(sums.block_gradients(problem, problem.array(z))), problem.num_blocks
    mean, size = np.mean(table, 0, dtype=np.float64), max(1, NUMBERS // z.size)
    found = np.zeros((z.size, z.size))
    for k in range(0, K, size):
        apart = table[k : k + size] - mean
        found += apart.T @ apart
    return K * found


@stage("rows")
def estimator_noise(
    problem: Problem, gradient: Any, laplace: Laplace, seed: int, count: int
) -> Float[np.ndarray, "d d"]:
    """Covariance of an estimator given z, averaged over Laplace draws.

    Half the mean square of the differences of two independent batches at `count` draws.
    """
    rng = generator(seed, TUNING, 0)
    zs = laplace.draw(rng, count)
    if not problem.source.is_independent:
        problem = problem.with_batches(problem.source.batch_size, "independent")
    entries = problem.source.chunk((seed, 2**31 - 1), 0, 2 * count)
    gs = estimates(problem, gradient, np.repeat(zs, 2, axis=0), entries)
    pairs = gs.reshape(count, 2, -1)
    difference = pairs[:, 0] - pairs[:, 1]
    return difference.T @ difference / (2 * count)


def estimates(
    problem: Problem, gradient: Any, zs: Float[np.ndarray, "m d"], entries: np.ndarray
) -> Float[np.ndarray, "m d"]:
    """An estimator's gradients at positions zs, each on its own entry of the data order.

    On the host in float64; in groups of one size, so that any m runs the same compiled function.
    """
    short = -len(zs) % GROUP
    zs, entries = (np.concatenate([x, np.repeat(x[-1:], short, axis=0)]) for x in (zs, entries))
    parts = [
        np.asarray(
            _estimates(
                problem, gradient, problem.array(zs[k : k + GROUP]),
                sent(entries[k : k + GROUP]),
            ),
            np.float64,
        )
        for k in range(0, len(zs), GROUP)
    ]  # fmt: skip
    return np.concatenate(parts)[: len(zs) - short]


@jax.jit
def _estimates(problem, gradient, zs, entries):
    one = lambda pair: gradient.at(problem, pair[1])(pair[0])  # noqa: E731
    size = max(1, 2**14 // problem.source.batch_size)
    return jax.lax.map(one, (zs, entries), batch_size=size)
