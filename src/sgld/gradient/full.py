"""The exact gradient of the full-data log posterior: every row at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..problem.problem import Problem
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

    def prepare(self, problem: Problem, center: Array | None) -> Full:
        """Nothing to prepare."""
        return self

    def at(self, problem: Problem, x: Array | None, memory: Any = None) -> Estimate:
        """The exact log density; the entry x is not used."""
        if not problem.has_rows:
            return Estimate(problem.log_prior)
        batch = problem.as_one_batch().source.fetch(jnp.int32(0))
        return Estimate(
            lambda z: problem.log_prior(z) + problem.log_likelihood(z, batch.rows, batch.weight)
        )
