"""Rows that the tests put on disk, and what is asked of them there."""

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

import sgld
from sgld.data import open as opening

N = 3000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)).astype(np.float32)
Y = (X @ [1.0, -1.0, 0.5] + RNG.normal(size=N)).astype(np.float32)
NAMES = (["a", "b", "c"], "y")
TABLE = pa.table({"y": Y, "a": X[:, 0], "unused": np.arange(N), "c": X[:, 2], "b": X[:, 1]})
MODEL = sgld.Posterior(
    lambda t: -0.5 * jnp.sum(t**2) / 100, lambda t, row: -0.5 * (row[1] - row[0] @ t) ** 2
)


def rows_of(source):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(source.rows)]


def same(source, other):
    assert jax.tree.structure(source.rows) == jax.tree.structure(other.rows)
    for leaf, held in zip(rows_of(source), jax.tree.leaves(other.rows), strict=True):
        assert leaf.dtype == held.dtype
        np.testing.assert_array_equal(leaf, np.asarray(held))


def conversions(monkeypatch):
    """How often data were converted."""
    made = []
    convert = opening.convert
    monkeypatch.setattr(opening, "convert", lambda *given: made.append(1) or convert(*given))
    return made
