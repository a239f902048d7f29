"""Device transfers, background compilation, memory checks and meshes of several devices.

Every `jnp` call outside compiled code is a function that JAX traces and compiles for each new shape.
That costs 10 to 20 ms per first call, also for `jnp.asarray` of a NumPy array. Code that only moves
numbers therefore uses `device_put`, and several operations share one compiled function.

Memory is predicted from shapes before it is allocated. A prediction counts the bytes held at the same
time, and a prediction above the free memory is refused. Close to that limit, the operating system may
still end a run.

A mesh has the axes "chain" and "data", and uses JAX's own runtime. Compiled code is written for one
device and partitioned by XLA: arrays declare their sharding ([chain, ...] over the axis "chain", rows
over the axis "data"), and XLA adds the collectives. Where a mesh spans several processes, all of them
run this program in step. The first process makes every decision that depends on the clock (`agreed`),
and `on_host` reads arrays whose parts are on other processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int

from ..errors import DataError, RunError, SGLDError, UsageError, first_line

XLA_ALIGNMENT_BYTES = 64  # the alignment in bytes that XLA requires of host arrays


def check_device() -> None:
    """Raise UsageError if JAX finds none of the platforms that JAX_PLATFORMS requests."""
    try:
        jax.devices()
    except Exception as error:  # RuntimeError if one fails, AssertionError if it is unknown
        asked = getattr(jax.config, "jax_platforms", None)  # no type stub has this attribute
        raise UsageError(
            f"JAX finds no device for JAX_PLATFORMS = {asked} ({first_line(error)}); leave it unset, or install the "
            "version of JAX for that device."
        ) from error


@contextlib.contextmanager
def compiling(function: Any, *arguments: Any, **named: Any) -> Iterator[None]:
    """Compile a jitted function for these arguments in a thread while the body of the block runs.

    XLA releases the interpreter lock while it compiles, and a later call finds the function compiled.
    No argument is donated. Errors are suppressed here, because the later call raises them again.
    """
    double = jax.config.read("jax_enable_x64")  # a thread does not inherit it

    def compile_() -> None:
        with contextlib.suppress(Exception), jax.enable_x64(double):
            function.lower(*arguments, **named).compile()

    thread = threading.Thread(target=compile_, name="sgld-compiling")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def sent(values: Any, dtype: Any = None, *, owned: bool = False) -> Array:
    """Return a copy of `values` on the device; with `owned`, no other code writes to the array."""
    # copied, because on a CPU the device array would share the host's memory
    try:
        return jax.device_put(np.asarray(values, dtype) if owned else np.array(values, dtype))
    except (RuntimeError, AssertionError):
        check_device()  # raises a clearer error if no device is available
        raise


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return uninitialised host memory that a CPU device uses without a copy."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + XLA_ALIGNMENT_BYTES, np.uint8)
    begin = -memory.ctypes.data % XLA_ALIGNMENT_BYTES
    return memory[begin : begin + size].view(dtype).reshape(shape)


def rows_to_device(values: Any, rows: Int[np.ndarray, " m"]) -> Array:
    """Return values[rows] on the device with one copy: a CPU uses aligned host memory directly."""
    values = np.asarray(values)
    taken = aligned((len(rows), *values.shape[1:]), values.dtype)
    np.take(values, rows, axis=0, out=taken, mode="clip")  # unbuffered, unlike "raise"
    return sent(taken, owned=True)


def is_concrete(*values: Any) -> bool:
    """Return whether all values are concrete numbers rather than tracers of a compilation."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def stream_key(seed: int, stream: int) -> Array:
    """Return fold_in(key(seed), stream), computed by one compiled function."""
    return _folded(np.uint32(seed), np.uint32(stream))


@partial(jax.jit, inline=True)
def _folded(seed: Any, stream: Any) -> Array:
    return jax.random.fold_in(jax.random.key(seed), stream)


# -- ceiling -------------------------------------------------------------------------------


CGROUPS = Path("/sys/fs/cgroup")
CGROUP_MEMORY_FILES = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))  # fmt: skip


def free_memory() -> float:
    """Return the bytes that this process may still allocate, or infinity if they are unknown."""
    return min(_machine_memory(), _cgroup_memory(), _process_memory())


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Raise UsageError if `what` would need more bytes than are free.

    Args:
      needed: the predicted number of bytes.
      what: the object that needs the memory; the message begins with it.
      remedy: the advice that ends the message.

    Example:
      >>> from sgld.core.devices import check_memory
      >>> check_memory(2.0**20, "1,000 draws", "ask for fewer")
    """
    free = free_memory()
    if needed > free:
        raise UsageError(
            f"{what} would take {gib(needed)} of memory, and {gib(free)} are free; {remedy}."
        )


def gib(size: float) -> str:
    """Format a number of bytes in MiB or GiB."""
    if size < 2**26:
        return f"{size / 2**20:,.3g} MiB"
    return f"{size / 2**30:,.3g} GiB" if size < 2**50 else f"{size / 2**30:.1e} GiB"


def _machine_memory() -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    with contextlib.suppress(OSError, ValueError, AttributeError):
        import os

        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return float("inf")


def _cgroup_memory() -> float:
    """Return the free bytes under the memory limit of the control group (a container)."""
    for limit, used in CGROUP_MEMORY_FILES:
        with contextlib.suppress(OSError, ValueError):  # no control group, or the limit is "max"
            return float(int((CGROUPS / limit).read_text()) - int((CGROUPS / used).read_text()))
    return float("inf")


def _process_memory() -> float:
    """Return the free bytes under the limit of `ulimit -v`."""
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most == resource.RLIM_INFINITY:
            return float("inf")
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return float(most - pages * resource.getpagesize())
    except (ImportError, OSError, ValueError, IndexError):
        return float("inf")


# -- mesh ----------------------------------------------------------------------------------


CHAIN, DATA = "chain", "data"
MADE_BY = 'make it with jax.make_mesh((c, d), ("chain", "data"))'

MAX_SENTENCE_BYTES = 4000  # bytes of an error message that is sent to the other processes

_together: ContextVar[bool] = ContextVar("together", default=False)


def as_mesh(mesh: Any) -> Mesh:
    """Return `mesh` with XLA's automatic partitioning; raise UsageError for other axes or devices."""
    if not isinstance(mesh, Mesh):
        raise UsageError(f"mesh must be a jax.sharding.Mesh. Got {type(mesh).__name__}; {MADE_BY}.")
    if sorted(mesh.axis_names) != [CHAIN, DATA]:
        listed = ", ".join(map(repr, mesh.axis_names))
        raise UsageError(f"mesh must have the axes 'chain' and 'data'. Got {listed}; {MADE_BY}.")
    processes = {device.process_index for device in mesh.devices.flat}
    if len(processes) not in (1, jax.process_count()) or jax.process_index() not in processes:
        raise UsageError(
            f"mesh has devices of {len(processes)} of the {jax.process_count()} processes, and must have those of "
            "all processes or only of this one; give every process the mesh of all devices, or each its own "
            "jax.local_devices()."
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * 2)


