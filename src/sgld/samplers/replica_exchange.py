"""Replica exchange with noisy energies (Deng et al. 2020, eq. 6-7).

Chains run at temperatures T t_1 < T t_2 < ..., t_1 = 1, each by steps of another sampler. Before
every step each two neighbours, the hottest pair first, exchange positions with probability

    min(1, exp(b (U_1 - U_2) - b^2 s^2 / 2)),       b = (1 / t_1 - 1 / t_2) / T

Here U = -log posterior, estimated for both on the same batch of the step, and s^2 is the variance of the
noise of U_1 - U_2. With constraints, a chain's free coordinates have the density p^(1 / (t T)) |J|: each
chain has the target of its own temperature, and U omits the Jacobian, which is the same for all. At T = 0
no positions are exchanged: every chain climbs on its own.

The exchange leaves the joint distribution invariant where a chain's position is independent of the rest
of its state. Momenta are not independent: between two steps they lag the gradient by about half a kick, a
correlation of order sqrt(h) that makes an exchange of bare positions wrong by that order. A sampler with
momentum therefore has a method `exchanged`, which moves it to another position and keeps the part of the
momentum that is independent of it. On a Gaussian the exchange is then exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from ..core.validation import require
from ..errors import UsageError
from .preconditioners.fixed import Scalar
from .sgld import SGLD

_PLAIN = SGLD(None)


class State(NamedTuple):
    """The cold chain's position, and the stacked sampler states of all chains."""

    position: Float[Array, " d"]
    replicas: Any


@as_pytree
@dataclass(frozen=True)
class ReplicaExchange:
    """A cold chain that exchanges positions with hotter ones, for several modes.

    Only the cold chain is recorded.

    Args:
      temperatures: t_1 = 1 < t_2 < ..., relative to the run's temperature.
      sampler: the sampler of every chain: SGLD, or one with momentum and a method `exchanged`, such as
        BAOA, UBU, SGHMC and SGNHT.
      energy_noise: s^2, the variance of the noise of U_1 - U_2; 0 with full gradients. With noisy energies and
        0, the cold chain visits high energies too often (variances up to 1.7 times the correct ones were
        measured). `sgld.sample` therefore measures the noise and refuses to run where s^2 is far from it. With
        s^2 given, the verdict is at most `unknown`: noise is neither Gaussian nor the same everywhere.

    Example:
      >>> import sgld
      >>> sgld.ReplicaExchange((1.0, 3.0, 9.0)).num_noises
      5
      >>> sgld.ReplicaExchange((1.0, 1.0))
      Traceback (most recent call last):
      ...
      sgld.errors.UsageError: ReplicaExchange's temperatures must increase from 1. Got (1.0, 1.0).
    """

    temperatures: Any = (1.0, 4.0)
    sampler: Any = _PLAIN
    energy_noise: Any = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.sampler, (type, str, int, float, ReplicaExchange)):
            kind = self.sampler if isinstance(self.sampler, type) else None
            raise UsageError(
                f"ReplicaExchange's sampler must be a sampler of one chain. Got {self.sampler!r}"
                + ("." if kind is None else f"; call it: {kind.__name__}().")
            )
        require("ReplicaExchange's energy_noise", self.energy_noise, lambda s: s >= 0, "at least 0")
        ladder = self.temperatures
        if isinstance(ladder, np.ndarray):
            object.__setattr__(self, "temperatures", ladder := tuple(ladder.tolist()))
        if isinstance(ladder, (int, float, str)):
            raise UsageError(
                f"ReplicaExchange's temperatures must be a sequence of numbers. Got {ladder!r}."
            )
        if not isinstance(ladder, (tuple, list)):  # a placeholder of JAX
            return
        if not all(isinstance(t, (int, float)) for t in ladder):
            return
        if len(ladder) < 2 or ladder[0] != 1 or any(a >= b for a, b in pairwise(ladder)):
            raise UsageError(f"ReplicaExchange's temperatures must increase from 1. Got {ladder}.")

    @property
    def num_noises(self) -> int:
        """The number of noises: those of every chain, and one for every two neighbours."""
        return len(self.temperatures) * (self.sampler.num_noises + 1) - 1

    def init(self, position: Float[Array, " d"]) -> State:
        """Start all chains at the same position.

        Raises UsageError where the sampler's state holds more than a position and the sampler has no
        method `exchanged`.
        """
        if not hasattr(self.sampler, "exchanged"):
            one = jax.eval_shape(self.sampler.init, position)
            if len(jax.tree.leaves(one)) > 1:
                name = type(self.sampler).__name__
                raise UsageError(
                    f"ReplicaExchange cannot exchange the chains of {name}, whose state holds more than a "
                    f"position: give {name} a method `exchanged` as sgld.BAOA has, or use sampler=sgld.SGLD()."
                )
        copies = jnp.tile(position, (len(self.temperatures), 1))
        return State(position, jax.vmap(self.sampler.init)(copies))

    def step(
        self,
        state: State,
        grad: Any,
        step_size: Float[Array, ""] | float,
        noise: Float[Array, "num_noises d"],
        *,
        preconditioner: Any = Scalar(1.0),
        temperature: Float[Array, ""] | float = 1.0,
    ) -> State:
        """Exchange positions, then take one step of every chain. `grad` needs `.log_density`.

        It also needs `.at_temperature` where the target depends on the temperature.
        """
        count, each = len(self.temperatures), self.sampler.num_noises
        t = jnp.asarray(self.temperatures, noise.dtype)
        q = state.replicas.position
        at = getattr(grad, "at_temperature", lambda _: grad)
        order = self._order(q, at(0.0), t, noise[: count - 1, 0], temperature)
        replicas = self._moved(
            state.replicas, order, at, t * temperature, step_size, preconditioner
        )
        noises = noise[count - 1 :].reshape(count, *([] if each == 1 else [each]), -1)

        def one(replica: Any, xi: Array, ti: Array) -> Any:
            return self.sampler.step(
                replica, at(ti * temperature), step_size, xi, preconditioner=preconditioner,
                temperature=ti * temperature,
            )  # fmt: skip

        replicas = jax.vmap(one)(replicas, noises, t)
        return State(replicas.position[0], replicas)

    def _order(self, q, grad, t, xi, T):
        """Return for each chain the index of the chain whose position it continues from."""
        U = -jax.vmap(grad.log_density)(q)
        found = jnp.arange(len(self.temperatures))
        for k in reversed(range(len(self.temperatures) - 1)):
            b = 1 / t[k] - 1 / t[k + 1]
            # times T^2, so that T = 0 is no special case
            bound = b * (U[k] - U[k + 1]) * T - b**2 * self.energy_noise / 2
            swap = T**2 * jax.scipy.special.log_ndtr(xi[k]) < bound
            order = jnp.arange(len(self.temperatures)).at[k].set(k + 1).at[k + 1].set(k)
            found, U = jnp.where(swap, found[order], found), jnp.where(swap, U[order], U)
        return found

    def _moved(self, replicas, order, at, temperatures, step_size, preconditioner):
        """Return the chains' states at their new positions."""
        q = replicas.position
        if len(jax.tree.leaves(replicas)) == 1:
            return replicas._replace(position=q[order])

        def move(state: Any, position: Array, T: Array) -> Any:
            grad = at(T)
            change = grad(position) - grad(state.position)
            return self.sampler.exchanged(state, position, change, step_size, preconditioner)

        return jax.vmap(move)(replicas, q[order], temperatures)
