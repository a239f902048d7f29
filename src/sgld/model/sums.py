"""Sums over all rows in pieces of bounded memory, quantities of single rows, and sums by workers.

The sums are log density, gradients and curvature. A pass over rows on disk can be mapped over workers:
each worker sums its pieces with the functions of this file, and the sums are added on the host.

    F(z) = prior(z) + sum_k F_k(z),      F_k over rows [k m, (k + 1) m) of the shuffled files

Pieces have one size for any workers, and are added in order in float64: the sums do not depend on the
number of workers. Compiled code sends nothing to workers; there the functions read the files themselves.

The likelihood of a large batch is computed in tiles of its rows. The gradient of a regression reads every
number of its rows twice. A block that does not fit the processor's cache is read from memory both times,
after a copy there. A tile is sliced from the rows, read twice from the cache, and discarded: 2,048 rows of 1,000
numbers for four chains take a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..core.devices import is_concrete, on_host
from ..core.files import read_json
from ..core.progress import check_time, report_count
from ..core.pytrees import as_pytree
from ..data.mapped import OnDisk
from ..data.memory import AlwaysIn, InMemory
from ..data.source import Source
from ..errors import DataError, RunError, UsageError, first_line, need
from .problem import Problem

# -- spread --------------------------------------------------------------------------------


MAX_WORKER_NUMBERS = 2**24  # numbers in the rows of a piece
PIECES_AT_ONCE = 64  # pieces that are evaluated before their results are used
F = TypeVar("F", bound=Callable[..., Any])


@as_pytree
@dataclass(frozen=True)
class _Likelihood:
    """A target without its prior, which is added once."""

    target: Any

    @property
    def layout(self) -> Any:
        return self.target.layout

    def log_prior(self, z: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.zeros((), z.dtype)

    def log_likelihood(self, z: Any, rows: Any, weight: Any = None) -> Float[Array, ""]:
        return self.target.log_likelihood(z, rows, weight)


class _Piece(NamedTuple):
    """Some rows, and the work to be done with them."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    target: bytes
    folder: str
    digest: str
    begin: int
    end: int
    double: bool


def spread_over(problem: Problem) -> OnDisk | None:
    """Return the rows if passes over all of them are mapped over workers, else None."""
    data = problem.data
    if isinstance(data, AlwaysIn) and data.numbers.shape == data.chosen.shape:
        data = data.source
    return data if isinstance(data, OnDisk) and data.workers is not None else None


def spread(*, prior: bool) -> Callable[[F], F]:
    """Decorate a function (problem, *arrays) -> arrays that sums over all rows, for workers.

    If the problem has workers and nothing is being compiled, each worker sums its pieces. With `prior`, the
    result without rows is added.
    """

    def decorated(function: F) -> F:
        @wraps(function)
        def called(problem: Problem, *arguments: Any) -> Any:
            rows = spread_over(problem)
            if rows is None or not is_concrete(problem, arguments):
                return function(problem, *arguments)
            parts = _mapped(rows, problem, _worker_pieces(rows), called, arguments)
            total = jax.tree.map(
                lambda *values: sum(np.asarray(v, np.float64) for v in values), *parts
            )
            if prior:
                alone = function(replace(problem, data=None), *arguments)
                total = jax.tree.map(lambda t, a: t + np.asarray(a, np.float64), total, alone)
            return jax.tree.map(lambda t, part: np.asarray(t, part.dtype), total, parts[0])

        # used by `release` and by tests, as for any compiled function
        for name in ("lower", "clear_cache", "_cache_size"):
            setattr(called, name, getattr(function, name))
        return called  # pyright: ignore

    return decorated


