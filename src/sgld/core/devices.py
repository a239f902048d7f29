"""From the host to the device without a compiled function, and compiling beside other work.

Every `jnp` call outside compiled code is a function that JAX traces, compiles and keeps for each
new shape: 10 to 20 ms of a first call each, `jnp.asarray` of a NumPy array not excepted. What
only moves numbers is therefore sent, and what comes in twos and threes is one compiled function.

What the machine can give, and refusals before more than that is asked for.

Memory is predicted from shapes before any is taken. A prediction counts what is held at once, and
refuses what is beyond what is free: close to that, the operating system may still end a run.

Devices that share a run: a mesh with the axes "chain" and "data", on JAX's own runtime.

Compiled code is written for one device and partitioned by XLA: arrays say how they lie, [chain, ...]
over the axis "chain", rows over the axis "data", and the collectives follow. Nothing here moves a
number by itself. Where a mesh spans several processes, all of them run this program in step: what the
clock decides is decided by the first (`agreed`), and the host reads what lies elsewhere (`on_host`).
"""

from __future__ import annotations

import contextlib
import hashlib
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

XLA_ALIGNMENT_BYTES = 64  # bytes, to which XLA has its arrays begin


def check_device() -> None:
    """UsageError where JAX finds none of the platforms that it was told to use."""
    try:
        jax.devices()
    except (
        Exception
    ) as error:  # RuntimeError of one that fails, AssertionError of one that is unknown
        asked = getattr(jax.config, "jax_platforms", None)  # of the state, which has no stub
        raise UsageError(
            f"JAX finds no device where JAX_PLATFORMS = {asked} asks for one ({first_line(error)}); leave it "
            "unset, or install the version of JAX for that device."
        ) from error


@contextlib.contextmanager
def compiling(function: Any, *arguments: Any, **named: Any) -> Iterator[None]:
    """Compile a jitted function for a call with these arguments, while what is inside is done.

    XLA lets go of the interpreter while it compiles. The call that comes later finds the function
    compiled; nothing is donated, and what goes wrong here goes wrong there, where it is answered.
    """
    double = jax.config.read("jax_enable_x64")  # which a thread does not inherit

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
    """A copy of `values` on the device; `owned`: of an array that nobody else writes to."""
    # a copy, because on a CPU the device's array would be the host's own memory
    try:
        return jax.device_put(np.asarray(values, dtype) if owned else np.array(values, dtype))
    except (RuntimeError, AssertionError):
        check_device()  # says so, where that is what is wrong
        raise


def sent_rows(values: Any, rows: Int[np.ndarray, " m"]) -> Array:
    """values[rows] on the device, copied once: a CPU takes memory that is aligned as it lies."""
    values = np.asarray(values)
    shape, size = (len(rows), *values.shape[1:]), values[:1].nbytes * len(rows)
    memory = np.empty(size + XLA_ALIGNMENT_BYTES, np.uint8)
    begin = -memory.ctypes.data % XLA_ALIGNMENT_BYTES
    taken = memory[begin : begin + size].view(values.dtype).reshape(shape)
    np.take(values, rows, axis=0, out=taken, mode="clip")  # which copies straight into `out`
    return sent(taken, owned=True)


def known_now(*values: Any) -> bool:
    """Whether these are numbers already, not the placeholders of a function that is being compiled."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def stream_key(seed: int, stream: int) -> Array:
    """fold_in(key(seed), stream), as one compiled function."""
    return _folded(np.uint32(seed), np.uint32(stream))


@partial(jax.jit, inline=True)
def _folded(seed: Any, stream: Any) -> Array:
    return jax.random.fold_in(jax.random.key(seed), stream)


# -- ceiling -------------------------------------------------------------------------------


CGROUPS = Path("/sys/fs/cgroup")
CGROUP_MEMORY_FILES = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))  # fmt: skip


def free_memory() -> float:
    """Bytes that this process may still take; infinity where the platform does not say."""
    return min(_of_the_machine(), _of_the_group(), _of_the_process())


def check_memory(needed: float, what: str, remedy: str) -> None:
    """UsageError where `what` would take more bytes than there are.

    Args:
      needed: bytes, predicted.
      what: takes them; the sentence begins with it.
      remedy: what to do about it; ends the sentence.

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
    """Bytes in words."""
    if size < 2**26:
        return f"{size / 2**20:,.3g} MiB"
    return f"{size / 2**30:,.3g} GiB" if size < 2**50 else f"{size / 2**30:.1e} GiB"


def _of_the_machine() -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    with contextlib.suppress(OSError, ValueError, AttributeError):
        import os

        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return float("inf")


def _of_the_group() -> float:
    """Of a container."""
    for limit, used in CGROUP_MEMORY_FILES:
        with contextlib.suppress(OSError, ValueError):  # no such group, or "max"
            return float(int((CGROUPS / limit).read_text()) - int((CGROUPS / used).read_text()))
    return float("inf")


def _of_the_process() -> float:
    """Under `ulimit -v`."""
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

MAX_SENTENCE_BYTES = 4000  # bytes of a sentence that another process is told

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
    said = np.zeros(MAX_SENTENCE_BYTES, np.int32)
    letters = f"{type(error).__name__}\n{error}".encode()[:MAX_SENTENCE_BYTES]
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
