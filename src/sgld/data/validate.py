"""Checks of sources and of arrays of data before any computation.

`sgld.testing.check_source` runs these checks, and others that need many steps. A full pass is checked to
count every row once: row by row, or, for very many rows, by a sum of keys.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from jaxtyping import Array, Bool, Float, Int

from ..core.devices import DATA, raise_together, sent
from ..core.pytrees import check_compiled, leaf_names, types_of
from ..core.user_code import user_errors
from ..core.validation import unmasked
from ..errors import DataError, SGLDError, UsageError, first_line
from .mapped import OnDisk, Running
from .memory import InMemory, digest, keys
from .sharded import Sharded, lies_on
from .source import ORDERS, Batch, Source, check_batches, common_length

# -- check ---------------------------------------------------------------------------------


PyTree = Any

# the largest rms rounding error of float32, in sds of a column: data near 3e4 times their sd
MAX_FLOAT32_LOSS_SDS = 1e-3
FLOAT32_CHECK_ROWS = 2**14  # rows that are checked for it
ARRAY_PROTOCOLS = (
    "__array__", "__array_interface__", "__array_struct__", "__dlpack__", "__buffer__", "buffer_info",
)  # fmt: skip


def check_data(data: PyTree) -> PyTree:
    """Return data as numpy arrays in the precision of JAX; raise DataError with the location.

    Refused are: no arrays, arrays of different lengths, no rows, non-numeric or complex dtypes, and
    NaN or infinite cells. Without x64 also floats beyond float32, integers above 2^24, and float64 columns
    so far from 0 relative to their sd that float32 rounds away the differences between rows.
    """
    leaves, treedef = jax.tree.flatten(data)
    names = leaf_names(data)
    if not leaves:
        raise DataError("data holds no arrays; give a pytree of arrays with one row per datum.")
    arrays = [_as_array(*pair) for pair in zip(names, leaves, strict=True)]
    lengths = {name: a.shape[0] if a.ndim else None for name, a in zip(names, arrays, strict=True)}
    if None in lengths.values():
        scalar = next(name for name, length in lengths.items() if length is None)
        lists = ": give arrays, np.asarray(...), not lists" if list in types_of(treedef) else ""
        raise DataError(
            f"data leaf {scalar!r} is a single number; every leaf needs a leading row axis{lists}."
        )
    if common_length("data leaves", {repr(k): v for k, v in lengths.items()}) == 0:
        raise DataError("data has 0 rows; at least one is needed.")
    held = [converted(n, a) for n, a in zip(names, arrays, strict=True)]
    for name, given, kept in zip(names, arrays, held, strict=True):
        rounding = Rounding(f"data leaf {name!r}")
        rounding.add(given, kept)
        rounding.check()
    return treedef.unflatten(held)


def check_real(name: str, dtype: np.dtype) -> None:
    """Raise DataError for cells that are not real numbers or booleans."""
    if dtype.kind not in "biuf":
        raise DataError(f"{name} has dtype {dtype}; encode it as real numbers first.")


def _as_array(name: str, leaf: Any) -> np.ndarray:
    """Return a leaf as an array; raise DataError for other objects with items.

    NumPy would read the items of such an object one by one, in some cases without end.
    """
    known = isinstance(leaf, (str, bytes, bytearray, memoryview, range)) or any(
        hasattr(leaf, way) for way in ARRAY_PROTOCOLS
    )
    if hasattr(leaf, "__getitem__") and not known:
        raise DataError(
            f"data leaf {name!r} is a {type(leaf).__name__}, which is not an array; give arrays, or sgld.open(...) of "
            "a data set whose rows are read one by one."
        )
    return np.asarray(unmasked(f"data leaf {name!r}", leaf))


class Rounding:
    """The rounding loss of a leaf's columns at the run's precision, on rows spread over a piece.

    A likelihood that subtracts an offset would use the rounded numbers.
    """

    def __init__(self, leaf: str) -> None:
        self.leaf = leaf
        self.seen = Running()
        self.lost: Any = 0.0

    def add(self, given: np.ndarray, kept: np.ndarray) -> None:
        """Add the next rows, as given and as rounded."""
        if given.dtype.kind != "f" or given.dtype.itemsize <= kept.dtype.itemsize or not given.size:
            return
        some = slice(None, None, max(1, len(given) // FLOAT32_CHECK_ROWS))
        values = given[some].reshape(len(given[some]), -1).astype(np.float64)
        rounded = kept[some].reshape(values.shape).astype(np.float64)
        self.dtype = kept.dtype
        self.seen.add(values)
        self.lost += ((rounded - values) ** 2).sum(axis=0)

    def check(self) -> None:
        """Raise DataError if the loss exceeds MAX_FLOAT32_LOSS_SDS of a column's sd."""
        seen = self.seen
        if not seen.count:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(seen.most > seen.least, np.sqrt(self.lost / seen.squares), 0.0)
        worst = int(np.argmax(share))
        if share[worst] > MAX_FLOAT32_LOSS_SDS:
            column = f", column {worst}," if share.size > 1 else ""
            largest = max(abs(seen.least[worst]), abs(seen.most[worst]))
            raise DataError(
                f"{self.leaf}{column} has an sd of {np.sqrt(seen.squares[worst] / seen.count):.3g} around "
                f"{seen.mean[worst]:.9g}, and numbers of {self.dtype} there are "
                f"{float(np.spacing(self.dtype.type(largest))):.2g} apart: its rows would be rounded; subtract an offset "
                "from the data (not in the model), or enable jax_enable_x64."
            )


