"""Compiled functions given back: those of the posteriors of late are kept, and no more.

JAX keeps what it compiled for as long as the process lives, and with it the functions of the user it
was compiled for: every posterior of new functions adds some 20 MB. A loop over posteriors, as a
notebook's or a sweep's, so has no end of memory. Whatever this package compiled is let go of once
MOST more posteriors were seen; a posterior that comes again is then compiled again. What the user
compiled is left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from typing import Any

import jax

__all__ = ["MOST", "count_posterior", "release"]

MOST = 8  # posteriors, of different functions or shapes, whose compiled functions are kept
# compared, not hashed: the hash of a pytree's structure leaves its functions out
_seen: list[tuple[Any, tuple[Any, ...]]] = []


def count_posterior(problem: Any) -> None:
    """Note a problem that something is compiled for, and release what was compiled for those before."""
    leaves, structure = jax.tree.flatten(problem)
    shapes = tuple((getattr(leaf, "shape", ()), str(getattr(leaf, "dtype", ""))) for leaf in leaves)
    if (structure, shapes) in _seen:
        return
    if len(_seen) >= MOST:
        release()
    _seen.append((structure, shapes))


def release() -> None:
    """Let go of all that this package compiled; calls that run go on.

    Example:
      >>> from sgld.release import release
      >>> release()
    """
    _seen.clear()
    for name, module in list(sys.modules.items()):
        if module is None or name.split(".")[0] != __package__:
            continue
        for value in list(vars(module).values()):
            if hasattr(value, "clear_cache") and hasattr(value, "lower"):  # a jitted function
                value.clear_cache()
    gc.collect()  # traced functions refer to one another
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # of a C library that is not GNU's
            ctypes.CDLL(None).malloc_trim(0)
