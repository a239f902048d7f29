"""What an estimator gives at one step: an estimate of the log density, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

__all__ = ["Estimate"]


@dataclass(frozen=True)
class Estimate:
    """A function of position whose gradient estimates that of the full-data log posterior.

    Calling it gives the gradient, [d] -> [d]; `log_density` is the function itself, up to
    a constant of the step, for samplers that compare energies.
    """

    log_density: Callable[[Float[Array, " d"]], Float[Array, ""]]

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """The gradient at z."""
        return jax.grad(self.log_density)(z)