def held_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype that JAX uses for numbers of this dtype, at most 64 bits wide."""
    wide = dtype.kind == "f" and dtype.itemsize > 8
    return np.dtype(jax.dtypes.canonicalize_dtype("float64" if wide else dtype.newbyteorder("=")))


def converted(name: str, array: np.ndarray, first: int = 0) -> np.ndarray:
    """Return rows, numbered from `first`, in JAX's precision; raise DataError as `check_data`."""
    check_real(f"data leaf {name!r}", array.dtype)
    if array.dtype == bool:
        return array
    target = held_dtype(array.dtype)
    if np.issubdtype(array.dtype, np.integer):
        largest = max(abs(int(array.max())), abs(int(array.min())))
        if target.itemsize <= 4 and largest > 2**24:
            raise DataError(
                f"data leaf {name!r} holds the integer {largest}, above 2^24, which float32 arithmetic "
                "would round; subtract an offset, or enable jax_enable_x64."
            )
        return array.astype(target)
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f"row {first + where[0]}" + (f", column {where[1:]}" if len(where) > 1 else "")
        raise DataError(
            f"data leaf {name!r} holds {array[where]} at {place} (counted from 0); "
            "remove or impute it."
        )
    if array.dtype.itemsize > target.itemsize:
        limit = float(np.finfo(target).max)
        if array.size and float(np.abs(array).max()) > limit:
            raise DataError(
                f"data leaf {name!r} holds values beyond {target}'s largest, {limit:.3g}; rescale it, "
                "or enable jax_enable_x64."
            )
    return array.astype(target, copy=False)


# -- counted -------------------------------------------------------------------------------


# rows up to which each is counted individually; also the rows per piece beyond that
MAX_COUNTED_ROWS = 2**24
HASH_SEED = 0x5EED  # the seed of the keys that are summed


