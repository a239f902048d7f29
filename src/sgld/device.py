"""From the host to the device without a compiled function, and compiling beside other work.

Every `jnp` call outside compiled code is a function that JAX traces, compiles and keeps for each
new shape: 10 to 20 ms of a first call each, `jnp.asarray` of a NumPy array not excepted. What
only moves numbers is therefore sent, and what comes in twos and threes is one compiled function.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int

from .errors import UsageError, first_line

__all__ = ["check_device", "compiling", "known_now", "sent", "sent_rows", "stream_key"]

ALIGNED = 64  # bytes, to which XLA has its arrays begin


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
    memory = np.empty(size + ALIGNED, np.uint8)
    begin = -memory.ctypes.data % ALIGNED
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
