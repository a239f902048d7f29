"""Devices that share a run: a mesh with the axes "chain" and "data", on JAX's own runtime.

Compiled code is written for one device and partitioned by XLA: arrays say how they lie, [chain, ...]
over the axis "chain", rows over the axis "data", and the collectives follow. Nothing here moves a
number by itself. Where a mesh spans several processes, all of them run this program in step: what the
clock decides is decided by the first (`agreed`), and the host reads what lies elsewhere (`on_host`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .errors import DataError, RunError, SGLDError, UsageError

__all__ = [
    "CHAIN",
    "DATA",
    "across",
    "agreed",
    "as_mesh",
    "check_chains",
    "differing",
    "in_step",
    "is_first",
    "like",
    "on_host",
    "said_by_all",
    "spans_processes",
    "together",
]

CHAIN, DATA = "chain", "data"
MADE_BY = 'make it with jax.make_mesh((c, d), ("chain", "data"))'

MOST_SAID = 4000  # bytes of a sentence that another process is told

_together: ContextVar[bool] = ContextVar("together", default=False)


def as_mesh(mesh: Any) -> Mesh:
    """`mesh=` as XLA is to partition for it. Raises UsageError for one with other axes or devices."""
    if not isinstance(mesh, Mesh):
        raise UsageError(f"mesh must be a jax.sharding.Mesh. Got {type(mesh).__name__}; {MADE_BY}.")
    if sorted(mesh.axis_names) != [CHAIN, DATA]:
        listed = ", ".join(map(repr, mesh.axis_names))
        raise UsageError(f"mesh must have the axes 'chain' and 'data'. Got {listed}; {MADE_BY}.")
    processes = {device.process_index for device in mesh.devices.flat}
    if len(processes) not in (1, jax.process_count()) or jax.process_index() not in processes:
        raise UsageError(
            f"mesh has devices of {len(processes)} of the {jax.process_count()} processes, without all or only "
            "this one's; give every process the mesh of all devices, or each its own jax.local_devices()."
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * 2)


def check_chains(mesh: Mesh | None, num_chains: int) -> None:
    """UsageError where the axis "chain" does not divide the chains."""
    if mesh is not None and num_chains % mesh.shape[CHAIN]:
        size = mesh.shape[CHAIN]
        raise UsageError(
            f"mesh has {size} devices on its axis 'chain', which do not divide {num_chains} chains; give "
            f"num_chains={max(1, round(num_chains / size)) * size}, or another mesh."
        )


def spans_processes(mesh: Mesh | None) -> bool:
    """Whether some of the devices are another process's."""
    if mesh is None:
        return False
    return any(device.process_index != jax.process_index() for device in mesh.devices.flat)


def across(values: Any, mesh: Mesh | None, *axes: str | None) -> Array:
    """A host's array on the devices, its leading axes laid over these axes of the mesh.

    Each process sends its own devices their parts, and nothing else.
    """
    values = np.asarray(values)
    if mesh is None:
        return jax.device_put(values)
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.make_array_from_callback(values.shape, sharding, lambda part: values[part])


def like(values: np.ndarray, other: Array) -> Array:
    """A host's array on the devices, laid over them as `other` is."""
    if not isinstance(other.sharding, NamedSharding):
        return jax.device_put(values)
    return jax.make_array_from_callback(values.shape, other.sharding, lambda part: values[part])


def on_host(leaf: Any) -> np.ndarray:
    """An array as NumPy's, wherever its parts lie. Where that is elsewhere, all processes must call it."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        assert isinstance(leaf.sharding, NamedSharding)
        leaf = _whole(leaf, NamedSharding(leaf.sharding.mesh, PartitionSpec()))
    return np.asarray(leaf)


@partial(jax.jit, static_argnums=1)
def _whole(leaf: Array, sharding: NamedSharding) -> Array:
    return jax.lax.with_sharding_constraint(leaf, sharding)


@contextmanager
def in_step(mesh: Mesh | None) -> Iterator[None]:
    """Inside, what `agreed` is asked is the first process's word, where the mesh spans several."""
    token = _together.set(spans_processes(mesh))
    try:
        yield
    finally:
        _together.reset(token)


def agreed(value: float) -> float:
    """What the first process says; `value` itself where there is no other. All must ask in step."""
    if not _together.get():
        return value
    from jax.experimental import multihost_utils

    return float(multihost_utils.broadcast_one_to_all(np.float32(value)))


def is_first() -> bool:
    """Whether this process is the one that writes: the only one, or the first of those in step."""
    return not _together.get() or jax.process_index() == 0


def said_by_all(digest: bytes) -> list[bytes]:
    """What each process says, 32 bytes, in their order; this one's alone where there is no other."""
    if not _together.get():
        return [digest]
    from jax.experimental import multihost_utils

    words = np.frombuffer(digest, np.uint8).astype(np.int32)
    return [bytes(row.astype(np.uint8)) for row in multihost_utils.process_allgather(words)]


def differing(word: str) -> int | None:
    """The first process that says something else than the first one; None where all say the same."""
    said = said_by_all(hashlib.sha256(word.encode()).digest())
    return next((k for k, other in enumerate(said) if other != said[0]), None)


@contextmanager
def together() -> Iterator[None]:
    """What one process alone does or may be refused, such as a file: its error is the error of all.

    Without it the others would wait for ever at the next sum. Nothing inside may be asked of all in
    step after that which may fail.
    """
    error: Exception | None = None
    try:
        yield
    except Exception as found:
        if not _together.get():
            raise
        error = found
    if not _together.get():
        return
    from jax.experimental import multihost_utils

    failed = multihost_utils.process_allgather(np.int32(error is not None))
    if not failed.any():
        return
    said = np.zeros(MOST_SAID, np.int32)
    letters = f"{type(error).__name__}\n{error}".encode()[:MOST_SAID]
    said[: len(letters)] = np.frombuffer(letters, np.uint8)
    first = int(np.argmax(failed))
    told = bytes(multihost_utils.process_allgather(said)[first].astype(np.uint8))
    if error is not None and first == jax.process_index():
        raise error
    name, _, sentence = told.rstrip(b"\0").decode(errors="replace").partition("\n")
    kinds: dict[str, type[SGLDError]] = {e.__name__: e for e in (DataError, RunError, UsageError)}
    if name not in kinds:
        raise RunError(f"process {first} ended with {name}: {sentence}") from error
    raise kinds[name](sentence) from error
