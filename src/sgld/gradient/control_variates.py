"""Control variates at a fixed centre (Baker, Fearnhead, Fox & Nemeth 2019, eq. 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from ..errors import UsageError
from ..model import sums
from ..model.problem import Problem
from ..model.sums import batch_likelihood
from .estimate import Estimate

__all__ = ["ControlVariates"]

TABLE = 2**25  # numbers of the blocks' gradients that are kept; more are taken again at each step


@as_pytree
@dataclass(frozen=True)
class ControlVariates:
    """g(z) = grad log prior(z) + G(c) + K sum_{i in block} [grad l_i(z) - grad l_i(c)].

    G(c) is the full likelihood gradient at the centre c. The noise is of the order of the
    distance to c, instead of that of the gradients. With fixed blocks the blocks' sums at
    c are kept in a table, so that a step costs one gradient a row, not two.

    Args:
      center: a position; None takes the posterior mode.
      total, table: the library's own: G(c) [d], and the blocks' gradients at c [K, d].

    Example:
      >>> import sgld
      >>> sgld.ControlVariates()
      ControlVariates(center=None)
    """

    center: Any = None
    total: Float[Array, " d"] | None = None
    table: Float[Array, "K d"] | None = None

    remembers: ClassVar[bool] = False

    def __repr__(self) -> str:
        return (
            "ControlVariates(center=None)" if self.center is None else "ControlVariates(center=...)"
        )

    def prepare(self, problem: Problem, center: Array | None) -> ControlVariates:
        """G(c), and the table of the blocks' gradients at c."""
        if not problem.has_rows:
            raise UsageError("ControlVariates needs data; with data=None use gradient=Full().")
        if self.center is not None:
            center = problem.layout.ravel(problem.posterior.unconstrain(self.center))
        assert center is not None
        if problem.source.uses_blocks and problem.num_blocks * center.size <= TABLE:
            table = sums.block_gradients(problem, center)
            total = np.sum(np.asarray(table), 0, dtype=np.float64)  # of many large terms
            return ControlVariates(center, problem.array(total), table)
        return ControlVariates(center, sums.likelihood_gradient(problem, center), None)

    def at(self, problem: Problem, x: Array, memory: Any = None) -> Estimate:
        """The estimate on entry x of the data order: the batch's, tilted to be right at c."""
        batch = problem.source.fetch(x)
        rows = batch_likelihood(problem, x)
        if self.table is None or not problem.source.uses_blocks:
            at_center = jax.grad(rows)(self.center)
        else:
            at_center = self.table[x]
        assert self.total is not None
        tilt = self.total - batch.scale * at_center
        return Estimate(
            lambda z: problem.log_prior(z) + batch.scale * rows(z) + jnp.dot(tilt, z - self.center)
        )
