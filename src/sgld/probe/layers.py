"""The layers of a position: its leaves, as stretches of the flat vector."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.pytrees import Layout

__all__ = ["Layers", "is_of_layers"]

FEWEST_ENTRIES = 20  # of a layer whose temperature is looked at
BIAS_OF = {
    "kernel": "bias",
    "weight": "bias",
    "w": "b",
    "W": "b",
}  # as Flax, Haiku and others name them


@dataclass(frozen=True)
class Layers:
    """Names and sizes of the leaves, in the order of the flat vector; hashable.

    Example:
      >>> import jax.numpy as jnp
      >>> from sgld.core.pytrees import Layout
      >>> layers = Layers.of(Layout.of({"a": jnp.zeros((2, 2)), "b": jnp.zeros(1)}))
      >>> layers.means(jnp.array([1.0, 1.0, 3.0, 3.0, 7.0]))
      Array([2., 7.], dtype=float32)
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, layout: Layout) -> Layers:
        """Leaves without entries are left out."""
        pairs = zip(layout.names, map(math.prod, layout.shapes), strict=True)
        names, sizes = zip(*((name, size) for name, size in pairs if size), strict=True)
        return cls(names, sizes)

    @property
    def large(self) -> tuple[bool, ...]:
        """Which have entries enough for a temperature; the largest, where none has."""
        least = min(FEWEST_ENTRIES, max(self.sizes))
        return tuple(size >= least for size in self.sizes)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each begins."""
        return tuple(int(end) - size for end, size in zip(np.cumsum(self.sizes), self.sizes, strict=True))  # fmt: skip

    def means(self, values: Float[Array, "*batch d"]) -> Float[Array, "*batch layer"]:
        """The mean over the entries of every layer."""
        parts = [
            jnp.mean(values[..., start : start + size], axis=-1)
            for start, size in zip(self.starts, self.sizes, strict=True)
        ]
        return jnp.stack(parts, axis=-1)


def is_of_layers(layout: Layout) -> bool:
    """Whether a position is that of a network: at least two matrices with a bias beside them, by their names.

    Example:
      >>> import jax.numpy as jnp
      >>> dense = {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}
      >>> is_of_layers(Layout.of({"Dense_0": dense, "Dense_1": dense})), is_of_layers(Layout.of(dense))
      (True, False)
    """
    parts = [name.rpartition(".") for name in layout.names]
    there = {(place, name) for place, _, name in parts}
    matrices = [part for part, shape in zip(parts, layout.shapes, strict=True) if len(shape) > 1]
    return sum((place, BIAS_OF.get(name)) in there for place, _, name in matrices) > 1
