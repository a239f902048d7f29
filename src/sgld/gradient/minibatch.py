"""The plain minibatch estimate (Robbins & Monro 1951; Welling & Teh 2011, eq. 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

from ..data.source import Source
from ..posterior import Target

__all__ = ["Minibatch"]


@jax.tree_util.register_dataclass
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

    def prepare(self, target: Target, source: Source | None, center: Array | None) -> Minibatch:
        """Nothing to prepare."""
        return self

    def at(
        self, target: Target, source: Source, x: Array
    ) -> Callable[[Float[Array, " d"]], Float[Array, " d"]]:
        """The estimate on entry x of the data order, as a function of position."""
        batch = source.fetch(x)
        return jax.grad(
            lambda z: (
                target.log_prior(z)
                + batch.scale * target.log_likelihood(z, batch.rows, batch.weight)
            )
        )