class Counted:
    """The number of times that each row counts."""

    def __init__(self, num_data: int) -> None:
        self.total = np.zeros(num_data)

    def add(self, numbers: Int[np.ndarray, " m"], weight: Float[np.ndarray, " m"]) -> None:
        """Add some rows of a pass."""
        self.total += np.bincount(numbers, weight, minlength=len(self.total))

    def check(self) -> None:
        """Raise DataError unless each row counts once."""
        wrong = np.flatnonzero(np.abs(self.total - 1) > 1e-4)
        if wrong.size:
            raise DataError(
                f"row {wrong[0]} counts {self.total[wrong[0]]:.6g} times in a pass over all blocks, not once; check "
                f"that num_data, {len(self.total)}, is the number of rows that fetch visits."
            )


class Summed:
    """A check that each row counts once, for more rows than are counted individually.

    It compares the sum modulo 2^64 of the keys of the rows that came with that of all rows: the sums of two
    different collections agree with probability 2^-64. Rows with a part in every batch are counted.
    """

    def __init__(self, num_data: int) -> None:
        self.num_data, self.sum, self.parts = num_data, 0, dict[int, float]()

    def add(self, numbers: Int[np.ndarray, " m"], weight: Float[np.ndarray, " m"]) -> None:
        """Add some rows of a pass."""
        self.sum += _sum(numbers[weight == 1])
        for k in np.flatnonzero((weight != 1) & (weight != 0)).tolist():
            row = int(numbers[k])
            self.parts[row] = self.parts.get(row, 0.0) + float(weight[k])

    def check(self) -> None:
        """Raise DataError unless each row counts once."""
        whole = 0
        for first in range(0, self.num_data, MAX_COUNTED_ROWS):
            rows = np.arange(first, min(first + MAX_COUNTED_ROWS, self.num_data))
            whole += _sum(rows)
        held = np.array([row for row, part in self.parts.items() if abs(part - 1) < 1e-3], np.int64)
        if len(held) < len(self.parts) or (self.sum + _sum(held) - whole) % 2**64:
            raise DataError(
                f"not every row counts once in a pass over all blocks; check that num_data, {self.num_data}, is the "
                "number of rows that fetch visits."
            )


def _sum(numbers: Int[np.ndarray, " m"]) -> int:
    """Return the sum of the keys of rows, modulo 2^64."""
    return int(keys(numbers, HASH_SEED).sum(dtype=np.uint64))


# -- contract ------------------------------------------------------------------------------


SOURCE_MEMBERS = (
    "num_data", "batch_size", "order", "take", "hash", "chunk", "fetch", "with_batches",
    "ahead", "original_rows", "rows_called", "num_blocks", "block_size", "uses_blocks", "is_independent", "period",
    "entry_shape", "row_width",
)  # fmt: skip
SOURCE_ONLY_MEMBERS = ("num_data", "chunk", "fetch", "with_batches")  # arrays do not have these
CHECKED_NUMBERS = 2**21  # values in the rows that are examined together
HASH_PROBE_ROWS = 16  # rows that the fingerprint includes
MIN_CHECKED_ENTRIES = 64  # entries of an order, or those of two steps if there are more
MAX_CHECKED_ENTRIES = 2**20  # blocks, and rows of a batch, whose order is checked


def as_source(data: PyTree, seed: int, mesh: Any = None) -> Source:
    """Return the rows of `data=` in one batch, on a mesh if there is one.

    A Source is used unchanged, and arrays are shuffled by `seed`. Raises UsageError and DataError for
    anything else.
    """
    if mesh is not None:
        return _over(mesh, data, seed)
    if not is_source(data):
        return InMemory.of(check_data(data), seed)
    if isinstance(data, OnDisk):  # every row was checked when it was written
        return data.with_batches(data.num_data, "reshuffle").warmed()
    check_contract(data)
    return data.with_batches(data.num_data, "reshuffle")


