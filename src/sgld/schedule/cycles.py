"""Cosine cycles that explore and then sample (Zhang et al. 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array

from ..core.pytrees import as_pytree
from ..core.validation import MAX_STEP
from ..errors import UsageError
from ..typing import Number
from .decay import Constant
from .values import Step, Value, is_traced, number, real

__all__ = ["CosineCycles", "CycleTemperature", "cosine_cycles"]


def cosine_cycles(first: Number, cycle_length: Number, exploration: Number = 0.0) -> CosineCycles:
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
    """h(k) = (first / 2)(1 + cos(pi (k mod L) / L)); made by `cosine_cycles`."""

    first: float
    cycle_length: int
    exploration: float

    def __call__(self, step: Step) -> Value:
        """The value at `step`."""
        left = self.cycle_length - jnp.remainder(step, self.cycle_length)
        # (1 + cos x) / 2 = sin^2((pi - x) / 2), without the cancellation at the end of a cycle
        angle = (0.5 * math.pi) * (real(left, self) / self.cycle_length)
        return self.first * jnp.sin(angle) ** 2

    def sampling(self, step: Step) -> Array:
        """Whether `step` is in the sampling stage of its cycle (bool, in the shape of `step`)."""
        phase = jnp.remainder(step, self.cycle_length)
        return phase >= jnp.round(self.exploration * self.cycle_length).astype(phase.dtype)

    def temperature(self, value: Number = 1.0) -> CycleTemperature:
        """The temperature that goes with the cycles: 0 while exploring, then `value`.

        Raises UsageError where `value` is not positive and finite.
        """
        return CycleTemperature(self, number(value, "temperature"))


@as_pytree
@dataclass(frozen=True)
class CycleTemperature:
    """T(k) = value in the sampling stage of each cycle, else 0; made by `CosineCycles`."""

    cycles: CosineCycles
    value: float

    def __call__(self, step: Step) -> Value:
        """The temperature at `step`."""
        return jnp.where(self.cycles.sampling(step), Constant(self.value)(step), 0.0)
