"""The Problem that all methods use: a posterior over flat free vectors z, with rows and a start.

A Problem is prepared and checked once (prepare.py) and passed to all code that evaluates the
posterior: tuning, samplers, bias meter, reference runs, the variational fit. sums.py holds functions over all
rows and gradients of single rows; both take a Problem, with or without rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.pytrees import Layout, as_pytree
from ..data.mapped import OnDisk
from ..data.memory import AlwaysIn, InMemory
from ..data.source import Batch, Source
from .posterior import Posterior

# -- request -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """The user's arguments as given, with "auto" where the choice is left open.

    `check_request` checks them.
    """

    sampler: Any
    step_size: Any
    tolerance: Any
    temperature: Any
    gradient: Any
    preconditioner: Any
    order: Any
    batch_size: Any
    num_chains: Any
    num_draws: Any
    burn_in: Any
    thin: Any
    seed: Any
    max_steps: Any = None
    max_seconds: Any = None
    always_in: Any = "auto"
    noise: Any = "auto"

    def chains(self, otherwise: int = 4) -> int:
        """Return the number of chains, or `otherwise` if it was left open."""
        return otherwise if is_auto(self.num_chains) else int(self.num_chains)


def is_auto(value: Any) -> bool:
    """Return whether an argument was left to the library."""
    return isinstance(value, str) and value == "auto"


# -- target --------------------------------------------------------------------------------


PyTree = Any


@as_pytree
@dataclass(frozen=True)
class Target:
    """A posterior over flat free vectors z, for gradients, tuning and the bias meter.

    `temperature` is the T of the sampled density p(theta | data)^(1/T). With constraints the target depends on
    it: log p + T log |J|. At T = 0 that is p on the constrained scale.
    """

    posterior: Posterior
    layout: Layout = field(metadata={"static": True})
    temperature: Any = 1.0

    def at_temperature(self, temperature: Any) -> Target:
        """Return the target at another temperature."""
        return replace(self, temperature=temperature)

    def log_prior(self, z: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log prior of z, with T log |J|."""
        return self.posterior.log_prior_free(self.layout.unravel(z), self.temperature)

    def log_likelihood(
        self, z: Float[Array, " d"], rows: PyTree, weight: Float[Array, " n"] | None = None
    ) -> Float[Array, ""]:
        """Return the sum of the rows' log likelihoods at z."""
        return self.posterior.log_likelihood_free(self.layout.unravel(z), rows, weight)

    def estimated(
        self, z: Float[Array, " d"], rows: PyTree, weight: Float[Array, " n"] | None, scale: Any
    ) -> Float[Array, ""]:
        """Return the log prior of z plus `scale` times the rows' log likelihoods.

        z is unravelled once, which halves the number of concatenations.
        """
        free = self.layout.unravel(z)
        prior = self.posterior.log_prior_free(free, self.temperature)
        return prior + scale * self.posterior.log_likelihood_free(free, rows, weight)

    def position(self, z: Float[Array, " d"]) -> PyTree:
        """Return the user's position at z."""
        return self.posterior.constrain(self.layout.unravel(z))

    def reported(self, z: Float[Array, " d"]) -> PyTree:
        """Return what draws report at z: the position, or `posterior.output` of it."""
        position = self.position(z)
        return position if self.posterior.output is None else self.posterior.output(position)

    @property
    def reports_z(self) -> bool:
        """Whether draws report the entries of z unchanged."""
        plain = self.posterior.transform is None and self.posterior.output is None
        return plain and len({*self.layout.dtypes}) == 1

    def jacobian(self, z: Any) -> Float[np.ndarray, "m d"]:
        """Return the derivative of `reported` at z, in float64."""
        return self.linear_at(z)[1]

    def linear_at(self, z: Any) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m d"]]:
        """Return `reported` at z as one vector, and its derivative there in float64."""
        value, slope = _linear(self, self.layout.array(z))
        return np.asarray(value), np.asarray(slope, np.float64)

    def flat_reported(self, z: Float[Array, " d"]) -> Float[Array, " m"]:
        """Return `reported` as one vector."""
        return jax.flatten_util.ravel_pytree(self.reported(z))[0]


@jax.jit
def _linear(
    target: Target, z: Float[Array, " d"]
) -> tuple[Float[Array, " m"], Float[Array, "m d"]]:
    return target.flat_reported(z), jax.jacobian(target.flat_reported)(z)


# -- problem -------------------------------------------------------------------------------


