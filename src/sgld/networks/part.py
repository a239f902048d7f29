"""A part of a network as the position: the rest is carried along at the values it has."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..core.pytrees import leaf_names, types_of
from ..errors import UsageError, did_you_mean
from ..module import Graph, Network, Part, is_parameter, seal

__all__ = ["LAST_LAYER", "part"]

PyTree = Any
LAST_LAYER = "last_layer"


def part(init: PyTree, where: str | Sequence[str] | PyTree) -> Network:
    """Some parameters of `init` as a position; the others are frozen.

    Its leaves are the chosen arrays alone; called, or given to `sgld.networks.as_module`, it is the whole.
    `sgld.sample(posterior, data, init, where=where)` samples it, and `sgld.resume` takes it as init.

    Args:
      init: a module, or a pytree of arrays: trained, say.
      where: a pattern of names as in `normal_prior` (`"layers[1]*"`, `"*lora*"`), several of them,
        "last_layer" (the leaves that share the last one's layer; of a dict, the layer of the highest number), or a pytree of True and False of the
        structure of init. The last layer alone is a regression on features, and judged as one.

    Raises: UsageError for a pattern that matches nothing, and for masks of another structure.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> net = {"l0": {"kernel": jnp.ones((2, 3))}, "l1": {"kernel": jnp.zeros(3), "bias": jnp.zeros(())}}
      >>> sgld.networks.part(net, "last_layer")
      Network(part of dict, 2 arrays)
      >>> sgld.networks.as_module(sgld.networks.part(net, "l0*"))["l1"]["kernel"].shape
      (3,)
    """
    whole = seal(init)
    names, (leaves, treedef) = leaf_names(whole), jax.tree.flatten(whole)
    chosen = _chosen(where, names, whole, init)
    kind = f"part of {type(init).__name__}"
    build = Part.of(
        treedef, leaves, chosen, last=where == LAST_LAYER if isinstance(where, str) else False
    )
    pairs = [(n, x) for n, x, is_one in zip(names, leaves, chosen, strict=True) if is_one]
    return Network.tree_unflatten((tuple(n for n, _ in pairs), build, kind), (x for _, x in pairs))


def _chosen(where: Any, names: list[str], whole: PyTree, init: PyTree) -> list[bool]:
    """Whether each leaf is sampled."""
    patterns = [where] if isinstance(where, str) else where
    if isinstance(patterns, (list, tuple)) and all(isinstance(p, str) for p in patterns):
        if not patterns:
            raise UsageError("where is empty; name the parameters to sample, or leave it out.")
        graph = isinstance(whole, Network) and isinstance(whole._build, Graph)  # nnx sorts, too
        alphabetical = graph or dict in types_of(jax.tree.structure(whole))
        found = [_matching(pattern, names, not alphabetical) for pattern in patterns]
        return [any(hits) for hits in zip(*found, strict=True)]
    masks = _masks(where, init, whole)
    if masks is None or len(masks) != len(names):
        raise UsageError(
            "where must be a pattern of names, several, 'last_layer', or True and False in the structure of "
            f"init, whose parameters are {_listed(names)}. Got {type(where).__name__}."
        )
    if any(mask.dtype != bool or mask.ndim for mask in masks):
        raise UsageError(
            "where must hold True or False for each leaf of init: a whole leaf or none."
        )
    if not any(masks):
        raise UsageError("where chooses no parameter; one at least must be True.")
    return [bool(mask) for mask in masks]


def _masks(where: Any, init: PyTree, whole: PyTree) -> list[np.ndarray] | None:
    """What a mask says of each parameter; None where its structure is another.

    A mask of an Equinox module is a module of its form, with True or False, or None, at every leaf, also at
    those that are no parameters (an activation): `jax.tree.map(eqx.is_array, net)`.
    """
    if jax.tree.structure(where) == jax.tree.structure(whole):
        return [np.asarray(leaf) for leaf in jax.tree.leaves(where)]
    (given, form), (leaves, own) = (
        jax.tree.flatten(tree, is_leaf=lambda leaf: leaf is None) for tree in (where, init)
    )
    if form != own:
        return None
    pairs = zip(given, leaves, strict=True)
    return [np.asarray(bool(m) if m is None else m) for m, leaf in pairs if is_parameter("", leaf)]


def _matching(pattern: str, names: list[str], ordered: bool) -> list[bool]:
    if pattern == LAST_LAYER:
        layer = _layer(names[-1]) if ordered else _highest(list(dict.fromkeys(map(_layer, names))))
        return [_layer(name) == layer for name in names]
    hits = [fnmatch.fnmatchcase(name, pattern.replace("[", "[[]")) for name in names]
    if not any(hits):
        raise UsageError(
            f"where names {pattern!r}, which is no parameter; the parameters are {_listed(names)}."
            + did_you_mean(pattern, [*names, *(f"{_layer(name)}*" for name in names), LAST_LAYER])
        )
    return hits


def _highest(layers: list[str]) -> str:
    """Of layers that stand in a dict, whose order is the alphabet's: the one of the highest number."""
    if len({re.sub(r"\d+", "#", layer) for layer in layers}) > 1:
        raise UsageError(
            "where='last_layer' is of layers in order; these stand in a dict under names that have none: "
            f"{_listed(layers)}. Name the one that is meant, as in where={layers[-1] + '*'!r}."
        )
    return max(layers, key=lambda layer: [int(number) for number in re.findall(r"\d+", layer)])


def _layer(name: str) -> str:
    """The name of what a leaf belongs to."""
    return re.sub(r"\.?[^.\[\]]+$", "", name)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
