"""Rows without which a random choice of rows does not show some direction as all rows do.

Other modes, and what lies far out, are looked for on some of many rows. Eight rows of 100,000 that hold all that is
known of a parameter are hardly ever among them: there the prior alone rules it, and looks like a perfect Gaussian.
Which direction rows tell of is seen from their gradients, whose sizes say nothing: of an outlier under a likelihood
with heavy tails it is next to nothing, and where such a row stands another mode may be. So with F F^T the covariance

    v_i = F^T g_i / |F^T g_i|,   B = sum over a choice of rows of v_i v_i^T,

B counts the rows that point in each direction. Where they are few, with
W these directions, every row is taken by a chance of its leverage among all rows,

    c u_i^T (sum_j u_j u_j^T)^{-1} u_i,   u_i = W^T v_i,

at most 1: then c rows point in each of these directions, or all that do (Drineas, Mahoney & Muthukrishnan 2006).
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
from ..model.cost import gradient_price
from ..model.problem import Problem
from ..model.sums import each_row
from .gradient_noise import TUNING_STREAM
from .laplace import Laplace

# rows looked at far out; all, where they and their parameters are as few numbers, and a density of them as cheap (in
# predicted seconds: of ten thousand densities .2 ms each take 2 s; of 8,000 log gamma functions they took 17)
MAX_WHOLE_ROWS, MAX_WHOLE_NUMBERS, MAX_DENSITY_SECONDS = 2048, 2**17, 2e-4
MODE_SEARCH_ROWS = 10_000  # rows on which other modes are looked for
# rows that show a direction: all of one side of two as many once in 2,000 times
MIN_DIRECTION_ROWS = 12
MIN_EVEN_SHARE = 0.25  # of the rows that would point in each direction if all had as many
# share of the curvature that rows make, from which they are counted by it
MIN_CURVATURE_SHARE = 0.1
# rows that are taken for each direction, and for all
ROWS_PER_DIRECTION, MAX_INFLUENTIAL_ROWS = 24.0, 2048


def beside(problem: Problem, count: int, apart: Int[np.ndarray, " m"]) -> Problem:
    """The same over the first `count` rows, a random choice, and those `apart`."""
    numbers = np.append(np.arange(count), apart[apart >= count])
    return replace(problem, data=InMemory.some(problem.source, numbers))


def shown_whole(problem: Problem) -> bool:
    """Whether all rows are looked at far out."""
    rows = problem.num_data
    if rows <= MAX_WHOLE_ROWS:
        return True
    return (
        rows * problem.dimension <= MAX_WHOLE_NUMBERS
        and gradient_price(problem).each <= MAX_DENSITY_SECONDS
    )


@stage("rows")
def unshown_rows(problem: Problem, gaussian: Any, seed: int) -> Int[np.ndarray, " m"]:
    """The numbers of rows that are to be looked at beside the first ones, ascending; mostly none.

    Gradients are taken at a draw of the Gaussian: at the mode one row's may be 0.
    """
    none = np.zeros(0, np.int64)
    searched_whole = problem.num_data <= MODE_SEARCH_ROWS
    if not isinstance(gaussian, Laplace) or (searched_whole and shown_whole(problem)):
        return none
    assert gaussian.factor is not None
    rng = generator(seed, TUNING_STREAM, 14)
    z, factor = problem.array(gaussian.draw(rng, 1)[0]), problem.array(gaussian.factor)
    unshown = _unshown(problem, gaussian, z, factor)
    if not unshown.shape[1]:
        return none
    pointing = unshown.T @ np.asarray(sums.directions(problem, z, factor), np.float64) @ unshown
    size, vectors = np.linalg.eigh(pointing)
    told = size > 1e-6 * max(size[-1], 1.0)
    if not told.any():
        return none
    leverage = np.zeros((len(z), len(z)))  # of one shape, whatever their number
    leverage[:, : told.sum()] = unshown @ (vectors[:, told] / np.sqrt(size[told]))
    chance = min(ROWS_PER_DIRECTION, MAX_INFLUENTIAL_ROWS / told.sum())
    return _taken(problem, z, factor, problem.array(np.sqrt(chance) * leverage), rng)


def _unshown(
    problem: Problem, gaussian: Laplace, z: Float[Array, " d"], factor: Float[Array, "d d"]
) -> Float[np.ndarray, "d k"]:
    """Directions in which few of the first rows point; whitened."""
    d = len(z)
    center = problem.array(gaussian.center)
    prior = np.asarray(sums.prior_curvature(problem, center), np.float64)
    share, ways = np.linalg.eigh(np.eye(d) - gaussian.pull(gaussian.pull(prior).T))
    finite = np.isfinite(share)
    # where the prior alone makes the curvature a row may say next to nothing here, and hold another mode elsewhere
    by_rows = np.where(np.abs(share) > MIN_CURVATURE_SHARE, np.abs(share), 1.0)
    ways = ways[:, finite] / np.sqrt(by_rows[finite])
    some = problem.first(MAX_WHOLE_ROWS)
    pointing = ways.T @ np.asarray(sums.directions(some, z, factor), np.float64) @ ways
    rows, vectors = np.linalg.eigh(pointing)
    few = ways @ vectors[:, rows < min(MIN_DIRECTION_ROWS, MIN_EVEN_SHARE * MAX_WHOLE_ROWS / d)]
    return few / np.linalg.norm(few, axis=0)


def _taken(
    problem: Problem,
    z: Float[Array, " d"],
    factor: Float[Array, "d d"],
    leverage: Float[Array, "d d"],
    rng: np.random.Generator,
) -> Int[np.ndarray, " m"]:
    """The numbers of rows, each taken by its chance."""
    taken = []
    width = max(len(z), problem.source.row_width)
    for numbers, chance in each_row(_chances, problem, (z, factor, leverage), width):
        taken.append(numbers[rng.random(len(chance)) < chance])
    return np.unique(np.concatenate(taken)).astype(np.int64)


def _chances(
    problem: Problem,
    given: tuple[Float[Array, " d"], Float[Array, "d d"], Float[Array, "d d"]],
    rows: Any,
) -> Float[Array, " m"]:
    """|leverage^T v_i|^2 of some rows."""
    z, factor, leverage = given
    return jnp.sum((sums.row_directions(problem, z, factor, rows) @ leverage) ** 2, 1)
