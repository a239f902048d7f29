"""Rows over several devices, each of which holds its own rows and its part of every batch.

Row i of N is on shard i mod D, at position i // D. For any batches, a block of consecutive rows is
therefore a short slice of every shard, of about n / D rows. Only sums over rows leave a device.
Batches, their order and their rows are those of the same rows in memory: only the order of summation
differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int

from ..core.devices import (
    DATA,
    aligned,
    first_differing_process,
    is_concrete,
    on_host,
    sent,
    spans_processes,
)
from ..core.pytrees import StaticField, as_pytree, leaf_names
from ..errors import DataError, UsageError
from .mapped import OnDisk
from .memory import digest, keys, shuffled
from .source import Batch, Source, common_length

FILE_ROWS_AT_ONCE = 2**16  # rows of a file read at once
MAX_FLOAT32_INTEGER = 2**24  # the largest integer if x64 is off: data/validate.py

PyTree = Any


class Names(StaticField):
    """The user's row numbers and the digest of the rows; all instances are equal to compiled code.

    Args:
      numbers: (rows, seed) -> the user's numbers of these rows.
      digest: returns the SHA-256 of the rows, which is computed on request.
    """

    def __init__(self, numbers: Callable[[Any, int], Any], digest: Callable[[], str]) -> None:
        self.numbers, self.digest = numbers, digest

    def __repr__(self) -> str:
        return "..."


@as_pytree
@dataclass(frozen=True)
class Sharded(Source):
    """N rows over the devices of a mesh's axis "data", in a random order."""

    # leaves [D, M, ...]: row m D + j at [j, m]; rows beyond the last one are arbitrary
    rows: PyTree
    num_data: int = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})
    order: str = field(metadata={"static": True})
    names: Names = field(metadata={"static": True})

    @classmethod
    def of(cls, data: PyTree, mesh: Mesh, seed: int = 0) -> Sharded:
        """Shard checked arrays, shuffled as in memory; each process sends the rows of its devices."""
        num_data = len(jax.tree.leaves(data)[0])
        order = shuffled(num_data, seed)

        def words() -> str:
            whole = np.append(order, order[:1])
            return digest(jax.tree.map(lambda leaf: np.asarray(leaf)[whole], data))

        names = Names(lambda rows, seed: shuffled(num_data, seed)[rows], words)
        found = cls._dealt(data, mesh, names, lambda leaf, rows: leaf[order[rows]])
        _check_same(found, mesh)
        return found

    @classmethod
    def of_files(cls, source: OnDisk, mesh: Mesh) -> Sharded:
        """Shard rows on disk; each process reads the rows of its devices."""
        files = source.files
        data = jax.tree.structure(source.rows).unflatten(files.leaves)
        names = Names(lambda rows, seed: files.numbers(rows), lambda: files.digest)
        # on one device, all rows in stored order: the memory-mapped file without a copy
        alone = mesh.shape[DATA] == 1
        own = lambda leaf, rows: leaf[: len(rows)] if alone else _taken_from(leaf, rows)  # noqa: E731
        found = cls._dealt(data, mesh, names, own, source.num_data)
        _check_same(found, mesh)
        return found

    @classmethod
    def of_arrays(cls, data: PyTree, mesh: Mesh, seed: int = 0) -> Sharded:
        """Shard arrays that are already on the mesh; every device shuffles its own rows."""
        shards = mesh.shape[DATA]
        leaves = jax.tree.leaves(data)
        num_data = leaves[0].shape[0]
        _check_arrays(data)
        local = num_data // shards
        lie = over_data(mesh)
        # the same placement under our own mesh, whose axes XLA partitions; no data moves
        data = jax.tree.map(lambda leaf: jax.device_put(leaf, lie), data)
        own = [np.argsort(keys(np.arange(j * local, (j + 1) * local), seed)) for j in range(shards)]
        order = _from_parts((shards, local), lie, lambda j: own[j].astype(np.int32))
        rows = _shuffled_there(data, order)

        def called(rows: Any, seed: int) -> np.ndarray:
            rows = np.asarray(rows)
            places = np.stack(own)[rows % shards, rows // shards]
            return rows % shards * local + places

        words = lambda: _digest_of_parts(rows, mesh)  # noqa: E731
        return cls(rows, num_data, num_data, "reshuffle", Names(called, words))

    @classmethod
    def _dealt(
        cls, data: PyTree, mesh: Mesh, names: Names, rows_of: Callable[[Any, Any], Any],
        num_data: int | None = None,
    ) -> Sharded:  # fmt: skip
        count = num_data or len(jax.tree.leaves(data)[0])
        shards = mesh.shape[DATA]
        if count < shards:
            raise UsageError(
                f"mesh has {shards} devices on its axis 'data', more than the {count} rows; give fewer devices."
            )
        local = -(-count // shards)

        def laid(leaf: Any) -> Array:
            mine = lambda j: rows_of(leaf, np.arange(j, j + local * shards, shards) % count)  # noqa: E731
            return _from_parts((shards, local, *leaf.shape[1:]), over_data(mesh), mine)

        return cls(jax.tree.map(laid, data), count, count, "reshuffle", names)

    @property
    def shards(self) -> int:
        """D, the number of devices that hold rows."""
        return jax.tree.leaves(self.rows)[0].shape[0]

    def fetch(self, x: Int[Array, "*entry"]) -> Batch:
        """Return the Batch of one entry of `chunk`, inside compiled code: a slice of every shard."""
        if not self.uses_blocks:
            return Batch(self.take(x), x, self.num_data / self.batch_size)
        D, size, start = self.shards, self.block_size, self.block_start(x)
        whole = size % D == 0 and self._larger == self.num_blocks
        held = jax.tree.leaves(self.rows)[0].shape[1]
        width = size // D if whole else min((size + D - 2) // D + 1, held)
        first = jnp.minimum(start // D, held - width)
        cut = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, width, axis=1)  # noqa: E731
        rows = jax.tree.map(lambda leaf: cut(leaf).reshape(D * width, *leaf.shape[2:]), self.rows)
        places = first + jnp.arange(width, dtype=jnp.int32)
        numbers = (places[None] * D + jnp.arange(D, dtype=jnp.int32)[:, None]).reshape(-1)
        weight = None
        if not whole:
            end = start + size - jnp.where(x < self._larger, 0, 1)
            weight = ((numbers >= start) & (numbers < end)).astype(jnp.result_type(float))
        return Batch(rows, jnp.minimum(numbers, self.num_data - 1), float(self.num_blocks), weight)

    def take(self, rows: Int[Array, "*m"] | int) -> PyTree:
        """Return rows by number, as a sum over shards; on the host, as copies."""
        if not is_concrete(self.rows, rows):
            return _taken(self.rows, rows)
        found = _taken(self.rows, np.asarray(rows, np.int32))
        return jax.tree.map(lambda leaf: sent(on_host(leaf)), found)

    def original_rows(self, rows: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """Return the user's numbers of these rows."""
        return self.names.numbers(rows, seed)

    def hash(self) -> str:
        """Return the SHA-256 of the rows, as in memory except for arrays that came sharded."""
        return self.names.digest()


def over_data(mesh: Mesh) -> NamedSharding:
    """Return the sharding of leading axes over the axis "data"."""
    return NamedSharding(mesh, PartitionSpec(DATA))


def lies_on(data: PyTree, mesh: Mesh) -> bool:
    """Return whether the arrays already have their rows sharded over the mesh's axis "data".

    Raises UsageError if they are sharded otherwise and this process cannot read them.
    """
    names, leaves = leaf_names(data), jax.tree.leaves(data)
    laid = [isinstance(leaf, jax.Array) and _over_data(leaf, mesh) for leaf in leaves]
    if leaves and all(laid):
        return True
    for name, leaf in zip(names, leaves, strict=True):
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            raise UsageError(
                f"data leaf {name!r} is on several processes, but not all leaves are sharded over the mesh's axis 'data'; "
                'create all of them with jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), rows).'
            )
    return False


def _over_data(leaf: Array, mesh: Mesh) -> bool:
    """Return whether the leading axis, and no other, is sharded over "data"."""
    if not leaf.ndim or mesh.shape[DATA] == 1 or leaf.shape[0] % mesh.shape[DATA]:
        return False
    return leaf.sharding.is_equivalent_to(over_data(mesh), leaf.ndim)


def _check_arrays(data: PyTree) -> None:
    """Raise DataError for arrays of different lengths, and for values that `check_data` refuses."""
    names, leaves = leaf_names(data), jax.tree.leaves(data)
    lengths = {repr(name): leaf.shape[0] for name, leaf in zip(names, leaves, strict=True)}
    common_length("data leaves", lengths)
    for name, leaf in zip(names, leaves, strict=True):
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise DataError(
                f"data leaf {name!r} has dtype {leaf.dtype}; encode it as real numbers first."
            )
        if not bool(_all_good(leaf)):
            what = "NaN or infinity" if jnp.issubdtype(leaf.dtype, jnp.floating) else "an integer above 2^24"  # fmt: skip
            raise DataError(f"data leaf {name!r} holds {what}; remove it, or impute or shift it.")


@jax.jit
def _all_good(leaf: Array) -> Array:
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return jnp.all(jnp.isfinite(leaf))
    if leaf.dtype == bool or leaf.dtype.itemsize > 4:
        return jnp.array(True)
    return jnp.all((leaf <= MAX_FLOAT32_INTEGER) & (leaf >= -MAX_FLOAT32_INTEGER))


def _taken_from(leaf: np.ndarray, rows: Int[np.ndarray, " m"]) -> np.ndarray:
    """Return these rows of a file in aligned memory, which the device need not copy."""
    out = aligned((len(rows), *leaf.shape[1:]), leaf.dtype)
    for at in range(0, len(rows), FILE_ROWS_AT_ONCE):  # in pieces, so that copies stay small
        out[at : at + FILE_ROWS_AT_ONCE] = leaf[rows[at : at + FILE_ROWS_AT_ONCE]]
    return out


def _from_parts(
    shape: tuple[int, ...], sharding: NamedSharding, part: Callable[[int], Any]
) -> Array:
    """Return an array [D, ...] from the part of each shard, created on its device."""

    def called(index: Any) -> np.ndarray:
        parts = [np.asarray(part(j)) for j in range(*index[0].indices(shape[0]))]
        return parts[0][None] if len(parts) == 1 else np.stack(parts)

    return jax.make_array_from_callback(shape, sharding, called)


@jax.jit
def _shuffled_there(data: PyTree, order: Int[Array, "D M"]) -> PyTree:
    """Return leaves [D M, ...] as [D, M, ...], with the rows of every shard in its own order."""
    D, M = order.shape
    return jax.tree.map(
        lambda leaf: jax.vmap(lambda part, own: part[own])(
            leaf.reshape(D, M, *leaf.shape[1:]), order
        ),
        data,
    )


@partial(jax.jit, inline=True)
def _taken(leaves: PyTree, rows: Any) -> PyTree:
    D = jax.tree.leaves(leaves)[0].shape[0]
    rows = jnp.asarray(rows)
    mine = jnp.arange(D, dtype=jnp.int32).reshape(D, *(1,) * rows.ndim) == (rows % D)[None]

    def one(leaf: Array) -> Array:
        found = leaf[:, rows // D]
        own = mine.reshape(*mine.shape, *(1,) * (leaf.ndim - 2))
        found = jnp.where(own, found, jnp.zeros((), leaf.dtype))
        return jnp.sum(found, 0).astype(leaf.dtype)  # one term is the row, and the others are 0

    return jax.tree.map(one, leaves)


def _digest_of_parts(rows: PyTree, mesh: Mesh) -> str:
    """Return the SHA-256 of the digests of all shards in order, each computed by its holder."""
    shards = mesh.shape[DATA]
    found: Sequence[Any] = [hashlib.sha256() for _ in range(shards)]
    for leaf in jax.tree.leaves(rows):
        parts = {}
        for shard in leaf.addressable_shards:
            for j in range(*shard.index[0].indices(shards)):
                parts[j] = np.asarray(shard.data)[j - (shard.index[0].start or 0)]
        for j, part in parts.items():
            found[j].update(f"{part.dtype}{part.shape}".encode() + part.tobytes())
    each = _from_parts(
        (shards, 32), over_data(mesh), lambda j: np.frombuffer(found[j].digest(), np.uint8)
    )
    return hashlib.sha256(on_host(each).tobytes()).hexdigest()


def _check_same(source: Sharded, mesh: Mesh) -> None:
    """Raise DataError unless every process was given the same rows."""
    if not spans_processes(mesh):
        return
    shapes = ", ".join(str((source.num_data, *leaf.shape[2:])) for leaf in jax.tree.leaves(source.rows))  # fmt: skip
    other = first_differing_process(shapes)
    if other is None:
        other = first_differing_process(source.hash())
        shapes += " with other values"
    if other is not None:
        raise DataError(
            f"processes 0 and {other} were given different rows (here {shapes}); give all processes the same table, or "
            "each its own part with jax.make_array_from_process_local_data."
        )
