"""The plan of a run: what is known of the posterior, what runs, and the law it should follow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..approximation.known import Known
from ..errors import UsageError
from ..samplers.stationary.affine import AffineLaw
from ..samplers.stationary.overdamped import Law
from .setup import Setup

__all__ = ["Plan", "Predicted", "in_bytes", "in_count", "in_seconds"]


@dataclass(frozen=True)
class Predicted:
    """What a run was predicted to take, before its first step: without compiling, and not prolonged.

    Attributes:
      gradients: of single rows; of the log density, where there are none.
      seconds: of sampling and of the verdict, on one core of the machine that the constants are from.
      bytes: of memory at the most, resident, the interpreter's included.
    """

    gradients: float
    seconds: float
    bytes: int

    def __str__(self) -> str:
        return (
            f"{in_count(self.gradients)} gradients, {in_seconds(self.seconds)} of one core for steps "
            f"and verdict, compiling aside, {in_bytes(self.bytes)} of memory"
        )


def in_count(number: float) -> str:
    """A count of two digits: "830", "12 thousand", "1.4 million"."""
    for size, unit in (
        (1e12, " trillion"),
        (1e9, " billion"),
        (1e6, " million"),
        (1e3, " thousand"),
    ):
        if number >= size:
            return f"{float(f'{number / size:.2g}'):,.10g}{unit}"
    return f"{number:.0f}"


def in_seconds(seconds: float) -> str:
    """Seconds, minutes or hours of two digits; "under a second"."""
    if seconds < 1:
        return "under a second"
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (120.0, "minutes")):
        if seconds >= size:
            return f"{float(f'{seconds / (60.0 if size == 120.0 else size):.2g}'):g} {unit}"
    return f"{float(f'{seconds:.2g}'):g} s"


def in_bytes(size: float) -> str:
    """Bytes: "12 MiB", "3.4 GiB"."""
    number, unit = size / 2**10, "KiB"
    for larger in ("MiB", "GiB", "TiB", "PiB", "EiB"):
        if number >= 1024:
            number, unit = number / 1024, larger
    return f"{number:.2g} {unit}" if number < 100 else f"{number:.0f} {unit}"


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
      predicted: what the run was predicted to take; None before it is known what runs.
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
    predicted: Predicted | None = None

    @property
    def smaller_step(self) -> str:
        """What to use where a step is too large, in the words of whoever chose it."""
        if self.by_hand:
            return "a smaller step_size"
        return "a smaller tolerance, or NUTS: sgld.reference"

    def arguments(self) -> dict[str, Any]:
        """What to pass to `sgld.sample` to run this plan again, each item open to change.

        `sgld.sample(posterior, data, init, **{**draws.plan.arguments(), "seed": 1})` tunes nothing.
        """
        return self.setup.arguments()

    def for_rows(self, rows: Any) -> Plan:
        """The same plan for a table that has grown to other `rows`: D scaled by N_old / N_new.

        Args:
          rows: a source (`sgld.open`), or how many there are now.

        A warm restart: with `init=draws.mean()` the chains are at the new posterior's centre to
        within a fraction of its sd, and a burn-in of a few 1/h steps brings them into it.
        """
        if not self.num_data:
            raise UsageError("this plan has no rows; it is for a log density alone.")
        num_data = getattr(rows, "num_data", rows)
        whole = isinstance(num_data, (int, np.integer)) and not isinstance(num_data, bool)
        if not whole or num_data < 1:
            raise UsageError(f"rows must be a source, or their number. Got {rows!r}.")
        setup = self.setup.scaled(self.num_data / int(num_data))
        return replace(self, setup=setup, num_data=int(num_data))

    def noted(self, *notes: str) -> Plan:
        """The same, with more to tell."""
        return replace(self, notes=(*self.notes, *notes))

    def __str__(self) -> str:
        facts = {k: v for k, v in self.describe().items() if k != "notes" and v is not None}
        if self.predicted is not None:
            facts["predicted"] = self.predicted
        lines = [f"{name:<18}{value}" for name, value in facts.items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        from ..notebook.views import view

        return view(self)

    def describe(self) -> dict[str, Any]:
        """The plan in words and numbers, for printing and for run.json."""
        return {
            **self.setup.describe(),
            "nu": self.known.nu,
            "nu_at_mode": self.known.nu_at_mode,
            "notes": list(self.notes),
        }
