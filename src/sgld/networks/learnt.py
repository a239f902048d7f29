"""A normal prior whose scale per layer is learnt, the scale integrated out.

A layer w of d weights has an sd s that is not known, of the order of s_0 (nu degrees of freedom):

    w | s ~ N(0, s^2),    s^2 ~ inverse gamma(nu / 2, nu s_0^2 / 2)

    p(w) = integral over s = multivariate t of nu degrees, shape s_0^2
    log p(w) = log Gamma((nu + d) / 2) - log Gamma(nu / 2) - (d / 2) log(nu pi s_0^2)
               - ((nu + d) / 2) log(1 + |w|^2 / (nu s_0^2))

so that no parameter is added, and no funnel: whatever samples the weights samples the hierarchy. What
the weights say of s is E[s^2 | w] = (nu s_0^2 + |w|^2) / (nu + d - 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from .scales import layers, summed

__all__ = ["LearntPrior", "normal_density"]

PyTree = Any
DEGREES = 2.0


@as_pytree
@dataclass(frozen=True)
class LearntPrior:
    """A log prior, as `normal_prior(..., learnt=True)` gives it: `prior(position)` is a normalised log density.

    Each leaf of two entries or more has an sd of its own; of a single number there is nothing to learn from,
    and its prior is the normal one.

    Attributes:
      scales: s_0, one per pattern: what an sd is held to be before there are data: with 2 degrees
        between half and three times as much in 7 of 8 cases.
      patterns: of leaf names.
      fan_in: whether s_0 of weights is divided by sqrt(fan in).
      degrees: nu: the larger, the more s_0 counts.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.normal_prior({"*": 1.0}, learnt=True)
      >>> large = {"w": jnp.full(100, 30.0)}
      >>> round(prior.sd(large)["w"], 1)  # what these weights say of it
      30.0
      >>> bool(prior(large) > sgld.networks.normal_prior(1.0)(large))
      True
    """

    scales: tuple[Any, ...]
    patterns: tuple[str, ...] = field(metadata={"static": True})
    fan_in: bool = field(default=False, metadata={"static": True})
    degrees: Any = DEGREES

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """The log density of a position; raises as that of `normal_prior`."""

        def density(leaf: Array, scale: Array) -> Float[Array, ""]:
            if leaf.size < 2:
                return normal_density(leaf, scale)
            return t_density(leaf, scale, self.degrees)

        return summed(self, position, density)

    def sd(self, position: PyTree) -> dict[str, float]:
        """What the weights of a position say of every leaf's sd: sqrt(E[s^2 | w]).

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> prior = sgld.networks.normal_prior(1.0, learnt=True)
          >>> prior.sd({"b": jnp.array(3.0), "w": jnp.full(400, 0.1)})
          {'b': 1.0, 'w': 0.122...}
        """
        found = {}
        for layer in layers(position, self.scales, self.patterns, fan_in=self.fan_in):
            square, d, nu = float(layer.scale) ** 2, layer.leaf.size, float(self.degrees)
            if d > 1:
                square = (nu * square + float(jnp.sum(layer.leaf**2))) / (nu + d - 2)
            found[layer.name] = math.sqrt(square)
        return found


def t_density(leaf: Array, scale: Array, degrees: Any) -> Float[Array, ""]:
    """Of the multivariate t: the equation above."""
    nu, d = jnp.asarray(degrees, leaf.dtype), leaf.size
    constant = (
        gammaln((nu + d) / 2) - gammaln(nu / 2) - d * (jnp.log(nu * math.pi) / 2 + jnp.log(scale))
    )
    return constant - (nu + d) / 2 * jnp.log1p(jnp.sum((leaf / scale) ** 2) / nu)


def normal_density(leaf: Array, sd: Array) -> Float[Array, ""]:
    """log N(leaf | 0, sd^2), summed over the entries."""
    constant = leaf.size * (jnp.log(sd) + math.log(2 * math.pi) / 2)
    return -(jnp.sum((leaf / sd) ** 2) / 2 + constant)
