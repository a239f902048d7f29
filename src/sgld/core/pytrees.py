"""Dataclasses as pytrees, positions as flat vectors, and the release of compiled functions.

`jax.tree_util.register_dataclass` makes structures that compare equal for any two types with the same
field values (seen in JAX 0.10: BAOA(1.0) and UBU(1.0)). Compiled functions are stored by structure, and
a lookup compares seven bits of its hash. About one pair in a hundred was therefore mistaken, silently.
The structures of `as_pytree` differ when their types do.

Inside the library a position is a vector z of length d. A user's position is any pytree of
floating-point arrays. `Layout` is the hashable description of that pytree, so that two positions of the
same shape share one compiled function.

JAX keeps what it compiled for the lifetime of the process, together with the user's functions. Each
posterior with new functions adds about 20 MB, so a loop over posteriors would exhaust the memory. This
package releases all that it compiled once MAX_POSTERIORS posteriors were seen; a posterior that returns
is compiled again. It does not release functions that the user compiled. It also releases when one of
the user's types could be mistaken for another (`tell_apart`).
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import UsageError
from .devices import is_concrete, sent

T = TypeVar("T")
_registered: set[type] = set()


def as_pytree(cls: type[T]) -> type[T]:
    """Register a frozen dataclass: its fields are children, static fields and strings structure.

    Example:
      >>> import dataclasses, jax
      >>> from sgld.core.pytrees import as_pytree
      >>> @as_pytree
      ... @dataclasses.dataclass(frozen=True)
      ... class Pair:
      ...     a: float
      ...     b: float
      >>> jax.tree.map(lambda x: 2 * x, Pair(1.0, 2.0))
      Pair(a=2.0, b=4.0)
    """
    fields = [field for field in dataclasses.fields(cls) if field.init]  # pyright: ignore
    statics = tuple(field.name for field in fields if field.metadata.get("static", False))
    names = tuple(field.name for field in fields if field.name not in statics)

    def flatten(x: Any):
        held = {name: getattr(x, name) for name in names}
        words = tuple((name, part) for name, part in held.items() if type(part) is str)
        children = tuple(part for part in held.values() if type(part) is not str)
        return children, (*words, *((name, getattr(x, name)) for name in statics))

    def flatten_with_keys(x: Any):
        children, structure = flatten(x)
        keys = (jax.tree_util.GetAttrKey(name) for name in left(structure))
        return tuple(zip(keys, children, strict=True)), structure

    def left(structure: tuple[tuple[str, Any], ...]) -> list[str]:
        return [name for name in names if name not in dict(structure)]

    def unflatten(structure: tuple[tuple[str, Any], ...], children: Any) -> T:
        return cls(**dict(structure), **dict(zip(left(structure), children, strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    _registered.add(cls)
    return cls


class StaticField:
    """A static field that compiled code does not tell from others of its class."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))

    def __hash__(self) -> int:
        return hash(type(self))


def check_compiled(what: str, value: Any) -> None:
    """Raise UsageError unless `value` is a pytree whose leaves are arrays, for compiled code."""
    if jax.tree_util.all_leaves([value]):
        raise UsageError(
            f"{what} is not a pytree, so compiled code cannot take it; make it a frozen dataclass and register it "
            "with jax.tree_util.register_dataclass."
        )
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        try:
            jax.eval_shape(lambda _: None, leaf)
        except Exception as error:  # the value's own methods may raise any type
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise UsageError(
                f"{what} cannot be passed to compiled code: its leaves must be arrays and its other fields static. "
                f"Its {name} is {leaf!r}."
            ) from error


def unregistered_structures(structure: Any) -> Iterator[Any]:
    """Yield the parts of a structure that are dataclasses registered outside this package."""
    node = structure.node_data()
    if node is not None and dataclasses.is_dataclass(node[0]) and node[0] not in _registered:
        yield structure
    for child in structure.children():
        yield from unregistered_structures(child)


def types_of(structure: Any) -> tuple[Any, ...]:
    """Return the types of a structure's nodes, which a comparison of structures may ignore."""
    node = structure.node_data()
    below = (kind for child in structure.children() for kind in types_of(child))
    return (None if node is None else node[0], *below)


# -- layout --------------------------------------------------------------------------------


PyTree = Any


