"""Rows that are made from their number: a source as large as wanted, without a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from sgld.data.source import Source

__all__ = ["Made"]

COLUMNS = 20


def _mixed(words: Any) -> Any:
    """32 bits that look random (Wellons' lowbias32), of each of some words."""
    words = (words ^ (words >> jnp.uint32(16))) * jnp.uint32(0x7FEB352D)
    words = (words ^ (words >> jnp.uint32(15))) * jnp.uint32(0x846CA68B)
    return words ^ (words >> jnp.uint32(16))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Made(Source):
    """Linear regression: x uniform with sd 1, y = x b + noise of sd 1, b_j = (j + 1) / 20."""

    num_data: int = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})
    order: str = field(metadata={"static": True})

    def take(self, rows: Any) -> Any:
        """Rows by number."""
        first = _mixed(jnp.asarray(rows).astype(jnp.uint32) + jnp.uint32(1))
        column = jnp.arange(1, COLUMNS + 2, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
        bits = _mixed(first[..., None] ^ column)
        half = 2.0**31
        unit = ((bits >> jnp.uint32(8)).astype(jnp.float32) * 256 / half - 1) * 3.0**0.5
        x, noise = unit[..., :COLUMNS], unit[..., COLUMNS]
        beta = jnp.arange(1, COLUMNS + 1, dtype=jnp.float32) / COLUMNS
        return {"x": x, "y": x @ beta + noise}

    def hash(self) -> str:
        """Of the rule, not of the rows."""
        return f"lowbias32 of {self.num_data} rows"
