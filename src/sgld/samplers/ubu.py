"""Kinetic Langevin dynamics by the splitting UBU (Sanz-Serna & Zygalakis 2021).

With delta = sqrt(h), the momentum p in the coordinates of D^{1/2}, and U the exact flow of
friction, noise and motion over the time t = delta / 2, e = exp(-gamma t):

    U   theta <- theta + D^{1/2} [(1 - e) / gamma p + eta_q],     p <- e p + eta_p
    B   p     <- p + delta (D^{1/2})^T grad(theta)
    U   again

    Var(eta_p) = T (1 - e^2),   Cov(eta_q, eta_p) = (T / gamma) (1 - e)^2,
    Var(eta_q) = (2 T / gamma) (t - 2 (1 - e) / gamma + (1 - e^2) / (2 gamma))

With y = gamma t / 2, eta_p and the remainder of eta_q given eta_p are

    eta_q = sqrt(T) / gamma [(1 - e) sqrt(tanh y) z_1 + 2 sqrt(y - tanh y) z_2],
    eta_p = sqrt(T (1 - e^2)) z_1

The gradient is taken half-way. The strong order is 2; on a Gaussian the variance is 1 - O(delta^2).
With order="symmetric" the error of the minibatches is of order 2 as well (Paulin et al. 2024).
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
class UBU:
    """Kinetic Langevin dynamics of strong order 2, with one gradient a step.

    Args:
      friction: gamma, per unit of delta = sqrt(step_size); see `BAOA` for the choice of 1.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> sampler = sgld.UBU()
      >>> state = sampler.init(jnp.array([1.0, -1.0]))
      >>> state = sampler.step(state, lambda q: -q, 0.25, jnp.zeros((4, 2)))
      >>> [round(float(x), 4) for x in state.position]
      [0.8894, -0.8894]
    """

    friction: Any = 1.0

    num_noises: ClassVar[int] = 4

    def __post_init__(self) -> None:
        require("UBU's friction", self.friction, lambda gamma: gamma > 0, "positive")

    def init(self, position: Float[Array, " d"]) -> State:
        """Return a state at rest."""
        return State(position, jnp.zeros_like(position))

    def step(
        self,
        state: State,
        grad: Callable[[Float[Array, " d"]], Float[Array, " d"]],
        step_size: Float[Array, ""] | float,
        noise: Float[Array, "4 d"],
        *,
        preconditioner: Any = Scalar(1.0),
        temperature: Float[Array, ""] | float = 1.0,
    ) -> State:
        """Take one step of the equations above."""
        D, delta = preconditioner, jnp.sqrt(step_size)
        q, p = self._flow(*state, delta / 2, noise[:2], D, temperature)
        p = p + delta * D.pullback(grad(q))
        return State(*self._flow(q, p, delta / 2, noise[2:], D, temperature))

    def exchanged(
        self,
        state: State,
        position: Float[Array, " d"],
        change: Float[Array, " d"],
        step_size: Float[Array, ""] | float,
        preconditioner: Any,
    ) -> State:
        """Move the state to another `position`, where the gradient is larger by `change`.

        ReplicaExchange calls this. To leading order, friction removes gamma h / 24 (D^{1/2})^T grad(theta) less
        of kicks at midpoints than of a steady force. With that difference restored, p is independent of theta.
        """
        lag = self.friction * step_size / 24
        return State(position, state.momentum - lag * preconditioner.pullback(change))

    def _flow(self, q, p, t, z, D, T):
        """Apply U over the time t."""
        x = self.friction * t
        lost = -jnp.expm1(-x)
        shared, own = lost * jnp.sqrt(jnp.tanh(x / 2)), 2 * jnp.sqrt(_minus_tanh(x / 2))
        eta_q = jnp.sqrt(T) / self.friction * (shared * z[0] + own * z[1])
        eta_p = jnp.sqrt(T * -jnp.expm1(-2 * x)) * z[0]
        return q + D.noise(lost / self.friction * p + eta_q), jnp.exp(-x) * p + eta_p


def _minus_tanh(y: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Return y - tanh y, by Lambert's continued fraction where the difference would cancel."""
    square, tail = y * y, 19.0
    for odd in (17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
        tail = odd + square / tail
    fraction = square / tail  # tanh y = y / (1 + fraction)
    return jnp.where(y < 1, y * fraction / (1 + fraction), y - jnp.tanh(y))