def leaf_names(tree: PyTree) -> list[str]:
    """Return readable names of a pytree's leaves: `beta`, `net.w[0]`, or `x` for a bare array."""
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
    """Tree structure, shapes and dtypes of a position; `ravel` and `unravel` convert positions.

    `kinds` are the structure's types, which a comparison of structures may ignore.
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
        """Return the layout of `position`; raise UsageError if a leaf is not floating point."""
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
                    remedy = "convert it, or leave it out of init if it is not a parameter"
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
        """The end of each leaf in the flat vector."""
        return np.cumsum([math.prod(shape) for shape in self.shapes])

    @property
    def dtype(self) -> Any:
        """The dtype of the flat vector: the widest dtype of the leaves."""
        with jax.numpy_dtype_promotion("standard"):
            return jnp.result_type(*self.dtypes)

    def ravel(self, position: PyTree) -> Float[Array, " d"]:
        """Return `position` as a flat vector: leaves in tree order, each in row-major order."""
        leaves, treedef = jax.tree.flatten(position)
        if treedef != self.treedef:
            raise UsageError(f"the position has structure {treedef}; expected {self.treedef}.")
        for name, leaf, shape in zip(self.names, leaves, self.shapes, strict=True):
            if jnp.shape(leaf) != shape:
                raise UsageError(f"leaf {name!r} has shape {jnp.shape(leaf)}; expected {shape}.")
        if is_concrete(leaves):
            return sent(np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves]), self.dtype)
        parts = [jnp.ravel(jnp.asarray(leaf, self.dtype)) for leaf in leaves]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def array(self, values: Any) -> Array:
        """Return `values` as an array of the flat vector's dtype, converted on the host."""
        return sent(values, self.dtype)

    def unravel(self, z: Float[Array, "*batch d"]) -> PyTree:
        """Return the position, or batch of positions (leading axes kept), of flat vectors."""
        sizes = [math.prod(shape) for shape in self.shapes]
        # the gradient of a split is one concatenation; slices would add one padded vector for each leaf
        parts = jax.lax.split(z, sizes, axis=z.ndim - 1)
        leaves = [
            part.reshape(*z.shape[:-1], *shape).astype(dtype)
            for part, shape, dtype in zip(parts, self.shapes, self.dtypes, strict=True)
        ]
        return jax.tree.unflatten(self.treedef, leaves)

    def unravelled(self, zs: Float[np.ndarray, "*batch d"]) -> PyTree:
        """Return host positions as `unravel` does; their leaves are read-only views of `zs`."""
        zs = zs.view()
        zs.flags.writeable = False
        parts = np.split(zs, self.ends[:-1], axis=-1)
        leaves = [
            part.reshape(*zs.shape[:-1], *shape)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.treedef, leaves)

    def in_double(self) -> Layout:
        """Return this layout with positions in double precision."""
        return replace(self, dtypes=("float64",) * len(self.dtypes))

    def element_names(self) -> list[str]:
        """Return one name per flat entry: `beta[0]`, `beta[1]`, `sigma` ..."""
        names: list[str] = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            names += [name + index for index in _indices(shape)]
        return names

    def locate(self, index: int) -> str:
        """Return the name of the leaf that holds flat entry `index`."""
        return self.names[np.searchsorted(self.ends, index, side="right")]


def _array(name: str, leaf: Any) -> Array:
    try:
        return jnp.asarray(leaf)
    except TypeError as error:
        raise UsageError(
            f"init leaf {name!r} is {type(leaf).__name__}, which is not an array; give arrays only "
            "(for a Flax linen module, the result of its init)."
        ) from error


def _indices(shape: Sequence[int]) -> list[str]:
    if not shape:
        return [""]
    axes = [[str(i) for i in range(size)] for size in shape]
    return [f"[{','.join(place)}]" for place in itertools.product(*axes)]


# -- release -------------------------------------------------------------------------------


# the number of posteriors, of different functions or shapes, whose compiled functions are kept
MAX_POSTERIORS = 8
# compared, not hashed: the hash of a pytree's structure ignores its functions
_seen: list[tuple[Any, tuple[Any, ...]]] = []
# structures of the user's types, and the types in them
_user_structures: list[tuple[Any, tuple[Any, ...]]] = []


def count_posterior(problem: Any) -> None:
    """Register a problem about to be compiled; release older compiled functions if there are many."""
    release_mistakable(problem)
    leaves, structure = jax.tree.flatten(problem)
    shapes = tuple((getattr(leaf, "shape", ()), str(getattr(leaf, "dtype", ""))) for leaf in leaves)
    if (structure, shapes) in _seen:
        return
    if len(_seen) >= MAX_POSTERIORS:
        release()
    _seen.append((structure, shapes))


def release_mistakable(*things: Any) -> None:
    """Release functions compiled for another type that JAX could mistake for one of these."""
    for thing in things:
        for structure in unregistered_structures(jax.tree.structure(thing)):
            kinds = types_of(structure)
            same = [seen for known, seen in _user_structures if known == structure]
            if any(seen != kinds for seen in same):
                release()
            if kinds not in same:
                _user_structures.append((structure, kinds))


def release() -> None:
    """Release all functions that this package compiled; running calls continue.

    Example:
      >>> from sgld.core.pytrees import release
      >>> release()
    """
    _seen.clear()
    _user_structures.clear()
    for name, module in list(sys.modules.items()):
        if module is None or name.split(".")[0] != "sgld":
            continue
        for value in list(vars(module).values()):
            if hasattr(value, "clear_cache") and hasattr(value, "lower"):  # a jitted function
                value.clear_cache()
    gc.collect()  # traced functions refer to one another
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # the C library may not be GNU's
            ctypes.CDLL(None).malloc_trim(0)
