"""SAGA: a table of the last gradient of every datum (Defazio et al. 2014; Dubey et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...core.pytrees import as_pytree
from ...data.source import Source
from ...errors import UsageError
from ...model.problem import Problem
from ...model.sums import row_gradient
from .full import Estimate

MAX_TABLE_BYTES = 2**31  # bytes of one chain's table


class Memory(NamedTuple):
    """A chain's table a_i of per-datum gradients, [N, d] or scalars [N], and its sum."""

    table: Float[Array, "N ..."]
    total: Float[Array, " d"]


@as_pytree
@dataclass(frozen=True)
class SAGA:
    """The estimate g(z) = grad log prior(z) + sum_i a_i + K sum_{i in block} [grad l_i(z) - a_i].

    A step then sets a_i = grad l_i(z) on the block. The table holds N x d numbers a chain. Where the
    likelihood depends on the position through one linear predictor, `features(datum) -> x [d]`
    (in the order of the flat position) reduces it to N scalars, a_i = s_i x_i.

    Example:
      >>> import sgld
      >>> sgld.SAGA()
      SAGA(features=None)
    """

    features: Callable[[Any], Array] | None = field(default=None, metadata={"static": True})

    remembers: ClassVar[bool] = True

    def prepare(self, problem: Problem, center: Array | None) -> SAGA:
        """Check the data: UsageError without rows, or where the table would be too large."""
        if not problem.has_rows:
            raise UsageError("SAGA needs data; with data=None use gradient=Full().")
        width = 1 if self.features is not None else problem.dimension
        size = 4 * problem.source.num_data * width
        if size > MAX_TABLE_BYTES:
            raise UsageError(
                f"SAGA's table would take {size / 2**30:.1f} GiB a chain ({problem.source.num_data} rows x "
                f"{width}); use SVRG() or ControlVariates(), or features= for a linear predictor."
            )
        return self

    def start(self, problem: Problem, z: Float[Array, " d"]) -> Memory:
        """Compute the table at the chain's start, in one pass."""
        rows = jnp.arange(problem.num_data, dtype=jnp.int32)
        entry = lambda row: self._entries(problem, row[None], z)[0]  # noqa: E731
        table = jax.lax.map(entry, rows, batch_size=max(1, 2**18 // z.size))
        return Memory(table, self._sum(problem.source, rows, table))

    def at(self, problem: Problem, x: Array, memory: Memory) -> Estimate:
        """Return the estimate on entry x of the data order."""
        batch = problem.source.fetch(x)
        known = self._sum(problem.source, batch.numbers, memory.table[batch.numbers], batch.weight)
        tilt = memory.total - batch.scale * known
        return Estimate(
            lambda z: (
                problem.log_prior(z)
                + batch.scale * problem.log_likelihood(z, batch.rows, batch.weight)
                + jnp.dot(tilt, z)
            )
        )

    def after(
        self, problem: Problem, x: Array, memory: Memory, z: Array, step: Int[Array, ""]
    ) -> Memory:
        """Set a_i = grad l_i(z) on the block, and update the sum."""
        batch, size = problem.source.fetch(x), problem.num_data
        rows = batch.numbers
        fresh, old = self._entries(problem, rows, z), memory.table[rows]
        counts = jnp.ones(rows.shape, bool) if batch.weight is None else batch.weight > 0
        # a row of weight 0 only fills the batch: it belongs to another block, or is here twice
        first = counts
        if problem.source.order == "replacement":
            # a row drawn twice changes the sum once
            same = (rows[:, None] == rows[None, :]) & counts[None, :]
            first = counts & ~jnp.any(jnp.tril(same, -1), axis=1)
        total = memory.total + self._sum(problem.source, rows, fresh - old, first.astype(z.dtype))
        return Memory(memory.table.at[jnp.where(counts, rows, size)].set(fresh, mode="drop"), total)

    def _entries(self, problem: Problem, rows: Array, z: Array) -> Array:
        def one(row):
            g = row_gradient(problem, z, row)
            if self.features is None:
                return g
            x = self.features(problem.source.take(row))
            return jnp.dot(g, x) / jnp.maximum(jnp.dot(x, x), 1e-30)

        return jax.vmap(one)(rows)

    def _sum(self, source: Source, rows: Array, entries: Array, weight: Any = None) -> Array:
        if weight is not None:
            entries = entries * weight.reshape(-1, *(1,) * (entries.ndim - 1))
        if self.features is None:
            return jnp.sum(entries, axis=0)
        return entries @ jax.vmap(self.features)(source.take(rows))
