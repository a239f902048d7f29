"""Constant, polynomial and power schedules, and cosine cycles (Zhang et al. 2020).

The module also checks a schedule's numbers and converts steps to the schedule's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from ...core.devices import is_concrete, sent
from ...core.pytrees import as_pytree
from ...core.validation import MAX_STEP
from ...errors import UsageError
from ...typing import Number

# -- values --------------------------------------------------------------------------------


Schedule = Callable[[Any], Any]
Step = Int[Array, "*steps"] | int
Value = Float[Array, "*steps"]


def is_traced(*numbers: Any) -> bool:
    """Return whether any of the numbers is a JAX tracer."""
    return any(isinstance(number, Tracer) for number in numbers)


def number(value: Any, name: str, *, zero: bool = False, what: str = "a number") -> Any:
    """Return `value` as a checked float; a tracer is returned unchanged."""
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
            f"{name} must lie between {limits.tiny:.2g} and {limits.max:.2g}, the range of {limits.dtype}. "
            f"Got {number:g}."
        )
    return number


def dtype_of(schedule: Any) -> Any:
    """Return the floating dtype of the leaves, or JAX's default for Python numbers."""
    return jnp.result_type(float, *jax.tree.leaves(schedule))


def real(step: Any, schedule: Any) -> Array:
    """Return `step` in the floating dtype of the schedule's numbers, never weakly typed."""
    return jnp.asarray(step).astype(dtype_of(schedule))


# -- decay ---------------------------------------------------------------------------------


def constant(value: Number) -> Constant:
    """Return the schedule with the same value at every step: h(k) = value.

    As a temperature the value may be 0.

    Raises UsageError where `value` is negative or not finite.

    Example:
      >>> from sgld.samplers.schedules import constant
      >>> float(constant(0.25)(1000))
      0.25
    """
    return Constant(number(value, "value", zero=True))


def polynomial(a: Number, b: Number, gamma: Number) -> Polynomial:
    """Return the polynomial decay h(k) = a (b + k)^-gamma (Welling & Teh 2011, below eq. 2).

    Args:
      a: the scale, in units of h times steps^gamma.
      b: the delay in steps; a larger one keeps h near its first value for longer.
      gamma: the exponent; the Robbins-Monro conditions hold for gamma in (0.5, 1].

    Raises UsageError where one of the three is not positive and finite.

    Example:
      >>> from sgld.samplers.schedules import polynomial
      >>> h = polynomial(a=0.5, b=4.0, gamma=0.5)
      >>> round(float(h(0)), 6), round(float(h(21)), 6)
      (0.25, 0.1)
    """
    return Polynomial(
        number(a, "polynomial's a"),
        number(b, "polynomial's b"),
        number(gamma, "polynomial's gamma"),
    )


def polynomial_between(first: float, last: float, num_steps: int, gamma: float) -> Polynomial:
    """Return the decay a (b + k)^-gamma with h(0) = first and h(num_steps) = last.

        b = num_steps / ((first / last)^(1 / gamma) - 1),     a = first b^gamma

    Args:
      first: the value at step 0.
      last: the value at step `num_steps`, below `first`.
      num_steps: the number of steps between them.
      gamma: the exponent, (0.5, 1] for the Robbins-Monro conditions.

    Raises UsageError where a number is not positive and finite, or `last` is not below `first`.

    Example:
      >>> from sgld.samplers.schedules import polynomial_between
      >>> h = polynomial_between(0.01, 0.0001, num_steps=1_000_000, gamma=0.55)
      >>> round(h.a, 5), round(h.b, 2)
      (0.19955, 231.07)
    """
    first, last = number(first, "first"), number(last, "last")
    num_steps, gamma = number(num_steps, "num_steps"), number(gamma, "gamma")
    if not last < first:
        raise UsageError(
            f"last must be below first. Got first={first:g} and last={last:g}; "
            "for equal values use sgld.constant."
        )
    try:
        b = num_steps / math.expm1(math.log(first / last) / gamma)
        a = first * b**gamma
    except (OverflowError, ZeroDivisionError):
        a = b = 0.0
    if not (a > 0 and b > 0 and math.isfinite(a)):
        raise UsageError(
            f"gamma is too small to fall from {first:g} to {last:g} polynomially. Got {gamma:g}; "
            "use a larger gamma."
        )
    return Polynomial(a, b, gamma)


def power(
    C: Number, s: Number, *, start: Number | None = None, floor: Number | None = None
) -> Power:
    """Return a power decay with an optional plateau before it and an optional floor after it.

        h(k) = max((C / max(t, start))^s, floor),     t = k + 1

    Remark 9 of the handout gives the series (C/t)^s and (C/max(t, T0))^s. Its Remark 32 keeps
    the step constant once it is below a critical level.

    Args:
      C: the t at which h would be 1, in steps.
      s: the exponent; the Robbins-Monro conditions hold for s in (0.5, 1] and no floor.
      start: T0, the t up to which h is constant (None: decay from the first step).
      floor: the level, in units of h, below which h stays constant (None: no floor).

    Raises UsageError where a number is not positive and finite.

    Example:
      >>> from sgld.samplers.schedules import power
      >>> h = power(C=1.0, s=1.0, start=4, floor=0.125)
      >>> [round(float(h(k)), 6) for k in (0, 3, 4, 7, 100)]
      [0.25, 0.25, 0.2, 0.125, 0.125]
    """
    return Power(
        number(C, "C"),
        number(s, "s"),
        1.0 if start is None else number(start, "start"),
        0.0 if floor is None else number(floor, "floor"),
    )


