"""Stochastic gradient Nose-Hoover thermostat (Ding et al. 2014, algorithm 2).

With delta = sqrt(h) and the momentum p in the coordinates of D^{1/2}:

    p'     = p + delta (D^{1/2})^T grad(theta) - delta x p + sqrt(2 A T delta) xi
    theta' = theta + delta D^{1/2} p'
    x'     = x + delta (mean(p'^2) - T)           or, per parameter, delta (p_i'^2 - T)

The friction x keeps the momentum's temperature at T. It starts at A. Gradient noise of variance V in
those coordinates adds kinetic energy, and x adapts to A + delta V / (2 T) without knowing V.
On a Gaussian target of curvature l the variance is (T / l) (1 - delta x / 2) where x fluctuates little.
At T = 0 no noise is injected, x only grows, and the steps are descent with friction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from ..core.validation import require
from .preconditioners.fixed import Scalar


class State(NamedTuple):
    """Position, momentum in the coordinates of D^{1/2}, and the thermostat: [d] or a number."""

    position: Float[Array, " d"]
    momentum: Float[Array, " d"]
    friction: Float[Array, " d"] | Float[Array, ""]


@as_pytree
@dataclass(frozen=True)
class SGNHT:
    """Kinetic dynamics whose friction adapts to gradient noise of unknown size.

    Args:
      diffusion: A, the friction per unit of delta that balances the injected noise.
      per_parameter: whether every parameter has its own thermostat, for gradient noise that differs between
        parameters. A single thermostat fluctuates less (its variance is T over the number of parameters).

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> sampler = sgld.SGNHT()
      >>> state = sampler.init(jnp.array([1.0, -1.0]))
      >>> sampler.step(state, lambda q: -q, 0.25, jnp.zeros(2)).position
      Array([ 0.75, -0.75], dtype=float32)
    """

    diffusion: Any = 1.0
    per_parameter: bool = field(default=False, metadata={"static": True})

    num_noises: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require("SGNHT's diffusion", self.diffusion, lambda A: A > 0, "positive")

    def init(self, position: Float[Array, " d"]) -> State:
        """Return a state at rest with the thermostat at A."""
        shape = position.shape if self.per_parameter else ()
        x = jnp.broadcast_to(jnp.asarray(self.diffusion, position.dtype), shape)
        return State(position, jnp.zeros_like(position), x)

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
        q, p, x = state
        injected = jnp.sqrt(2 * self.diffusion * T * delta) * noise
        p = p + delta * D.pullback(grad(q)) - delta * x * p + injected
        energy = p**2 if self.per_parameter else jnp.mean(p**2)
        return State(q + delta * D.noise(p), p, x + delta * (energy - T))

    def exchanged(
        self,
        state: State,
        position: Float[Array, " d"],
        change: Float[Array, " d"],
        step_size: Float[Array, ""] | float,
        preconditioner: Any,
    ) -> State:
        """Move the state to another `position`, where the gradient is larger by `change`.

        ReplicaExchange calls this. As in SGHMC with alpha = delta x, the thermostat and
        p + delta / (2 - delta x) (D^{1/2})^T grad(theta) are kept.
        """
        delta = jnp.sqrt(step_size)
        lag = delta / (2 - delta * state.friction)
        p = state.momentum - lag * preconditioner.pullback(change)
        return State(position, p, state.friction)
