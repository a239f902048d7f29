"""A position as one flat vector and back.

Inside the library a position is a vector z of length d; a user's position is any
pytree of floating-point arrays. `Layout` is the hashable description of the latter,
so that two positions of the same shape share one compiled function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .device import known_now, sent
from .errors import UsageError
from .pytree import types_of

__all__ = ["Layout", "leaf_names"]

PyTree = Any


def leaf_names(tree: PyTree) -> list[str]:
    """Readable names of a pytree's leaves: `beta`, `net.w[0]`, or `x` for a bare array."""
    names = []
    for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
        text = ""
        for key in path:
            if isinstance(key, jax.tree_util.DictKey):
                text += f".{key.key}"
            elif isinstance(key, jax.tree_util.GetAttrKey):
                text += f".{key.name}"
            elif isinstance(key, jax.tree_util.SequenceKey):
                text += f"[{key.idx}]"
            else:
                text += f".{key}"
        names.append(text.lstrip(".") or "x")
    return names


@dataclass(frozen=True)
class Layout:
    """Tree structure, shapes and dtypes of a position; `ravel` and `unravel` convert.

    `kinds` are the structure's types, which comparing structures may overlook.
    """

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    names: tuple[str, ...]
    kinds: tuple[Any, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", types_of(self.treedef))

    @classmethod
    def of(cls, position: PyTree) -> Layout:
        """The layout of `position`. Raises UsageError where a leaf is not floating point."""
        leaves, treedef = jax.tree.flatten(position)
        names = tuple(leaf_names(position))
        if not leaves:
            raise UsageError("init is an empty position; give at least one array of parameters.")
        arrays = []
        for name, leaf in zip(names, leaves, strict=True):
            array = _array(name, leaf)
            if not jnp.issubdtype(array.dtype, jnp.floating):
                remedy = "write 0.0 instead of 0"
                if array.ndim or not isinstance(leaf, (int, np.integer)):
                    remedy = "leave it out of init where it is none, or convert it"
                raise UsageError(
                    f"init leaf {name!r} has dtype {array.dtype}; parameters must be floating point, "
                    f"so {remedy}."
                )
            arrays.append(array)
        return cls(
            treedef, tuple(a.shape for a in arrays), tuple(str(a.dtype) for a in arrays), names
        )

    @property
    def dimension(self) -> int:
        """The number of parameters, d."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def ends(self) -> Int[np.ndarray, " leaf"]:
        """Where each leaf ends in the flat vector."""
        return np.cumsum([math.prod(shape) for shape in self.shapes])

    @property
    def dtype(self) -> Any:
        """The dtype of the flat vector: the widest of the leaves'."""
        with jax.numpy_dtype_promotion("standard"):
            return jnp.result_type(*self.dtypes)

    def ravel(self, position: PyTree) -> Float[Array, " d"]:
        """The flat vector of `position`, leaves in tree order, each in row-major order."""
        leaves, treedef = jax.tree.flatten(position)
        if treedef != self.treedef:
            raise UsageError(f"the position has structure {treedef}; expected {self.treedef}.")
        for name, leaf, shape in zip(self.names, leaves, self.shapes, strict=True):
            if jnp.shape(leaf) != shape:
                raise UsageError(f"leaf {name!r} has shape {jnp.shape(leaf)}; expected {shape}.")
        if known_now(leaves):
            return sent(np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves]), self.dtype)
        parts = [jnp.ravel(jnp.asarray(leaf, self.dtype)) for leaf in leaves]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def array(self, values: Any) -> Array:
        """`values` as an array of the flat vector's dtype, converted on the host."""
        return sent(values, self.dtype)

    def unravel(self, z: Float[Array, "*batch d"]) -> PyTree:
        """The position (or batch of positions, leading axes kept) held in flat vectors."""
        sizes = [math.prod(shape) for shape in self.shapes]
        # the gradient of a split is one concatenation, that of slices a padded sum of a vector for every leaf
        parts = jax.lax.split(z, sizes, axis=z.ndim - 1)
        leaves = [
            part.reshape(*z.shape[:-1], *shape).astype(dtype)
            for part, shape, dtype in zip(parts, self.shapes, self.dtypes, strict=True)
        ]
        return jax.tree.unflatten(self.treedef, leaves)

    def unravelled(self, zs: Float[np.ndarray, "*batch d"]) -> PyTree:
        """Positions on the host as `unravel` gives them; leaves are parts of `zs`, read-only and no copies."""
        zs = zs.view()
        zs.flags.writeable = False
        parts = np.split(zs, self.ends[:-1], axis=-1)
        leaves = [
            part.reshape(*zs.shape[:-1], *shape)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.treedef, leaves)

    def in_double(self) -> Layout:
        """The same, of positions in double precision."""
        return replace(self, dtypes=("float64",) * len(self.dtypes))

    def element_names(self) -> list[str]:
        """One name per flat entry: `beta[0]`, `beta[1]`, `sigma` ..."""
        names: list[str] = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            names += [name + index for index in _indices(shape)]
        return names

    def locate(self, index: int) -> str:
        """The leaf that holds flat entry `index`."""
        start = 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            start += math.prod(shape)
            if index < start:
                return name
        raise IndexError(index)


def _array(name: str, leaf: Any) -> Array:
    try:
        return jnp.asarray(leaf)
    except TypeError as error:
        raise UsageError(
            f"init leaf {name!r} is {type(leaf).__name__}, which is no array; give arrays only "
            "(of a Flax linen module, what its init returns)."
        ) from error


def _indices(shape: Sequence[int]) -> list[str]:
    if not shape:
        return [""]
    *outer, last = shape
    grid = ["["]
    for size in outer:
        ends = [f"{i}," for i in range(size)]
        grid = [prefix + end for prefix in grid for end in ends]
    ends = [f"{i}]" for i in range(last)]
    return [prefix + end for prefix in grid for end in ends]
