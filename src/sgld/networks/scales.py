"""A number for every layer by the patterns of its names, and a unit's inputs."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.pytrees import leaf_names
from ..errors import UsageError, did_you_mean
from ..module import seal

__all__ = ["Layer", "checked_scales", "layers", "named_scales", "summed"]

# of weights [out, in, ...] in Equinox and PyTorch that are not called "weight"
RECURRENT = ("weight_ih", "weight_hh", "weight_hr")
PROJECTIONS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


class Layer(NamedTuple):
    """A leaf of a position, the scale that a prior has for its entries, and where that is from.

    `scale` is the number of the pattern `which`, divided by sqrt(inputs).
    """

    name: str
    leaf: Array
    scale: Array
    which: int
    inputs: int


def layers(
    position: Any, scales: tuple[Any, ...], patterns: tuple[str, ...], *, fan_in: bool
) -> list[Layer]:
    """Every leaf with the scale of the first pattern that matches, in the widest dtype of the leaves.

    Raises UsageError for a leaf that no pattern matches, and for a pattern without a leaf.
    """
    position = seal(position)
    names = leaf_names(position)
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(position)]
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*leaves)
    found = []
    for name, leaf, which in zip(names, leaves, _matches(names, patterns), strict=True):
        size = _fan_in(name, leaf.shape) if fan_in else 1
        scale = jnp.asarray(scales[which]).astype(dtype) / math.sqrt(size)
        found.append(Layer(name, leaf.astype(dtype), scale, which, size))
    return found


def summed(
    prior: Any, position: Any, density: Callable[[Array, Array], Float[Array, ""]]
) -> Float[Array, ""]:
    """The log density of a position: that of every leaf in the prior's scale of it, added up; raises as `layers`."""
    found = layers(position, prior.scales, prior.patterns, fan_in=prior.fan_in)
    total = jnp.zeros((), found[0].leaf.dtype)
    for layer in found:
        total += density(layer.leaf, layer.scale)
    return total


def named_scales(
    position: Any, scales: tuple[Any, ...], patterns: tuple[str, ...], *, fan_in: bool
) -> dict[str, float]:
    """The scale of every leaf by its name."""
    return {
        layer.name: float(scales[layer.which]) / math.sqrt(layer.inputs)
        for layer in layers(position, scales, patterns, fan_in=fan_in)
    }


def checked_scales(scales: Any) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Numbers and patterns of one number or {pattern: number}; UsageError for what is neither."""
    given = scales if isinstance(scales, Mapping) else {"*": scales}
    if not given:
        raise UsageError("scales is empty; give one sd, or {pattern: sd}.")
    for pattern, scale in given.items():
        if not isinstance(pattern, str):
            raise UsageError(f"scales' keys must be patterns of names. Got {pattern!r}.")
        try:
            positive = math.isfinite(float(scale)) and float(scale) > 0
        except (TypeError, ValueError):
            positive = False
        if not positive:
            where = f"[{pattern!r}]" if isinstance(scales, Mapping) else ""
            raise UsageError(f"scales{where} must be a positive number. Got {scale!r}.")
    return tuple(float(scale) for scale in given.values()), tuple(given)


def _matches(names: list[str], patterns: tuple[str, ...]) -> list[int]:
    """The pattern of every leaf: the first that matches."""
    for pattern in patterns:
        if not any(_match(name, pattern) for name in names):
            raise UsageError(
                f"scales names {pattern!r}, which is no parameter; the parameters are "
                f"{_listed(names)}." + did_you_mean(pattern, names)
            )
    found = []
    for name in names:
        hits = [i for i, pattern in enumerate(patterns) if _match(name, pattern)]
        if not hits:
            raise UsageError(
                f"scales gives no sd for {name!r}; add it, or the pattern '*' as the last one "
                "for all that is left."
            )
        found.append(hits[0])
    return found


def _match(name: str, pattern: str) -> bool:
    # brackets in names are indices, not fnmatch's character classes
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _fan_in(name: str, shape: tuple[int, ...]) -> int:
    """Inputs of a unit; 1 for vectors and scalars, whose sd stays as it is."""
    kind = name.rsplit(".", 1)[-1]
    if len(shape) < 2 or kind == "bias":  # Equinox's convolutions have a bias [out, 1, 1]
        return 1
    if kind == "kernel":
        return math.prod(shape[:-1])
    if kind == "weight" or kind.startswith(RECURRENT) or kind in PROJECTIONS:
        return math.prod(shape[1:])
    raise UsageError(
        f"the fan in of {name!r} {list(shape)} is not known, which is told from the names 'weight' "
        "and 'kernel'; rename it, or leave fan_in out and give its sd divided by sqrt(fan in)."
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