def _over(mesh: Any, data: PyTree, seed: int) -> Source:
    """Return the rows over the mesh's axis "data"; a user-supplied source keeps its placement."""
    own = is_source(data) and not isinstance(data, OnDisk)
    laid = not is_source(data) and lies_on(data, mesh)
    with raise_together():  # an error in one process's rows is raised before the others wait
        if own and mesh.shape[DATA] > 1:
            raise UsageError(
                f"data, a {type(data).__name__}, is a user-supplied source, whose rows cannot be sharded over a mesh; give "
                "arrays or sgld.open, or a mesh with 1 device on its axis 'data'."
            )
        if own:
            check_contract(data)
        elif not is_source(data) and not laid:
            data = check_data(data)
    if isinstance(data, OnDisk):
        return Sharded.of_files(data, mesh)
    if laid:
        return Sharded.of_arrays(data, mesh, seed)
    if not own:
        return Sharded.of(data, mesh, seed)
    return data.with_batches(data.num_data, "reshuffle")


def is_source(data: Any) -> bool:
    """Return whether `data=` is meant as a Source, not as arrays."""
    return any(hasattr(type(data), name) or hasattr(data, name) for name in SOURCE_ONLY_MEMBERS)


def fingerprint(source: Source) -> str:
    """Return the SHA-256 of a source's hash, its length and a few of its rows."""
    at = np.unique(np.linspace(0, source.num_data - 1, HASH_PROBE_ROWS).round().astype(np.int32))
    words = f"{source.hash()} {source.num_data} {digest(source.take(sent(at)))}"
    return hashlib.sha256(words.encode()).hexdigest()


