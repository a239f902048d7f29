"""Dataclasses as pytrees whose structures differ when their types do.

`jax.tree_util.register_dataclass` makes structures that compare equal for any two types with the same
fields' values (seen in JAX 0.10: BAOA(1.0) and UBU(1.0)). Compiled functions are kept by structure,
and only the hash, of which a lookup compares seven bits, stood between a call and what was compiled
for another type: about one pair in a hundred was mistaken, silently.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

import jax

from .errors import UsageError

__all__ = ["as_pytree", "check_compiled", "mistakable", "types_of"]

T = TypeVar("T")
_ours: set[type] = set()


def as_pytree(cls: type[T]) -> type[T]:
    """Register a frozen dataclass: its fields are children; those with metadata `static`, and words, are structure.

    Example:
      >>> import dataclasses, jax
      >>> from sgld.pytree import as_pytree
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
    _ours.add(cls)
    return cls


def check_compiled(what: str, value: Any) -> None:
    """UsageError unless compiled code can take `value`: a pytree whose leaves are arrays, all else structure."""
    if jax.tree_util.all_leaves([value]):
        raise UsageError(
            f"{what} is no pytree, so that compiled code cannot take it; make it a frozen dataclass under "
            "jax.tree_util.register_dataclass."
        )
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        try:
            jax.eval_shape(lambda _: None, leaf)
        except Exception as error:  # what their own methods raise, too
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise UsageError(
                f"{what} cannot pass into compiled code: its leaves must be arrays, all else static. Its {name} is "
                f"{leaf!r}."
            ) from error


def mistakable(structure: Any) -> Iterator[Any]:
    """What there is in a structure of dataclasses that were registered otherwise: the user's."""
    node = structure.node_data()
    if node is not None and dataclasses.is_dataclass(node[0]) and node[0] not in _ours:
        yield structure
    for child in structure.children():
        yield from mistakable(child)


def types_of(structure: Any) -> tuple[Any, ...]:
    """The types of a structure's nodes, which comparing structures may overlook."""
    node = structure.node_data()
    below = (kind for child in structure.children() for kind in types_of(child))
    return (None if node is None else node[0], *below)
