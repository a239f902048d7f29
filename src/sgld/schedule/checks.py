"""A schedule from whatever was given, and whether its values can be used."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from ..core.devices import sent
from ..core.user_code import check_repeatable
from ..core.validation import MAX_STEP
from ..errors import UsageError
from ..typing import Number
from .decay import Constant
from .values import Schedule, number

__all__ = ["as_schedule", "check_values"]


def as_schedule(value: Schedule | Number, name: str, *, zero: bool = False) -> Schedule:
    """A schedule from a number or from any function of the step.

    Args:
      value: a number (becomes `constant`), a schedule, or a function (kept, made a pytree).
      name: the argument's name, for the message.
      zero: whether 0 is allowed, as it is for a temperature.

    Raises UsageError where a number is negative, not finite, or 0 though `zero` is False, or
    `value` is neither a number nor a function.

    Example:
      >>> from sgld.schedule import as_schedule
      >>> as_schedule(-0.1, "step_size")
      Traceback (most recent call last):
      ...
      sgld.errors.UsageError: step_size must be positive. Got -0.1.
    """
    if isinstance(value, Constant):
        return Constant(number(value.value, name, zero=zero))
    if callable(value):
        return Partial(value) if jax.tree_util.all_leaves([value]) else value
    return Constant(number(value, name, zero=zero, what="a number or a function of the step"))


def check_values(schedule: Schedule, num_steps: int, name: str) -> None:
    """Evaluate `schedule` at several hundred steps of 0 ... num_steps, ends included.

    Raises UsageError naming the first of those steps at which it is negative or not finite, and
    where it is not one number per step, JAX cannot trace it, or steps would not fit in 32 bits.

    Example:
      >>> from sgld.schedule import check_values
      >>> check_values(lambda step: 0.5 - step.astype(float), 100, "step_size")
      Traceback (most recent call last):
      ...
      sgld.errors.UsageError: step_size must be finite and not negative. Got -0.5 at step 1.
    """
    if not 0 <= num_steps <= MAX_STEP:
        raise UsageError(f"num_steps must be between 0 and 2^31 - 1. Got {num_steps}.")
    spread = np.linspace(0, num_steps, 300), np.geomspace(1, num_steps + 1, 100) - 1
    steps = np.unique(np.concatenate(spread).astype(np.int32))
    try:
        if isinstance(schedule, Constant):
            values = np.asarray(schedule(sent(steps)))
        else:
            check_repeatable(name, schedule, sent(steps[0]), where="step 0")
            values = np.asarray(jax.vmap(lambda step: jnp.asarray(schedule(step)))(sent(steps)))
    except jax.errors.JAXTypeError as error:
        raise UsageError(
            f"{name} must be a function of the step that JAX can trace; "
            "replace `if` on the step by jax.numpy.where, and numpy by jax.numpy."
        ) from error
    if values.ndim != 1:
        raise UsageError(
            f"{name} must give one number per step. Got an array of shape {values.shape[1:]}."
        )
    if not any(jnp.issubdtype(values.dtype, kind) for kind in (np.bool_, np.integer, np.floating)):
        raise UsageError(f"{name} must give real numbers. Got {values.dtype}.")
    bad = np.flatnonzero(~np.isfinite(values) | (values < 0))
    if bad.size:
        raise UsageError(
            f"{name} must be finite and not negative. Got {values[bad[0]]:g} at step "
            f"{steps[bad[0]]}."
        )
