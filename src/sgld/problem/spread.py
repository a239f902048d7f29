"""Passes over rows on disk, mapped over workers: each sums its pieces by the functions of `sums`, and sums are added here.

    F(z) = prior(z) + sum_k F_k(z),      F_k over rows [k m, (k + 1) m) of the shuffled files

Pieces are of one size whatever the workers, and are added in their order, in float64: the sums do not depend on how
many workers there are. Inside compiled code nothing is sent; there the same functions read the files themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.devices import known_now
from ..core.files import read_json
from ..core.pytrees import as_pytree
from ..data.mapped import OnDisk
from ..data.memory import AlwaysIn, InMemory
from ..errors import DataError, RunError, UsageError, first_line, need
from .problem import Problem

__all__ = ["seen_by_workers", "spread", "spread_over"]

SENT = 2**24  # numbers of the rows of a piece
TOGETHER = 64  # pieces whose rows are looked at before anything is done with what was seen
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
    """Some rows, and what is to be done with them."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    target: bytes
    folder: str
    digest: str
    begin: int
    end: int
    double: bool


def spread_over(problem: Problem) -> OnDisk | None:
    """The rows, where passes over all of them are mapped over workers; None where they are not."""
    data = problem.data
    if isinstance(data, AlwaysIn) and data.numbers.shape == data.chosen.shape:
        data = data.source
    return data if isinstance(data, OnDisk) and data.workers is not None else None


def spread(*, prior: bool) -> Callable[[F], F]:
    """A function (problem, *arrays) -> arrays that sums over all rows, and with `prior` adds what there is without rows.

    Where the problem has workers and nothing is being compiled they sum, each its pieces.
    """

    def decorated(function: F) -> F:
        @wraps(function)
        def called(problem: Problem, *arguments: Any) -> Any:
            rows = spread_over(problem)
            if rows is None or not known_now(problem, arguments):
                return function(problem, *arguments)
            parts = _mapped(rows, problem, _worker_pieces(rows), called, arguments)
            total = jax.tree.map(
                lambda *values: sum(np.asarray(v, np.float64) for v in values), *parts
            )
            if prior:
                alone = function(replace(problem, data=None), *arguments)
                total = jax.tree.map(lambda t, a: t + np.asarray(a, np.float64), total, alone)
            return jax.tree.map(lambda t, part: np.asarray(t, part.dtype), total, parts[0])

        # what release.py gives back, and tests count, as of any compiled function
        for name in ("lower", "clear_cache", "_cache_size"):
            setattr(called, name, getattr(function, name))
        return called  # pyright: ignore

    return decorated


def seen_by_workers(
    rows: OnDisk, problem: Problem, look: Callable[..., Any], given: Any, width: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As `each_row`, of rows that workers look at; held at once is what they saw of TOGETHER pieces."""
    pieces = _worker_pieces(rows)
    for first in range(0, len(pieces), TOGETHER):
        some = pieces[first : first + TOGETHER]
        found = _mapped(rows, problem, some, _look_at_all, (look, given, width))
        for (begin, end), seen in zip(some, found, strict=True):
            yield np.arange(begin, end), seen


def _look_at_all(problem: Problem, look: Callable[..., Any], given: Any, width: int) -> np.ndarray:
    from .rows import each_row

    seen = list(each_row(look, problem, given, width))
    order = np.argsort(np.concatenate([numbers for numbers, _ in seen]))
    return np.concatenate([what for _, what in seen])[order]


def _worker_pieces(rows: OnDisk) -> list[tuple[int, int]]:
    size = max(1, SENT // max(1, rows.row_width))
    return [(at, min(at + size, rows.num_data)) for at in range(0, rows.num_data, size)]


def _mapped(
    rows: OnDisk, problem: Problem, pieces: list[tuple[int, int]], work: Any, arguments: Any
) -> list[Any]:
    """work(problem over a piece's rows, *arguments) of every piece, by the workers."""
    pickle = need("cloudpickle", "dask")
    try:
        target = pickle.dumps((problem.target, jax.tree.structure(rows.held.rows)))
    except Exception as error:
        raise UsageError(
            f"the posterior cannot be sent to workers: {type(error).__name__} ({first_line(error)}); make it of functions "
            "and arrays, or run without workers."
        ) from error
    folder = str(Path(rows.files.paths[0]).absolute().parent)
    double = bool(jax.config.read("jax_enable_x64"))
    arguments = jax.tree.map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, arguments)
    assert rows.workers is not None
    return rows.workers(
        _done,
        [_Piece(work, arguments, target, folder, rows.hash(), *piece, double) for piece in pieces],
    )


# -- at a worker ---------------------------------------------------------------------------


def _done(piece: _Piece) -> Any:
    """What a worker does with a piece; arrays of NumPy."""
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
    """The same functions for the same bytes: nothing is compiled twice."""
    import pickle

    return pickle.loads(content)


@lru_cache(maxsize=8)
def _leaves(folder: str, digest: str) -> list[np.ndarray]:
    """The files of the rows, found to be those that are meant."""
    there = f"a worker does not find the rows in {folder}"
    try:
        manifest = read_json(Path(folder) / "rows.json")
        names = [f"{i}.npy" for i in range(len(manifest["leaves"]))]
        found = [np.load(Path(folder) / name, mmap_mode="r") for name in names]
    except (OSError, RunError, KeyError, ValueError) as error:
        raise DataError(
            f"{there} ({first_line(error)}); name a folder that all workers share with cache=."
        ) from error
    if manifest.get("hash") != digest:
        raise DataError(f"{there}, but others; name a folder that all workers share with cache=.")
    return found
