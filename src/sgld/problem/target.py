"""A posterior over flat free vectors z: what gradients, tuner and meter work on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.flatten_util
import numpy as np
from jaxtyping import Array, Float

from ..core.pytrees import Layout, as_pytree
from ..posterior import Posterior

__all__ = ["Target"]

PyTree = Any


@as_pytree
@dataclass(frozen=True)
class Target:
    """A posterior over flat free vectors z: what gradients, tuner and meter work on.

    `temperature` is that of the law p(theta | data)^(1/T) to be sampled, on which the target itself depends
    where there are constraints: log p + T log |J|. At T = 0 that is p on the constrained scale.
    """

    posterior: Posterior
    layout: Layout = field(metadata={"static": True})
    temperature: Any = 1.0

    def at_temperature(self, temperature: Any) -> Target:
        """The target of a law at another temperature."""
        return replace(self, temperature=temperature)

    def log_prior(self, z: Float[Array, " d"]) -> Float[Array, ""]:
        """Log prior of z, with T log |J|."""
        return self.posterior.log_prior_free(self.layout.unravel(z), self.temperature)

    def log_likelihood(
        self, z: Float[Array, " d"], rows: PyTree, weight: Float[Array, " n"] | None = None
    ) -> Float[Array, ""]:
        """Sum of the rows' log likelihoods at z."""
        return self.posterior.log_likelihood_free(self.layout.unravel(z), rows, weight)

    def estimated(
        self, z: Float[Array, " d"], rows: PyTree, weight: Float[Array, " n"] | None, scale: Any
    ) -> Float[Array, ""]:
        """Log prior of z plus `scale` times the rows' log likelihoods, z taken apart once: half the concatenations."""
        free = self.layout.unravel(z)
        prior = self.posterior.log_prior_free(free, self.temperature)
        return prior + scale * self.posterior.log_likelihood_free(free, rows, weight)

    def position(self, z: Float[Array, " d"]) -> PyTree:
        """The user's position at z."""
        return self.posterior.constrain(self.layout.unravel(z))

    def reported(self, z: Float[Array, " d"]) -> PyTree:
        """What draws report at z: the position, or `posterior.output` of it."""
        position = self.position(z)
        return position if self.posterior.output is None else self.posterior.output(position)

    @property
    def reports_z(self) -> bool:
        """Whether draws report the entries of z as they are."""
        plain = self.posterior.transform is None and self.posterior.output is None
        return plain and len({*self.layout.dtypes}) == 1

    def jacobian(self, z: Any) -> Float[np.ndarray, "m d"]:
        """d reported / d z at z, float64."""
        return self.linear_at(z)[1]

    def linear_at(self, z: Any) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m d"]]:
        """`reported` at z as one vector, and its derivative there in float64."""
        value, slope = _linear(self, self.layout.array(z))
        return np.asarray(value), np.asarray(slope, np.float64)

    def flat_reported(self, z: Float[Array, " d"]) -> Float[Array, " m"]:
        """`reported` as one vector."""
        return jax.flatten_util.ravel_pytree(self.reported(z))[0]


@jax.jit
def _linear(
    target: Target, z: Float[Array, " d"]
) -> tuple[Float[Array, " m"], Float[Array, "m d"]]:
    return target.flat_reported(z), jax.jacobian(target.flat_reported)(z)