def each_row_of_workers(
    rows: OnDisk, problem: Problem, look: Callable[..., Any], given: Any, width: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield like `each_row`, with rows evaluated by workers, PIECES_AT_ONCE pieces at a time."""
    pieces = _worker_pieces(rows)
    for first in range(0, len(pieces), PIECES_AT_ONCE):
        some = pieces[first : first + PIECES_AT_ONCE]
        found = _mapped(rows, problem, some, _each_row, (look, given, width))
        for (begin, end), seen in zip(some, found, strict=True):
            yield np.arange(begin, end), seen


def _each_row(problem: Problem, look: Callable[..., Any], given: Any, width: int) -> np.ndarray:

    seen = list(each_row(look, problem, given, width))
    order = np.argsort(np.concatenate([numbers for numbers, _ in seen]))
    return np.concatenate([what for _, what in seen])[order]


def _worker_pieces(rows: OnDisk) -> list[tuple[int, int]]:
    size = max(1, MAX_WORKER_NUMBERS // max(1, rows.row_width))
    return [(at, min(at + size, rows.num_data)) for at in range(0, rows.num_data, size)]


def _mapped(
    rows: OnDisk, problem: Problem, pieces: list[tuple[int, int]], work: Any, arguments: Any
) -> list[Any]:
    """Return work(problem over a piece's rows, *arguments) for every piece, from the workers."""
    pickle = need("cloudpickle", "dask")
    try:
        target = pickle.dumps((problem.target, jax.tree.structure(rows.rows)))
    except Exception as error:
        raise UsageError(
            f"the posterior cannot be sent to workers: {type(error).__name__} ({first_line(error)}); build it from "
            "functions and arrays, or run without workers."
        ) from error
    folder = str(Path(rows.files.paths[0]).absolute().parent)
    double = bool(jax.config.read("jax_enable_x64"))
    arguments = jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, arguments)
    assert rows.workers is not None
    return rows.workers(
        _work_on_piece,
        [_Piece(work, arguments, target, folder, rows.hash(), *piece, double) for piece in pieces],
    )


# -- at a worker ---------------------------------------------------------------------------


def _work_on_piece(piece: _Piece) -> Any:
    """Return the result of a piece as NumPy arrays, at a worker."""
    with jax.enable_x64(piece.double):
        target, treedef = _target(piece.target)
        leaves = [leaf[piece.begin : piece.end + 1] for leaf in _leaves(piece.folder, piece.digest)]
        rows = treedef.unflatten([jax.device_put(leaf) for leaf in leaves])
        size = piece.end - piece.begin
        source = InMemory(rows, size, size, "reshuffle")
        found = piece.work(Problem(_Likelihood(target), source), *piece.arguments)
        return jax.tree.map(np.asarray, found)


@lru_cache(maxsize=8)
def _target(content: bytes) -> Any:
    """Return the same functions for the same bytes, so that nothing is compiled twice."""
    import pickle

    return pickle.loads(content)


@lru_cache(maxsize=8)
def _leaves(folder: str, digest: str) -> list[np.ndarray]:
    """Return the files of the rows after a check that they are the right ones."""
    there = f"a worker does not find the rows in {folder}"
    try:
        manifest = read_json(Path(folder) / "rows.json")
        names = [f"{i}.npy" for i in range(len(manifest["leaves"]))]
        found = [np.load(Path(folder) / name, mmap_mode="r") for name in names]
    except (OSError, RunError, KeyError, ValueError) as error:
        raise DataError(
            f"{there} ({first_line(error)}); give a folder that all workers share with cache=."
        ) from error
    if manifest.get("hash") != digest:
        raise DataError(f"{there}, but others; give a folder that all workers share with cache=.")
    return found


# -- rows ----------------------------------------------------------------------------------


GRADIENT_NUMBERS = 2**20  # numbers in the row gradients that are computed at once
HOST_ROWS_AT_ONCE = 2**18  # rows whose results are on the host at once


@jax.jit
def scores(problem: Problem, z: Array, rows: Array) -> Float[Array, "m d"]:
    """Return grad log_likelihood_i + grad log_prior / N of the given rows."""
    prior = jax.grad(problem.log_prior)(z) / problem.num_data
    one = lambda row: prior + row_gradient(problem, z, row)  # noqa: E731
    return jax.lax.map(one, rows, batch_size=max(1, GRADIENT_NUMBERS // z.size))


@jax.jit
def row_gradients(problem: Problem, z: Array, rows: Array) -> Float[Array, "m d"]:
    """Return grad log_likelihood_i of the given rows, without the prior."""
    one = lambda row: row_gradient(problem, z, row)  # noqa: E731
    return jax.lax.map(one, rows, batch_size=max(1, GRADIENT_NUMBERS // z.size))


def row_gradient(
    problem: Problem, z: Float[Array, " d"], row: Int[Array, ""]
) -> Float[Array, " d"]:
    """Return grad log_likelihood of one row, by number, inside compiled code."""
    return jax.grad(problem.log_likelihood)(z, problem.source.take(row[None]))


def row_values(problem: Problem, z: Float[Array, " d"], rows: Any) -> Float[Array, " n"]:
    """Return log_likelihood of each of some rows, leaves [n, ...], inside compiled code."""
    each = jax.tree.map(lambda leaf: leaf[:, None], rows)
    return jax.vmap(lambda row: problem.log_likelihood(z, row))(each)


def each_row(
    look: Callable[..., Array], problem: Problem, given: Any, width: int
) -> Iterator[tuple[Int[np.ndarray, " m"], np.ndarray]]:
    """Yield the numbers of rows and look(problem, given, rows) [m, ...], once for every row.

    Memory does not grow with the number of rows. `look` is a compiled function of a module. It receives as many
    rows at a time as give GRADIENT_NUMBERS numbers, if each row gives `width`.
    """
    N, done, rows = problem.num_data, 0, spread_over(problem)
    if rows is not None:
        for numbers, seen in each_row_of_workers(rows, problem, look, given, width):
            done += len(numbers)
            report_count(done, N, "rows")
            yield numbers, seen
        return
    pieces = problem.source.with_batches(max(1, min(N, GRADIENT_NUMBERS // width)), "reshuffle")
    together = max(1, HOST_ROWS_AT_ONCE // pieces.block_size)
    for first in range(0, pieces.num_blocks, together):
        found = _evaluate_pieces(
            problem, given, np.int32(first),
            look=look, size=pieces.batch_size, count=min(together, pieces.num_blocks),
        )  # fmt: skip
        numbers, seen, counts = (on_host(part) for part in found)
        done += int(counts.sum())
        report_count(done, N, "rows")
        yield numbers[counts], seen[counts]


@partial(jax.jit, static_argnames=("look", "size", "count"))
def _evaluate_pieces(
    problem: Problem,
    given: Any,
    first: Int[Array, ""],
    *,
    look: Callable[..., Array],
    size: int,
    count: int,
) -> tuple[Int[Array, " m"], Array, Bool[Array, " m"]]:
    """Return numbers, results and the mask of valid rows for `count` pieces of `size` rows.

    The pieces start with piece `first`. Padding rows, and rows beyond the last one, are not valid.
    """
    source = problem.source.with_batches(size, "reshuffle")

    def piece(k):
        batch = source.fetch(jnp.minimum(k, source.num_blocks - 1))
        counts = jnp.full(batch.numbers.shape, k < source.num_blocks)
        if batch.weight is not None:
            counts &= batch.weight > 0
        return batch.numbers, look(problem, given, batch.rows), counts

    found = jax.lax.map(piece, first + jnp.arange(count, dtype=jnp.int32))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)


# -- sums ----------------------------------------------------------------------------------


# numbers in a piece of rows, times the positions at which it is evaluated
MAX_PIECE_NUMBERS = 2**21
GRADIENT_GROUP = 32  # positions whose gradients are computed together
ROW_DENSITY_GROUP = 64  # positions whose row differences are
DENSITY_GROUP = 256  # positions whose log densities are
BLOCK_ROWS_AT_ONCE = 2**16  # rows of blocks that are evaluated together


def _pieces(source: Source, width: int) -> Source:
    """Return the rows in blocks with at most MAX_PIECE_NUMBERS / `width` rows on each device."""
    size = max(1, min(source.num_data, source.shards * MAX_PIECE_NUMBERS // max(1, width)))
    return source.with_batches(size, "reshuffle")


def _over_pieces(source: Source, width: int, piece):
    """Return the sum of piece(batch) over all rows, with compensated summation between the pieces."""
    pieces = _pieces(source, width)
    if pieces.num_blocks == 1:
        return piece(pieces.fetch(jnp.int32(0)))

    def add(carry, k):
        total, lost = carry
        values = jax.tree.map(jnp.subtract, piece(pieces.fetch(k)), lost)
        new = jax.tree.map(jnp.add, total, values)
        lost = jax.tree.map(lambda n, t, v: (n - t) - v, new, total, values)
        return (new, lost), None

    shape = jax.eval_shape(piece, jax.eval_shape(pieces.fetch, jnp.int32(0)))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)
    (total, _), _ = jax.lax.scan(add, (zero, zero), jnp.arange(pieces.num_blocks, dtype=jnp.int32))
    return total


@spread(prior=True)
@jax.jit
def value_and_gradient(
    problem: Problem, z: Float[Array, " d"]
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """Return the log posterior density at z and its gradient."""
    value, gradient = jax.value_and_grad(problem.log_prior)(z)
    if not problem.has_rows:
        return value, gradient
    piece = lambda b: jax.value_and_grad(problem.log_likelihood)(z, b.rows, b.weight)  # noqa: E731
    likelihood, slope = _over_pieces(problem.source, problem.source.row_width, piece)
    return value + likelihood, gradient + slope


@spread(prior=True)
@jax.jit
def value(problem: Problem, z: Float[Array, " d"]) -> Float[Array, ""]:
    """Return the log posterior density at z without the gradient, at a third of the cost."""
    prior = problem.log_prior(z)
    if not problem.has_rows:
        return prior
    piece = lambda b: problem.log_likelihood(z, b.rows, b.weight)  # noqa: E731
    return prior + _over_pieces(problem.source, problem.source.row_width, piece)


def log_density(problem: Problem, z: Float[Array, " d"]) -> Float[Array, ""]:
    """Return the log posterior density at z."""
    return value_and_gradient(problem, z)[0]


def differences(
    problem: Problem, zs: Float[np.ndarray, "m d"], center: Float[np.ndarray, " d"]
) -> Float[np.ndarray, " m"]:
    """Return log p(z) - log p(center) at each of m positions, on the host in float64.

    Each row's difference is computed before the sum, so that a sum of thousands loses no digits.
    The result is NaN if a density is not finite and has no difference. Positions are in groups of one size,
    so that any m uses the same compiled function.
    """
    problem, count = problem.as_one_batch(), len(zs)
    padded = np.concatenate([zs, np.repeat(zs[-1:], -count % ROW_DENSITY_GROUP, axis=0)])
    at = problem.array(center)
    groups = problem.on_host(padded).reshape(-1, ROW_DENSITY_GROUP, zs.shape[1])
    # sequentially: with several at once, two processes may wait forever for each other's sums
    parts = []
    for group in groups:
        check_time()
        parts.append(np.asarray(_differences(problem, group, at), np.float64))
    return np.concatenate(parts)[:count]


@spread(prior=True)
@jax.jit
def _differences(problem, zs, center):
    prior = jax.vmap(problem.log_prior)(zs) - problem.log_prior(center)
    if not problem.has_rows:
        return prior

    # with the centre included: with a second call for it, XLA recomputes terms that depend only on the row (log y!)
    # at each position, and negative binomial rows took 215 ns each instead of 10
    together = jnp.concatenate([center[None], zs])

    def piece(b):
        values = jax.vmap(lambda z: row_values(problem, z, b.rows))(together)
        moved = values[1:] - values[:1]
        if b.weight is not None:  # padding rows may have any value
            weight = b.weight[None]
            moved = jnp.where(weight > 0, weight * moved, 0.0)
        return jnp.sum(moved, axis=1)

    return prior + _over_pieces(
        problem.source, max(ROW_DENSITY_GROUP, problem.source.row_width), piece
    )


@spread(prior=False)
@jax.jit
def likelihood_gradient(problem: Problem, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """Return sum_i grad log_likelihood_i(z)."""
    piece = lambda b: jax.grad(problem.log_likelihood)(z, b.rows, b.weight)  # noqa: E731
    return _over_pieces(problem.source, problem.source.row_width, piece)


def _in_groups(
    value: Callable[..., Array], problem: Problem, zs: Float[np.ndarray, "m d"], size: int
) -> np.ndarray:
    """Return `value` at each of m positions, in groups of one size, so that it is compiled once."""
    problem, count = problem.as_one_batch(), len(zs)
    padded = np.concatenate([zs, np.repeat(zs[-1:], -count % size, axis=0)])
    groups = padded.reshape(-1, size, zs.shape[1])
    parts = [np.asarray(value(problem, problem.array(group))) for group in groups]
    return np.concatenate(parts)[:count].astype(np.float64)


def log_densities(problem: Problem, zs: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
    """Return the log posterior density at each of m positions, on the host in float64."""
    return _in_groups(_log_densities, problem, zs, DENSITY_GROUP)


@spread(prior=True)
@jax.jit
def _log_densities(problem, zs):
    prior = jax.vmap(problem.log_prior)(zs)
    if not problem.has_rows:
        return prior
    piece = lambda b: jax.vmap(  # noqa: E731
        lambda z: problem.log_likelihood(z, b.rows, b.weight)
    )(zs)
    return prior + _over_pieces(problem.source, max(zs.shape[0], problem.source.row_width), piece)


def gradients(problem: Problem, zs: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d"]:
    """Return the full-data gradient at each of m positions, on the host in float64."""
    return _in_groups(_gradients, problem, zs, GRADIENT_GROUP)


@spread(prior=True)
@jax.jit
def _gradients(problem, zs):
    prior = jax.vmap(jax.grad(problem.log_prior))(zs)
    if not problem.has_rows:
        return prior
    piece = lambda b: jax.vmap(  # noqa: E731
        lambda z: jax.grad(problem.log_likelihood)(z, b.rows, b.weight)
    )(zs)
    return prior + _over_pieces(problem.source, max(zs.shape[0], problem.source.row_width), piece)


@spread(prior=True)
@jax.jit
def curvature(problem: Problem, z: Float[Array, " d"]) -> Float[Array, "d d"]:
    """Return -(d/dz)^2 of the log posterior at z: d Hessian-vector products per row, in pieces."""
    prior = jax.hessian(problem.log_prior)(z)
    if not problem.has_rows:
        return -prior
    piece = lambda b: jax.hessian(problem.log_likelihood)(z, b.rows, b.weight)  # noqa: E731
    width = 4 * max(z.size, problem.source.row_width)
    return -(prior + _over_pieces(problem.source, width, piece))


@spread(prior=False)
@jax.jit
def directions(
    problem: Problem, z: Float[Array, " d"], factor: Float[Array, "d d"]
) -> Float[Array, "d d"]:
    """Return sum_i v_i v_i^T of `row_directions`: the distribution of the rows' directions."""

    def piece(b):
        v = row_directions(problem, z, factor, b.rows)
        return v.T @ (v if b.weight is None else b.weight[:, None] * v)

    return _over_pieces(problem.source, 2 * max(z.size, problem.source.row_width), piece)


def row_directions(problem: Problem, z: Array, factor: Array, rows: Any) -> Float[Array, "n d"]:
    """Return v_i = F^T g_i / |F^T g_i| for the rows' gradients g_i, or 0 if that is 0.

    The rows have leaves [n, ...]; called inside compiled code. The vector is first divided by its largest entry,
    so that the square of a tiny gradient does not underflow.
    """
    each = jax.tree.map(lambda leaf: leaf[:, None], rows)
    slope = jax.vmap(lambda row: jax.grad(problem.log_likelihood)(z, row))(each) @ factor
    slope = jnp.where(jnp.isfinite(slope), slope, 0.0)
    largest = jnp.max(jnp.abs(slope), axis=1, keepdims=True)
    slope = slope / jnp.where(largest > 0, largest, 1.0)
    return slope / jnp.maximum(jnp.linalg.norm(slope, axis=1, keepdims=True), 1.0)


def prior_curvature(problem: Problem, z: Float[Array, " d"]) -> Float[Array, "d d"]:
    """Return -(d/dz)^2 of the log prior at z."""
    return curvature(replace(problem, data=None), z)


@jax.jit
def block_gradients(problem: Problem, z: Float[Array, " d"]) -> Float[Array, "K d"]:
    """Return the blocks' sums of grad log_likelihood_i(z), unscaled, one row per block.

    Rows that are in every batch count once per block, each time with their share of 1 / K.
    """
    source, always = problem.of_others().source, problem.source

    def one(k):
        batch = source.fetch(k)
        return jax.grad(problem.log_likelihood)(z, batch.rows, batch.weight)

    ks = jnp.arange(source.num_blocks, dtype=jnp.int32)
    table = jax.lax.map(one, ks, batch_size=max(1, BLOCK_ROWS_AT_ONCE // source.block_size))
    if isinstance(always, AlwaysIn):
        table += jax.grad(problem.log_likelihood)(z, always.held)[None] / source.num_blocks
    return table


# -- tiles ---------------------------------------------------------------------------------


MAX_TILE_NUMBERS = 2**17  # numbers in a tile's rows
MAX_SHARED_NUMBERS = 2**21  # numbers in all rows, if chains multiply them together
MIN_TILES = 4  # with fewer tiles, the batch is not tiled
# parameters per number of a row, up to which reading rows dominates the time
MAX_REREAD_RATIO = 2


def batch_likelihood(problem: Problem, x: Any) -> Callable[[Float[Array, " d"]], Float[Array, ""]]:
    """Return z -> the unscaled weighted sum of log likelihoods of entry x, inside compiled code."""
    tiled = in_tiles(problem, x)
    if tiled is not None:
        return tiled
    batch = problem.source.fetch(x)
    return lambda z: problem.log_likelihood(z, batch.rows, batch.weight)


def in_tiles(
    problem: Problem, x: Any, most: int | None = None
) -> Callable[[Float[Array, " d"]], Float[Array, ""]] | None:
    """Return the same function computed in tiles of `most` numbers, or None if that is not faster.

    It is not faster for few numbers, or for much work per number.
    """
    size = tile_size(problem, most or MAX_TILE_NUMBERS)
    if size is None:
        return None
    source: Any = problem.source
    begins = jnp.arange(0, source.block_size, size, dtype=jnp.int32)

    def tiled(z: Float[Array, " d"]) -> Float[Array, ""]:
        # no intermediate of a tile is stored: its gradient recomputes them
        @partial(jax.checkpoint, prevent_cse=False)
        def tile(z: Array, begin: Array) -> Array:
            rows, weight = source.tile(x, begin, size)
            return problem.log_likelihood(z, rows, weight)

        add = lambda total, begin: (total + tile(z, begin), None)  # noqa: E731
        zero = jnp.zeros((), jax.eval_shape(tile, z, begins[0]).dtype)  # rows may be float64
        return jax.lax.scan(add, zero, begins)[0]

    return tiled


def tile_size(problem: Problem, most: int) -> int | None:
    """Return the rows of tiles of at most `most` numbers, nearly equal; None for a single tile."""
    source = problem.source
    if type(source) is not InMemory or not source.uses_blocks:
        return None
    width = source.row_width
    count = -(-source.block_size * width // most)
    if count < MIN_TILES or problem.dimension > MAX_REREAD_RATIO * width:
        return None
    return -(-source.block_size // count)
