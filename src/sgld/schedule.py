"""Step sizes and temperatures as functions of the step, counted from 0.

A schedule is any `step -> value` that JAX can trace: an object of this file, an optax
schedule or a plain function. Those of this file are frozen dataclasses whose numbers are
pytree leaves, so that a change of numbers compiles nothing and a sweep is a vmap. A step
size h multiplies the gradient of the full-data log posterior,

    theta' = theta + h grad log p(theta | data) + sqrt(2 h T) xi,

whatever scale a paper uses: `from_welling_teh` and `from_learning_rate` convert.

Papers: Robbins & Monro 1951 (the conditions); Welling & Teh 2011 (polynomial decay);
Teh, Thiery & Vollmer 2016 (exponent 1/3); Zhang et al. 2020, "Cyclical stochastic gradient
MCMC for Bayesian deep learning" (cosine cycles).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int

from .errors import UsageError

__all__ = [
    "RobbinsMonro",
    "Schedule",
    "as_schedule",
    "check_schedule",
    "constant",
    "cosine_cycles",
    "from_learning_rate",
    "from_welling_teh",
    "polynomial",
    "polynomial_between",
    "power",
    "robbins_monro",
]

Schedule = Callable[[Any], Any]
Step = Int[Array, "*steps"] | int
Value = Float[Array, "*steps"]


def constant(value: float) -> Constant:
    """The same value at every step: h(k) = value. As a temperature it may be 0.

    Raises UsageError where `value` is negative or not finite.

    Example:
      >>> from sgld.schedule import constant
      >>> float(constant(0.25)(1000))
      0.25
    """
    return Constant(_number(value, "value", zero=True))


def polynomial(a: float, b: float, gamma: float) -> Polynomial:
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
    return Polynomial(_number(a, "a"), _number(b, "b"), _number(gamma, "gamma"))


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
    first, last = _number(first, "first"), _number(last, "last")
    num_steps, gamma = _number(num_steps, "num_steps"), _number(gamma, "gamma")
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


def power(C: float, s: float, *, start: float | None = None, floor: float | None = None) -> Power:
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
        _number(C, "C"),
        _number(s, "s"),
        1.0 if start is None else _number(start, "start"),
        0.0 if floor is None else _number(floor, "floor"),
    )


def cosine_cycles(first: float, cycle_length: int, exploration: float = 0.0) -> CosineCycles:
    """Cosine cycles, each from `first` down to nearly 0 (Zhang et al. 2020, eq. 1).

        h(k) = (first / 2) (1 + cos(pi (k mod L) / L)),     L = cycle_length

    In the first `exploration * L` steps of a cycle their cyclical SGLD optimises (T = 0), in
    the rest it samples (T): give `temperature=h.temperature(T)` beside `step_size=h`, and keep
    the draws for which `h.sampling(step)` is true.

    Args:
      first: the step size at the start of each cycle.
      cycle_length: L, in steps.
      exploration: the share of each cycle spent exploring, in [0, 1); rounded to whole steps.

    Raises UsageError where `first` or `cycle_length` is not positive and finite, `cycle_length`
    is not whole, or `exploration` leaves no step of a cycle to sample in.

    Example:
      >>> from sgld.schedule import cosine_cycles
      >>> h = cosine_cycles(0.5, cycle_length=4, exploration=0.5)
      >>> [round(float(h(k)), 4) for k in range(5)]
      [0.5, 0.4268, 0.25, 0.0732, 0.5]
      >>> [bool(h.sampling(k)) for k in range(5)]
      [False, False, True, True, False]
      >>> [float(h.temperature(1.0)(k)) for k in range(5)]
      [0.0, 0.0, 1.0, 1.0, 0.0]
    """
    length = _number(cycle_length, "cycle_length")
    if not _traced(length):
        if length != round(length) or length > _MAX_STEP:
            raise UsageError(
                f"cycle_length must be a whole number of steps below 2^31. Got {length:g}."
            )
        length = int(length)
    share = _number(exploration, "exploration", zero=True)
    if not _traced(share, length) and round(share * length) >= length:
        raise UsageError(
            f"exploration must be in [0, 1) and leave a step to sample in each cycle of {length}. "
            f"Got {share:g}."
        )
    return CosineCycles(_number(first, "first"), length, share)


def from_welling_teh(schedule: Schedule | float) -> Schedule:
    """The step size h = eps / 2 of a schedule (or number) in the eps of Welling & Teh 2011, eq. 4.

    Their theta' = theta + (eps / 2) grad + N(0, eps) is this package's update with h = eps / 2;
    the slides and Keng's text use eps too.

    Raises UsageError where a number is not positive and finite, or `schedule` is neither a number
    nor a function.

    Example:
      >>> from sgld.schedule import from_welling_teh, polynomial_between
      >>> h = from_welling_teh(polynomial_between(0.01, 0.0001, num_steps=1_000_000, gamma=0.55))
      >>> round(h.a, 5), round(h.b, 2)
      (0.09978, 231.07)
    """
    return _scaled(as_schedule(schedule, "schedule"), 0.5)


def from_learning_rate(learning_rate: Schedule | float, num_data: int) -> Schedule:
    """The step size h = lr / N of a learning rate for the MEAN loss over N data.

    theta' = theta - lr grad(-log posterior / N) is a step h = lr / N along grad log posterior.

    Args:
      learning_rate: lr, a number or a schedule.
      num_data: N, the number of data (rows), not of batches.

    Raises UsageError where a number is not positive and finite, or `learning_rate` is neither a
    number nor a function.

    Example:
      >>> from sgld.schedule import from_learning_rate
      >>> from_learning_rate(0.5, num_data=1000)
      Constant(value=0.0005)
    """
    schedule = as_schedule(learning_rate, "learning_rate")
    return _scaled(schedule, 1 / _number(num_data, "num_data"))


def as_schedule(value: Schedule | float, name: str, *, zero: bool = False) -> Schedule:
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
        return Constant(_number(value.value, name, zero=zero))
    if callable(value):
        return Partial(value) if jax.tree_util.all_leaves([value]) else value
    return Constant(_number(value, name, zero=zero, what="a number or a function of the step"))


def check_schedule(schedule: Schedule, num_steps: int, name: str) -> None:
    """Evaluate `schedule` at several hundred steps of 0 ... num_steps, ends included.

    Raises UsageError naming the first of those steps at which it is negative or not finite, and
    where it is not one number per step, JAX cannot trace it, or steps would not fit in 32 bits.

    Example:
      >>> from sgld.schedule import check_schedule
      >>> check_schedule(lambda step: 0.5 - step.astype(float), 100, "step_size")
      Traceback (most recent call last):
      ...
      sgld.errors.UsageError: step_size must be finite and not negative. Got -0.5 at step 1.
    """
    if not 0 <= num_steps <= _MAX_STEP:
        raise UsageError(f"num_steps must be between 0 and 2^31 - 1. Got {num_steps}.")
    spread = np.linspace(0, num_steps, 300), np.geomspace(1, num_steps + 1, 100) - 1
    steps = np.unique(np.concatenate(spread).astype(np.int32))
    try:
        values = np.asarray(jax.vmap(lambda step: jnp.asarray(schedule(step)))(jnp.asarray(steps)))
    except jax.errors.JAXTypeError as error:
        raise UsageError(
            f"{name} must be a function of the step that JAX can trace; "
            "replace `if` on the step by jax.numpy.where, and numpy by jax.numpy."
        ) from error
    if values.ndim != 1:
        raise UsageError(
            f"{name} must give one number per step. Got an array of shape {values.shape[1:]}."
        )
    bad = np.flatnonzero(~np.isfinite(values) | (values < 0))
    if bad.size:
        raise UsageError(
            f"{name} must be finite and not negative. Got {values[bad[0]]:g} at step "
            f"{steps[bad[0]]}."
        )


def robbins_monro(schedule: Schedule | float) -> RobbinsMonro:
    """Which of the Robbins-Monro conditions a schedule satisfies (Welling & Teh 2011, eq. 2).

        sum_k h(k) = inf,     sum_k h(k)^2 < inf,     (and so h(k) -> 0)

    (Robbins & Monro 1951; the handout's Condition 25.) They hold for a power or polynomial decay
    with exponent in (1/2, 1]. They fail for a constant, for anything with a positive floor, for
    cosine cycles, and for an exponent of 1/2 or less, the 1/3 that is optimal for SGLD's weighted
    averages (Teh, Thiery & Vollmer 2016) included. A function from elsewhere cannot be decided
    from its values: None.

    Raises UsageError where a number is negative or not finite.

    Example:
      >>> from sgld.schedule import polynomial, robbins_monro
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
    if _traced(*leaves) or any(np.ndim(leaf) for leaf in leaves):
        return RobbinsMonro(
            None, None, None, "The schedule's numbers are traced by JAX, or several at once."
        )
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
      sentence: why.
    """

    sum_diverges: bool | None
    squares_summable: bool | None
    vanishes: bool | None
    sentence: str

    @property
    def hold(self) -> bool | None:
        """Whether all hold: False if one fails, None if none fails but one is undecided."""
        conditions = (self.sum_diverges, self.squares_summable, self.vanishes)
        return False if False in conditions else None if None in conditions else True


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Constant:
    """h(k) = value; made by `constant`."""

    value: float

    def __call__(self, step: Step) -> Value:
        """The value, in the shape of `step`."""
        return jnp.full(jnp.shape(step), self.value, _dtype(self))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Polynomial:
    """h(k) = a (b + k)^-gamma; made by `polynomial` and `polynomial_between`."""

    a: float
    b: float
    gamma: float

    def __call__(self, step: Step) -> Value:
        """The value at `step`."""
        return self.a * (self.b + _real(step, self)) ** -self.gamma


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Power:
    """h(k) = max((C / max(k + 1, start))^s, floor); made by `power`."""

    C: float
    s: float
    start: float
    floor: float

    def __call__(self, step: Step) -> Value:
        """The value at `step`."""
        t = _real(step, self) + 1  # in floating point: step + 1 can overflow an int32
        return jnp.maximum((self.C / jnp.maximum(t, self.start)) ** self.s, self.floor)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CosineCycles:
    """h(k) = (first / 2)(1 + cos(pi (k mod L) / L)); made by `cosine_cycles`."""

    first: float
    cycle_length: int
    exploration: float

    def __call__(self, step: Step) -> Value:
        """The value at `step`."""
        left = self.cycle_length - jnp.remainder(step, self.cycle_length)
        # (1 + cos x) / 2 = sin^2((pi - x) / 2), without the cancellation at the end of a cycle
        angle = (0.5 * math.pi) * (_real(left, self) / self.cycle_length)
        return self.first * jnp.sin(angle) ** 2

    def sampling(self, step: Step) -> Array:
        """Whether `step` is in the sampling stage of its cycle (bool, in the shape of `step`)."""
        phase = jnp.remainder(step, self.cycle_length)
        return phase >= jnp.round(self.exploration * self.cycle_length).astype(phase.dtype)

    def temperature(self, value: float = 1.0) -> CycleTemperature:
        """The temperature that goes with the cycles: 0 while exploring, then `value`.

        Raises UsageError where `value` is not positive and finite.
        """
        return CycleTemperature(self, _number(value, "temperature"))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CycleTemperature:
    """T(k) = value in the sampling stage of each cycle, else 0; made by `CosineCycles`."""

    cycles: CosineCycles
    value: float

    def __call__(self, step: Step) -> Value:
        """The temperature at `step`."""
        return jnp.where(self.cycles.sampling(step), Constant(self.value)(step), 0.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaled:
    """h(k) = factor * schedule(k); made by the converters for functions from elsewhere."""

    schedule: Schedule
    factor: float

    def __call__(self, step: Step) -> Value:
        """The value at `step`."""
        return self.factor * _real(self.schedule(step), self)


_MAX_STEP = 2**31 - 1


def _scaled(schedule: Schedule, factor: float) -> Schedule:
    """`factor` times `schedule`, in the schedule's own numbers where it is one of ours."""
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


def _traced(*numbers: Any) -> bool:
    return any(isinstance(number, Tracer) for number in numbers)


def _number(value: Any, name: str, *, zero: bool = False, what: str = "a number") -> Any:
    """`value` as a float, checked; a tracer is passed on."""
    if _traced(value):
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
    return number


def _dtype(schedule: Any) -> Any:
    """The floating dtype of the leaves; JAX's default one where they are Python numbers."""
    return jnp.result_type(float, *jax.tree.leaves(schedule))


def _real(step: Any, schedule: Any) -> Array:
    """`step` in the floating dtype of the schedule's numbers, never weakly typed."""
    return jnp.asarray(step).astype(_dtype(schedule))