def check_contract(source: Any) -> None:
    """Raise UsageError for a source that breaks the contract, DataError for invalid rows."""
    name = type(source).__name__
    _members(source, name)
    try:
        _compiled(source)
        _hashes(source)
        _rows(source)
        N = source.num_data
        # 1, except for very many rows, whose full order is not computed here
        least = -(-N // MAX_CHECKED_ENTRIES)
        for order in ORDERS:
            for size in {least, min(least + 1, N), min(N, MAX_CHECKED_ENTRIES)}:
                _batches(in_batches(source, size, order))
        largest = int(np.clip(CHECKED_NUMBERS // max(1, source.row_width), 1, source.num_data))
        unequal = -(-source.num_data // next(k for k in range(3, 99) if source.num_data % k))
        for size in {largest, min(largest, unequal)}:
            _whole_pass(in_batches(source, size, "reshuffle"))
    except SGLDError as error:
        raise type(error)(f"data, a {name}: {error}") from error


def in_batches(source: Any, size: int, order: str) -> Any:
    """Return the same rows in other batches; raise UsageError if `with_batches` fails to do so."""
    with user_errors("with_batches", compiled=False):
        made = source.with_batches(size, order)
    names = ("num_data", "batch_size", "order")
    found, wanted = [getattr(made, name, None) for name in names], [source.num_data, size, order]
    if found != wanted:
        said = ", ".join(f"{name} {value!r}" for name, value in zip(names, found, strict=True))
        raise UsageError(
            f"with_batches({size}, {order!r}) returns a {type(made).__name__} with {said}; it must return the same "
            "rows in those batches."
        )
    return made


def _members(source: Any, name: str) -> None:
    if isinstance(source, type):
        raise UsageError(
            f"data is the class {source.__name__}; give a source: {source.__name__}(...)."
        )
    lacks = [m for m in SOURCE_MEMBERS if not (hasattr(type(source), m) or hasattr(source, m))]
    if lacks:
        raise UsageError(
            f"data, a {name}, lacks {', '.join(lacks)} of a Source; inherit sgld.data.source.Source, which defines "
            "all but num_data, batch_size, order, take and hash, or give arrays."
        )


def _compiled(source: Any) -> None:
    """Check that the source passes into compiled code, with static sizes."""
    seen: list[tuple[Any, ...]] = []

    def look(inside: Any) -> None:
        seen.append((inside.num_data, inside.batch_size, inside.order))

    check_compiled("it", source)
    try:
        jax.jit(look)(source)
    except Exception as error:  # a property of the source may raise any type
        raise UsageError(
            f"its sizes are not available inside compiled code: they must be static ({first_line(error)})."
        ) from error
    num_data, batch_size, order = seen[0]
    for what, value in (("num_data", num_data), ("batch_size", batch_size)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{what} must be a static whole number, at least 1. Got {value!r}.")
    check_batches(num_data, batch_size, order)


def _hashes(source: Source) -> None:
    """Check that the hash is the same at every call."""
    other = in_batches(source, 1, "replacement")
    with user_errors("hash", compiled=False):
        first, again = source.hash(), other.hash()
    if not isinstance(first, str) or not first:
        raise UsageError(f"hash() must return a non-empty string. Got {first!r}.")
    if first != again:
        raise UsageError(
            f"hash() is {first!r}, and {again!r} in other batches; it must depend on the rows alone."
        )


def _rows(source: Source) -> None:
    """Check that `take` returns rows, one and several, inside compiled code."""
    with user_errors("take", compiled=False):
        one, two = (
            jax.eval_shape(type(source).take, source, jnp.zeros(shape, jnp.int32))
            for shape in ((), (2,))
        )
    shapes = [[leaf.shape for leaf in jax.tree.leaves(rows)] for rows in (one, two)]
    if not shapes[0] or shapes[1] != [(2, *shape) for shape in shapes[0]]:
        raise UsageError(
            f"take must return rows, leaves [...] for one number, [2, ...] for two. Got shapes {shapes[0]} and {shapes[1]}."
        )


def _batches(source: Source) -> None:
    """Check that entries and batches have the shapes that a run uses."""
    where = f"with order {source.order!r} and batches of {source.batch_size}"
    try:
        entry = _entries(source)[0]
    except UsageError as error:
        raise UsageError(f"{where}, {error}") from error
    with user_errors("fetch", compiled=False):
        inside = jax.eval_shape(type(source).fetch, source, jnp.asarray(entry))
    if not isinstance(inside, Batch):
        raise UsageError(f"fetch must return a Batch. Got {type(inside).__name__}.")
    count = inside.numbers.shape[0] if inside.numbers.ndim == 1 else None
    if count is None or not jnp.issubdtype(inside.numbers.dtype, jnp.integer):
        raise UsageError(f"{where}, a batch's numbers must be whole numbers of shape [m].")
    shapes = {leaf.shape[:1] for leaf in jax.tree.leaves(inside.rows)}
    if inside.weight is not None:
        shapes.add(inside.weight.shape)
    if shapes != {(count,)}:
        raise UsageError(
            f"{where}, a batch has {count} numbers, but its rows and weights have leading axes {sorted(shapes)}."
        )


def _entries(source: Source) -> Int[np.ndarray, "n ..."]:
    """Return the first entries; check that they are valid, reproducible and not constant."""
    steps = max(2, MIN_CHECKED_ENTRIES // math.prod(source.entry_shape))
    shape = (steps, *source.entry_shape)
    with user_errors("chunk", compiled=False):
        found = np.asarray(source.chunk((0, 0), 0, steps))
        again = np.asarray(source.chunk((0, 0), 1, steps - 1))
    if found.shape != shape or found.dtype != np.int32:
        raise UsageError(
            f"chunk returned {found.dtype} of shape {found.shape} for {steps} steps; it must return int32 of shape {shape}."
        )
    what, count = ("block", source.num_blocks) if source.uses_blocks else ("row", source.num_data)
    wrong = found[(found < 0) | (found >= count)]
    if wrong.size:
        raise UsageError(f"chunk returned {what} {wrong[0]}; they go from 0 to {count - 1}.")
    if not np.array_equal(found[1:], again):
        raise UsageError(f"steps [1, {steps}) of chunk differ when they are computed alone.")
    if not source.is_independent:
        if len(np.unique(found[:count])) < min(steps, count):
            raise UsageError("chunk does not visit every block exactly once in a pass.")
    elif count > 1 and len(np.unique(found < count / 2)) == 1:
        raise UsageError(f"in {steps} steps chunk visits only one half of the {what}s.")
    return found


class _Seen(NamedTuple):
    """Batches that were examined: arrays of JAX inside compiled code, of NumPy outside."""

    numbers: Any  # int [K, m]
    weight: Any  # [K, m]
    scale: Any  # [K]
    finite: Any  # bool [K, m]
    same: Any  # bool [K, m]: as `take` gives them
    placed: Any  # bool [K, m]: at the position that `start` implies


def _whole_pass(source: Source) -> None:
    """Check that a pass over the blocks has every row once, finite, and equal to `take`."""
    few = source.num_data <= MAX_COUNTED_ROWS
    together = source.num_blocks if few else max(1, MAX_COUNTED_ROWS // source.block_size)
    counted = Counted(source.num_data) if few else Summed(source.num_data)
    wrong = None
    for first in range(0, source.num_blocks, together):
        count = min(together, source.num_blocks - first)
        looked = jax.jit(checkify.checkify(look, errors=checkify.index_checks))
        fault, seen = looked(source, np.arange(first, first + count, dtype=np.int32))
        message = fault.get()
        if message is not None:
            raise DataError(
                f"num_data is {source.num_data}, but there are fewer rows: {message.splitlines()[0].rstrip('. ')}."
            )
        seen = _Seen(*(np.asarray(part) for part in seen))
        _numbered(source, seen)
        counted.add(seen.numbers.ravel(), seen.weight.ravel().astype(float))
        wrong = wrong or wrong_row(seen)
    counted.check()
    if wrong is not None:
        raise DataError(wrong)


def _numbered(source: Source, seen: _Seen) -> None:
    numbers, scale = seen.numbers, seen.scale
    if numbers.min() < 0 or numbers.max() >= source.num_data:
        raise DataError(
            f"a batch has the row number {numbers.min() if numbers.min() < 0 else numbers.max()}; they go from 0 "
            f"to {source.num_data - 1}."
        )
    if not np.all(scale == source.num_blocks):
        raise UsageError(
            f"in {source.num_blocks} blocks a batch's scale must be {source.num_blocks}. Got {scale[0]}."
        )


def wrong_row(seen: _Seen) -> str | None:
    """Return what is wrong with a row of positive weight, or None."""
    counts = np.asarray(seen.weight) > 0
    faults = (
        (seen.finite, "holds NaN or infinity"),
        (seen.same, "differs between fetch and take"),
        (seen.placed, "is not at the position that its batch's start implies"),
    )
    for good, what in faults:
        if not np.all(good | ~counts):
            return f"row {np.asarray(seen.numbers)[~np.asarray(good) & counts][0]} {what}."
    return None


def look(source: Source, entries: Int[Array, "n ..."]) -> _Seen:
    """Examine the batches of some entries, inside compiled code."""

    def one(x: Any) -> _Seen:
        batch = source.fetch(x)
        taken = source.take(batch.numbers)
        m = batch.numbers.shape[0]
        placed = jnp.ones(m, bool)
        if batch.start is not None:
            placed = batch.numbers == batch.start + jnp.arange(m)
        weight = jnp.ones(m) if batch.weight is None else batch.weight

        def rowwise(test: Any, *trees: PyTree) -> Bool[Array, " m"]:
            leaves = jax.tree.leaves(jax.tree.map(test, *trees))
            flat = [jnp.all(leaf.reshape(m, -1), axis=1) for leaf in leaves]
            return jnp.all(jnp.stack(flat), axis=0)

        same = rowwise(lambda a, b: a == b, batch.rows, taken)
        finite = rowwise(jnp.isfinite, batch.rows)
        return _Seen(batch.numbers, weight, jnp.asarray(batch.scale, float), finite, same, placed)

    return jax.lax.map(one, entries)
