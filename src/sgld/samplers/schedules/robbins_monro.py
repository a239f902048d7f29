"""Robbins-Monro conditions of a schedule, its checks, and conversions from other scales.

The conversions accept the eps of Welling & Teh and the learning rate of a mean loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from ...core.devices import sent
from ...core.pytrees import as_pytree
from ...core.user_code import check_repeatable
from ...core.validation import MAX_STEP
from ...errors import UsageError
from ...typing import Number
from .decay import (
    Constant,
    CosineCycles,
    Polynomial,
    Power,
    Schedule,
    Step,
    Value,
    is_traced,
    number,
    real,
)

# -- checks --------------------------------------------------------------------------------


def as_schedule(value: Schedule | Number, name: str, *, zero: bool = False) -> Schedule:
    """Return a schedule made from a number or from any function of the step.

    Args:
      value: a number (becomes `constant`), a schedule, or a function (wrapped as a pytree).
      name: the argument's name, for the message.
      zero: whether 0 is allowed, as it is for a temperature.

    Raises UsageError where a number is negative, not finite, or 0 though `zero` is False, or
    `value` is neither a number nor a function.

    Example:
      >>> from sgld.samplers.schedules import as_schedule
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
    """Check the values of `schedule` at several hundred steps of 0 ... num_steps, ends included.

    Raises UsageError at the first of those steps where the value is negative or not finite. It also
    raises where the value is not one number per step, JAX cannot trace it, or steps exceed 32 bits.

    Example:
      >>> from sgld.samplers.schedules import check_values
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


# -- conversions ---------------------------------------------------------------------------


def from_welling_teh(schedule: Schedule | Number) -> Schedule:
    """Convert the eps of Welling & Teh 2011, eq. 4, to the step size h = eps / 2.

    Their theta' = theta + (eps / 2) grad + N(0, eps) is this package's update with h = eps / 2.
    The slides and Keng's text use eps too. `schedule` is a number or a schedule in eps.

    Raises UsageError where a number is not positive and finite, or `schedule` is neither a number
    nor a function.

    Example:
      >>> from sgld.samplers.schedules import from_welling_teh, polynomial_between
      >>> h = from_welling_teh(polynomial_between(0.01, 0.0001, num_steps=1_000_000, gamma=0.55))
      >>> round(h.a, 5), round(h.b, 2)
      (0.09978, 231.07)
    """
    return _scaled(as_schedule(schedule, "schedule"), 0.5)


def from_learning_rate(learning_rate: Schedule | Number, num_data: int) -> Schedule:
    """Convert a learning rate lr for the MEAN loss over N data to the step size h = lr / N.

    A step theta' = theta - lr grad(-log posterior / N) is a step h = lr / N along grad log posterior.

    theta' = theta - lr grad(-log posterior / N) is a step h = lr / N along grad log posterior.

    Args:
      learning_rate: lr, a number or a schedule.
      num_data: N, the number of data (rows), not of batches.

    Raises UsageError where a number is not positive and finite, or `learning_rate` is neither a
    number nor a function.

    Example:
      >>> from sgld.samplers.schedules import from_learning_rate
      >>> from_learning_rate(0.5, num_data=1000)
      Constant(value=0.0005)
    """
    schedule = as_schedule(learning_rate, "learning_rate")
    return _scaled(schedule, 1 / number(num_data, "num_data"))


@as_pytree
@dataclass(frozen=True)
class Scaled:
    """The schedule h(k) = factor * schedule(k); built by the converters for foreign functions."""

    schedule: Schedule
    factor: float

    def __call__(self, step: Step) -> Value:
        """Return the value at `step`."""
        return self.factor * real(self.schedule(step), self)


def _scaled(schedule: Schedule, factor: Any) -> Schedule:
    """Return `factor` times `schedule`, as the same class where it is one of this package."""
    match schedule:
        case Constant(value):
            return Constant(value * factor)
        case Polynomial(a):
            return replace(schedule, a=a * factor)
        case Power(C, s, _, floor):
            return replace(schedule, C=C * factor ** (1 / s), floor=floor * factor)
        case CosineCycles(first):
            return replace(schedule, first=first * factor)
    return Scaled(schedule, factor)


# -- conditions ----------------------------------------------------------------------------


def robbins_monro(schedule: Schedule | Number) -> RobbinsMonro:
    """Report which Robbins-Monro conditions a schedule satisfies (Welling & Teh 2011, eq. 2).

        sum_k h(k) = inf,     sum_k h(k)^2 < inf,     (and so h(k) -> 0)

    (Robbins & Monro 1951; the handout's Condition 25.) They hold for a power or polynomial decay
    with exponent in (1/2, 1]. They fail for a constant, for any schedule with a positive floor, for
    cosine cycles, and for an exponent of 1/2 or less. That includes the 1/3 that is optimal for SGLD's
    weighted averages (Teh, Thiery & Vollmer 2016). For a foreign function the values cannot decide
    the conditions, and they are None.

    Raises UsageError where a number is negative or not finite.

    Example:
      >>> from sgld.samplers.schedules import polynomial, robbins_monro
      >>> robbins_monro(polynomial(1.0, 1.0, gamma=0.55)).hold
      True
      >>> print(robbins_monro(polynomial(1.0, 1.0, gamma=0.5)).sentence)
      The exponent 0.5 is at most 1/2, so the sum of h^2 diverges.
    """
    schedule = as_schedule(schedule, "schedule", zero=True)
    while isinstance(schedule, Scaled):  # a positive factor changes none of the conditions
        schedule = schedule.schedule
    if not isinstance(schedule, (Constant, CosineCycles, Polynomial, Power)):
        return RobbinsMonro(
            None, None, None, "The values of a function at finitely many steps decide no limit."
        )
    leaves = jax.tree.leaves(schedule)
    if is_traced(*leaves) or any(np.ndim(leaf) for leaf in leaves):
        return RobbinsMonro(None, None, None, "The schedule's numbers are JAX tracers or arrays.")
    match schedule:
        case Constant(value=value) if value == 0:
            return RobbinsMonro(False, True, True, "The schedule is 0, so the sum of h is 0.")
        case Constant():
            return RobbinsMonro(
                True, False, False, "The schedule is constant, so the sum of h^2 diverges."
            )
        case CosineCycles():
            return RobbinsMonro(
                True, False, False, "The schedule is periodic, so the sum of h^2 diverges."
            )
        case Power(floor=floor) if floor > 0:
            return RobbinsMonro(
                True, False, False, f"h stays at or above {floor:g}, so the sum of h^2 diverges."
            )
    exponent = schedule.gamma if isinstance(schedule, Polynomial) else schedule.s
    if exponent <= 0.5:
        why = "is at most 1/2, so the sum of h^2 diverges."
    elif exponent <= 1:
        why = "is in (1/2, 1], so the sum of h diverges and the sum of h^2 converges."
    else:
        why = "is above 1, so the sum of h converges: the run can stop short of its target."
    return RobbinsMonro(
        bool(exponent <= 1), bool(exponent > 0.5), True, f"The exponent {exponent:g} {why}"
    )


@dataclass(frozen=True)
class RobbinsMonro:
    """The Robbins-Monro conditions of a schedule: True, False, or None where undecided.

    Attributes:
      sum_diverges: sum_k h(k) = inf.
      squares_summable: sum_k h(k)^2 < inf.
      vanishes: h(k) -> 0, which the second implies.
      sentence: the reason.
    """

    sum_diverges: bool | None
    squares_summable: bool | None
    vanishes: bool | None
    sentence: str

    @property
    def hold(self) -> bool | None:
        """Whether all hold: False if one fails, None if one is undecided and none fails."""
        conditions = (self.sum_diverges, self.squares_summable, self.vanishes)
        return False if False in conditions else None if None in conditions else True
