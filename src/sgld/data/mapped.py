"""Shuffled rows in memory-mapped files, running moments of columns, and workers for full passes.

On a CPU, a JAX array may use the host's own memory, and a memory map is such memory: pages of a file
that the operating system reads on access and drops under memory pressure. A run on a file therefore
equals the run on arrays bit for bit, and its memory does not grow with the file. A reader thread requests
the pages of the next batches while the current steps are computed.

`Running` computes moments and ranges of numbers in pieces, in float64. `Workers` maps passes over rows on
disk to workers of Dask, Ray or an executor.
"""

from __future__ import annotations

import os
import queue
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from ..core.devices import check_memory, free_memory, gib
from ..core.pytrees import StaticField, as_pytree
from ..errors import DataError, RunError, SGLDError, UsageError, first_line
from .memory import InMemory
from .source import Source

# -- running -------------------------------------------------------------------------------


@dataclass
class Running:
    """Moments of columns [n, ...] over pieces, by the sums of Chan, Golub & LeVeque (1979).

    Attributes:
      count: the number of rows.
      mean, least, most: the mean, minimum and maximum of each column.
      squares: sums of squared deviations from the mean.
    """

    count: int = 0
    mean: Any = 0.0
    squares: Any = 0.0
    least: Any = np.inf
    most: Any = -np.inf

    def add(self, values: np.ndarray) -> None:
        """Add the next rows, at least one."""
        values = values.astype(np.float64)
        count, mean = len(values), values.mean(axis=0)
        apart, whole = mean - self.mean, self.count + len(values)
        self.squares += ((values - mean) ** 2).sum(axis=0) + apart**2 * self.count * count / whole
        self.mean, self.count = self.mean + apart * count / whole, whole
        self.least = np.minimum(self.least, values.min(axis=0))
        self.most = np.maximum(self.most, values.max(axis=0))


# -- workers -------------------------------------------------------------------------------