@as_pytree
@dataclass(frozen=True)
class Constant:
    """The schedule h(k) = value; built by `constant`."""

    value: float

    def __call__(self, step: Step) -> Value:
        """Return the value, in the shape of `step`."""
        if is_concrete(step, self.value):
            return sent(np.full(np.shape(step), self.value), dtype_of(self))
        return jnp.full(jnp.shape(step), self.value, dtype_of(self))


@as_pytree
@dataclass(frozen=True)
class Polynomial:
    """The schedule h(k) = a (b + k)^-gamma; built by `polynomial` and `polynomial_between`."""

    a: float
    b: float
    gamma: float

    def __call__(self, step: Step) -> Value:
        """Return the value at `step`."""
        return self.a * (self.b + real(step, self)) ** -self.gamma


@as_pytree
@dataclass(frozen=True)
class Power:
    """The schedule h(k) = max((C / max(k + 1, start))^s, floor); built by `power`."""

    C: float
    s: float
    start: float
    floor: float

    def __call__(self, step: Step) -> Value:
        """Return the value at `step`."""
        t = real(step, self) + 1  # in floating point: step + 1 can overflow an int32
        return jnp.maximum((self.C / jnp.maximum(t, self.start)) ** self.s, self.floor)


# -- cycles --------------------------------------------------------------------------------


def cosine_cycles(first: Number, cycle_length: Number, exploration: Number = 0.0) -> CosineCycles:
    """Return cosine cycles, each from `first` down to nearly 0 (Zhang et al. 2020, eq. 1).

        h(k) = (first / 2) (1 + cos(pi (k mod L) / L)),     L = cycle_length

    Cyclical SGLD optimises (T = 0) in the first `exploration * L` steps of a cycle and samples
    (T) in the rest. Pass `temperature=h.temperature(T)` together with `step_size=h`, and keep
    the draws for which `h.sampling(step)` is true.

    Args:
      first: the step size at the start of each cycle.
      cycle_length: L, in steps.
      exploration: the share of each cycle spent exploring, in [0, 1); rounded to whole steps.

    Raises UsageError where `first` or `cycle_length` is not positive and finite, `cycle_length`
    is not whole, or `exploration` leaves no step of a cycle to sample in.

    Example:
      >>> from sgld.samplers.schedules import cosine_cycles
      >>> h = cosine_cycles(0.5, cycle_length=4, exploration=0.5)
      >>> [round(float(h(k)), 4) for k in range(5)]
      [0.5, 0.4268, 0.25, 0.0732, 0.5]
      >>> [bool(h.sampling(k)) for k in range(5)]
      [False, False, True, True, False]
      >>> [float(h.temperature(1.0)(k)) for k in range(5)]
      [0.0, 0.0, 1.0, 1.0, 0.0]
    """
    length = number(cycle_length, "cycle_length")
    if not is_traced(length):
        if length != round(length) or length > MAX_STEP:
            raise UsageError(
                f"cycle_length must be a whole number of steps below 2^31. Got {length:g}."
            )
        length = int(length)
    share = number(exploration, "exploration", zero=True)
    if not is_traced(share, length) and round(share * length) >= length:
        raise UsageError(
            f"exploration must be in [0, 1) and leave a step to sample in each cycle of {length}. "
            f"Got {share:g}."
        )
    return CosineCycles(number(first, "first"), length, share)


@as_pytree
@dataclass(frozen=True)
class CosineCycles:
    """The schedule h(k) = (first / 2)(1 + cos(pi (k mod L) / L)); built by `cosine_cycles`."""

    first: float
    cycle_length: int
    exploration: float

    def __call__(self, step: Step) -> Value:
        """Return the value at `step`."""
        left = self.cycle_length - jnp.remainder(step, self.cycle_length)
        # (1 + cos x) / 2 = sin^2((pi - x) / 2), without the cancellation at the end of a cycle
        angle = (0.5 * math.pi) * (real(left, self) / self.cycle_length)
        return self.first * jnp.sin(angle) ** 2

    def sampling(self, step: Step) -> Array:
        """Return whether `step` is in the sampling stage of its cycle (bool, in its shape)."""
        phase = jnp.remainder(step, self.cycle_length)
        return phase >= jnp.round(self.exploration * self.cycle_length).astype(phase.dtype)

    def temperature(self, value: Number = 1.0) -> CycleTemperature:
        """Return the temperature schedule of the cycles: 0 while exploring, then `value`.

        Raises UsageError where `value` is not positive and finite.
        """
        return CycleTemperature(self, number(value, "temperature"))


@as_pytree
@dataclass(frozen=True)
class CycleTemperature:
    """T(k) = value in the sampling stage of each cycle, else 0; built by `CosineCycles`."""

    cycles: CosineCycles
    value: float

    def __call__(self, step: Step) -> Value:
        """Return the temperature at `step`."""
        return jnp.where(self.cycles.sampling(step), Constant(self.value)(step), 0.0)
