"""Priors with heavier tails than the normal: most weights near 0, a few far out.

    Laplace     log p(theta) = sum_j -|theta_j| / b_j - log(2 b_j)
    Student t   log p(theta) = sum_j -((nu + 1) / 2) log(1 + theta_j^2 / (nu s_j^2)) + constant

b_j and s_j are the scale of the pattern that the leaf's name matches, divided by sqrt(fan in) of weights
where `fan_in` is asked for. Trained networks have such weights (Fortuin et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jax.scipy import stats
from jaxtyping import Array, Float

from ..core.pytrees import as_pytree
from ..core.validation import positive_number
from .scales import checked_scales, named_scales, summed

__all__ = ["LaplacePrior", "StudentTPrior", "laplace_prior", "student_t_prior"]

PyTree = Any


@as_pytree
@dataclass(frozen=True)
class LaplacePrior:
    """A log prior: `prior(position)` is a normalised log density, a scalar.

    Attributes:
      scales: one b per pattern.
      patterns: of leaf names.
      fan_in: whether scales of weights are divided by sqrt(fan in).

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.laplace_prior(2.0)
      >>> prior({"w": jnp.zeros(3)}).round(4)  # -3 log 4
      Array(-4.1589, dtype=float32)
    """

    scales: tuple[Any, ...]
    patterns: tuple[str, ...] = field(metadata={"static": True})
    fan_in: bool = field(default=False, metadata={"static": True})

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """The log density of a position; raises as that of `normal_prior`."""
        return summed(self, position, lambda leaf, b: jnp.sum(stats.laplace.logpdf(leaf, 0, b)))

    def sd(self, position: PyTree) -> dict[str, float]:
        """The sd of every leaf of a position by name: sqrt(2) b.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> sgld.networks.laplace_prior(1.0).sd({"w": jnp.zeros(3)})
          {'w': 1.414...}
        """
        found = named_scales(position, self.scales, self.patterns, fan_in=self.fan_in)
        return {name: math.sqrt(2) * scale for name, scale in found.items()}


@as_pytree
@dataclass(frozen=True)
class StudentTPrior:
    """A log prior: `prior(position)` is a normalised log density, a scalar.

    Attributes:
      scales: one s per pattern.
      patterns: of leaf names.
      fan_in: whether scales of weights are divided by sqrt(fan in).
      degrees: nu; 1 is the Cauchy, infinity the normal distribution.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.student_t_prior(1.0, degrees=1.0)
      >>> prior({"w": jnp.zeros(3)})  # -3 log pi
      Array(-3.4341..., dtype=float32)
    """

    scales: tuple[Any, ...]
    patterns: tuple[str, ...] = field(metadata={"static": True})
    fan_in: bool = field(default=False, metadata={"static": True})
    degrees: Any = 4.0

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """The log density of a position; raises as that of `normal_prior`."""

        def density(leaf: Array, s: Array) -> Float[Array, ""]:
            nu = jnp.asarray(self.degrees, leaf.dtype)
            return jnp.sum(stats.t.logpdf(leaf, nu, 0, s))

        return summed(self, position, density)

    def sd(self, position: PyTree) -> dict[str, float]:
        """The sd of every leaf of a position by name: s sqrt(nu / (nu - 2)), infinite where nu is 2 or less.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> sgld.networks.student_t_prior(1.0, degrees=4.0).sd({"w": jnp.zeros(3)})
          {'w': 1.414...}
        """
        found = named_scales(position, self.scales, self.patterns, fan_in=self.fan_in)
        nu = float(self.degrees)
        wider = math.sqrt(nu / (nu - 2)) if nu > 2 else math.inf
        return {name: wider * scale for name, scale in found.items()}


def laplace_prior(scales: float | Mapping[str, float], *, fan_in: bool = False) -> LaplacePrior:
    """A Laplace log prior of mean 0, with a scale per layer: sparse, most weights near 0.

        log p(theta) = sum_j -|theta_j| / b_j - log(2 b_j)

    Args:
      scales: b, for every entry or {pattern: b}, as in `normal_prior`; the sd is sqrt(2) b.
      fan_in: divide b of weights by sqrt(inputs of a unit).

    Raises: as `normal_prior`.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> prior = sgld.networks.laplace_prior({"out*": 0.5, "*": 1.0})
      >>> round(float(prior({"hidden": jnp.ones(2), "out": jnp.zeros(1)})), 4)  # -2 - 2 log 2 - log 1
      -3.3863
    """
    numbers, patterns = checked_scales(scales)
    return LaplacePrior(numbers, patterns, bool(fan_in))


def student_t_prior(
    scales: float | Mapping[str, float], *, degrees: float = 4.0, fan_in: bool = False
) -> StudentTPrior:
    """A Student t log prior of mean 0, with a scale per layer: a few weights may lie far out.

        log p(theta) = sum_j -((nu + 1) / 2) log(1 + theta_j^2 / (nu s_j^2)) + constant

    Args:
      scales: s, for every entry or {pattern: s}, as in `normal_prior`.
      degrees: nu.
      fan_in: divide s of weights by sqrt(inputs of a unit).

    Raises: as `normal_prior`; UsageError for degrees that are not positive.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> far = {"w": jnp.array([8.0])}
      >>> bool(sgld.networks.student_t_prior(1.0)(far) > sgld.networks.normal_prior(1.0)(far))
      True
    """
    positive_number("degrees", degrees)
    numbers, patterns = checked_scales(scales)
    return StudentTPrior(numbers, patterns, bool(fan_in), float(degrees))
