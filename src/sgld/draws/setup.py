"""What runs: the arguments of `sgld.sample`, each of them chosen, and where the chains start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..samplers.confined_hmc import ConfinedHMC
from ..samplers.gradients.control_variates import ControlVariates
from ..samplers.gradients.full import Full
from ..samplers.hmc import HMC

__all__ = ["Setup"]


@dataclass(frozen=True)
class Setup:
    """The choices of a run.

    Attributes:
      sampler, gradient, preconditioner: as `sgld.sample` takes them, but prepared for the problem.
      order, batch_size: of the rows; None without data.
      always: the user's numbers of the rows that are in every batch; None for none.
      predictions: whether the run is judged by predictions, not by single parameters.
      noise: the law of the injected numbers, "normal" or "binomial".
      step_size, temperature: schedules, functions of the step.
      burn_in, thin, num_draws, num_chains: lengths of a run.
      starts: free positions [chain, d] that the chains start from; None: dispersed around the centre
        of what is known.
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
        """Whether the injected noise is corrected for the gradient's."""
        correction = getattr(self.sampler, "noise_correction", None)
        return correction is not None and not isinstance(correction, str)

    @property
    def exact(self) -> bool:
        """Whether the run follows the posterior whatever its step size: no bias to be measured."""
        return type(self.sampler) in (HMC, ConfinedHMC) and isinstance(self.gradient, Full)

    def steps(self, num_draws: int | None = None) -> int:
        """Of a chain, until so many draws are kept: by default all. A draw is the position before its step."""
        return self.burn_in + self.thin * ((num_draws or self.num_draws) - 1) + 1

    def arguments(self) -> dict[str, Any]:
        """What to pass to `sgld.sample` for the same run, tuning nothing."""
        gradient = self.gradient
        if isinstance(gradient, ControlVariates):
            gradient = ControlVariates()  # at a centre that is found again
        if isinstance(gradient, Full) and gradient.base is not None:
            gradient = Full(0.0)  # of the rows in the order that they will have then
        names = ("sampler", "preconditioner", "step_size", "temperature", "noise")
        lengths = ("burn_in", "thin", "num_draws", "num_chains")
        given = {name: getattr(self, name) for name in (*names, *lengths)}
        given["gradient"] = gradient
        if self.order is not None:
            given |= {"order": self.order, "batch_size": self.batch_size}
            given["always_in"] = "auto" if self.always is None else self.always
        return given

    def scaled(self, share: float) -> Setup:
        """With D times `share`, as for a posterior whose covariance is so many times this one's."""
        D = self.preconditioner
        return self if D.adapts else replace(self, preconditioner=D.scaled(share))

    def describe(self) -> dict[str, Any]:
        """In words and numbers."""
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
