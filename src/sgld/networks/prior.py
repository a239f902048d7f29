"""Independent normal priors with a scale per layer.

    log p(theta) = sum over entries j of  -theta_j^2 / (2 s_j^2) - log s_j - log(2 pi) / 2

s_j is the sd of the pattern that the leaf's name matches, divided by sqrt(fan in) of weights
where `fan_in` is asked for (Neal 1996, ch. 2: then the variance of a unit's input does not grow
with the width of the layer below).
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import UsageError, did_you_mean
from ..layout import leaf_names
from ..module import seal
from ..pytree import as_pytree

__all__ = ["NormalPrior", "normal_prior"]

PyTree = Any


@as_pytree
@dataclass(frozen=True)
class NormalPrior:
    """A log prior: `prior(position)` is a normalised log density, a scalar.

    Attributes:
      scales: one sd per pattern; leaves of the pytree, so that other numbers compile nothing.
      patterns: of leaf names.
      fan_in: whether sds of weights are divided by sqrt(fan in).

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.normal_prior({"*": 2.0})
      >>> prior({"w": jnp.zeros(3)}).round(4)  # 3 log N(0 | 0, 2)
      Array(-4.8363, dtype=float32)
    """

    scales: tuple[Any, ...]
    patterns: tuple[str, ...] = field(metadata={"static": True})
    fan_in: bool = field(default=False, metadata={"static": True})

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """The log density of a position.

        Raises UsageError for a leaf that no pattern matches, and for a pattern without a leaf.
        """
        position = seal(position)
        names = leaf_names(position)
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(position)]
        with jax.numpy_dtype_promotion("standard"):
            dtype = jnp.result_type(*leaves)
        total = jnp.zeros((), dtype)
        for name, leaf, which in zip(names, leaves, self._matches(names), strict=True):
            size = _fan_in(name, leaf.shape) if self.fan_in else 1
            sd = jnp.asarray(self.scales[which]).astype(dtype) / math.sqrt(size)
            squares = jnp.sum((leaf.astype(dtype) / sd) ** 2)
            total -= squares / 2 + leaf.size * (jnp.log(sd) + math.log(2 * math.pi) / 2)
        return total

    def sd(self, position: PyTree) -> dict[str, float]:
        """The sd of every leaf of a position by name, to be looked at.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> prior = sgld.networks.normal_prior({"*weight": 2.0, "*": 1.0}, fan_in=True)
          >>> prior.sd({"a": {"weight": jnp.zeros((3, 16)), "bias": jnp.zeros(3)}})
          {'a.bias': 1.0, 'a.weight': 0.5}
        """
        position = seal(position)
        names = leaf_names(position)
        shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(position)]
        sizes = [
            _fan_in(name, shape) if self.fan_in else 1
            for name, shape in zip(names, shapes, strict=True)
        ]
        return {
            name: float(self.scales[which]) / math.sqrt(size)
            for name, which, size in zip(names, self._matches(names), sizes, strict=True)
        }

    def _matches(self, names: list[str]) -> list[int]:
        """The pattern of every leaf: the first that matches."""
        for pattern in self.patterns:
            if not any(_match(name, pattern) for name in names):
                raise UsageError(
                    f"scales names {pattern!r}, which is no parameter; the parameters are "
                    f"{_listed(names)}." + did_you_mean(pattern, names)
                )
        found = []
        for name in names:
            hits = [i for i, pattern in enumerate(self.patterns) if _match(name, pattern)]
            if not hits:
                raise UsageError(
                    f"scales gives no sd for {name!r}; add it, or the pattern '*' as the last one "
                    "for all that is left."
                )
            found.append(hits[0])
        return found


def normal_prior(scales: float | Mapping[str, float], *, fan_in: bool = False) -> NormalPrior:
    """A normal log prior of mean 0, with an sd per layer.

        log p(theta) = sum_j -theta_j^2 / (2 s_j^2) - log s_j - log(2 pi) / 2

    Args:
      scales: one sd for every entry, or {pattern: sd}. Patterns are matched to the names of the
        position's leaves, those of the summary's table without the index: "layers[0].weight",
        "params.Dense_0.kernel". `*` stands for any text and `?` for one character; the first
        pattern that matches counts, so that the widest comes last.
      fan_in: divide the sd of weights, leaves of two or more axes, by sqrt(inputs of a unit):
        of "kernel" [..., in, out] as in Flax, of "weight" [out, in, ...] as in Equinox and
        PyTorch. Layers stacked along a leading axis are not seen: give their sd by hand.

    Raises: UsageError for an sd that is not positive; and, before the first step of a run, for a
    pattern that matches no leaf, a leaf that no pattern matches, and a leaf whose fan in is
    not known.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.normal_prior({"out*": 0.5, "*": 1.0})
      >>> net = {"hidden": {"w": jnp.zeros((2, 3))}, "out": {"w": jnp.ones(3)}}
      >>> prior.sd(net)
      {'hidden.w': 1.0, 'out.w': 0.5}
      >>> round(float(prior(net)), 4)
      -12.191
    """
    given = scales if isinstance(scales, Mapping) else {"*": scales}
    if not given:
        raise UsageError("scales is empty; give one sd, or {pattern: sd}.")
    for pattern, sd in given.items():
        if not isinstance(pattern, str):
            raise UsageError(f"scales' keys must be patterns of names. Got {pattern!r}.")
        try:
            positive = math.isfinite(float(sd)) and float(sd) > 0
        except (TypeError, ValueError):
            positive = False
        if not positive:
            where = f"[{pattern!r}]" if isinstance(scales, Mapping) else ""
            raise UsageError(f"scales{where} must be a positive number. Got {sd!r}.")
    return NormalPrior(tuple(float(sd) for sd in given.values()), tuple(given), bool(fan_in))


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
    if kind == "weight":
        return math.prod(shape[1:])
    raise UsageError(
        f"the fan in of {name!r} {list(shape)} is not known, which is told from the names 'weight' "
        "and 'kernel'; rename it, or leave fan_in out and give its sd divided by sqrt(fan in)."
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
