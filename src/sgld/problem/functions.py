"""Functions of the user's own: what they must return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..core.user_code import of_the_user
from ..errors import UsageError

__all__ = ["check_scalar"]

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


def _kind(found: Any) -> str:
    return "nothing" if found is None else f"a {type(found).__name__}"
