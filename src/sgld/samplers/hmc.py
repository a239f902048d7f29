"""Hamiltonian Monte Carlo: a trajectory a step, with Metropolis acceptance (Duane et al. 1987).

With delta = sqrt(h) and the momentum p in the coordinates of D^{1/2}, from p = sqrt(T) xi:

    p     <- p + (delta / 2) (D^{1/2})^T grad(theta)        one leapfrog,
    theta <- theta + delta D^{1/2} p                        L times
    p     <- p + (delta / 2) (D^{1/2})^T grad(theta)

The end is accepted with probability min(1, exp((H - H') / T)), where H = -log p(theta) + |p|^2 / 2 at
the start and H' is its value at the end. This leaves p(theta)^(1/T) invariant at any h and any L, if
log p is exact and the field that the trajectory follows is a function of theta alone.

The length is L = ceil(v leapfrogs) with v = 1/2, 1/4, 3/4, 1/8, 5/8, ..., the same for all chains at
the same step. Lengths vary so that none matches a period of the target exactly, and no chain waits
for another (Hoffman, Radul & Sountsov 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..core.pytrees import as_pytree
from ..core.validation import require
from .gradients.full import Estimate
from .preconditioners.fixed import Scalar

MAX_ENERGY_ERROR = 1000.0  # error of H / T above which a trajectory counts as divergent
LENGTH_BITS = 16  # binary digits of v; the lengths repeat after 2^16 = 65,536 trajectories


class At(NamedTuple):
    """A position with its log density and gradient, and the temperature of their evaluation.

    The temperature is NaN where they have not been evaluated yet. With constrained parameters, log p
    depends on the temperature: it is the density p |J|^T of the free coordinates.
    """

    position: Float[Array, " d"]
    log_density: Float[Array, ""]
    gradient: Float[Array, " d"]
    temperature: Float[Array, ""]

    @classmethod
    def start(cls, position: Float[Array, " d"]) -> At:
        """Return `position` with nothing evaluated yet."""
        none = jnp.full((), jnp.nan, position.dtype)
        return cls(position, none, jnp.zeros_like(position), none)

    def unless(self, accepted: Array, end: At) -> At:
        """Return the `end` of a trajectory where it is accepted, otherwise this position."""
        return At(*(jnp.where(accepted, new, old) for new, old in zip(end, self, strict=True)))


class State(NamedTuple):
    """Position and statistics of the trajectories: count, divergences, mean and squares of U.

    `squares` is the sum of (U - mean)^2 over trajectories, where U = -log p at their starts. `at` holds the
    position and the values that the last trajectory evaluated there, for the next one.
    """

    position: Float[Array, " d"]
    count: Int[Array, ""]
    divergences: Int[Array, ""]
    mean: Float[Array, ""]
    squares: Float[Array, ""]
    at: At


class Proposal(NamedTuple):
    """The end of a trajectory, its momentum, log p at the start, and log(ratio) = (H - H') / T.

    The ratio is 0 where H' is not finite.
    """

    end: At
    momentum: Float[Array, " d"]
    before: Float[Array, ""]
    log_ratio: Float[Array, ""]

    @property
    def diverged(self) -> Array:
        """Whether the energy error exceeds `MAX_ENERGY_ERROR`."""
        return self.log_ratio < -MAX_ENERGY_ERROR


def propose(
    grad: Estimate,
    start: At,
    momentum: Float[Array, " d"],
    delta: Float[Array, ""] | float,
    count: Int[Array, ""] | int,
    preconditioner: Any,
    temperature: Float[Array, ""] | float = 1.0,
) -> Proposal:
    """Integrate `count` leapfrogs of time step delta by the equations above.

    The leapfrogs need gradients alone, and the first gradient is the last one of the trajectory before.
    log p, which can cost more than its gradient (softplus, lgamma), is evaluated at the end only. The
    gradients may be those of another density (`grad.followed`), because a leapfrog of any field preserves
    volume and is reversible.
    """
    D, log_density = preconditioner, grad.log_density
    slope = jax.grad(grad.followed or log_density)
    T = jnp.asarray(temperature, start.position.dtype)
    fresh = start.temperature != T
    first = jnp.where(fresh, 0, 1)  # first index of the loops: one gradient to compile, not two

    def leapfrog(i: Array, carry: tuple) -> tuple:
        q, p, _ = carry
        q = q + jnp.where(i > 0, delta, 0.0) * D.noise(p)
        gradient = slope(q)
        end = (i == 0) | (i == count)
        p = p + jnp.where(end, 0.5, 1.0) * delta * D.pullback(gradient)
        return q, p, gradient

    q, p = start.position, momentum
    p = p + jnp.where(fresh, 0.0, 0.5) * delta * D.pullback(start.gradient)
    q, p, gradient = jax.lax.fori_loop(first, count + 1, leapfrog, (q, p, start.gradient))

    def value(i: Array, last: tuple) -> tuple:
        return last[1], log_density(jnp.where(i == 0, start.position, q))

    before, after = jax.lax.fori_loop(first, 2, value, (start.log_density, start.log_density))
    # (|p|^2 - |p'|^2) / 2 as a product avoids cancellation
    gained = after - before + 0.5 * jnp.sum((momentum - p) * (momentum + p))
    finite = jnp.isfinite(gained) & jnp.all(jnp.isfinite(q))
    ratio = jnp.where(finite, gained, -jnp.inf) / T
    return Proposal(At(q, after, gradient, T), p, before, ratio)


@as_pytree
@dataclass(frozen=True)
class HMC:
    """Metropolis-adjusted trajectories of varying length; correct with exact gradients only.

    Args:
      leapfrogs: the number of leapfrogs of the longest trajectory, at least 1.

    Example:
      >>> import jax.numpy as jnp
      >>> from sgld.samplers.gradients.full import Estimate
      >>> from sgld.samplers.hmc import HMC
      >>> sampler = HMC(leapfrogs=4)
      >>> grad = Estimate(lambda q: -0.5 * jnp.sum(q**2))
      >>> state = sampler.init(jnp.array([1.0, -1.0]))
      >>> state = sampler.step(state, grad, 0.01, jnp.zeros((2, 2)))      # two leapfrogs from rest
      >>> [round(float(x), 4) for x in state.position]
      [0.9801, -0.9801]
    """

    leapfrogs: Any = 8.0

    num_noises: ClassVar[int] = 2

    def __post_init__(self) -> None:
        require("HMC's leapfrogs", self.leapfrogs, lambda count: count >= 1, "at least 1")

    def init(self, position: Float[Array, " d"]) -> State:
        """Return the state before the first trajectory."""
        none, zero = jnp.int32(0), jnp.zeros((), position.dtype)
        return State(position, none, none, zero, zero, At.start(position))

    def length(self, count: Int[Array, ""]) -> Int[Array, ""]:
        """Return the leapfrogs of trajectory `count`: ceil(v leapfrogs), v from van der Corput."""
        return jnp.maximum(jnp.ceil(self.place(count) * self.leapfrogs), 1).astype(jnp.int32)

    @staticmethod
    def place(count: Int[Array, ""]) -> Float[Array, ""]:
        """Return v: the binary digits of count + 1, reversed, after the binary point."""
        power = 2 ** jnp.arange(LENGTH_BITS, dtype=jnp.int32)
        digits = ((count + 1) // power) % 2
        return jnp.sum(digits.astype(jnp.float32) * (0.5 / power.astype(jnp.float32)))

    def step(
        self,
        state: State,
        grad: Any,
        step_size: Float[Array, ""] | float,
        noise: Float[Array, "2 d"],
        *,
        preconditioner: Any = Scalar(1.0),
        temperature: Float[Array, ""] | float = 1.0,
    ) -> State:
        """Run one trajectory; accept it where T log Phi(noise[1, 0]) <= H - H'.

        `grad` needs `.log_density`.
        """
        T, momentum = temperature, jnp.sqrt(temperature) * noise[0]
        found = propose(
            grad, state.at, momentum, jnp.sqrt(step_size), self.length(state.count),
            preconditioner, T,
        )  # fmt: skip
        accepted = jax.scipy.special.log_ndtr(noise[1, 0]) <= found.log_ratio
        at = state.at.unless(accepted, found.end)
        count = state.count + 1
        diverged = state.divergences + found.diverged.astype(jnp.int32)
        away = -found.before - state.mean
        mean = state.mean + away / count.astype(away.dtype)
        squares = state.squares + away * (-found.before - mean)
        return State(at.position, count, diverged, mean, squares, at)
