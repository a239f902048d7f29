"""The covariance of a gradient estimate, measured."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..core.devices import sent
from ..core.progress import stage
from ..data.source import generator
from ..model import sums
from ..model.problem import Problem
from .dense import Laplace

__all__ = [
    "TUNING",
    "block_noise",
    "estimates",
    "estimator_noise",
]

GROUP = 512  # entries of the data order taken together
MANY, SHARED = 200, 16  # parameters from which so many draws share their two batches
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

    Half the mean square of the differences of two independent batches at `count` draws. With many
    parameters several draws share their two batches, whose rows are then multiplied by all of these at once
    (d = 1000: 2 s for 22); the noise of a batch is another one at each of them, so that hardly less is learnt.
    """
    rng = generator(seed, TUNING, 0)
    shared = SHARED if laplace.center.size >= MANY else 1
    count = -(-count // shared) * shared
    zs = laplace.draw(rng, count)
    if not problem.source.is_independent:
        problem = problem.with_batches(problem.source.batch_size, "independent")
    entries = problem.source.chunk((seed, 2**31 - 1), 0, 2 * count // shared)
    both = zs.reshape(-1, shared, zs.shape[1]).repeat(2, axis=0)
    gs = estimates(problem, gradient, both, entries)
    difference = (gs[::2] - gs[1::2]).reshape(count, -1)
    return difference.T @ difference / (2 * count)


def estimates(
    problem: Problem, gradient: Any, zs: Float[np.ndarray, "m r d"], entries: np.ndarray
) -> Float[np.ndarray, "m r d"]:
    """An estimator's gradients at positions zs, r of them on each entry of the data order.

    On the host in float64; in groups of one size, so that any m runs the same compiled function.
    """
    m = len(zs)
    short = -m % GROUP
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
    return np.concatenate(parts)[:m]


@jax.jit
def _estimates(problem, gradient, zs, entries):
    one = lambda pair: jax.vmap(gradient.at(problem, pair[1]))(pair[0])  # noqa: E731
    size = max(1, 2**14 // problem.source.batch_size)
    return jax.lax.map(one, (zs, entries), batch_size=size)
