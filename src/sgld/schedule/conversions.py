"""Step sizes from the scales of others: Welling & Teh's eps, a learning rate of a mean loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..core.pytrees import as_pytree
from ..typing import Number
from .checks import as_schedule
from .cycles import CosineCycles
from .decay import Constant, Polynomial, Power
from .values import Schedule, Step, Value, number, real

__all__ = ["Scaled", "from_learning_rate", "from_welling_teh"]


def from_welling_teh(schedule: Schedule | Number) -> Schedule:
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


def from_learning_rate(learning_rate: Schedule | Number, num_data: int) -> Schedule:
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
    return _scaled(schedule, 1 / number(num_data, "num_data"))


@as_pytree
@dataclass(frozen=True)
class Scaled:
    """h(k) = factor * schedule(k); made by the converters for functions from elsewhere."""

    schedule: Schedule
    factor: float

    def __call__(self, step: Step) -> Value:
        """The value at `step`."""
        return self.factor * real(self.schedule(step), self)


def _scaled(schedule: Schedule, factor: Any) -> Schedule:
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
