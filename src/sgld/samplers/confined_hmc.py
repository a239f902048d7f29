"""Hamiltonian Monte Carlo in one of several modes: a chain stays in the region where it starts.

Quadratic approximations of log p at the modes m_k, of height l_k and curvature F_k^{-T} F_k^{-1},
divide the space into regions: z belongs to the mode whose approximation is largest there,

    argmax_k  l_k - |F_k^{-1} (z - m_k)|^2 / 2.

A trajectory that ends in another region is rejected, as if the density were 0 there. The stationary
distribution is therefore p restricted to the region, whatever its shape. Each region has its own
metric, because modes differ in their scales. `mode_masses.bridge` measures the integrals of the
restricted densities, and so the weights of the chains' draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..core.pytrees import as_pytree
from ..core.validation import require
from .hmc import HMC
from .hmc import State as Hamiltonian


@as_pytree
@dataclass(frozen=True)
class Regions:
    """A partition of the space by modes, with groups of modes as regions.

    Attributes:
      center, inverse: m_k [mode, d] and F_k^{-1} [mode, d, d].
      height: l_k [mode], up to a constant.
      group: [mode], the region of each mode, numbered from 0.
    """

    center: Any
    inverse: Any
    height: Any
    group: Any

    def mode(self, z: Float[Array, " d"]) -> Int[Array, ""]:
        """Return the number of the mode that z belongs to."""
        away = z[None] - self.center
        white = jnp.einsum("kij,kj->ki", self.inverse, away, precision="highest")
        return jnp.argmax(self.height - 0.5 * jnp.sum(white**2, axis=1))

    def of(self, z: Float[Array, " d"]) -> Int[Array, ""]:
        """Return the number of the region that z belongs to."""
        return self.group[self.mode(z)]


class State(NamedTuple):
    """Position, its region, the HMC state, and the rejected trajectories per end region."""

    position: Float[Array, " d"]
    region: Int[Array, ""]
    inside: Hamiltonian
    left: Int[Array, " region"]


class _Metric(NamedTuple):
    """One region's metric, selected after products with all: one product for many chains."""

    factor: Float[Array, "region d d"]
    region: Int[Array, ""]

    def noise(self, xi: Array) -> Array:
        return jnp.einsum("kij,j->ki", self.factor, xi)[self.region]

    def pullback(self, g: Array) -> Array:
        return jnp.einsum("i,kij->kj", g, self.factor)[self.region]


@as_pytree
@dataclass(frozen=True)
class ConfinedHMC:
    """`samplers.hmc.HMC` in the region of its start, with that region's metric and exact gradients.

    Args:
      leapfrogs: the number of leapfrogs of the longest trajectory, at least 1.
      regions: the `Regions`.
      factor: [region, d, d], where F F^T is each region's metric; the run's preconditioner is not used.

    Example:
      >>> import jax.numpy as jnp
      >>> from sgld.samplers.gradients.full import Estimate
      >>> from sgld.samplers.confined_hmc import ConfinedHMC, Regions
      >>> one = jnp.ones((2, 1, 1))                       # two modes, at -5 and 5
      >>> regions = Regions(jnp.array([[-5.0], [5.0]]), one, jnp.zeros(2), jnp.array([0, 1]))
      >>> sampler = ConfinedHMC(1, regions, one)
      >>> flat = Estimate(lambda q: 0.0 * jnp.sum(q))     # only the regions confine the chain
      >>> state = sampler.init(jnp.array([-1.0]))
      >>> state = sampler.step(state, flat, 1.0, jnp.array([[3.0], [0.0]]))
      >>> state.position.tolist(), state.left.tolist()
      ([-1.0], [0, 1])
    """

    leapfrogs: Any
    regions: Any
    factor: Any

    num_noises: ClassVar[int] = 2

    def __post_init__(self) -> None:
        require("ConfinedHMC's leapfrogs", self.leapfrogs, lambda count: count >= 1, "at least 1")

    def init(self, position: Float[Array, " d"]) -> State:
        """Return the state before the first trajectory."""
        none = jnp.zeros(self.factor.shape[0], jnp.int32)
        region = self.regions.of(position)
        return State(position, region, HMC(self.leapfrogs).init(position), none)

    def step(
        self,
        state: State,
        grad: Any,
        step_size: Float[Array, ""] | float,
        noise: Float[Array, "2 d"],
        *,
        preconditioner: Any = None,
        temperature: Float[Array, ""] | float = 1.0,
    ) -> State:
        """Run one HMC trajectory and reject it if it ends in another region.

        `grad` needs `.log_density`.
        """
        metric = _Metric(self.factor, state.region)
        new = HMC(self.leapfrogs).step(
            state.inside, grad, step_size, noise, preconditioner=metric, temperature=temperature
        )
        region = self.regions.of(new.position)
        stays = region == state.region
        at = state.inside.at.unless(stays, new.at)
        left = state.left.at[region].add(1 - stays.astype(jnp.int32))
        inside = new._replace(position=at.position, at=at)
        return State(at.position, state.region, inside, left)
