"""Influential rows: rows without which a random sample misses a direction of the posterior.

The searches for other modes and for distant mass use a sample of many rows. A sample hardly ever includes
eight rows of 100,000 that carry all the information on a parameter. The prior alone then determines that
parameter, and the sample's posterior looks like a perfect Gaussian.

The rows' gradients show the directions that they inform. Their sizes do not: an outlier under a
heavy-tailed likelihood has a gradient near zero, and another mode may exist where such a row fits. With
F F^T the covariance, let

    v_i = F^T g_i / |F^T g_i|,   B = sum over a choice of rows of v_i v_i^T.

B counts the rows that point in each direction. Where they are few, with W these directions, every row is
selected with a probability proportional to its leverage among all rows,

    c u_i^T (sum_j u_j u_j^T)^{-1} u_i,   u_i = W^T v_i,

but at most 1. Then c rows point in each of these directions, or all that do (Drineas, Mahoney &
Muthukrishnan 2006).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.progress import stage
from ..data.memory import InMemory
from ..data.source import generator
from ..model import sums
from ..model.cost import gradient_cost
from ..model.problem import Problem
from ..model.sums import each_row
from .gradient_noise import TUNING_STREAM
from .laplace import Laplace

# rows used in the search for distant mass; all rows, if rows times parameters and the predicted seconds of one
# density are below these limits (ten thousand densities of .2 ms take 2 s; 8,000 log gamma functions took 17 s)
MAX_WHOLE_ROWS, MAX_WHOLE_NUMBERS, MAX_DENSITY_SECONDS = 2048, 2**17, 2e-4
MODE_SEARCH_ROWS = 10_000  # rows used in the search for other modes
# rows that must point in a direction; all lie on one side of two equal ones once in 2,000 times
MIN_DIRECTION_ROWS = 12
MIN_EVEN_SHARE = 0.25  # share of the rows per direction if they were spread evenly
# share of the rows in the curvature above which a direction is scaled by it
MIN_CURVATURE_SHARE = 0.1
# rows selected for each direction, and in total
ROWS_PER_DIRECTION, MAX_INFLUENTIAL_ROWS = 24.0, 2048


def with_influential_rows(problem: Problem, count: int, apart: Int[np.ndarray, " m"]) -> Problem:
    """Return the problem over the first `count` rows, a random choice, and the rows `apart`."""
    numbers = np.append(np.arange(count), apart[apart >= count])
    return replace(problem, data=InMemory.some(problem.source, numbers))


def uses_all_rows(problem: Problem) -> bool:
    """Return whether the search for distant mass uses all rows."""
    rows = problem.num_data
    if rows <= MAX_WHOLE_ROWS:
        return True
    return (
        rows * problem.dimension <= MAX_WHOLE_NUMBERS
        and gradient_cost(problem).each <= MAX_DENSITY_SECONDS
    )


@stage("rows")
def find_influential_rows(problem: Problem, gaussian: Any, seed: int) -> Int[np.ndarray, " m"]:
    """Return the influential rows' numbers to add to the first rows, ascending; mostly none.

    Gradients are evaluated at a draw of the Gaussian, because at the mode one row's may be 0.
    """
    none = np.zeros(0, np.int64)
    searched_whole = problem.num_data <= MODE_SEARCH_ROWS
    if not isinstance(gaussian, Laplace) or (searched_whole and uses_all_rows(problem)):
        return none
    assert gaussian.factor is not None
    rng = generator(seed, TUNING_STREAM, 14)
    z, factor = problem.array(gaussian.draw(rng, 1)[0]), problem.array(gaussian.factor)
    rare = _rare_directions(problem, gaussian, z, factor)
    if not rare.shape[1]:
        return none
    pointing = rare.T @ np.asarray(sums.directions(problem, z, factor), np.float64) @ rare
    size, vectors = np.linalg.eigh(pointing)
    informed = size > 1e-6 * max(size[-1], 1.0)
    if not informed.any():
        return none
    leverage = np.zeros((len(z), len(z)))  # one shape for any number of directions
    leverage[:, : informed.sum()] = rare @ (vectors[:, informed] / np.sqrt(size[informed]))
    chance = min(ROWS_PER_DIRECTION, MAX_INFLUENTIAL_ROWS / informed.sum())
    return _select_rows(problem, z, factor, problem.array(np.sqrt(chance) * leverage), rng)


def _rare_directions(
    problem: Problem, gaussian: Laplace, z: Float[Array, " d"], factor: Float[Array, "d d"]
) -> Float[np.ndarray, "d k"]:
    """Return whitened directions in which few of the first rows point."""
    d = len(z)
    center = problem.array(gaussian.center)
    prior = np.asarray(sums.prior_curvature(problem, center), np.float64)
    share, ways = np.linalg.eigh(np.eye(d) - gaussian.pull(gaussian.pull(prior).T))
    finite = np.isfinite(share)
    # where the prior alone makes the curvature, a row may be uninformative here and cause another mode elsewhere
    by_rows = np.where(np.abs(share) > MIN_CURVATURE_SHARE, np.abs(share), 1.0)
    ways = ways[:, finite] / np.sqrt(by_rows[finite])
    some = problem.first(MAX_WHOLE_ROWS)
    pointing = ways.T @ np.asarray(sums.directions(some, z, factor), np.float64) @ ways
    rows, vectors = np.linalg.eigh(pointing)
    few = ways @ vectors[:, rows < min(MIN_DIRECTION_ROWS, MIN_EVEN_SHARE * MAX_WHOLE_ROWS / d)]
    return few / np.linalg.norm(few, axis=0)


def _select_rows(
    problem: Problem,
    z: Float[Array, " d"],
    factor: Float[Array, "d d"],
    leverage: Float[Array, "d d"],
    rng: np.random.Generator,
) -> Int[np.ndarray, " m"]:
    """Return the numbers of the rows that are selected with their probabilities."""
    taken = []
    width = max(len(z), problem.source.row_width)
    for numbers, chance in each_row(_leverages, problem, (z, factor, leverage), width):
        taken.append(numbers[rng.random(len(chance)) < chance])
    return np.unique(np.concatenate(taken)).astype(np.int64)


def _leverages(
    problem: Problem,
    given: tuple[Float[Array, " d"], Float[Array, "d d"], Float[Array, "d d"]],
    rows: Any,
) -> Float[Array, " m"]:
    """Return |leverage^T v_i|^2 of some rows."""
    z, factor, leverage = given
    return jnp.sum((sums.row_directions(problem, z, factor, rows) @ leverage) ** 2, 1)
