"""The exact gradient of the full-data log posterior: every row at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

from ..data.source import Source
from ..posterior import Target

__all__ = ["Full"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Full:
    """g(z) = grad log prior(z) + sum_i grad log_likelihood_i(z). N gradients a step, no noise.

    Example:
      >>> import sgld
      >>> sgld.Full()
      Full()
    """

    def prepare(self, target: Target, source: Source | None, center: Array | None) -> Full:
        """Nothing to prepare."""
        return self

    def at(
        self, target: Target, source: Source | None, x: Array | None
    ) -> Callable[[Float[Array, " d"]], Float[Array, " d"]]:
        """The gradient as a function of position; the entry x is not used."""
        if source is None:
            return jax.grad(target.log_prior)
        rows = source.everything()
        return jax.grad(lambda z: target.log_prior(z) + target.log_likelihood(z, rows))
