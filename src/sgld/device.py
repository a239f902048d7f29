"""From the host to the device without a compiled function, and compiling beside other work.

Every `jnp` call outside compiled code is a function that JAX traces, compiles and keeps for each
new shape: 10 to 20 ms of a first call each, `jnp.asarray` of a NumPy array not excepted. What
only moves numbers is therefore sent, and what comes in twos and threes is one compiled function.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

__all__ = ["compiling", "known_now", "sent", "stream_key"]


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


def sent(values: Any, dtype: Any = None) -> Array:
    """A copy of `values` on the device: `jnp.asarray(np.asarray(values, dtype))`."""
    # a copy, because on a CPU the device's array would be the host's own memory
    return jax.device_put(np.array(values, dtype))


def known_now(*values: Any) -> bool:
    """Whether these are numbers already, not the placeholders of a function that is being compiled."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def stream_key(seed: int, stream: int) -> Array:
    """fold_in(key(seed), stream), of JAX's threefry without a compiled function."""
    if jax.config.values["jax_default_prng_impl"] != "threefry2x32":
        return jax.random.fold_in(jax.random.key(np.uint32(seed)), np.uint32(stream))
    words = _threefry((0, int(np.uint32(seed))), (0, int(np.uint32(stream))))
    return jax.random.wrap_key_data(sent(words, np.uint32))


def _threefry(key: tuple[int, int], count: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror & Shaw 2011)."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    a, b = ((c + k) % 2**32 for c, k in zip(count, key, strict=True))
    for i in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            a = (a + b) % 2**32
            b = ((b << turn | b >> 32 - turn) % 2**32) ^ a
        a, b = (a + keys[(i + 1) % 3]) % 2**32, (b + keys[(i + 2) % 3] + i + 1) % 2**32
    return a, b
