"""Kinetic Langevin dynamics by the splitting BAOA (Leimkuhler & Matthews 2013).

A step takes one gradient. With delta = sqrt(h), e = exp(-gamma delta) and the momentum p in the
coordinates of D^{1/2}:

    B   p     <- p + delta (D^{1/2})^T grad(theta)
    A   theta <- theta + (delta / 2) D^{1/2} p
    O   p     <- e p + sqrt(T (1 - e^2)) xi
    A   theta <- theta + (delta / 2) D^{1/2} p

On a Gaussian target with full gradients, the stationary distribution of the position is exact
while delta^2 l < 4, where l is the curvature. On other targets the error is of order delta^2 = h.
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
    """Position, and momentum in the coordinates of D^{1/2}."""

    position: Float[Array, " d"]
    momentum: Float[Array, " d"]


@as_pytree
@dataclass(frozen=True)
class BAOA:
    """Kinetic Langevin dynamics whose positions are exact on Gaussians.

    Args:
      friction: gamma, per unit of delta = sqrt(step_size). In a metric D that is the posterior
        covariance, the autocorrelation time of theta^2 is (1 + gamma^2) / gamma, which is smallest
        at the default, 1. A small curvature l needs a friction near sqrt(l).

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> sampler = sgld.BAOA()
      >>> state = sampler.init(jnp.array([1.0, -1.0]))
      >>> state = sampler.step(state, lambda q: -q, 0.25, jnp.zeros(2))
      >>> [round(float(x), 4) for x in state.position]
      [0.7992, -0.7992]
    """

    friction: Any = 1.0

    num_noises: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require("BAOA's friction", self.friction, lambda gamma: gamma > 0, "positive")

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
        T, D, delta = temperature, preconditioner, jnp.sqrt(step_size)
        q, p = state
        decay = -self.friction * delta
        kicked = p + delta * D.pullback(grad(q))
        p = jnp.exp(decay) * kicked + jnp.sqrt(T * -jnp.expm1(2 * decay)) * noise
        return State(q + 0.5 * delta * D.noise(kicked + p), p)

    def exchanged(
        self,
        state: State,
        position: Float[Array, " d"],
        change: Float[Array, " d"],
        step_size: Float[Array, ""] | float,
        preconditioner: Any,
    ) -> State:
        """Move the state to another `position`, where the gradient is larger by `change`.

        ReplicaExchange calls this. Between two steps p lags by half a kick: on a Gaussian,
        p + (delta / 2) (D^{1/2})^T grad(theta) is independent of theta and is kept.
        """
        half = 0.5 * jnp.sqrt(step_size)
        return State(position, state.momentum - half * preconditioner.pullback(change))
