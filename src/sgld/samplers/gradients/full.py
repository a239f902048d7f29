"""The exact gradient of the full-data log posterior, and the plain minibatch estimate.

`Estimate` is the result of an estimator at one step: an estimated log density and its gradient.
`Minibatch` follows Robbins & Monro 1951 and Welling & Teh 2011, eq. 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.pytrees import as_pytree
from ...data.memory import each
from ...data.source import Batch
from ...model.problem import Problem
from ...model.sums import MAX_SHARED_NUMBERS, in_tiles, tile_size

# -- estimate ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A function of position whose gradient estimates that of the full-data log posterior.

    Calling it gives the gradient, [d] -> [d]. `log_density` is the function itself, up to a constant
    of the step, for samplers that compare energies. `by_entry` differentiates entry by entry: the
    same gradient, faster for a few parameters and one row a step. `tempered` is the same estimate as
    a function of the temperature, where the target depends on it. `known` is a position of the step
    with its gradient, which later calls reuse, because XLA does not merge two equal loops over rows.
    `followed`, if given, is a cheaper function for trajectories to follow; `log_density` accepts
    their ends.
    """

    log_density: Callable[[Float[Array, " d"]], Float[Array, ""]]
    by_entry: bool = False
    tempered: Callable[[Any], Estimate] | None = None
    known: tuple[Float[Array, " d"], Float[Array, " d"]] | None = None
    followed: Callable[[Float[Array, " d"]], Float[Array, ""]] | None = None

    def knowing(self, z: Float[Array, " d"]) -> Estimate:
        """Return this estimate with its gradient at z evaluated once and stored."""
        return replace(self, known=(z, self(z)))

    def at_temperature(self, temperature: Any) -> Estimate:
        """Return the estimate of the target log p + T log |J|; at T = 0 that of log p alone."""
        return self if self.tempered is None else self.tempered(temperature)

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return the gradient at z."""
        if self.known is not None and z is self.known[0]:
            return self.known[1]
        if not self.by_entry:
            return jax.grad(self.log_density)(z)
        # XLA repeats shared work for every entry of a short vector, but not for scalars
        entries = jax.grad(lambda parts: self.log_density(jnp.stack(parts)))(tuple(z))
        return jnp.stack(entries)


# -- full ----------------------------------------------------------------------------------


CENTRE_ROWS = 2**16  # rows evaluated at once at the centre


@as_pytree
@dataclass(frozen=True)
class Full:
    """The gradient g(z) = grad log prior(z) + sum_i grad log_likelihood_i(z).

    A step evaluates N gradients and has no noise.

    The library sets `base` for samplers that compare energies: the rows' log likelihoods at some position.
    Differences from them, row by row, are accurate in float32 where large sums are not. `guide` is a `Guide`
    for their trajectories where the rows are many.

    Example:
      >>> import sgld
      >>> sgld.Full()
      Full()
    """

    base: Any = field(default=None, repr=False)
    guide: Any = field(default=None, repr=False)

    remembers: ClassVar[bool] = False

    def prepare(self, problem: Problem, center: Array | None) -> Full:
        """Recompute `base`, where it is set, at the centre: it depends on the rows' order."""
        return self if self.base is None else replace(self, base=Full.around(problem, center).base)

    @classmethod
    def around(cls, problem: Problem, center: Array | None) -> Full:
        """Return Full with the rows' values at the `center` [d], if both exist."""
        if not problem.has_rows or center is None:
            return cls()
        return cls(_values(problem, center))

    def at(self, problem: Problem, x: Array | None, memory: Any = None) -> Estimate:
        """Return the exact log density, up to a constant; the entry x is not used."""
        if not problem.has_rows:
            return Estimate(problem.log_prior)
        whole = problem.as_one_batch()
        if goes_by_tiles(self, problem):
            tiled = in_tiles(whole, jnp.int32(0), MAX_SHARED_NUMBERS)
            assert tiled is not None
            return Estimate(lambda z: problem.log_prior(z) + tiled(z))
        batch = whole.source.fetch(jnp.int32(0))
        if self.base is None:
            return Estimate(
                lambda z: problem.log_prior(z) + problem.log_likelihood(z, batch.rows, batch.weight)
            )

        def relative(z: Array) -> Array:
            position = problem.target.position(z)
            likelihood = problem.posterior.log_likelihood
            assert likelihood is not None
            values = jax.vmap(likelihood, (None, 0))(position, batch.rows)
            return problem.log_prior(z) + jnp.sum(_moved(values, self.base, batch))

        guide = None if self.guide is None else self.guide.log_density(problem)
        return Estimate(relative, followed=guide)


def goes_by_tiles(gradient: Any, problem: Problem) -> bool:
    """Return whether a step uses all rows and reads them in tiles because they are many."""
    if not isinstance(gradient, Full) or gradient.base is not None or not problem.has_rows:
        return False
    return tile_size(problem.as_one_batch(), MAX_SHARED_NUMBERS) is not None


def _moved(values: Array, base: Array, batch: Batch) -> Array:
    """Return the rows' differences from `base`; 0 for rows that only fill the batch."""
    if batch.start is not None:  # all rows, in the order of their numbers
        return values - base
    moved = values - base[batch.numbers]
    return moved if batch.weight is None else jnp.where(batch.weight > 0, moved, 0.0)


@jax.jit
def _values(problem: Problem, center: Array) -> Array:
    position = problem.target.position(center)
    likelihood = problem.posterior.log_likelihood
    assert likelihood is not None
    values = each(problem.source, lambda row: likelihood(position, row), CENTRE_ROWS)
    return jnp.where(jnp.isfinite(values), values, 0.0)


# -- minibatch -----------------------------------------------------------------------------


MAX_ENTRY_DIM = 4  # parameters up to which a step of one row is differentiated entry by entry


@as_pytree
@dataclass(frozen=True)
class Minibatch:
    """The estimate g(z) = grad log prior(z) + K sum_{i in block} grad log_likelihood_i(z).

    K = N/n for rows drawn at random, and the number of blocks for blocks. The estimate is unbiased;
    its covariance is K^2 times that of the block sums.

    Example:
      >>> import sgld
      >>> sgld.Minibatch()
      Minibatch()
    """

    remembers: ClassVar[bool] = False

    def prepare(self, problem: Problem, center: Array | None) -> Minibatch:
        """Return the estimator itself: it has nothing to prepare."""
        return self

    def at(self, problem: Problem, x: Array, memory: Any = None) -> Estimate:
        """Return the estimate on entry x of the data order."""
        batch, tiled = problem.source.fetch(x), in_tiles(problem, x)
        whole = lambda z: problem.estimated(z, batch)  # noqa: E731
        return Estimate(
            whole if tiled is None else lambda z: problem.log_prior(z) + batch.scale * tiled(z),
            by_entry=batch.numbers.shape[0] == 1 and problem.dimension <= MAX_ENTRY_DIM,
        )
