"""The covariance of a gradient estimate, and of single rows' gradients, measured.

The gradients of the rows have a heavy-tailed distribution. One row of a million may carry all the
information on a parameter, and a sample of rows misses it. Every row is therefore evaluated, at about the
cost of a curvature pass. For plain batches its size is N ||F^T g_i(c)||, with its gradient at the
Gaussian's centre c. For control variates it is N ||F^T (g_i(z) - g_i(c))|| over a few Laplace draws z: at
one draw a row's square is its mean times chi-square of one degree of freedom, which is under 1% of the mean
8% of the time. In many dimensions a random projection replaces F^T g; it ranks rows as well. The gradients
themselves are kept for the largest rows and for a random sample of all others. Without the m largest rows,

    Cov(N times a random row's gradient) ~ N sum_{i > m} g_i g_i^T

is then known for every m, and the cost of a batch with these m rows always included can be predicted. The
module also selects the rows that are in every batch, and reports them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.devices import sent
from ..core.progress import stage
from ..data.memory import InMemory
from ..data.source import generator
from ..model import sums
from ..model.problem import Problem
from ..model.sums import each_row, row_gradient
from ..samplers.gradients.control_variates import is_centred
from ..samplers.gradients.full import Full
from .laplace import Laplace
from .low_rank import LowRankLaplace

ENTRIES_AT_ONCE = 512  # entries of the data order taken together
# from this many parameters on, this many draws share their two batches
MIN_SHARING_DIM, DRAWS_PER_PAIR = 200, 16
MAX_FLOAT64_NUMBERS = 2**22  # numbers of blocks' gradients converted to float64 together
TUNING_STREAM = 2  # the stream of the host's generator that tuning uses


@stage("rows")
def block_noise(problem: Problem, z: np.ndarray) -> Float[np.ndarray, "d d"]:
    """Compute the covariance at z of K times a random block's gradient (divisor K)."""
    table, K = np.asarray(sums.block_gradients(problem, problem.array(z))), problem.num_blocks
    mean, size = np.mean(table, 0, dtype=np.float64), max(1, MAX_FLOAT64_NUMBERS // z.size)
    found = np.zeros((z.size, z.size))
    for k in range(0, K, size):
        apart = table[k : k + size] - mean
        found += apart.T @ apart
    return K * found


@stage("rows")
def estimator_noise(
    problem: Problem, gradient: Any, laplace: Laplace, seed: int, count: int
) -> Float[np.ndarray, "d d"]:
    """Estimate the covariance of an estimator given z, averaged over Laplace draws.

    This is half the mean square of the differences of two independent batches at `count` draws. With many
    parameters several draws share their two batches, whose rows are multiplied by all these draws at once
    (d = 1000: 2 s instead of 22). The noise of a batch differs between draws, so sharing loses little precision.
    """
    rng = generator(seed, TUNING_STREAM, 0)
    shared = DRAWS_PER_PAIR if laplace.center.size >= MIN_SHARING_DIM else 1
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
    """Return an estimator's gradients at positions zs, r of them on each entry of the data order.

    The result is float64 on the host. Groups have one size, so that any m uses the same compiled function.
    """
    m = len(zs)
    short = -m % ENTRIES_AT_ONCE
    zs, entries = (np.concatenate([x, np.repeat(x[-1:], short, axis=0)]) for x in (zs, entries))
    parts = [
        np.asarray(
            _estimates(
                problem, gradient, problem.array(zs[k : k + ENTRIES_AT_ONCE]),
                sent(entries[k : k + ENTRIES_AT_ONCE]),
            ),
            np.float64,
        )
        for k in range(0, len(zs), ENTRIES_AT_ONCE)
    ]  # fmt: skip
    return np.concatenate(parts)[:m]


@jax.jit
def _estimates(problem, gradient, zs, entries):
    one = lambda pair: jax.vmap(gradient.at(problem, pair[1]))(pair[0])  # noqa: E731
    size = max(1, 2**14 // problem.source.batch_size)
    return jax.lax.map(one, (zs, entries), batch_size=size)


# -- row noise -----------------------------------------------------------------------------


ROW_NOISE_DRAWS = 4  # draws at which all rows are evaluated, and the largest rows once more
MAX_PROJECTED_DIM = 16  # dimension of the projection of a row's gradient, if it has more
# rows whose gradients are kept: the largest, and a sample of the rest
MAX_LARGEST_ROWS, MAX_SAMPLED_ROWS = 1024, 2048
MAX_GRADIENT_NUMBERS = 2**23  # numbers in the gradients that are kept
ROW_GRADIENT_NUMBERS = 2**20  # numbers in the gradients of rows that are evaluated together


@dataclass(frozen=True)
class RowNoise:
    """N times one random row's gradient, with the rows of the largest gradients separate.

    Attributes:
      numbers: the rows with the largest gradients, the largest first.
      size: N ||F^T g|| of each of these, and finally of the largest of all others.
      gradients: N times their gradients, at k draws each.
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
        """Yield (m, largest size left, mean square of the gradient) without the m largest rows.

        m takes the values 0, 1, 2, 4 ... `sum_of` maps gradients [n, d] to the sum of their squares in the
        required form, for example of their outer products.
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
    """Both kinds of noise, and mean and variance over all rows of (N ||F^T g_i(c)||)^2."""

    plain: RowNoise
    centred: RowNoise
    at_center: tuple[float, float]


@stage("rows")
def row_noise(problem: Problem, laplace: Any, seed: int) -> Survey:
    """Measure the noise of plain gradients at the centre and of control variates at draws.

    The noise of a batch of n rows is 1/n - 1/N of the result.
    """
    rng = generator(seed, TUNING_STREAM, 1)
    N, d, array = problem.num_data, laplace.center.size, problem.array
    sketch = np.eye(d)
    if d > MAX_PROJECTED_DIM:
        sketch = rng.standard_normal((MAX_PROJECTED_DIM, d)) / np.sqrt(MAX_PROJECTED_DIM)
    zs, center = laplace.draw(rng, ROW_NOISE_DRAWS), array(laplace.center)
    seen = _all_rows(
        problem, array(zs), center, array(laplace.spread(sketch).T), MAX_GRADIENT_NUMBERS // d
    )
    plain, centred = (
        (top[:-1], _rest(N, top[:-1], rng, MAX_GRADIENT_NUMBERS // d)) for top in seen.numbers
    )
    each = max(ROW_NOISE_DRAWS, MAX_SAMPLED_ROWS // max(1, len(centred[0])))
    rows = np.concatenate([*plain, np.repeat(centred[0], each), centred[1]])
    zs = laplace.draw(rng, len(rows))
    found = _row_gradients(problem, sent(rows, np.int32), array(zs), center)
    split = sum(map(len, plain))
    at_center, moved = (_finite(N * np.asarray(g, np.float64)) for g in found)
    moved = moved[split:] + _mean(problem, laplace, zs[split:])
    return Survey(
        _kept(plain, seen.sizes[0], at_center[:split], 1, N),
        _kept(centred, seen.sizes[1], moved, each, N),
        seen.at_center,
    )


def _rest(
    num_data: int, top: Int[np.ndarray, " M"], rng: np.random.Generator, most: int
) -> Int[np.ndarray, " n"]:
    """Return all rows that are not among the largest, or a random sample if they are many."""
    left, room = num_data - len(top), max(1, min(MAX_SAMPLED_ROWS, most // 4))
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


class _LargestRows(NamedTuple):
    """The largest rows of all by both kinds of size, and one more; plain squares' moments."""

    numbers: list[Int[np.ndarray, " M+1"]]
    sizes: list[Float[np.ndarray, " M+1"]]
    at_center: tuple[float, float]


def _all_rows(
    problem: Problem,
    zs: Float[Array, "k d"],
    center: Array,
    directions: Float[Array, "d r"],
    most: int,
) -> _LargestRows:
    """Evaluate every row and keep the largest."""
    N = problem.num_data
    count = min(MAX_LARGEST_ROWS, N // 4, most // (4 * ROW_NOISE_DRAWS))
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
    return _LargestRows(numbers, sizes, (float(mean), float(squares / N)))


def _mean(
    problem: Problem, laplace: Any, zs: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, "m d"] | float:
    """Return minus the mean over all rows of N times their differences at zs, for a Gaussian."""
    if not isinstance(laplace, Laplace):
        return 0.0  # negligible in so many parameters
    prior = sums.prior_curvature(problem, problem.array(laplace.center))
    return (zs - laplace.center) @ (laplace.curvature - np.asarray(prior, np.float64))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.nan_to_num(values, posinf=0.0, neginf=0.0)


@jax.jit
def _row_gradients(
    problem: Problem, rows: Int[Array, " m"], zs: Float[Array, "m d"], center: Array
) -> tuple[Float[Array, "m d"], Float[Array, "m d"]]:
    """Return the rows' gradients at the centre, and the differences of those at zs from these."""

    def one(item):
        row, z = item
        at_center = row_gradient(problem, center, row)
        return at_center, row_gradient(problem, z, row) - at_center

    return jax.lax.map(one, (rows, zs), batch_size=max(1, ROW_GRADIENT_NUMBERS // center.size))


def _sizes(
    problem: Problem, given: tuple[Float[Array, "k d"], Array, Float[Array, "d r"]], rows: Any
) -> Float[Array, "m 2"]:
    """Return squared gradients at the centre, and mean squares of the differences from it."""
    zs, center, directions = given
    each = jax.tree.map(lambda leaf: leaf[:, None], rows)
    gradient = jax.vmap(jax.grad(problem.log_likelihood), (None, 0))
    at_center = gradient(center, each)
    moved = jax.vmap(lambda z: (gradient(z, each) - at_center) @ directions)(zs)
    squares = jnp.sum((at_center @ directions) ** 2, 1), jnp.mean(jnp.sum(moved**2, 2), 0)
    return jnp.stack(squares, axis=1)


# -- levels --------------------------------------------------------------------------------


MAX_SPECTRUM_DIM = 100  # parameters beyond which only the largest eigenvalue is computed


class Level(NamedTuple):
    """The noise of N times a random row's gradient with the `always` largest rows in every batch.

    variance: in the noisiest direction; size: of the largest row left, in sds (0: not computed);
    curved: its curvature in the Gaussian's coordinates.
    """

    always: int = 0
    variance: float = 0.0
    size: float = 0.0
    curved: float = 0.0


Levels = Callable[[], Iterator[Level]]


def no_noise() -> Iterator[Level]:
    """Yield the single level of exact gradients."""
    yield Level()


def dense_levels(
    rows: RowNoise, factor: Float[np.ndarray, "d d"], per_size: float
) -> Iterator[Level]:
    """Yield the levels of the rows' noise in a dense metric; `per_size` converts sizes to sds."""

    def outer(g: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
        white = g @ factor
        return white.T @ white

    for m, size, covariance in rows.without(outer):
        yield Level(m, _largest(covariance), per_size * size)


def marginal_levels(
    problem: Problem, survey: Survey, laplace: LowRankLaplace, T: float
) -> tuple[Levels, Levels]:
    """Return the levels of both kinds: gamma's variance over phi's, in the noisiest parameter.

    A level also holds the curvature of N times one row in the Gaussian's coordinates (root mean square over
    rows, Frobenius norm). Steps on n rows are unstable from about h = 2 n over it.
    """
    of = laplace.marginals(problem)
    # D's variances are too large by up to the stiffest eigenvalue
    scale = (1 + laplace.departure) / T / of.variance

    def squares(g: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " measured"]:
        whole = np.sum(laplace.pull(g) ** 2) / T**2
        return np.append(scale * np.sum(of.gamma(g) ** 2, axis=0), whole)

    curved = float(np.sqrt(next(survey.centred.without(squares))[2][-1]))

    def levels(rows: RowNoise, centred: bool) -> Iterator[Level]:
        for m, size, found in rows.without(squares):
            own = float(np.sqrt(max(0.0, found[-1]))) if centred else curved
            yield Level(m, float(np.max(found[:-1])), size / T, own)

    return partial(levels, survey.plain, False), partial(levels, survey.centred, True)


def _largest(covariance: Float[np.ndarray, "d d"]) -> float:
    """Return the largest eigenvalue, by Lanczos' method where a full spectrum is slow."""
    d = len(covariance)
    if d <= MAX_SPECTRUM_DIM or not covariance.any():
        return float(np.linalg.eigvalsh(covariance)[-1])
    from scipy.sparse.linalg import eigsh  # imported here: the import takes a third of a second

    start = np.ones(d) / np.sqrt(d)
    found = eigsh(covariance, 1, which="LA", v0=start, return_eigenvectors=False)
    return float(found[0])


# -- always --------------------------------------------------------------------------------


MAX_EXACT_ROWS = 1000  # rows beyond which exact gradients are reported
MIN_REPORTED_INFO = 0.15  # share of the information on a parameter from which rows are reported
MAX_ROW_JUMP_SDS = 3.0  # sds by which a row of a meter's batch may move one gradient


def rows_of(survey: Survey, gradient: Any, always: int) -> Int[np.ndarray, " m"]:
    """Return the rows of the largest gradients that an estimator has in every batch."""
    rows = survey.centred if is_centred(gradient) else survey.plain
    return rows.numbers[:always]


def rows_in_every_batch(
    problem: Problem, gaussian: Any, batch_size: int, T: float, seed: int
) -> Int[np.ndarray, " m"]:
    """Choose the rows, by the user's numbers, that control variates have in every batch.

    Each batch also has `batch_size` other rows. The choice minimises the cost for a given precision, and none
    of the other rows moves a gradient by more than MAX_ROW_JUMP_SDS.
    """
    tempered = gaussian.tempered(T)
    survey = row_noise(problem, tempered, seed)
    if isinstance(gaussian, Laplace):
        assert gaussian.factor is not None
        levels = dense_levels(survey.centred, gaussian.factor, 1 / T)
    else:
        levels = marginal_levels(problem, survey, tempered, T)[1]()
    best, numbers = np.inf, survey.centred.numbers
    for level in levels:
        cost = (batch_size + level.always) * (1 + level.variance / batch_size)
        if cost < best or level.size > MAX_ROW_JUMP_SDS * batch_size:
            best, numbers = cost, survey.centred.numbers[: level.always]
    return problem.called(numbers, seed)


def rows_note(
    problem: Problem, laplace: Laplace, gradient: Any, always: Int[np.ndarray, " m"] | None
) -> tuple[str, ...]:
    """Report how many rows are in every batch and their share of the information, if it is large.

    The share for parameter j is (S e_j)^T H (S e_j) / S_jj, with S the covariance and H the curvature of
    these rows. It is 1 where no other row is informative about the parameter.
    """
    N = problem.num_data
    if isinstance(gradient, Full) and N > MAX_EXACT_ROWS:
        return (f"every step uses all {N:,} rows because cheaper batches are too noisy.",)
    if always is None or not len(always):
        return ()
    share = _share(problem, laplace, always)
    if share.max() < MIN_REPORTED_INFO:
        return ()
    informed = np.flatnonzero(share > share.max() / 2)
    names = list(problem.posterior.names or ())
    if len(names) != len(share):
        names = problem.layout.element_names()
    of = repr(names[informed[0]]) if len(informed) == 1 else f"{len(informed)} parameters"
    one = len(always) == 1
    return (
        f"{len(always):,} of {N:,} rows {'is' if one else 'are'} used in every batch because "
        f"{'it carries' if one else 'they carry'} {share[informed].mean():.0%} of the information on {of}.",
    )


def _share(
    problem: Problem, laplace: Laplace, rows: Int[np.ndarray, " m"]
) -> Float[np.ndarray, " d"]:
    some = replace(problem, data=InMemory.some(problem.source, rows))
    z, S = problem.array(laplace.center), laplace.covariance
    H = np.asarray(sums.curvature(some, z), np.float64) - np.asarray(sums.prior_curvature(some, z))
    return np.clip(np.sum((S @ H) * S, axis=1) / np.diag(S), 0.0, 1.0)
