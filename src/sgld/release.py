"""Compiled functions given back: those of the posteriors of late are kept, and no more.

JAX keeps what it compiled for as long as the process lives, and with it the functions of the user it
was compiled for: every posterior of new functions adds some 20 MB. A loop over posteriors, as a
notebook's or a sweep's, so has no end of memory. Whatever this package compiled is let go of once
MOST more posteriors were seen; a posterior that comes again is then compiled again. What the user
compiled is left alone. So it is where a type of the user's could be taken for another (`tell_apart`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from typing import Any

import jax

from .pytree import mistakable, types_of

__all__ = ["MOST", "count_posterior", "release", "tell_apart"]

MOST = 8  # posteriors, of different functions or shapes, whose compiled functions are kept
# compared, not hashed: the hash of a pytree's structure leaves its functions out
_seen: list[tuple[Any, tuple[Any, ...]]] = []
_told: list[
    tuple[Any, tuple[Any, ...]]
] = []  # structures of the user's types, and the types in them


def count_posterior(problem: Any) -> None:
    """Note a problem that something is compiled for, and release what was compiled for those before."""
    tell_apart(problem)
    leaves, structure = jax.tree.flatten(problem)
    shapes = tuple((getattr(leaf, "shape", ()), str(getattr(leaf, "dtype", ""))) for leaf in leaves)
    if (structure, shapes) in _seen:
        return
    if len(_seen) >= MOST:
        release()
    _seen.append((structure, shapes))


def tell_apart(*things: Any) -> None:
    """Release what was compiled for another type that could be mistaken for one of these."""
    for thing in things:
        for structure in mistakable(jax.tree.structure(thing)):
            kinds = types_of(structure)
            same = [seen for known, seen in _told if known == structure]
            if any(seen != kinds for seen in same):
                release()
            if kinds not in same:
                _told.append((structure, kinds))


def release() -> None:
    """Let go of all that this package compiled; calls that run go on.

    Example:
      >>> from sgld.release import release
      >>> release()
    """
    _seen.clear()
    _told.clear()
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
