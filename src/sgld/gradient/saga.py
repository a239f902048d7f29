"""SAGA: a table of the last gradient seen of every datum (Defazio et al. 2014; Dubey et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..data.source import Source
from ..errors import UsageError
from ..problem.target import Target
from .estimate import Estimate

__all__ = ["SAGA"]

MAX_TABLE = 2**31  # bytes of one chain's table


class Memory(NamedTuple):
    """A chain's table a_i of per-datum gradients, [N + 1, d] or scalars [N + 1], and its sum."""

    table: Float[Array, "N ..."]
    total: Float[Array, " d"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SAGA:
    """g(z) = grad log prior(z) + sum_i a_i + K sum_{i in block} [grad l_i(z) - a_i].

    Then a_i = grad l_i(z) on the block. The table holds N x d numbers a chain; where the
    likelihood sees the position through one linear predictor, `features(datum) -> x [d]`
    (in the order of the flat position) makes it N scalars, a_i = s_i x_i.

    Example:
      >>> import sgld
      >>> sgld.SAGA()
      SAGA(features=None)
    """

    features: Callable[[Any], Array] | None = field(default=None, metadata={"static": True})

    remembers: ClassVar[bool] = True

    def prepare(self, target: Target, source: Source | None, center: Array | None) -> SAGA:
        """Raises UsageError without data, or where the table would not fit."""
        if source is None:
            raise UsageError("SAGA needs data; with data=None use gradient=Full().")
        width = 1 if self.features is not None else target.layout.dimension
        size = 4 * source.num_data * width
        if size > MAX_TABLE:
            raise UsageError(
                f"SAGA's table would take {size / 2**30:.1f} GiB a chain ({source.num_data} rows x "
                f"{width}); use SVRG() or ControlVariates(), or features= for a linear predictor."
            )
        return self

    def start(self, target: Target, source: Source, z: Float[Array, " d"]) -> Memory:
        """The table at the chain's start: one pass."""
        rows = jnp.arange(jax.tree.leaves(source.rows)[0].shape[0], dtype=jnp.int32)
        entry = lambda row: self._entries(target, source, row[None], z)[1][0]  # noqa: E731
        table = jax.lax.map(entry, rows, batch_size=max(1, 2**18 // z.size))
        total = self._sum(source, rows[: source.num_data], table[: source.num_data])
        return Memory(table, total)

    def at(self, target: Target, source: Source, x: Array, memory: Memory) -> Estimate:
        """The estimate on entry x of the data order."""
        batch, rows = source.fetch(x), source.row_numbers(x)
        known = self._sum(source, rows, memory.table[rows], batch.weight)
        tilt = memory.total - batch.scale * known
        return Estimate(
            lambda z: (
                target.log_prior(z)
                + batch.scale * target.log_likelihood(z, batch.rows, batch.weight)
                + jnp.dot(tilt, z)
            )
        )

    def after(
        self,
        target: Target,
        source: Source,
        x: Array,
        memory: Memory,
        z: Array,
        step: Int[Array, ""],
    ) -> Memory:
        """a_i = grad l_i(z) on the block, and the sum that goes with it."""
        rows, weight = source.row_numbers(x), source.fetch(x).weight
        rows, fresh = self._entries(target, source, rows, z)
        old = memory.table[rows]
        if weight is not None:  # the row that fills a short block is another block's: leave it
            keep = weight.reshape(-1, *(1,) * (fresh.ndim - 1)) > 0
            fresh = jnp.where(keep, fresh, old)
        first = jnp.ones(rows.shape, bool)
        if not source.uses_blocks and source.order == "replacement":
            # a row drawn twice changes the sum once
            same = rows[:, None] == rows[None, :]
            first = ~jnp.any(jnp.tril(same, -1), axis=1)
        total = memory.total + self._sum(source, rows, fresh - old, first.astype(z.dtype))
        return Memory(memory.table.at[rows].set(fresh), total)

    def _entries(self, target: Target, source: Source, rows: Array, z: Array) -> tuple:
        def one(row):
            datum = jax.tree.map(lambda leaf: leaf[row][None], source.rows)
            g = jax.grad(target.log_likelihood)(z, datum)
            if self.features is None:
                return g
            x = self.features(jax.tree.map(lambda leaf: leaf[0], datum))
            return jnp.dot(g, x) / jnp.maximum(jnp.dot(x, x), 1e-30)

        return rows, jax.vmap(one)(rows)

    def _sum(self, source: Source, rows: Array, entries: Array, weight: Any = None) -> Array:
        if weight is not None:
            entries = entries * weight.reshape(-1, *(1,) * (entries.ndim - 1))
        if self.features is None:
            return jnp.sum(entries, axis=0)
        data = jax.tree.map(lambda leaf: leaf[rows], source.rows)
        return entries @ jax.vmap(self.features)(data)