def check_chains(mesh: Mesh | None, num_chains: int) -> None:
    """Raise UsageError if the axis "chain" does not divide the number of chains."""
    if mesh is not None and num_chains % mesh.shape[CHAIN]:
        size = mesh.shape[CHAIN]
        raise UsageError(
            f"mesh has {size} devices on its axis 'chain', and {num_chains} chains is not a multiple of {size}; "
            f"give num_chains={max(1, round(num_chains / size)) * size}, or another mesh."
        )


def spans_processes(mesh: Mesh | None) -> bool:
    """Return whether some devices of the mesh belong to another process."""
    if mesh is None:
        return False
    return any(device.process_index != jax.process_index() for device in mesh.devices.flat)


def across(values: Any, mesh: Mesh | None, *axes: str | None) -> Array:
    """Return a host array on the devices, with its leading axes sharded over these mesh axes.

    Each process sends only the parts that belong to its own devices.
    """
    values = np.asarray(values)
    if mesh is None:
        return jax.device_put(values)
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.make_array_from_callback(values.shape, sharding, lambda part: values[part])


def like(values: np.ndarray, other: Array) -> Array:
    """Return a host array on the devices, with the sharding of `other`."""
    if not isinstance(other.sharding, NamedSharding):
        return jax.device_put(values)
    return jax.make_array_from_callback(values.shape, other.sharding, lambda part: values[part])


def on_host(leaf: Any) -> np.ndarray:
    """Return an array as NumPy's; if parts are on other processes, all processes must call it."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        assert isinstance(leaf.sharding, NamedSharding)
        leaf = _whole(leaf, NamedSharding(leaf.sharding.mesh, PartitionSpec()))
    return np.asarray(leaf)


@partial(jax.jit, static_argnums=1)
def _whole(leaf: Array, sharding: NamedSharding) -> Array:
    return jax.lax.with_sharding_constraint(leaf, sharding)


@contextmanager
def in_step(mesh: Mesh | None) -> Iterator[None]:
    """Let `agreed` return the first process's value inside the block if the mesh spans processes."""
    token = _together.set(spans_processes(mesh))
    try:
        yield
    finally:
        _together.reset(token)


def agreed(value: float) -> float:
    """Return the first process's value, or `value` in a single process; all must call it in step."""
    if not _together.get():
        return value
    from jax.experimental import multihost_utils

    return float(multihost_utils.broadcast_one_to_all(np.float32(value)))


def is_first() -> bool:
    """Return whether this process writes files: it is the only one, or the first of those in step."""
    return not _together.get() or jax.process_index() == 0


def gather_digests(digest: bytes) -> list[bytes]:
    """Return the 32-byte digest of each process in order, or only this one in a single process."""
    if not _together.get():
        return [digest]
    from jax.experimental import multihost_utils

    words = np.frombuffer(digest, np.uint8).astype(np.int32)
    return [bytes(row.astype(np.uint8)) for row in multihost_utils.process_allgather(words)]


def first_differing_process(word: str) -> int | None:
    """Return the index of the first process whose text differs from that of process 0, or None."""
    said = gather_digests(hashlib.sha256(word.encode()).digest())
    return next((k for k, other in enumerate(said) if other != said[0]), None)


@contextmanager
def raise_together() -> Iterator[None]:
    """Raise an error of one process, such as a file error, in every process of the mesh.

    Without this block the other processes would wait forever at the next collective. Inside the block, no
    collective may follow the operation that can fail.
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
    said = np.zeros(MAX_SENTENCE_BYTES, np.int32)
    content = f"{type(error).__name__}\n{error}".encode()[:MAX_SENTENCE_BYTES]
    said[: len(content)] = np.frombuffer(content, np.uint8)
    first = int(np.argmax(failed))
    content = bytes(multihost_utils.process_allgather(said)[first].astype(np.uint8))
    if error is not None and first == jax.process_index():
        raise error
    name, _, sentence = content.rstrip(b"\0").decode(errors="replace").partition("\n")
    kinds: dict[str, type[SGLDError]] = {e.__name__: e for e in (DataError, RunError, UsageError)}
    if name not in kinds:
        raise RunError(f"process {first} ended with {name}: {sentence}") from error
    raise kinds[name](sentence) from error
