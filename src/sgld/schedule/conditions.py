"""Which of the Robbins-Monro conditions a schedule satisfies."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from ..typing import Number
from .checks import as_schedule
from .conversions import Scaled
from .cycles import CosineCycles
from .decay import Constant, Polynomial, Power
from .values import Schedule, is_traced

__all__ = ["RobbinsMonro", "robbins_monro"]


def robbins_monro(schedule: Schedule | Number) -> RobbinsMonro:
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
    if is_traced(*leaves) or any(np.ndim(leaf) for leaf in leaves):
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
