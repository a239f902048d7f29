"""Numbers of a schedule: what a user gave, checked, and steps in the schedule's own dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from ..errors import UsageError

__all__ = ["Schedule", "Step", "Value", "dtype_of", "is_traced", "number", "real"]

Schedule = Callable[[Any], Any]
Step = Int[Array, "*steps"] | int
Value = Float[Array, "*steps"]


def is_traced(*numbers: Any) -> bool:
    """Whether any of them is one of JAX's tracers."""
    return any(isinstance(number, Tracer) for number in numbers)


def number(value: Any, name: str, *, zero: bool = False, what: str = "a number") -> Any:
    """`value` as a float, checked; a tracer is passed on."""
    if is_traced(value):
        return value
    if isinstance(value, (bool, str)) or np.ndim(value) != 0:
        raise UsageError(f"{name} must be {what}. Got {value!r}.")
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must be {what}. Got {value!r}.") from error
    if not math.isfinite(number):
        raise UsageError(f"{name} must be finite. Got {number}.")
    if number < 0 or (number == 0 and not zero):
        raise UsageError(f"{name} must be {'zero or ' if zero else ''}positive. Got {number:g}.")
    limits = jnp.finfo(jnp.result_type(float))
    if number != 0 and not float(limits.tiny) <= number <= float(limits.max):
        raise UsageError(
            f"{name} must lie between {limits.tiny:.2g} and {limits.max:.2g}, the numbers that {limits.dtype} "
            f"holds. Got {number:g}."
        )
    return number


def dtype_of(schedule: Any) -> Any:
    """The floating dtype of the leaves; JAX's default one where they are Python numbers."""
    return jnp.result_type(float, *jax.tree.leaves(schedule))


def real(step: Any, schedule: Any) -> Array:
    """`step` in the floating dtype of the schedule's numbers, never weakly typed."""
    return jnp.asarray(step).astype(dtype_of(schedule))
