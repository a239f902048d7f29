"""Functions of the user's own: what they raise, as a sentence that shows their line."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .errors import SGLDError, UsageError, first_line

__all__ = ["of_the_user", "shapes_of"]

OURS = Path(__file__).resolve().parent
NOT_THEIRS = (str(OURS), str(Path(jax.__file__).parent), str(Path(np.__file__).parent), "<frozen")
INSTALLED = {"site-packages", "dist-packages"}
COMPILED = "it is compiled by JAX: mend it there, and write it with jax.numpy."
LONGEST_LINE = 100  # letters of a line of code that is shown


@contextlib.contextmanager
def of_the_user(name: str, compiled: bool = True, remedy: str = COMPILED) -> Iterator[None]:
    """What a user's function raises, as a UsageError that shows their own line; `compiled` by JAX, or as it is."""
    try:
        yield
    except (SGLDError, MemoryError):
        raise
    except Exception as error:
        raise UsageError(
            f"{name} raised {type(error).__name__} ({first_line(error)}){_their_line(error)}"
            + (f"; {remedy}" if compiled else "; mend it there.")
        ) from error


def _their_line(error: BaseException) -> str:
    """Where it was raised in code that is neither ours nor JAX's, and what stands there.

    The last line of the user's own, where there is one: a network's library is not where it is mended.
    """
    frames = traceback.extract_tb(error.__traceback__)
    others = [frame for frame in frames if not frame.filename.startswith(NOT_THEIRS)]
    own = [frame for frame in others if INSTALLED.isdisjoint(Path(frame.filename).parts)] or others
    if not own:
        return ""
    line = f": {own[-1].line[:LONGEST_LINE]}" if own[-1].line else ""
    return f" at line {own[-1].lineno} of {Path(own[-1].filename).name}{line}"


def shapes_of(x: Any) -> str:
    """Shapes of the arrays of a pytree, in words.

    Example:
      >>> shapes_of((np.ones((3, 2)), np.ones(3)))
      '(3, 2) and (3,)'
    """
    return " and ".join(str(np.shape(leaf)) for leaf in jax.tree.leaves(x))