@as_pytree
@dataclass(frozen=True)
class Problem:
    """A log posterior density over flat free vectors z, the rows that it sums over, and a start.

    Attributes:
      target: the density: log prior of z, log likelihood of z and some rows.
      data: the rows in batches, and their order; None for a density without data.
      start: z [d] of the position at which a search begins; None without a search.
      mesh: the devices that chains and rows are sharded over (devices.py); None is one device.
    """

    target: Any  # a Target, or another density with its methods (metropolis.energy.Around)
    data: Source | None = None
    start: Any = None
    mesh: Any = field(default=None, metadata={"static": True})

    @property
    def posterior(self) -> Posterior:
        """The user's posterior."""
        return self.target.posterior

    @property
    def layout(self) -> Layout:
        """The layout of free positions."""
        return self.target.layout

    @property
    def dimension(self) -> int:
        """The number of free parameters, d."""
        return self.target.layout.dimension

    @property
    def has_rows(self) -> bool:
        """Whether there are data."""
        return self.data is not None

    @property
    def source(self) -> Source:
        """The data of a problem that has rows."""
        assert self.data is not None, "this problem has no rows"
        return self.data

    @property
    def num_data(self) -> int:
        """The number of rows, 0 without data."""
        return 0 if self.data is None else self.data.num_data

    @property
    def rows_on_disk(self) -> bool:
        """Whether the rows are read from files, and not held in memory."""
        data = self.data.source if isinstance(self.data, AlwaysIn) else self.data
        return isinstance(data, OnDisk)

    @property
    def num_blocks(self) -> int:
        """The number of blocks of a pass over the rows; 1 without data."""
        return 1 if self.data is None else self.data.num_blocks

    @property
    def batches(self) -> tuple[str | None, int | None]:
        """The order and size of the batches; None without data."""
        return (None, None) if self.data is None else (self.data.order, self.data.batch_size)

    def array(self, values: Any) -> Array:
        """Return `values` as an array of z's dtype."""
        return self.target.layout.array(values)

    def on_host(self, values: Any) -> np.ndarray:
        """Return `values` on the host: compiled functions read it five times sooner than `array`."""
        return np.asarray(values, self.target.layout.dtype)

    def reported(self, zs: Float[Array, "chain draw d"]) -> PyTree:
        """Return what draws report at free positions, leaves [chain, draw, ...], on the host.

        With double precision for `output=`, bijections are in double too: some do not mix precisions.
        """
        target = self.target
        if self.posterior.output is not None and jnp.result_type(float) == np.float64:
            target = replace(target, layout=target.layout.in_double())
        return jax.tree.map(np.asarray, _reported(target, zs))

    def at_temperature(self, temperature: Any) -> Problem:
        """Return the problem with its target at another temperature; itself without constraints."""
        if self.posterior.transform is None:
            return self
        return replace(self, target=self.target.at_temperature(temperature))

    def with_batches(self, batch_size: int, order: str) -> Problem:
        """Return the problem with other batches; without rows, the problem itself."""
        if self.data is None:
            return self
        return replace(self, data=self.data.with_batches(batch_size, order))

    def with_always(self, rows: Any, seed: int) -> Problem:
        """Return the problem with only these rows, by the user's numbers, in every batch."""
        if self.data is None or rows is None or not len(rows):
            return self
        source = self.data.source if isinstance(self.data, AlwaysIn) else self.data
        return replace(self, data=AlwaysIn.of(source, source.rows_called(np.asarray(rows), seed)))

    def called(self, numbers: Int[np.ndarray, " m"], seed: int) -> Int[np.ndarray, " m"]:
        """Return the user's numbers of these rows, in ascending order."""
        return np.sort(self.source.original_rows(numbers, seed))

    def of_others(self) -> Problem:
        """Return the problem without the rows that are in every batch: the others make the noise."""
        if not isinstance(self.data, AlwaysIn):
            return self
        return replace(self, data=self.data.others())

    def as_one_batch(self) -> Problem:
        """Return the problem with all rows in one batch."""
        return self.with_batches(self.num_data, "reshuffle")

    def first(self, count: int) -> Problem:
        """Return the problem over the first `count` rows, a random subset."""
        return replace(self, data=InMemory.some(self.source, np.arange(count)))

    def log_prior(self, z: Float[Array, " d"]) -> Float[Array, ""]:
        """Return the log prior density of z."""
        return self.target.log_prior(z)

    def log_likelihood(
        self, z: Float[Array, " d"], rows: PyTree, weight: Float[Array, " n"] | None = None
    ) -> Float[Array, ""]:
        """Return the weighted sum of some rows' log likelihoods at z."""
        return self.target.log_likelihood(z, rows, weight)

    def estimated(self, z: Float[Array, " d"], batch: Batch) -> Float[Array, ""]:
        """Return the estimate of z's log density from a batch: the prior plus the scaled rows."""
        return self.target.estimated(z, batch.rows, batch.weight, batch.scale)


@jax.jit
def _reported(target: Target, zs: Float[Array, "chain draw d"]) -> PyTree:
    return jax.lax.map(jax.vmap(target.reported), zs)
