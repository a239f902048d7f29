"""What will be run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ..data.source import Source
from ..errors import UsageError
from ..gaussian.dense import Laplace
from ..gaussian.lowrank import LowRankLaplace
from ..gradient.control_variates import ControlVariates
from ..law.affine import AffineLaw
from ..law.overdamped import Law

__all__ = ["Plan", "draft"]


@dataclass(frozen=True)
class Plan:
    """What will be run, and what was measured to choose it."""

    sampler: Any
    gradient: Any
    preconditioner: Any
    source: Source | None
    step_size: Any
    temperature: Any
    burn_in: int
    thin: int
    num_draws: int
    num_chains: int
    laplace: Laplace | LowRankLaplace | None
    log_density: float
    nu: float | None
    noise: Float[np.ndarray, "d d"] | None
    law: Law | AffineLaw | None
    notes: tuple[str, ...]
    other_modes: int = 0
    misfit: float | None = None  # spread of the rows' scores over what the model implies
    modes: Float[np.ndarray, "k d"] | None = None  # the other modes themselves
    rate: float | None = None  # the share a step forgets, where no law says it
    starts: Float[np.ndarray, "chain d"] | None = None
    adjustable: bool = False  # whether adjusted chains from the starts can confirm the run

    @property
    def corrected(self) -> bool:
        """Whether the injected noise is corrected for the gradient's."""
        correction = getattr(self.sampler, "noise_correction", None)
        return correction is not None and not isinstance(correction, str)

    def arguments(self) -> dict[str, Any]:
        """What to pass to `sgld.sample` to run this plan again, each item open to change.

        `sgld.sample(posterior, data, init, **{**draws.plan.arguments(), "seed": 1})` tunes nothing.
        """
        gradient = self.gradient
        if isinstance(gradient, ControlVariates):
            gradient = ControlVariates()  # at the mode, which is found again
        given = dict(
            sampler=self.sampler, gradient=gradient, preconditioner=self.preconditioner,
            step_size=self.step_size, temperature=self.temperature, burn_in=self.burn_in,
            thin=self.thin, num_draws=self.num_draws, num_chains=self.num_chains,
        )  # fmt: skip
        if self.source is not None:
            given |= {"order": self.source.order, "batch_size": self.source.batch_size}
        return given

    def for_rows(self, num_data: int) -> Plan:
        """The same plan for a table that has grown to `num_data` rows: D scaled by N_old / N_new.

        A warm restart: with `init=draws.mean()` the chains are at the new posterior's centre to
        within a fraction of its sd, and a burn-in of a few 1/h steps brings them into it.
        """
        if self.source is None:
            raise UsageError("this plan has no rows; it is for a log density alone.")
        share = self.source.num_data / num_data
        D = self.preconditioner
        if D.adapts:
            return self
        return replace(self, preconditioner=D.scaled(share))

    def __str__(self) -> str:
        facts = {k: v for k, v in self.describe().items() if k != "notes" and v is not None}
        lines = [f"{name:<18}{value}" for name, value in facts.items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def describe(self) -> dict[str, Any]:
        """The plan in words and numbers, for printing and for run.json."""
        h = float(self.step_size(0))
        return {
            "sampler": type(self.sampler).__name__,
            "noise_correction": self.corrected,
            "gradient": type(self.gradient).__name__,
            "preconditioner": type(self.preconditioner).__name__,
            "order": self.source.order if self.source is not None else None,
            "batch_size": self.source.batch_size if self.source is not None else None,
            "step_size": h,
            "temperature": float(self.temperature(0)),
            "burn_in": self.burn_in,
            "thin": self.thin,
            "num_draws": self.num_draws,
            "num_chains": self.num_chains,
            "nu": self.nu,
            "notes": list(self.notes),
        }


def draft(**parts: Any) -> Plan:
    """A plan of these parts, its measurements and lengths still to come."""
    blank = dict(
        temperature=None, burn_in=0, thin=1, num_draws=0, num_chains=0, laplace=None,
        log_density=float("nan"), nu=None, noise=None, law=None, notes=(),
    )  # fmt: skip
    return Plan(**{**blank, **parts})
