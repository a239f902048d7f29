"""Stochastic gradient Langevin dynamics (Welling & Teh 2011, eq. 4, with h = eps/2).

    theta' = theta + h D grad(theta) + sqrt(2 h T) D^{1/2} xi

On a Gaussian target of curvature l with gradient noise of variance V, the stationary variance is
(2 h T + h^2 V) / (1 - (1 - h l)^2). With `noise_correction` the injected noise has

    covariance of the noise = T (2 h I - h^2 I) - h^2 C      in the coordinates of D^{1/2}

where C, the covariance of the gradient estimate there, is diagonal with entries `noise_correction`
(the tuner chooses the factor D^{1/2} that makes it so) and D is the inverse curvature. The
stationary distribution on a Gaussian target is then exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from .preconditioners.fixed import Scalar


class State(NamedTuple):
    """The position alone."""

    position: Float[Array, " d"]


@as_pytree
@dataclass(frozen=True)
class SGLD:
    """Stochastic gradient Langevin dynamics.

    Args:
      noise_correction: "auto" (the tuner's choice), None (off), or the variances [d] of the
        gradient estimate in the coordinates of the preconditioner's factor.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> sampler = sgld.SGLD()
      >>> state = sampler.init(jnp.array([1.0, -1.0]))
      >>> sampler.step(state, lambda q: -q, 0.5, jnp.zeros(2)).position
      Array([ 0.5, -0.5], dtype=float32)
    """

    noise_correction: Any = "auto"

    num_noises: ClassVar[int] = 1

    def init(self, position: Float[Array, " d"]) -> State:
        """Return the state at a position."""
        return State(position)

    def step(
        self,
        state: State,
        grad: Callable[[Float[Array, " d"]], Float[Array, " d"]],
        step_size: Float[Array, ""] | float,
        noise: Float[Array, " d"],
        *,
        preconditioner: Any = Scalar(1.0),
        temperature: Float[Array, ""] | float = 1.0,
    ) -> State:
        """Take one step of the equation above."""
        h, T, D = step_size, temperature, preconditioner
        variance = 2 * h * T
        if self.noise_correction is not None and not isinstance(self.noise_correction, str):
            # no noise is added where the gradient noise alone exceeds the target, as at T = 0
            variance = jnp.maximum(T * (2 * h - h * h) - h * h * self.noise_correction, 0.0)
        drift, xi = D.drift(grad(state.position)), D.noise(jnp.sqrt(variance) * noise)
        return State(state.position + h * drift + xi)
