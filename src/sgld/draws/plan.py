"""The plan of a run: what is known of the posterior, what runs, and the law it should follow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import UsageError
from ..gaussian.known import Known
from ..law.affine import AffineLaw
from ..law.overdamped import Law
from .setup import Setup

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """Print it, run it again with `sgld.sample(posterior, data, init, **plan.arguments())`.

    Attributes:
      setup: what runs.
      known: what was found out about the posterior.
      num_data: rows, 0 without data.
      law: the stationary law on that Gaussian, where it has a closed form.
      rate: the share that a step forgets, where no law says it.
      surveyed: whether all rows were looked at, and those that stand out are in every batch.
      misfit: spread of the rows' scores over what the model implies.
      notes: sentences for the user.
      by_hand: whether the step size was given by the user.
    """

    setup: Setup
    known: Known = field(default_factory=Known)
    num_data: int = 0
    law: Law | AffineLaw | None = None
    rate: float | None = None
    surveyed: bool = False
    misfit: float | None = None
    notes: tuple[str, ...] = ()
    by_hand: bool = False

    @property
    def smaller_step(self) -> str:
        """What to do about a step that is too large, in the words of whoever chose it."""
        if self.by_hand:
            return "use a smaller step_size"
        return "use a smaller tolerance, or NUTS: sgld.reference"

    def arguments(self) -> dict[str, Any]:
        """What to pass to `sgld.sample` to run this plan again, each item open to change.

        `sgld.sample(posterior, data, init, **{**draws.plan.arguments(), "seed": 1})` tunes nothing.
        """
        return self.setup.arguments()

    def for_rows(self, num_data: int) -> Plan:
        """The same plan for a table that has grown to `num_data` rows: D scaled by N_old / N_new.

        A warm restart: with `init=draws.mean()` the chains are at the new posterior's centre to
        within a fraction of its sd, and a burn-in of a few 1/h steps brings them into it.
        """
        if not self.num_data:
            raise UsageError("this plan has no rows; it is for a log density alone.")
        return replace(self, setup=self.setup.scaled(self.num_data / num_data))

    def noted(self, *notes: str) -> Plan:
        """The same, with more to tell."""
        return replace(self, notes=(*self.notes, *notes))

    def __str__(self) -> str:
        facts = {k: v for k, v in self.describe().items() if k != "notes" and v is not None}
        lines = [f"{name:<18}{value}" for name, value in facts.items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def describe(self) -> dict[str, Any]:
        """The plan in words and numbers, for printing and for run.json."""
        return {
            **self.setup.describe(),
            "nu": self.known.nu,
            "nu_at_mode": self.known.nu_at_mode,
            "notes": list(self.notes),
        }
