"""Plan of a run: knowledge of the posterior, sampler settings, and the stationary distribution.

`Setup` holds the arguments of `sgld.sample`, all chosen, and the start points of the chains.
`Origin` holds the posterior and data of some draws, as far as this session knows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..approximation.known import Known
from ..core.files import reading
from ..core.text import paragraph
from ..errors import UsageError
from ..samplers.confined_hmc import ConfinedHMC
from ..samplers.gradients.control_variates import ControlVariates
from ..samplers.gradients.full import Full
from ..samplers.hmc import HMC
from ..samplers.stationary import AffineLaw, Law
from .late import Shown, late

# -- setup ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """Settings of a run.

    Attributes:
      sampler, gradient, preconditioner: as for `sgld.sample`, but prepared for the problem.
      order, batch_size: of the rows; None without data.
      always: the user's numbers of the rows that are in every batch; None for none.
      predictions: whether the run is judged by predictions, not by single parameters.
      noise: the distribution of the injected numbers, "normal" or "binomial".
      step_size, temperature: schedules, functions of the step.
      burn_in, thin, num_draws, num_chains: lengths of a run.
      starts: free positions [chain, d] that the chains start from; None: dispersed around the
        centre of the Gaussian.
    """

    sampler: Any
    gradient: Any
    preconditioner: Any
    step_size: Any
    order: str | None = None
    batch_size: int | None = None
    temperature: Any = None
    burn_in: int = 0
    thin: int = 1
    num_draws: int = 0
    num_chains: int = 0
    starts: Float[np.ndarray, "chain d"] | None = None
    always: Int[np.ndarray, " m"] | None = None
    predictions: bool = False
    noise: str = "normal"

    @property
    def corrected(self) -> bool:
        """Whether the injected noise is reduced to compensate for gradient noise."""
        correction = getattr(self.sampler, "noise_correction", None)
        return correction is not None and not isinstance(correction, str)

    @property
    def exact(self) -> bool:
        """Whether the run follows the posterior for any step size, so it has no step bias."""
        return type(self.sampler) in (HMC, ConfinedHMC) and isinstance(self.gradient, Full)

    def steps(self, num_draws: int | None = None) -> int:
        """Return the steps of a chain for this many draws, by default all.

        A draw is the position before its step.
        """
        return self.burn_in + self.thin * ((num_draws or self.num_draws) - 1) + 1

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `sgld.sample` for the same run, without tuning."""
        gradient = self.gradient
        if isinstance(gradient, ControlVariates):
            gradient = ControlVariates()  # the centre is found again
        if isinstance(gradient, Full) and gradient.base is not None:
            gradient = Full(0.0)  # the base is recomputed for the rows in their new order
        names = ("sampler", "preconditioner", "step_size", "temperature", "noise")
        lengths = ("burn_in", "thin", "num_draws", "num_chains")
        given = {name: getattr(self, name) for name in (*names, *lengths)}
        given["gradient"] = gradient
        if self.order is not None:
            given |= {"order": self.order, "batch_size": self.batch_size}
            given["always_in"] = "auto" if self.always is None else self.always
        return given

    def scaled(self, share: float) -> Setup:
        """Return the setup with D times `share`, as for a posterior with a scaled covariance."""
        D = self.preconditioner
        return self if D.adapts else replace(self, preconditioner=D.scaled(share))

    def describe(self) -> dict[str, Any]:
        """Return the settings as text and numbers."""
        return {
            "sampler": type(self.sampler).__name__,
            "noise_correction": self.corrected,
            "gradient": type(self.gradient).__name__,
            "preconditioner": type(self.preconditioner).__name__,
            "order": self.order,
            "batch_size": self.batch_size,
            "always_in": None if self.always is None else len(self.always) or None,
            "step_size": float(self.step_size(0)),
            "temperature": float(self.temperature(0)),
            "noise": None if self.noise == "normal" else self.noise,
            "burn_in": self.burn_in,
            "thin": self.thin,
            "num_draws": self.num_draws,
            "num_chains": self.num_chains,
        }


# -- plan ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predicted:
    """Predicted cost of a run before its first step, without compilation and without extensions.

    Attributes:
      gradients: number of gradients of single rows, or of the log density if there are no rows.
      seconds: time of sampling and of the verdict, on one core of the machine of the constants.
      bytes: peak resident memory, the interpreter's included.
    """

    gradients: float
    seconds: float
    bytes: int

    def __str__(self) -> str:
        return (
            f"{in_count(self.gradients)} gradients; {in_seconds(self.seconds)} on one core without "
            f"compilation; {in_bytes(self.bytes)} of memory"
        )


