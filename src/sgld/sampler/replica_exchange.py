"""Replica exchange with noisy energies (Deng et al. 2020, eq. 6-7).

Chains at temperatures T t_1 < T t_2 < ..., t_1 = 1, each by steps of another sampler. Before
every step the positions of each two neighbours, the hottest first, are exchanged with probability

    min(1, exp(b (U_1 - U_2) - b^2 s^2 / 2)),       b = (1 / t_1 - 1 / t_2) / T

U = -log posterior as the step's batch estimates it, for both the same batch, and s^2 the variance
of the noise of U_1 - U_2. At T = 0 nothing is exchanged: every chain climbs for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import UsageError
from ..preconditioner.fixed import Scalar
from .checks import require
from .sgld import SGLD

__all__ = ["ReplicaExchange"]

_PLAIN = SGLD(None)


class State(NamedTuple):
    """The cold chain's position, and the sampler's states of all chains, stacked."""

    position: Float[Array, " d"]
    replicas: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ReplicaExchange:
    """A cold chain that is fed by hotter ones, for several modes. Only the cold one is recorded.

    Args:
      temperatures: t_1 = 1 < t_2 < ..., times the run's temperature.
      sampler: of every chain; its momentum, if any, stays when positions are exchanged.
      energy_noise: s^2, the variance of the noise of U_1 - U_2: 0 with full gradients. Left at 0
        with plain minibatches, the cold chain visits high energies too often (variances 1.7
        times the right ones have been seen): prefer control variates.

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
        require("ReplicaExchange's energy_noise", self.energy_noise, lambda s: s >= 0, "at least 0")
        ladder = self.temperatures
        if isinstance(ladder, np.ndarray):
            object.__setattr__(self, "temperatures", ladder := tuple(ladder.tolist()))
        if isinstance(ladder, (int, float, str)):
            raise UsageError(f"ReplicaExchange's temperatures must be several. Got {ladder!r}.")
        if not isinstance(ladder, (tuple, list)):  # JAX's own, see checks.py
            return
        if not all(isinstance(t, (int, float)) for t in ladder):
            return
        if len(ladder) < 2 or ladder[0] != 1 or any(a >= b for a, b in pairwise(ladder)):
            raise UsageError(f"ReplicaExchange's temperatures must increase from 1. Got {ladder}.")

    @property
    def num_noises(self) -> int:
        """Those of every chain's sampler, and one for every two neighbours."""
        return len(self.temperatures) * (self.sampler.num_noises + 1) - 1

    def init(self, position: Float[Array, " d"]) -> State:
        """All chains at the same position."""
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
        """Exchanges, then one step of every chain. `grad` needs `.log_density`."""
        count, each = len(self.temperatures), self.sampler.num_noises
        t = jnp.asarray(self.temperatures, noise.dtype)
        q = self._exchanged(state.replicas.position, grad, t, noise[: count - 1, 0], temperature)
        noises = noise[count - 1 :].reshape(count, *([] if each == 1 else [each]), -1)

        def one(replica: Any, xi: Array, ti: Array) -> Any:
            return self.sampler.step(
                replica, grad, step_size, xi, preconditioner=preconditioner,
                temperature=ti * temperature,
            )  # fmt: skip

        replicas = jax.vmap(one)(state.replicas._replace(position=q), noises, t)
        return State(replicas.position[0], replicas)

    def _exchanged(self, q, grad, t, xi, T):
        U = -jax.vmap(grad.log_density)(q)
        for k in reversed(range(len(self.temperatures) - 1)):
            b = 1 / t[k] - 1 / t[k + 1]
            # times T^2, so that T = 0 is no special case
            bound = b * (U[k] - U[k + 1]) * T - b**2 * self.energy_noise / 2
            swap = T**2 * jax.scipy.special.log_ndtr(xi[k]) < bound
            order = jnp.arange(len(self.temperatures)).at[k].set(k + 1).at[k + 1].set(k)
            q, U = jnp.where(swap, q[order], q), jnp.where(swap, U[order], U)
        return q
