"""The exact gradient of the full-data log posterior: every row at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
from jaxtyping import Array

from ..data.source import Source
from ..problem.target import Target
from .estimate import Estimate

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

    remembers: ClassVar[bool] = False

    def prepare(self, target: Target, source: Source | None, center: Array | None) -> Full:
        """Nothing to prepare."""
        return self

    def at(
        self, target: Target, source: Source | None, x: Array | None, memory: Any = None
    ) -> Estimate:
        """The exact log density; the entry x is not used."""
        if source is None:
            return Estimate(target.log_prior)
        rows = source.everything()
        return Estimate(lambda z: target.log_prior(z) + target.log_likelihood(z, rows))
