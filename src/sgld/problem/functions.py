"""Functions of the user's own: what they must return, and where they raised."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import SGLDError, UsageError, first_line

__all__ = ["check_scalar", "of_the_user"]

OURS = Path(__file__).resolve().parent.parent
NOT_THEIRS = (str(OURS), str(Path(jax.__file__).parent), str(Path(np.__file__).parent), "<frozen")
INSTALLED = {"site-packages", "dist-packages"}
LONGEST_LINE = 100  # letters of a line of code that is shown
SUMMED = {
    "log_prior": "; sum it.",
    "log_likelihood": ", of ONE datum; the library sums over rows.",
}


def check_scalar(name: str, function: Callable, *arguments: Any) -> None:
    """UsageError unless a function returns one floating-point number; nothing is computed."""
    with of_the_user(name):
        found = jax.eval_shape(function, *arguments)
    shape, dtype = getattr(found, "shape", None), getattr(found, "dtype", None)
    if shape is None or dtype is None:
        raise UsageError(
            f"{name} must return one number. Got {_kind(found)}; return an array of no axes."
        )
    if shape != ():
        raise UsageError(
            f"{name} must return one number. Got an array of shape {shape}{SUMMED[name]}"
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise UsageError(
            f"{name} must return a floating-point number. Got {dtype}; return 0.0 instead of 0, or convert it."
        )


@contextlib.contextmanager
def of_the_user(name: str) -> Iterator[None]:
    """What a user's function raises, as a UsageError that shows their own line."""
    try:
        yield
    except (SGLDError, MemoryError):
        raise
    except Exception as error:
        raise UsageError(
            f"{name} raised {type(error).__name__} ({first_line(error)}){_their_line(error)}; it is "
            "compiled by JAX: mend it there, and write it with jax.numpy."
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


def _kind(found: Any) -> str:
    return "nothing" if found is None else f"a {type(found).__name__}"
