"""Modules of Equinox or Flax as positions, and parts of networks as positions.

The leaves of a module include values that are not parameters: activations, flags, the rate of a dropout,
integer tables, keys. `Network` holds the module with those in its static part, so that the rest of the
library sees a pytree of parameters. The functions of a Posterior receive the module itself. This file
imports neither Equinox nor Flax: a module can only come from a library that is loaded.

A part of a network can be the position; the other parameters keep their values.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from ..core.pytrees import as_pytree, leaf_names, types_of
from ..errors import UsageError, did_you_mean

PyTree = Any


class Held:
    """A static leaf that equals another of the same value, so that compiled code is shared."""

    __slots__ = ("_of_array", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._of_array: tuple[str, tuple[int, ...], bytes] | None = None

    def _token(self) -> Any:
        value = self.value
        if not isinstance(value, (np.ndarray, jax.Array)):
            return value
        if isinstance(value, np.ndarray) and value.flags.writeable:
            return _array_identity(value)
        # needed at every call of a compiled function: an immutable array is copied to the host once
        if self._of_array is None:
            self._of_array = _array_identity(value)
        return self._of_array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Held) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or bool(self._token() == other._token())

    def __hash__(self) -> int:
        try:
            return hash(self._token())
        except TypeError:  # not hashable: equality alone decides
            return hash(type(self.value))


def _array_identity(value: np.ndarray | jax.Array) -> tuple[str, tuple[int, ...], bytes]:
    """Return dtype, shape and a digest of the values."""
    kind = str(value.dtype)
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.ascontiguousarray(value)
    return kind, array.shape, hashlib.sha256(array.tobytes()).digest()


@dataclass(frozen=True)
class Tree:
    """The structure of an Equinox module, with None in place of each array."""

    treedef: Any
    held: tuple[Held | None, ...]

    def __call__(self, arrays: tuple) -> Any:
        """Return the module with these arrays."""
        rest = iter(arrays)
        return self.treedef.unflatten(
            [next(rest) if held is None else held.value for held in self.held]
        )


@dataclass(frozen=True)
class Graph:
    """The structure of an nnx module; weights that it shares stay shared."""

    graphdef: Any
    treedef: Any
    other_treedef: Any
    held: tuple[Held, ...]

    def __call__(self, arrays: tuple) -> Any:
        """Return the module with these arrays."""
        other = self.other_treedef.unflatten([held.value for held in self.held])
        nnx = sys.modules["flax.nnx"]
        return nnx.merge(self.graphdef, self.treedef.unflatten(list(arrays)), other)


@dataclass(frozen=True)
class Part:
    """The structure of a pytree with some sampled leaves; None is in place of their arrays.

    `last` states that they are the last layer's.
    """

    treedef: Any
    held: tuple[Held | None, ...]
    last: bool
    kinds: tuple[Any, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", types_of(self.treedef))

    @classmethod
    def of(cls, treedef: Any, leaves: list[Any], chosen: list[bool], *, last: bool) -> Part:
        """Return the structure in which the leaves that are not chosen are static."""
        pairs = zip(leaves, chosen, strict=True)
        return cls(treedef, tuple(None if is_one else Held(leaf) for leaf, is_one in pairs), last)

    def __call__(self, arrays: tuple) -> Any:
        """Return the whole pytree with these arrays."""
        rest = iter(arrays)
        leaves = [next(rest) if held is None else held.value for held in self.held]
        return as_module(self.treedef.unflatten(leaves))


@jax.tree_util.register_pytree_with_keys_class
class Network:
    """A module whose floating-point arrays, and nothing else, are leaves.

    `draws.position` holds it if `init` was a module of Equinox or Flax's nnx. Its leaves are
    [chain, draw, ...]; its attributes and its call are the module's.
    `sgld.networks.as_module` returns the module itself.

    Args:
      module: an `equinox.Module` or a `flax.nnx.Module`. Functions, Python numbers, flags,
        integer arrays and keys in it are static: they are not sampled.

    Raises: UsageError for anything else, for a module without parameters, and for batch
    normalisation.

    Example:
      >>> import sgld
      >>> sgld.networks.Network({"weight": 1.0})
      Traceback (most recent call last):
      sgld.errors.UsageError: Network takes a module of Equinox or of Flax's nnx. Got dict.
    """

    __slots__ = ("_arrays", "_build", "_kind", "_names")

    def __init__(self, module: Any) -> None:
        refuse_statistics(module)
        if _is("equinox", "Module", module):
            arrays, names, build = _of_tree(module)
        elif _is("flax.nnx", "Module", module):
            arrays, names, build = _of_graph(module)
        else:
            raise UsageError(
                f"Network takes a module of Equinox or of Flax's nnx. Got {type(module).__name__}."
            )
        kind = type(module).__name__
        if not arrays:
            raise UsageError(
                f"{kind} holds no array of floating point, so there is nothing to sample; a "
                "parameter of a module is an array, such as jnp.asarray(0.0)."
            )
        self._set(arrays, names, build, kind)

    def _set(self, arrays: tuple, names: tuple[str, ...], build: Any, kind: str) -> None:
        for slot, value in zip(
            ("_arrays", "_names", "_build", "_kind"), (arrays, names, build, kind), strict=True
        ):
            object.__setattr__(self, slot, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Network is immutable; {name!r} cannot be set.")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in Network.__slots__:
            raise AttributeError(name)
        return getattr(as_module(self), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's output for one draw: use vmap over chains and draws."""
        return as_module(self)(*args, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        return as_module(self)[index]

    def __repr__(self) -> str:
        return f"Network({self._kind}, {len(self._arrays)} arrays)"

    def tree_flatten_with_keys(self) -> tuple[list, tuple]:
        """Return the arrays with their names as children, and the rest as static."""
        keys = map(jax.tree_util.GetAttrKey, self._names)
        static = (self._names, self._build, self._kind)
        return list(zip(keys, self._arrays, strict=True)), static

    @classmethod
    def tree_unflatten(cls, static: tuple, arrays: Any) -> Network:
        """Rebuild the network, also from arrays with leading axes."""
        network = object.__new__(cls)
        names, build, kind = static
        network._set(tuple(arrays), names, build, kind)
        return network


def _of_tree(module: Any) -> tuple[tuple, tuple[str, ...], Tree]:
    leaves, treedef = jax.tree.flatten(module)
    names = leaf_names(module)
    parameter = [is_parameter(name, leaf) for name, leaf in zip(names, leaves, strict=True)]
    pairs = list(zip(names, leaves, parameter, strict=True))
    held = tuple(None if is_one else Held(leaf) for _, leaf, is_one in pairs)
    arrays = tuple(leaf for _, leaf, is_one in pairs if is_one)
    return arrays, tuple(name for name, _, is_one in pairs if is_one), Tree(treedef, held)


def _of_graph(module: Any) -> tuple[tuple, tuple[str, ...], Graph]:
    nnx = sys.modules["flax.nnx"]
    graphdef, parameters, other = nnx.split(module, nnx.Param, ...)
    arrays, treedef = jax.tree.flatten(parameters)
    rest, other_treedef = jax.tree.flatten(other)
    names = [
        re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", name.removesuffix(".value"))
        for name in leaf_names(parameters)
    ]
    return (
        tuple(arrays),
        tuple(names),
        Graph(graphdef, treedef, other_treedef, tuple(map(Held, rest))),
    )


def is_parameter(name: str, leaf: Any) -> bool:
    """Return whether a module's leaf is a floating-point array; raise UsageError if complex."""
    if not isinstance(leaf, (np.ndarray, jax.Array)):
        return False
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        raise UsageError(
            f"leaf {name!r} is complex; store its real and imaginary parts as two arrays."
        )
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _is(library: str, kind: str, node: Any) -> bool:
    """Return whether `node` is an instance of a library's class, without importing the library."""
    found = getattr(sys.modules.get(library), kind, None)
    return isinstance(found, type) and isinstance(node, found)


def _is_module(node: Any) -> bool:
    return _is("equinox", "Module", node) or _is("flax.nnx", "Module", node)


def seal(tree: PyTree) -> PyTree:
    """Return `tree` with every module in it as a Network."""
    return jax.tree.map(
        lambda node: Network(node) if _is_module(node) else node, tree, is_leaf=_is_module
    )


def as_module(tree: PyTree) -> PyTree:
    """Return `tree`, such as `draws.position`, with every Network replaced by its module.

    Example:
      >>> import sgld
      >>> sgld.networks.as_module({"weight": 1.0})
      {'weight': 1.0}
    """
    is_network = lambda node: isinstance(node, Network)  # noqa: E731
    return jax.tree.map(
        lambda node: node._build(node._arrays) if is_network(node) else node,
        tree,
        is_leaf=is_network,
    )


def holds_network(tree: PyTree) -> bool:
    """Return whether some part of `tree` is a Network."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Network))
    return any(isinstance(node, Network) for node in nodes)


@as_pytree
@dataclass(frozen=True)
class ModuleOutputs:
    """The outputs of the position's modules in a log likelihood, as `predict` of a Posterior.

    The log likelihood receives modules that record their outputs. It raises any error of that function
    if a module is not called directly (`eqx.filter_jit(net)`, `net.layers[0](x)`).
    """

    log_likelihood: Any

    def __call__(self, position: PyTree, datum: PyTree) -> list[Any]:
        """Return the output of every call, in order; raise LookupError if there was no call."""
        heard: list[Any] = []
        self.shifted(position, datum, 0.0, heard)
        if not heard:
            raise LookupError("the log likelihood calls no module.")
        return heard

    def shifted(
        self, position: PyTree, datum: PyTree, shift: Any, heard: list[Any] | None = None
    ) -> Any:
        """Return the log likelihood with `shift` added to all outputs of modules."""
        notes: list[Any] = [] if heard is None else heard
        listening = jax.tree.map(
            lambda node: _RecordingModule(node, shift, notes) if _is_module(node) else node,
            as_module(position),
            is_leaf=_is_module,
        )
        return self.log_likelihood(listening, datum)


class _RecordingModule:
    """A module whose outputs are recorded."""

    __slots__ = ("_module", "_notes", "_shift")

    def __init__(self, module: Any, shift: Any, notes: list[Any]) -> None:
        self._module, self._shift, self._notes = module, shift, notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self._module(*args, **kwargs)
        self._notes.append(found)
        return jax.tree.map(lambda leaf: leaf + self._shift, found)


def with_modules(posterior: Any, position: PyTree) -> Any:
    """Return the Posterior with functions that receive modules where `position` holds Networks."""
    if not holds_network(position):
        return posterior
    wrapped: dict[str, Any] = {
        name: Partial(_with_modules, getattr(posterior, name))
        for name in ("log_prior", "log_likelihood", "output", "predict")
        if getattr(posterior, name) is not None
    }
    part = position._build if isinstance(position, Network) else None
    if isinstance(part, Part) and (part.last or Network not in part.kinds):
        if part.last:
            wrapped["predict"] = None  # a regression on features, judged by its parameters
    elif posterior.predict is None and posterior.log_likelihood is not None:
        wrapped["predict"] = ModuleOutputs(posterior.log_likelihood)
    return replace(posterior, init=seal(posterior.init), **wrapped)


def _with_modules(function: Callable, position: PyTree, *datum: PyTree) -> PyTree:
    return seal(function(as_module(position), *datum))


_REMEDY = (
    "which a run does not store: it stores only parameters, and running statistics belong to no "
    "draw; use LayerNorm or GroupNorm, whose output depends only on the row."
)


def refuse_statistics(init: PyTree) -> None:
    """Raise UsageError if `init` holds the state of batch normalisation, or similar state."""
    for name, what in _statistics(init, ""):
        raise UsageError(f"init holds {what}{f' in {name!r}' if name else ''}, {_REMEDY}")


def _statistics(init: PyTree, name: str) -> Iterator[tuple[str, str]]:
    """Yield name and description of every part of `init` that changes during a run by itself."""
    if _has_batch_stats(init):
        yield name, "the collection 'batch_stats' of Flax"
    if _is("flax.nnx", "Module", init):
        init = sys.modules["flax.nnx"].state(init)
    paths = jax.tree_util.tree_flatten_with_path(
        init, is_leaf=lambda n: n is not init and _stops(n)
    )
    for path, node in paths[0]:
        where = jax.tree_util.keystr(path, simple=True, separator=".")
        where = ".".join(part for part in (name, where) if part)
        if _is("equinox.nn", "StateIndex", node) or _is("equinox.nn", "State", node):
            yield where, "state of Equinox (an equinox.nn.StateIndex or State, as of BatchNorm)"
        elif _is("flax.nnx", "BatchStat", node):
            yield where, "a flax.nnx.BatchStat (as of BatchNorm)"
        elif path and _stops(node):
            yield from _statistics(node, where)


def _stops(node: Any) -> bool:
    return (
        _is("equinox.nn", "StateIndex", node)
        or _is("equinox.nn", "State", node)
        or _is("flax.nnx", "Variable", node)
        or _is("flax.nnx", "Module", node)
        or _has_batch_stats(node)
    )


def _has_batch_stats(node: Any) -> bool:
    return (
        isinstance(node, Mapping)
        and "batch_stats" in node
        and bool(jax.tree.leaves(node["batch_stats"]))
    )


# -- part ----------------------------------------------------------------------------------


LAST_LAYER = "last_layer"


def part(init: PyTree, where: str | Sequence[str] | PyTree) -> Network:
    """Select some parameters of `init` as the position; the others are frozen.

    Its leaves are the chosen arrays only; called, or passed to `sgld.networks.as_module`, it is the whole.
    `sgld.sample(posterior, data, init, where=where)` samples it, and `sgld.resume` accepts it as init.

    Args:
      init: a module, or a pytree of arrays; for example a trained one.
      where: a pattern of names as in `normal_prior` (`"layers[1]*"`, `"*lora*"`), several of them,
        "last_layer" (the leaves in the same layer as the last leaf; in a dict, in the layer with the highest
        number), or a pytree of True and False with the structure of init. The last layer alone is a
        regression on features, and is judged as one.

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
    """Return whether each leaf is sampled."""
    patterns = [where] if isinstance(where, str) else where
    if isinstance(patterns, (list, tuple)) and all(isinstance(p, str) for p in patterns):
        if not patterns:
            raise UsageError("where is empty; give the parameters to sample, or leave it out.")
        graph = isinstance(whole, Network) and isinstance(whole._build, Graph)  # nnx sorts, too
        alphabetical = graph or dict in types_of(jax.tree.structure(whole))
        found = [_matching(pattern, names, not alphabetical) for pattern in patterns]
        return [any(hits) for hits in zip(*found, strict=True)]
    masks = _masks(where, init, whole)
    if masks is None or len(masks) != len(names):
        raise UsageError(
            "where must be a pattern of names, several patterns, 'last_layer', or a pytree of True and False with the "
            f"structure of init, whose parameters are {_listed(names)}. Got {type(where).__name__}."
        )
    if any(mask.dtype != bool or mask.ndim for mask in masks):
        raise UsageError(
            "where must hold one True or False for each leaf of init; a part of a leaf cannot be chosen."
        )
    if not any(masks):
        raise UsageError("where chooses no parameter; at least one entry must be True.")
    return [bool(mask) for mask in masks]


def _masks(where: Any, init: PyTree, whole: PyTree) -> list[np.ndarray] | None:
    """Return the mask of each parameter, or None if the structure differs from that of `init`.

    A mask of an Equinox module is a module of the same structure: `jax.tree.map(eqx.is_array, net)`. It has True,
    False or None at every leaf, also at leaves that are not parameters (an activation).
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
            f"where={pattern!r} matches no parameter; the parameters are {_listed(names)}."
            + did_you_mean(pattern, [*names, *(f"{_layer(name)}*" for name in names), LAST_LAYER])
        )
    return hits


def _highest(layers: list[str]) -> str:
    """Return the layer with the highest number, for layers in a dict, which sorts by name."""
    if len({re.sub(r"\d+", "#", layer) for layer in layers}) > 1:
        raise UsageError(
            "where='last_layer' needs layers in order, and the names of this dict have no order: "
            f"{_listed(layers)}. Give the name of the layer, such as where={layers[-1] + '*'!r}."
        )
    return max(layers, key=lambda layer: [int(number) for number in re.findall(r"\d+", layer)])


def _layer(name: str) -> str:
    """Return the name of the layer of a leaf."""
    return re.sub(r"\.?[^.\[\]]+$", "", name)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
