"""Devices that share a run: a mesh with the axes "chain" and "data", on JAX's own runtime.

Compiled code is written for one device and partitioned by XLA: arrays say how they lie, [chain, ...]
over the axis "chain", rows over the axis "data", and the collectives follow. Nothing here moves a
number by itself. Where a mesh spans several processes, all of them run this program in step: what the
clock decides is decided by the first (`agreed`), and the host reads what lies elsewhere (`on_host`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .errors import UsageError

__all__ = [
    "CHAIN",
    "DATA",
    "across",
    "agreed",
    "as_mesh",
    "check_chains",
    "in_step",
    "is_first",
    "like",
    "on_host",
    "said_by_all",
    "spans_processes",
]

CHAIN, DATA = "chain", "data"
MADE_BY = 'make it with jax.make_mesh((c, d), ("chain", "data"))'

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