class Workers(StaticField):
    """A function map(function, items) -> results in order; compiled code sees equal instances.

    Args:
      given: such a function; a Dask client (`map` and `gather`); or an object with such a `map`, such as an
        executor of `concurrent.futures` or a pool of `multiprocessing` or Ray.

    Raises: UsageError for anything else.
    """

    def __init__(self, given: Any) -> None:
        self.given = given
        self._map: Callable[[Any, Any], Any] = given
        if callable(getattr(given, "map", None)):
            self._map = _of_client(given) if hasattr(given, "gather") else given.map
        elif not callable(given):
            raise UsageError(
                "workers must be a Dask client, an executor or pool with a map, or a function map(function, items). "
                f"Got {type(given).__name__}."
            )

    def __repr__(self) -> str:
        return f"Workers({type(self.given).__name__})"

    def __call__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return function(item) for every item; raise RunError if the workers fail."""
        try:
            found = list(self._map(function, items))
        except SGLDError:
            raise
        except Exception as error:
            raise RunError(
                f"the workers failed: {type(error).__name__} ({first_line(error)}); install this version of sgld and the "
                "packages of the posterior on each, and continue with sgld.resume."
            ) from error
        if len(found) != len(items):
            raise RunError(
                f"the workers returned {len(found)} results for {len(items)} pieces; map must return one each, in order."
            )
        return found


def _of_client(client: Any) -> Callable[[Any, Sequence[Any]], list[Any]]:
    def mapped(function: Any, items: Sequence[Any]) -> list[Any]:
        with warnings.catch_warnings():  # rows are sent only once
            warnings.filterwarnings("ignore", "Sending large graph")
            # pure=True would store the results and hash every argument
            return client.gather(client.map(function, items, pure=False))

    return mapped


# -- on disk -------------------------------------------------------------------------------


PREFETCH_BYTES = 2**23  # bytes of one read-ahead request
MAX_PREFETCHED_ROWS = 2**16  # batches, or rows, that are requested ahead of a chunk
RESIDENCY_ROWS = 64  # of these, to check whether they are in memory already

PyTree = Any


class Files(StaticField):
    """The files of shuffled rows: one .npy file per leaf, and the original number of each row.

    Any two instances compare equal, so that compiled code is reused for other files.

    Attributes:
      paths: the files of the leaves, arrays [N + 1, ...] whose last row repeats the first.
      order: the original numbers of the rows, in their stored order.
      dropped: the numbers of rows that were left out; `order` does not count these.
      digest: SHA-256 of the rows in their order.
      about: the description of the data in `repr`.
      columns: statistics of the columns of a table, by name.
    """

    def __init__(
        self,
        paths: tuple[str, ...],
        order: Int[np.ndarray, " N"],
        dropped: Int[np.ndarray, " m"],
        digest: str,
        about: str,
        columns: Mapping[str, Any],
    ) -> None:
        self._asked: queue.SimpleQueue[tuple[np.ndarray, np.ndarray] | None] = queue.SimpleQueue()
        self._reader: threading.Thread | None = None
        self.paths, self.order, self.dropped = paths, order, dropped
        self.digest, self.about, self.columns = digest, about, columns
        self.leaves = tuple(np.load(path, mmap_mode="r") for path in paths)
        self._handles = [os.open(path, os.O_RDONLY) for path in paths]
        self._as_opened = self._stamps()
        weakref.finalize(self, _close, self._asked, self._handles)

    def __repr__(self) -> str:
        return self.about

    @property
    def size(self) -> int:
        """The bytes of the leaves."""
        return sum(leaf.nbytes for leaf in self.leaves)

    def numbers(self, rows: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
        """Return the user's numbers of these rows, counted from 0 and including rows left out."""
        own = self.order[rows].astype(np.int64)
        if not len(self.dropped):
            return own
        before = self.dropped - np.arange(len(self.dropped))  # rows that stayed, before each
        return own + np.searchsorted(before, own, side="right")

    def check_unchanged(self) -> None:
        """Raise DataError if the files were changed since they were opened."""
        if self._stamps() != self._as_opened:
            raise DataError(
                f"{os.path.dirname(self.paths[0])} was changed while it was read; delete it and run again."
            )

    def ask(self, first: Int[np.ndarray, " m"], count: Int[np.ndarray, " m"]) -> None:
        """Let the reader thread load `count` rows from each of `first` into memory soon."""
        if not hasattr(os, "posix_fadvise"):
            return
        if self._reader is None:
            args = (self._asked, tuple(self._handles), self._places())
            self._reader = threading.Thread(
                target=_read_ahead, args=args, name="sgld-reader", daemon=True
            )
            self._reader.start()
        self._asked.put((first, count))

    def _stamps(self) -> list[tuple[int, int]]:
        found = [os.fstat(handle) for handle in self._handles]
        return [(s.st_size, s.st_mtime_ns) for s in found]

    def _places(self) -> tuple[tuple[int, int], ...]:
        """Return the offset of the rows of each leaf in its file, and the bytes of a row."""
        return tuple((leaf.offset, leaf.nbytes // len(leaf)) for leaf in self.leaves)


def _close(asked: queue.SimpleQueue, handles: list[int]) -> None:
    """End the reader thread and close the handles of files that are no longer used."""
    asked.put(None)
    for handle in handles:
        os.close(handle)


def _read_ahead(
    asked: queue.SimpleQueue, handles: tuple[int, ...], places: tuple[tuple[int, int], ...]
) -> None:
    """Run the reader thread; it holds no reference to the Files, so that these can be closed."""
    while (wanted := asked.get()) is not None:
        while not asked.empty():  # only the latest request is still useful
            later = asked.get()
            if later is None:
                return
            wanted = later
        for handle, (offset, width) in zip(handles, places, strict=True):
            begin = offset + width * wanted[0].astype(np.int64)
            end = begin + width * wanted[1]
            try:
                if not _all_there(handle, begin[:: max(1, len(begin) // RESIDENCY_ROWS)]):
                    for a, b in zip(begin.tolist(), end.tolist(), strict=True):
                        if not asked.empty():
                            break
                        _advise(handle, a, b)
            except OSError:  # closed, or the file system does not support read-ahead
                return


def _all_there(handle: int, places: np.ndarray) -> bool:
    """Return whether these bytes of a file are in memory, so that no read is needed."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    try:
        for place in places.tolist():
            os.preadv(handle, [bytearray(1)], place, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


def _advise(handle: int, begin: int, end: int) -> None:
    for at in range(begin, end, PREFETCH_BYTES):
        os.posix_fadvise(handle, at, min(PREFETCH_BYTES, end - at), os.POSIX_FADV_WILLNEED)


@as_pytree
@dataclass(frozen=True)
class OnDisk(InMemory):
    """N rows in files, in a random order: the result of `sgld.open`; leaves are memory-mapped."""

    files: Files = field(metadata={"static": True})
    workers: Workers | None = field(default=None, metadata={"static": True})

    @classmethod
    def of(cls, files: Files, treedef: Any) -> OnDisk:
        """Return the rows of files as a pytree of this structure, all in one batch."""
        if jax.default_backend() != "cpu":
            check_memory(
                files.size, f"the rows on the device ({gib(files.size)} on disk)",
                "run on the host (JAX_PLATFORMS=cpu), which reads them from the file",
            )  # fmt: skip
        rows = treedef.unflatten([jax.device_put(leaf) for leaf in files.leaves])
        size = len(files.order)
        return cls(rows, size, size, "reshuffle", files)

    def __repr__(self) -> str:
        return f"OnDisk({self.num_data:,} rows, {gib(self.files.size)}: {self.files})"

    @property
    def columns(self) -> Mapping[str, Any]:
        """Statistics of a table's columns: `mean`, `sd`, `least`, `most`, `missing`, `categories`."""
        return self.files.columns

    @property
    def num_dropped(self) -> int:
        """The number of rows that were left out because of an empty cell."""
        return len(self.files.dropped)

    def chunk(self, key: tuple[int, int], step: int, n: int) -> Int[np.ndarray, "n ..."]:
        """Return the int32 entries of steps [step, step + n); raise DataError if files changed."""
        self.files.check_unchanged()
        return super().chunk(key, step, n)

    def ahead(self, entries: Int[np.ndarray, "n ..."]) -> None:
        """Read the rows of these entries, in this order, while other work is computed."""
        which = entries.reshape(-1)[:MAX_PREFETCHED_ROWS].astype(np.int64)
        if self.uses_blocks:  # as `block_start`, on the host
            first = which * self.block_size - np.maximum(which - self._larger, 0)
            self.files.ask(first, np.full(len(first), self.block_size))
        else:
            self.files.ask(which, np.ones_like(which))

    def warmed(self) -> OnDisk:
        """Return the source while its files are read into memory, if they fit."""
        if self.files.size < free_memory() / 2:
            rows = max(1, PREFETCH_BYTES * self.num_data // max(1, self.files.size))
            first = np.arange(0, self.num_data, rows)
            self.files.ask(first, np.minimum(rows, self.num_data - first))
        return self

    def over(self, workers: Any) -> OnDisk:
        """Return the same rows with full passes mapped over `workers` (search, curvature, survey).

        Args:
          workers: a Dask client; an object with a `map` (an executor, a pool of Ray); or a function
            map(function, items) -> results in order. They read the rows in the folder `cache` of `sgld.open`,
            which all must see, and need cloudpickle.

        Raises: UsageError for anything else.
        """
        return replace(self, workers=Workers(workers))

    rows_called = Source.rows_called  # by the files' numbers

    def original_rows(self, rows: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """Return the numbers of the rows in the opened data, whatever the seed."""
        return self.files.numbers(rows)

    def hash(self) -> str:
        """Return the SHA-256 of the rows, computed when they were shuffled."""
        return self.files.digest
