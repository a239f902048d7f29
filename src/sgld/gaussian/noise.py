"""The covariance of a gradient estimate, measured."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.order import generator
from ..device import sent
from ..problem import sums
from ..problem.problem import Problem
from ..problem.rows import row_gradient, scores
from ..stages import stage
from .dense import Laplace

__all__ = [
    "TUNING",
    "block_noise",
    "estimates",
    "estimator_noise",
    "marginal_noise",
    "noise_around",
    "row_noise",
]

GROUP = 512  # gradients taken together
ROWS_EACH = 256  # rows at each of several positions
TUNING = 2  # the stream of the host's generator that tuning uses


@stage("rows")
def block_noise(problem: Problem, z: np.ndarray) -> Float[np.ndarray, "d d"]:
    """Covariance at z of K times a random block's gradient (divisor K): one pass."""
    table = np.asarray(sums.block_gradients(problem, problem.array(z)))
    return np.cov(
        problem.source.num_blocks * table.astype(np.float64), rowvar=False, bias=True
    ).reshape(z.size, z.size)


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


@stage("rows")
def row_noise(
    problem: Problem, laplace: Laplace, seed: int, count: int = 4096
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"], Float[np.ndarray, "count d"]]:
    """Covariance of N times one random row's gradient: (plain, with control variates at the mode).

    And the rows' N times gradients at the mode themselves.

    Plain at the mode, centred at Laplace draws, over `count` rows. Divided by n it is the
    covariance of a batch of n rows.
    """
    at_mode, difference = _of_rows(problem, laplace, seed, count)
    d = laplace.center.size
    plain = np.cov(at_mode, rowvar=False).reshape(d, d)
    return plain, difference.T @ difference / (2 * count), at_mode


@stage("rows")
def marginal_noise(problem: Problem, laplace: Any, seed: int) -> tuple[float, float, float]:
    """The same two as variances of gamma over those of phi, in the noisiest reported parameter.

    And the curvature of N times one row in the Gaussian's coordinates (root mean square over rows,
    Frobenius norm): steps on n rows are unstable from about h = 2 n over it.
    """
    count = max(64, min(4096, 2**23 // laplace.center.size))
    at_mode, difference = _of_rows(problem, laplace, seed, count)
    of = laplace.marginals(problem)
    plain, centred = (
        np.var(of.gamma(at_mode), axis=0),
        np.mean(of.gamma(difference) ** 2, axis=0) / 2,
    )
    curved = np.sqrt(np.mean(np.sum(laplace.pull(difference) ** 2, axis=1)) / 2)
    return float(np.max(plain / of.variance)), float(np.max(centred / of.variance)), float(curved)


@stage("rows")
def noise_around(
    problem: Problem,
    zs: Float[np.ndarray, "k d"],
    factor: Float[np.ndarray, "d d"],
    seed: int,
) -> float:
    """Variance of N times a random row's gradient around some positions, in the worst direction."""
    rng = generator(seed, TUNING, 8)
    rows = rng.integers(0, problem.source.num_data, (len(zs), ROWS_EACH))
    centred = []
    for z, few in zip(zs, rows, strict=True):
        found = scores(problem, problem.array(z), sent(few, np.int32))
        g = problem.source.num_data * np.asarray(found, np.float64) @ factor
        centred.append(g - g.mean(0))
    white = np.concatenate(centred)
    return float(np.linalg.eigvalsh(white.T @ white)[-1]) / (len(zs) * (ROWS_EACH - 1))


def _of_rows(problem, laplace, seed, count) -> tuple[np.ndarray, np.ndarray]:
    """N times the gradients of `count` rows at the mode, and differences of two centred ones."""
    rng = generator(seed, TUNING, 1)
    zs, rows = laplace.draw(rng, count), rng.integers(0, problem.source.num_data, count)
    array = problem.array
    at_mode, first, second = (
        problem.source.num_data * np.asarray(values, np.float64)
        for values in _row_gradients(
            problem, array(zs), array(laplace.center), sent(rows, np.int32)
        )
    )
    # rows are paired at the same draw of theta: their mean depends on theta
    return at_mode, (first - at_mode) - (second - np.roll(at_mode, 1, axis=0))


@jax.jit
def _row_gradients(problem, zs, mode, rows):
    gradient = partial(row_gradient, problem)
    one = lambda item: (  # noqa: E731
        gradient(mode, item[1]), gradient(item[0], item[1]), gradient(item[0], item[2])
    )  # fmt: skip
    size = max(1, 2**20 // max(1, mode.size))
    return jax.lax.map(one, (zs, rows, jnp.roll(rows, 1)), batch_size=size)
