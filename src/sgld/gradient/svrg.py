"""Stochastic variance-reduced gradients (Johnson & Zhang 2013; for Langevin: Dubey et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..core.pytrees import as_pytree
from ..core.validation import MAX_STEP, plain, whole_number
from ..errors import UsageError
from ..model import sums
from ..model.problem import Problem
from ..model.sums import batch_likelihood
from .estimate import Estimate

__all__ = ["SVRG"]


class Memory(NamedTuple):
    """A chain's centre c and the full likelihood gradient G(c) there."""

    center: Float[Array, " d"]
    total: Float[Array, " d"]


@as_pytree
@dataclass(frozen=True)
class SVRG:
    """Control variates whose centre is the chain's own position, taken anew every `period` steps.

        g(z) = grad log prior(z) + G(c) + K sum_{i in block} [grad l_i(z) - grad l_i(c)]

    Each chain has its own centre. A step costs two gradients a row, a new centre one pass.

    Args:
      period: steps between centres; None takes one pass, ceil(N/n).

    Example:
      >>> import sgld
      >>> sgld.SVRG(period=200)
      SVRG(period=200)
    """

    period: Any = None

    remembers: ClassVar[bool] = True

    def prepare(self, problem: Problem, center: Array | None) -> SVRG:
        """The period as a number. Raises UsageError without data, or where it is below 1."""
        if not problem.has_rows:
            raise UsageError("SVRG needs data; with data=None use gradient=Full().")
        period = problem.source.num_blocks if self.period is None else self.period
        whole_number("SVRG's period", period := plain(period), remark=" step")
        return SVRG(jnp.int32(min(period, MAX_STEP)))  # a longer one never comes to its end

    def start(self, problem: Problem, z: Float[Array, " d"]) -> Memory:
        """The chain's start as its first centre."""
        return Memory(z, sums.likelihood_gradient(problem, z))

    def at(self, problem: Problem, x: Array, memory: Memory) -> Estimate:
        """The estimate on entry x of the data order, around the chain's centre."""
        batch = problem.source.fetch(x)
        rows = batch_likelihood(problem, x)
        tilt = memory.total - batch.scale * jax.grad(rows)(memory.center)
        return Estimate(
            lambda z: (
                problem.log_prior(z) + batch.scale * rows(z) + jnp.dot(tilt, z - memory.center)
            )
        )

    def after(
        self,
        problem: Problem,
        x: Array,
        memory: Memory,
        z: Array,
        step: Int[Array, ""],
    ) -> Memory:
        """A new centre at every period-th step."""
        fresh = lambda: Memory(z, sums.likelihood_gradient(problem, z))  # noqa: E731
        return jax.lax.cond((step + 1) % self.period == 0, fresh, lambda: memory)
