"""The plain minibatch estimate (Robbins & Monro 1951; Welling & Teh 2011, eq. 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Array

from ..core.pytrees import as_pytree
from ..model.problem import Problem
from ..model.sums import in_tiles
from .estimate import Estimate

__all__ = ["Minibatch"]

FEW = 4  # parameters up to which a step of one row is differentiated entry by entry


@as_pytree
@dataclass(frozen=True)
class Minibatch:
    """g(z) = grad log prior(z) + K sum_{i in block} grad log_likelihood_i(z).

    K = N/n for rows drawn at random, the number of blocks for blocks. Unbiased; its
    covariance is K^2 times that of the block sums.

    Example:
      >>> import sgld
      >>> sgld.Minibatch()
      Minibatch()
    """

    remembers: ClassVar[bool] = False

    def prepare(self, problem: Problem, center: Array | None) -> Minibatch:
        """Nothing to prepare."""
        return self

    def at(self, problem: Problem, x: Array, memory: Any = None) -> Estimate:
        """The estimate on entry x of the data order."""
        batch, tiled = problem.source.fetch(x), in_tiles(problem, x)
        whole = lambda z: problem.estimated(z, batch)  # noqa: E731
        return Estimate(
            whole if tiled is None else lambda z: problem.log_prior(z) + batch.scale * tiled(z),
            by_entry=batch.numbers.shape[0] == 1 and problem.dimension <= FEW,
        )
