"""Independent normal priors with a scale per layer.

    log p(theta) = sum over entries j of  -theta_j^2 / (2 s_j^2) - log s_j - log(2 pi) / 2

s_j is the sd of the pattern that the leaf's name matches, divided by sqrt(fan in) of weights
where `fan_in` is asked for (Neal 1996, ch. 2: then the variance of a unit's input does not grow
with the width of the layer below).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from .learnt import LearntPrior, normal_density
from .scales import checked_scales, named_scales, summed

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
        return summed(self, position, normal_density)

    def sd(self, position: PyTree) -> dict[str, float]:
        """The sd of every leaf of a position by name, to be looked at.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> prior = sgld.networks.normal_prior({"*weight": 2.0, "*": 1.0}, fan_in=True)
          >>> prior.sd({"a": {"weight": jnp.zeros((3, 16)), "bias": jnp.zeros(3)}})
          {'a.bias': 1.0, 'a.weight': 0.5}
        """
        return named_scales(position, self.scales, self.patterns, fan_in=self.fan_in)


def normal_prior(
    scales: float | Mapping[str, float] = 1.0, *, fan_in: bool = False, learnt: bool = False
) -> NormalPrior | LearntPrior:
    """A normal log prior of mean 0, with an sd per layer.

        log p(theta) = sum_j -theta_j^2 / (2 s_j^2) - log s_j - log(2 pi) / 2

    Args:
      scales: one sd for every entry, or {pattern: sd}. Patterns are matched to the names of the
        position's leaves, those of the summary's table without the index: "layers[0].weight",
        "params.Dense_0.kernel". `*` stands for any text and `?` for one character; the first
        pattern that matches counts, so that the widest comes last.
      fan_in: divide the sd of weights, leaves of two or more axes, by sqrt(inputs of a unit):
        of "kernel" [..., in, out] as in Flax, of "weight" ("weight_ih") [out, in, ...] as in Equinox and
        PyTorch. Layers stacked along a leading axis are not seen: give their sd by hand.
      learnt: each layer's sd is not known, but of the order of what `scales` gives it, and is learnt
        with the weights (`LearntPrior`).

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
    numbers, patterns = checked_scales(scales)
    kind = LearntPrior if learnt else NormalPrior
    return kind(numbers, patterns, bool(fan_in))
