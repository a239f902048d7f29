"""What is measured at the kept draws of a run that is judged by predictions.

Kinetic temperatures, 1 where the step makes no error, are measured in every layer and in the
stiffest directions, in the coordinates of D^{1/2}:

    BAOA    from the momentum p after the O step, A = E p^2, e = exp(-friction delta):
            (A + (A - T (1 - e^2)) / e^2) / 2, the mean of p^2 before and after it
    SGLD    T + (h / 2) E (D^{1/2}^T g)^2, g the step's gradient: exact for independent batches,
            too large for reshuffled ones

of which each draw gives a value without bias. They are over T.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..problem.problem import Problem
from ..pytree import as_pytree
from ..sampler.baoa import BAOA
from ..sampler.sgld import SGLD
from .layers import Layers
from .predictions import Predictions

__all__ = ["Meter", "Probe", "meter_of"]

Meter = Literal["momentum", "step"]


def meter_of(sampler: Any) -> Meter | None:
    """How the temperature of a sampler's draws is measured; None where it is not."""
    if isinstance(sampler, BAOA):
        return "momentum"
    return "step" if isinstance(sampler, SGLD) else None


@as_pytree
@dataclass(frozen=True)
class Probe:
    """What to measure, where, and with what.

    Attributes:
      predictions: at probe rows.
      directions: [chain, k, d], orthonormal, in the coordinates of D^{1/2}.
      layers: of the flat vector.
      meter: of temperatures.
    """

    predictions: Predictions
    directions: Float[Array, "chain k d"]
    layers: Layers = field(metadata={"static": True})
    meter: Meter | None = field(metadata={"static": True})

    def predicted(self, problem: Problem, z: Float[Array, "chain d"]) -> Float[Array, "chain m k"]:
        """Predictions of every chain."""
        return jax.vmap(lambda q: self.predictions.at(problem.target, q))(z)

    def kinetic(
        self, sampler: Any, D: Any, moved: Float[Array, "chain d"], h: Array, T: Array
    ) -> Float[Array, "chain layer+1"]:
        """Temperatures over T of the layers, and of the stiffest directions together.

        `moved` is the momentum at a draw, or the gradient of its step, by the meter.
        """

        def one(values: Array, directions: Array) -> Array:
            if self.meter == "step":
                values = D.pullback(values)
            each = self.layers.means(values**2)
            stiff = jnp.mean((directions @ values) ** 2)
            return jnp.append(each, stiff)

        squares = jax.vmap(one)(moved, self.directions)
        if self.meter == "step":
            return 1 + 0.5 * h * squares / T
        decay = jnp.exp(-2 * sampler.friction * jnp.sqrt(h))
        return (squares + (squares - T * (1 - decay)) / decay) / 2 / T