def in_count(number: float) -> str:
    """Format a count with two digits: "830", "12 thousand", "1.4 million"."""
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
    """Format a time in seconds, minutes or hours with two digits, or as "under a second"."""
    if seconds < 1:
        return "under a second"
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (120.0, "minutes")):
        if seconds >= size:
            return f"{float(f'{seconds / (60.0 if size == 120.0 else size):.2g}'):g} {unit}"
    return f"{float(f'{seconds:.2g}'):g} s"


def in_bytes(size: float) -> str:
    """Format a size: "12 MiB", "3.4 GiB"."""
    number, unit = size / 2**10, "KiB"
    for larger in ("MiB", "GiB", "TiB", "PiB", "EiB"):
        if number >= 1024:
            number, unit = number / 1024, larger
    return f"{number:.2g} {unit}" if number < 100 else f"{number:.0f} {unit}"


@dataclass(frozen=True)
class Plan(Shown):
    """Plan of a run: what is known of the posterior, and the settings.

    Print it, or run it again with `sgld.sample(posterior, data, init, **plan.arguments())`.

    Attributes:
      setup: the settings.
      known: the knowledge of the posterior.
      num_data: the number of rows, 0 without data.
      law: the stationary distribution on the Gaussian, if it has a closed form.
      rate: the share that a step forgets, if there is no closed form.
      surveyed: whether all rows were examined, and the influential ones are in every batch.
      misfit: the spread of the rows' scores over what the model implies.
      notes: sentences for the user.
      by_hand: whether the user set the step size.
      predicted: the predicted cost; None before the settings are chosen.
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
        """Remedy for a step size that is too large, in terms of the argument that set it."""
        if self.by_hand:
            return "a smaller step_size"
        return "a smaller tolerance, or NUTS: sgld.reference"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `sgld.sample` that run this plan again; each may be changed.

        `sgld.sample(posterior, data, init, **{**draws.plan.arguments(), "seed": 1})` tunes nothing.
        """
        return self.setup.arguments()

    def for_rows(self, rows: Any) -> Plan:
        """Return the same plan for a table that has grown to other `rows`.

        D is scaled by N_old / N_new.
        With `init=draws.mean()` this is a warm restart: the chains are at the new posterior's
        centre to within a fraction of its sd, and a burn-in of a few 1/h steps brings them into it.

        Args:
          rows: a source (`sgld.open`), or the present number of rows.
        """
        if not self.num_data:
            raise UsageError("this plan has no rows, since its posterior is a single log density.")
        num_data = getattr(rows, "num_data", rows)
        whole = isinstance(num_data, (int, np.integer)) and not isinstance(num_data, bool)
        if not whole or num_data < 1:
            raise UsageError(f"rows must be a source, or the number of rows. Got {rows!r}.")
        setup = self.setup.scaled(self.num_data / int(num_data))
        return replace(self, setup=setup, num_data=int(num_data))

    def with_notes(self, *notes: str) -> Plan:
        """Return the same plan with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def __str__(self) -> str:
        facts = {k: v for k, v in self.describe().items() if k != "notes" and v is not None}
        if self.predicted is not None:
            facts["predicted"] = self.predicted
        lines = [
            f"{name:<18}{format(value, '.4g') if isinstance(value, float) else value}"
            for name, value in facts.items()
        ]
        for note in self.notes:
            lines += paragraph(note, "note: ", " " * 6)
        return "\n".join(lines)

    def describe(self) -> dict[str, Any]:
        """Return the plan as text and numbers, for printing and for run.json."""
        return {
            **self.setup.describe(),
            "nu": self.known.nu,
            "nu_at_mode": self.known.nu_at_mode,
            "notes": list(self.notes),
        }


# -- origin --------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Origin:
    """Posterior of some draws, its rows, and the run directory, as far as they are known.

    It holds functions and refers to the user's data, so it is not stored. A pickled or deeply
    copied object holds None instead.

    Attributes:
      posterior: an `sgld.Posterior`.
      data: its rows, as they were passed.
      model: the model of a formula that both belong to.
      path: the run directory that the draws were read from.
      kept: whether `keep` was given, so that draws are not positions.
    """

    posterior: Any = None
    data: Any = None
    model: Any = None
    path: Path | None = None
    kept: bool = False

    def __reduce__(self) -> Any:
        return _nothing, ()


def _nothing() -> None:
    return None


def known_of(origin: Origin | None) -> Origin:
    """Return the origin, with the model read again from a run directory of `sgld fit`."""
    if origin is None:
        return Origin()
    if origin.path is None or origin.posterior is not None or origin.model is not None:
        return origin
    from .run_directory import RunDirectory

    with reading(origin.path):
        asked = RunDirectory(origin.path).begun()
        formula = asked.get("kind") == "formula"
        return replace(origin, model=late("model_of_run")(asked)) if formula else origin
