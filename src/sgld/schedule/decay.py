"""Constant, polynomial and power schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ..core.devices import known_now, sent
from ..core.pytrees import as_pytree
from ..errors import UsageError
from ..typing import Number
from .values import Step, Value, dtype_of, number, real

__all__ = [
    "Constant",
    "Polynomial",
    "Power",
    "constant",
    "polynomial",
    "polynomial_between",
    "power",
]


def constant(value: Number) -> Constant:
    """The same value at every step: h(k) = value. As a temperature it may be 0.

    Raises UsageError where `value` is negative or not finite.

    Example:
      >>> from sgld.schedule import constant
      >>> float(constant(0.25)(1000))
      0.25
    """
    return Constant(number(value, "value", zero=True))


def polynomial(a: Number, b: Number, gamma: Number) -> Polynomial:
    """Polynomial decay, h(k) = a (b + k)^-gamma (Welling & Teh 2011, below eq. 2).

    Args:
      a: the scale, in units of h times steps^gamma.
      b: the delay in steps; the larger, the longer h stays near its first value.
      gamma: the exponent; the Robbins-Monro conditions hold for gamma in (0.5, 1].

    Raises UsageError where one of the three is not positive and finite.

    Example:
      >>> from sgld.schedule import polynomial
      >>> h = polynomial(a=0.5, b=4.0, gamma=0.5)
      >>> round(float(h(0)), 6), round(float(h(21)), 6)
      (0.25, 0.1)
    """
    return Polynomial(number(a, "a"), number(b, "b"), number(gamma, "gamma"))


def polynomial_between(first: float, last: float, num_steps: int, gamma: float) -> Polynomial:
    """The polynomial decay a (b + k)^-gamma with h(0) = first and h(num_steps) = last.

        b = num_steps / ((first / last)^(1 / gamma) - 1),     a = first b^gamma

    Args:
      first: the value at step 0.
      last: the value at step `num_steps`, below `first`.
      num_steps: the number of steps between them.
      gamma: the exponent, (0.5, 1] for the Robbins-Monro conditions.

    Raises UsageError where a number is not positive and finite, or `last` is not below `first`.

    Example:
      >>> from sgld.schedule import polynomial_between
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
    """Power decay with an optional plateau before it and an optional floor after it.

        h(k) = max((C / max(t, start))^s, floor),     t = k + 1

    (Remark 9 of the handout's series: (C/t)^s and (C/max(t, T0))^s; its Remark 32: keep the
    step constant once below a critical level.)

    Args:
      C: the t at which h would be 1, in steps.
      s: the exponent; the Robbins-Monro conditions hold for s in (0.5, 1] and no floor.
      start: T0, the t up to which h is constant (None: decay from the first step).
      floor: the level, in units of h, below which h stays constant (None: no floor).

    Raises UsageError where a number is not positive and finite.

    Example:
      >>> from sgld.schedule import power
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
    """h(k) = value; made by `constant`."""

    value: float

    def __call__(self, step: Step) -> Value:
        """The value, in the shape of `step`."""
        if known_now(step, self.value):
            return sent(np.full(np.shape(step), self.value), dtype_of(self))
        return jnp.full(jnp.shape(step), self.value, dtype_of(self))


@as_pytree
@dataclass(frozen=True)
class Polynomial:
    """h(k) = a (b + k)^-gamma; made by `polynomial` and `polynomial_between`."""

    a: float
    b: float
    gamma: float

    def __call__(self, step: Step) -> Value:
        """The value at `step`."""
        return self.a * (self.b + real(step, self)) ** -self.gamma


@as_pytree
@dataclass(frozen=True)
class Power:
    """h(k) = max((C / max(k + 1, start))^s, floor); made by `power`."""

    C: float
    s: float
    start: float
    floor: float

    def __call__(self, step: Step) -> Value:
        """The value at `step`."""
        t = real(step, self) + 1  # in floating point: step + 1 can overflow an int32
        return jnp.maximum((self.C / jnp.maximum(t, self.start)) ** self.s, self.floor)
