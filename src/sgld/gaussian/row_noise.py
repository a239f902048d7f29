"""How the gradients of rows vary, measured over all rows: those that stand out, and a sample of the rest.

The noise of rows is a heavy-tailed sum: one row of a million may hold all that is known of a parameter,
and no sample of rows shows it. So every row is looked at, at the price of about a curvature pass:
the sizes N ||F^T g_i(c)|| of its gradient at the Gaussian's centre c, for plain batches, and
N ||F^T (g_i(z) - g_i(c))|| over a few Laplace draws z, for control variates (at one draw a row's square
is its mean times chi-square of one degree of freedom, under 1% of it 8% of the time). In many dimensions
a random projection stands for F^T g: it ranks rows as well. Of the largest rows, and of a random sample
of all others, the gradients themselves are kept: without the m largest rows,

    Cov(N times a random row's gradient) ~ N sum_{i > m} g_i g_i^T

is then known for every m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.devices import sent
from ..core.progress import stage
from ..data.source import generator
from ..model import sums
from ..model.problem import Problem
from ..model.sums import each_row, row_gradient
from .dense import Laplace
from .noise import TUNING

__all__ = ["RowNoise", "row_noise"]

DRAWS = 4  # at which all rows are looked at, and those that stand out once more
PROJECTED = 16  # numbers that a row's gradient is projected to, where it has more
LARGEST, OTHERS = 1024, 2048  # rows whose gradients are kept, the largest and a sample of the rest
ROW_GRADIENT_NUMBERS = 2**23  # in the gradients that are kept
PIECE = 2**20  # numbers in the gradients of rows that are taken together


@dataclass(frozen=True)
class RowNoise:
    """N times one random row's gradient; the rows with the largest ones apart.

    Attributes:
      numbers: of the rows with the largest gradients, the largest first.
      size: N ||F^T g|| of each of these, and at last of the largest of all others.
      gradients: N times theirs, at k draws each.
      others: N times the gradients of a random sample of all others.
      num_data: N.
    """

    numbers: Int[np.ndarray, " M"]
    size: Float[np.ndarray, " M+1"]
    gradients: Float[np.ndarray, "M k d"]
    others: Float[np.ndarray, "n d"]
    num_data: int

    def without(
        self, sum_of: Callable[[Float[np.ndarray, "n d"]], Any]
    ) -> Iterator[tuple[int, float, Any]]:
        """With the m largest rows left out: (m, size of the largest left, mean square of the gradient).

        For m = 0, 1, 2, 4 ...; `sum_of` gradients [n, d] gives the sum of their squares in the form
        that is wanted (of their outer products, say).
        """
        (M, each, d), N = self.gradients.shape, self.num_data
        left = (N - M) / (N * len(self.others)) * sum_of(self.others)
        left = left + sum_of(self.gradients.reshape(-1, d)) / (N * max(each, 1))
        yield 0, float(self.size[0]), left
        for k in range(M.bit_length()):
            rows = self.gradients[2**k // 2 : 2**k].reshape(-1, d)
            left = left - sum_of(rows) / (N * each)
            yield 2**k, float(self.size[2**k]), left


class Survey(NamedTuple):
    """Both kinds of noise; mean and variance over all rows of (N ||F^T g_i(c)||)^2 at the centre."""

    plain: RowNoise
    centred: RowNoise
    at_center: tuple[float, float]


@stage("rows")
def row_noise(problem: Problem, laplace: Any, seed: int) -> Survey:
    """Of plain gradients at the Gaussian's centre, and of control variates there at its draws.

    The noise of a batch of n rows is 1/n - 1/N of what it gives.
    """
    rng = generator(seed, TUNING, 1)
    N, d, array = problem.num_data, laplace.center.size, problem.array
    sketch = np.eye(d)
    if d > PROJECTED:
        sketch = rng.standard_normal((PROJECTED, d)) / np.sqrt(PROJECTED)
    zs, center = laplace.draw(rng, DRAWS), array(laplace.center)
    seen = _all_rows(
        problem, array(zs), center, array(laplace.spread(sketch).T), ROW_GRADIENT_NUMBERS // d
    )
    plain, centred = (
        (top[:-1], _others(N, top[:-1], rng, ROW_GRADIENT_NUMBERS // d)) for top in seen.numbers
    )
    each = max(DRAWS, OTHERS // max(1, len(centred[0])))
    rows = np.concatenate([*plain, np.repeat(centred[0], each), centred[1]])
    zs = laplace.draw(rng, len(rows))
    found = _of_rows(problem, sent(rows, np.int32), array(zs), center)
    split = sum(map(len, plain))
    at_center, moved = (_finite(N * np.asarray(g, np.float64)) for g in found)
    moved = moved[split:] + _mean(problem, laplace, zs[split:])
    return Survey(
        _kept(plain, seen.sizes[0], at_center[:split], 1, N),
        _kept(centred, seen.sizes[1], moved, each, N),
        seen.at_center,
    )


def _others(
    num_data: int, top: Int[np.ndarray, " M"], rng: np.random.Generator, most: int
) -> Int[np.ndarray, " n"]:
    """Of the rows that are not among the largest all, where they are few, or a random sample."""
    left, room = num_data - len(top), max(1, min(OTHERS, most // 4))
    if left <= room:
        return np.tile(np.setdiff1d(np.arange(num_data), top), room // left)
    others = rng.integers(0, num_data, room)
    while (again := np.isin(others, top)).any():
        others[again] = rng.integers(0, num_data, int(again.sum()))
    return others


def _kept(
    rows: tuple[Int[np.ndarray, " M"], Int[np.ndarray, " n"]],
    size: Float[np.ndarray, " M+1"],
    gradients: Float[np.ndarray, "m d"],
    each: int,
    num_data: int,
) -> RowNoise:
    top, d = rows[0], gradients.shape[1]
    split = len(top) * each
    return RowNoise(top, size, gradients[:split].reshape(-1, each, d), gradients[split:], num_data)


class _Seen(NamedTuple):
    """All rows, by both kinds of size: the largest, largest first, and one more; moments of the plain squares."""

    numbers: list[Int[np.ndarray, " M+1"]]
    sizes: list[Float[np.ndarray, " M+1"]]
    at_center: tuple[float, float]


def _all_rows(
    problem: Problem,
    zs: Float[Array, "k d"],
    center: Array,
    directions: Float[Array, "d r"],
    most: int,
) -> _Seen:
    """Look at every row."""
    N = problem.num_data
    count = min(LARGEST, N // 4, most // (4 * DRAWS))
    width = len(zs) * max(center.size, problem.source.row_width)
    numbers, sizes = [np.zeros(0, np.int64)] * 2, [np.zeros(0)] * 2
    done, mean, squares = 0, 0.0, 0.0
    for here, square in each_row(_sizes, problem, (zs, center, directions), width):
        square = N**2 * _finite(square.astype(np.float64))
        for kind in (0, 1):
            size = np.sqrt(square[:, kind])
            least = sizes[kind][-1] if len(sizes[kind]) > count else -1.0
            may = size > least
            both = np.append(numbers[kind], here[may]), np.append(sizes[kind], size[may])
            largest = np.argsort(-both[1], kind="stable")[: count + 1]
            numbers[kind], sizes[kind] = both[0][largest], both[1][largest]
        # Chan, Golub & LeVeque's sums
        apart, own = square[:, 0].mean() - mean, len(here)
        squares += own * square[:, 0].var() + apart**2 * done * own / (done + own)
        mean += apart * own / (done + own)
        done += own
    return _Seen(numbers, sizes, (float(mean), float(squares / N)))


def _mean(
    problem: Problem, laplace: Any, zs: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, "m d"] | float:
    """Minus the mean over all rows of N times their differences at zs, of a Gaussian posterior."""
    if not isinstance(laplace, Laplace):
        return 0.0  # in so many parameters it is next to nothing
    prior = sums.prior_curvature(problem, problem.array(laplace.center))
    return (zs - laplace.center) @ (laplace.curvature - np.asarray(prior, np.float64))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.nan_to_num(values, posinf=0.0, neginf=0.0)


@jax.jit
def _of_rows(
    problem: Problem, rows: Int[Array, " m"], zs: Float[Array, "m d"], center: Array
) -> tuple[Float[Array, "m d"], Float[Array, "m d"]]:
    """The rows' gradients at the centre, and at positions zs less those."""

    def one(item):
        row, z = item
        at_center = row_gradient(problem, center, row)
        return at_center, row_gradient(problem, z, row) - at_center

    return jax.lax.map(one, (rows, zs), batch_size=max(1, PIECE // center.size))


def _sizes(
    problem: Problem, given: tuple[Float[Array, "k d"], Array, Float[Array, "d r"]], rows: Any
) -> Float[Array, "m 2"]:
    """Squares of the gradient at the centre, and mean squares of the differences from that, of some rows."""
    zs, center, directions = given
    each = jax.tree.map(lambda leaf: leaf[:, None], rows)
    gradient = jax.vmap(jax.grad(problem.log_likelihood), (None, 0))
    at_center = gradient(center, each)
    moved = jax.vmap(lambda z: (gradient(z, each) - at_center) @ directions)(zs)
    squares = jnp.sum((at_center @ directions) ** 2, 1), jnp.mean(jnp.sum(moved**2, 2), 0)
    return jnp.stack(squares, axis=1)
