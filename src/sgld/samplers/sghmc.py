"""Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin 2014, eq. 15, eta = h).

    v'     = (1 - alpha) v + h D grad(theta) + sqrt(2 (alpha - beta) h T) D^{1/2} xi
    theta' = theta + v'

The gradient is taken at the current position, which then moves by the NEW velocity. With the old
velocity the scheme is the explicit Euler method, whose stationary distribution is wrong or does not
exist. v is never resampled. On a Gaussian target of curvature l with beta = 0, the variance is
(T / l) / (1 - h l / (2 (2 - alpha))).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from ..core.validation import require
from .preconditioners.fixed import Scalar


class State(NamedTuple):
    """Position and velocity; the velocity is the last move."""

    position: Float[Array, " d"]
    velocity: Float[Array, " d"]


@as_pytree
@dataclass(frozen=True)
class SGHMC:
    """Stochastic gradient descent with momentum and noise.

    Args:
      friction: alpha, the share of the velocity that a step removes, in (0, 1).
      noise_estimate: beta, h / 2 times the variance of the gradient estimate in the coordinates
        of D^{1/2}, in [0, friction). The injected noise is reduced by that amount.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> sampler = sgld.SGHMC(friction=0.5)
      >>> state = sampler.init(jnp.array([1.0, -1.0]))
      >>> sampler.step(state, lambda q: -q, 0.25, jnp.zeros(2)).position
      Array([ 0.75, -0.75], dtype=float32)
    """

    friction: Any = 0.1
    noise_estimate: Any = 0.0

    num_noises: ClassVar[int] = 1

    def __post_init__(self) -> None:
        alpha, beta = self.friction, self.noise_estimate
        require("SGHMC's friction", alpha, lambda a: (a > 0) & (a < 1), "above 0 and below 1")
        require("SGHMC's noise_estimate", beta, lambda b: b >= 0, "zero or positive")
        try:
            require("SGHMC's friction - noise_estimate", alpha - beta, lambda x: x > 0, "positive")
        except TypeError:  # JAX's placeholders cannot be subtracted
            return

    def init(self, position: Float[Array, " d"]) -> State:
        """Return a state at rest."""
        return State(position, jnp.zeros_like(position))

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
        """Take one step of the equations above."""
        h, T, D = step_size, temperature, preconditioner
        injected = D.noise(jnp.sqrt(2 * (self.friction - self.noise_estimate) * h * T) * noise)
        v = (1 - self.friction) * state.velocity + h * D.drift(grad(state.position)) + injected
        return State(state.position + v, v)

    def exchanged(
        self,
        state: State,
        position: Float[Array, " d"],
        change: Float[Array, " d"],
        step_size: Float[Array, ""] | float,
        preconditioner: Any,
    ) -> State:
        """Move the state to another `position`, where the gradient is larger by `change`.

        ReplicaExchange calls this. On a Gaussian of curvature l, Cov(theta, v) = h l / (2 - alpha) Var(theta),
        so v + h / (2 - alpha) D grad(theta) is independent of theta and is kept.
        """
        lag = step_size / (2 - self.friction)
        return State(position, state.velocity - lag * preconditioner.drift(change))
