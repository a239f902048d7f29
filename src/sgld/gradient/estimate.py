"""What an estimator gives at one step: an estimate of the log density, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["Estimate"]


@dataclass(frozen=True)
class Estimate:
    """A function of position whose gradient estimates that of the full-data log posterior.

    Calling it gives the gradient, [d] -> [d]; `log_density` is the function itself, up to
    a constant of the step, for samplers that compare energies. `by_entry` differentiates
    entry by entry: the same gradient, faster for a few parameters and one row a step. `tempered` is
    the same estimate as a function of the temperature, where the target depends on it. `known` is
    the gradient at a position of a step, for whoever asks there again: XLA does not see that two loops over
    rows are one. `followed` is a cheaper function for trajectories to follow, where there is one, whose ends
    `log_density` accepts.
    """

    log_density: Callable[[Float[Array, " d"]], Float[Array, ""]]
    by_entry: bool = False
    tempered: Callable[[Any], Estimate] | None = None
    known: tuple[Float[Array, " d"], Float[Array, " d"]] | None = None
    followed: Callable[[Float[Array, " d"]], Float[Array, ""]] | None = None

    def knowing(self, z: Float[Array, " d"]) -> Estimate:
        """The same with its gradient at z taken once."""
        return replace(self, known=(z, self(z)))

    def at_temperature(self, temperature: Any) -> Estimate:
        """The estimate of the target log p + T log |J|; at T = 0 that of log p alone."""
        return self if self.tempered is None else self.tempered(temperature)

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """The gradient at z."""
        if self.known is not None and z is self.known[0]:
            return self.known[1]
        if not self.by_entry:
            return jax.grad(self.log_density)(z)
        # XLA computes what the entries of a short vector share once per entry; scalars share it
        entries = jax.grad(lambda parts: self.log_density(jnp.stack(parts)))(tuple(z))
        return jnp.stack(entries)
