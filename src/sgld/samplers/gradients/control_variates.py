"""Control variates (Baker, Fearnhead, Fox & Nemeth 2019, eq. 6), SVRG, and `Guide`.

SVRG: Johnson & Zhang 2013; for Langevin dynamics Dubey et al. 2016.

`Guide` is a cheaper log density for trajectories to follow: a sample of the rows and a quadratic correction.

Hamiltonian trajectories are exact whatever field they follow, if the exact density accepts their ends
(Rasmussen 2003; Neal 2011, section 5.5.3). Of many rows, a twentieth is enough to guide a trajectory. With
S a sample of rows, w_i the number of rows that each represents, and c a centre,

    log p~(z) = log prior(z) + sum_{i in S} w_i log_likelihood_i(z) + a . (z - c) + (z - c)^T B (z - c) / 2,

where a and B are the differences of gradient and Hessian at c between all rows and S. The error is of
third order in z - c, and small because a sample misses only a share of a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...core.pytrees import as_pytree
from ...core.validation import MAX_STEP, plain, whole_number
from ...errors import UsageError
from ...model import sums
from ...model.problem import Problem
from ...model.sums import batch_likelihood
from .full import Estimate

# numbers in the table of the blocks' gradients; a larger table is not stored
MAX_TABLE_NUMBERS = 2**25


@as_pytree
@dataclass(frozen=True)
class ControlVariates:
    """The estimate grad log prior(z) + G(c) + K sum_{i in block} [grad l_i(z) - grad l_i(c)].

    G(c) is the full likelihood gradient at the centre c. The noise is of the order of the
    distance to c, instead of the order of the gradients. With fixed blocks a table holds the
    blocks' sums at c, so that a step costs one gradient a row instead of two.

    Args:
      center: a position; None uses the posterior mode.
      total, table: set by the library: G(c) [d], and the blocks' gradients at c [K, d].

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
        """Compute G(c) and the table of the blocks' gradients at c."""
        if not problem.has_rows:
            raise UsageError("ControlVariates needs data; with data=None use gradient=Full().")
        if self.center is not None:
            center = problem.layout.ravel(problem.posterior.unconstrain(self.center))
        assert center is not None
        if problem.source.uses_blocks and problem.num_blocks * center.size <= MAX_TABLE_NUMBERS:
            table = sums.block_gradients(problem, center)
            total = np.sum(np.asarray(table), 0, dtype=np.float64)  # many large terms
            return ControlVariates(center, problem.array(total), table)
        return ControlVariates(center, sums.likelihood_gradient(problem, center), None)

    def at(self, problem: Problem, x: Array, memory: Any = None) -> Estimate:
        """Return the batch's estimate on entry x of the data order, corrected to be exact at c."""
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


# -- svrg ----------------------------------------------------------------------------------


class Memory(NamedTuple):
    """A chain's centre c and the full likelihood gradient G(c) there."""

    center: Float[Array, " d"]
    total: Float[Array, " d"]


@as_pytree
@dataclass(frozen=True)
class SVRG:
    """Control variates centred at the chain's own position, which is updated every `period` steps.

        g(z) = grad log prior(z) + G(c) + K sum_{i in block} [grad l_i(z) - grad l_i(c)]

    Each chain has its own centre. A step costs two gradients a row, a new centre one pass.

    Args:
      period: steps between centres; None uses one pass, ceil(N/n).

    Example:
      >>> import sgld
      >>> sgld.SVRG(period=200)
      SVRG(period=200)
    """

    period: Any = None

    remembers: ClassVar[bool] = True

    def prepare(self, problem: Problem, center: Array | None) -> SVRG:
        """Return the estimator with its period as a number.

        Raises UsageError without data, or where the period is below 1.
        """
        if not problem.has_rows:
            raise UsageError("SVRG needs data; with data=None use gradient=Full().")
        period = problem.source.num_blocks if self.period is None else self.period
        whole_number("SVRG's period", period := plain(period), remark=" step")
        return SVRG(jnp.int32(min(period, MAX_STEP)))  # no run reaches the end of a longer one

    def start(self, problem: Problem, z: Float[Array, " d"]) -> Memory:
        """Return the chain's start as its first centre."""
        return Memory(z, sums.likelihood_gradient(problem, z))

    def at(self, problem: Problem, x: Array, memory: Memory) -> Estimate:
        """Return the estimate on entry x of the data order, around the chain's centre."""
        batch = problem.source.fetch(x)
        rows = batch_likelihood(problem, x)
        tilt = memory.total - batch.scale * jax.grad(rows)(memory.center)
        return Estimate(
            lambda z: (
                problem.log_prior(z) + batch.scale * rows(z) + jnp.dot(tilt, z - memory.center)
            )
        )

    def after(
        self, problem: Problem, x: Array, memory: Memory, z: Array, step: Int[Array, ""]
    ) -> Memory:
        """Update the centre at every period-th step."""
        fresh = lambda: Memory(z, sums.likelihood_gradient(problem, z))  # noqa: E731
        return jax.lax.cond((step + 1) % self.period == 0, fresh, lambda: memory)


# -- guide ---------------------------------------------------------------------------------


@as_pytree
@dataclass(frozen=True)
class Guide:
    """The approximate log density log p~ of the module's equation.

    Attributes:
      numbers, weight: the rows in S, in the source's numbering, and their weights w [m].
      center, slope, curvature: c [d], a [d] and B [d, d].
    """

    numbers: Any
    weight: Any
    center: Any
    slope: Any
    curvature: Any

    def at(self, problem: Any, x: Array | None) -> Estimate:
        """Return log p~ itself, for chains that target it; the entry x is not used."""
        return Estimate(self.log_density(problem))

    def log_density(self, problem: Any) -> Callable[[Float[Array, " d"]], Float[Array, ""]]:
        """Return z -> log p~(z) for compiled code; the rows are read once."""
        rows = problem.source.take(self.numbers)

        def followed(z: Float[Array, " d"]) -> Float[Array, ""]:
            away = z - self.center
            missed = away @ (self.slope + 0.5 * (self.curvature @ away))
            return problem.log_prior(z) + problem.log_likelihood(z, rows, self.weight) + missed

        return followed


# -- is centred ----------------------------------------------------------------------------


def is_centred(gradient: Any) -> bool:
    """Return whether the estimator's noise is that of differences from known gradients."""
    return isinstance(gradient, ControlVariates) or gradient.remembers
