"""Diagonal preconditioners estimated from squared gradients.

    RMSprop (Li, Chen, Carlson & Carin 2016, eq. 8-9): v = a v + (1 - a) gbar^2
    AdaGrad (Duchi, Hazan & Singer 2011):              v = v + gbar^2
    D = diag 1 / (epsilon + sqrt v),    gbar the gradient of the MEAN log density

RMSprop's v is corrected for its start at 0. A coordinate without any gradient so far uses the
mean of the others, so that it does not receive noise of size 1 / epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.pytrees import Layout, as_pytree
from ...core.validation import is_number, plain, positive
from ...errors import UsageError
from .fixed import Diagonal


class Memory(NamedTuple):
    """The accumulator v [d] and the number of gradients in it."""

    v: Float[Array, " d"]
    count: Float[Array, ""]


def _diagonal(v: Float[Array, " d"], epsilon: Any) -> Diagonal:
    seen = v > 0
    mean = jnp.sum(v) / jnp.maximum(jnp.sum(seen, dtype=v.dtype), 1)
    v = jnp.where(seen, v, jnp.where(mean > 0, mean, 1.0))
    return Diagonal(1 / (epsilon + jnp.sqrt(v)))


def _checked(name: str, epsilon: Any, decay: Any = 0.5) -> None:
    positive(f"{name}'s epsilon", epsilon)
    decay = plain(decay)
    if not is_number(decay) or not 0 <= decay < 1:
        raise UsageError(f"{name}'s decay must lie in [0, 1). Got {decay!r}.")


@as_pytree
@dataclass(frozen=True)
class RMSprop:
    """The matrix D = diag 1 / (epsilon + sqrt v), v the running mean of squared mean-gradients.

    Args:
      decay: a, the share of v that a step keeps.
      epsilon: added to sqrt v, in units of the mean gradient.
      gamma: add Gamma while D depends on the position; costs d gradients a step.
      freeze: stop adapting when the burn-in ends. If False, the stationary distribution is correct only
        with `gamma`.

    Example:
      >>> import sgld
      >>> sgld.RMSprop()
      RMSprop(decay=0.99, epsilon=1e-05, gamma=False, freeze=True)
    """

    decay: Any = 0.99
    epsilon: Any = 1e-5
    gamma: bool = field(default=False, metadata={"static": True})
    freeze: bool = field(default=True, metadata={"static": True})

    adapts: ClassVar[bool] = True

    def prepare(self, layout: Layout) -> RMSprop:
        """Check the numbers: UsageError for a decay outside [0, 1) or a nonpositive epsilon."""
        _checked("RMSprop", self.epsilon, self.decay)
        numbers = (jnp.asarray(self.decay, layout.dtype), jnp.asarray(self.epsilon, layout.dtype))
        return RMSprop(*numbers, self.gamma, self.freeze)

    def start(self, z: Float[Array, " d"]) -> Memory:
        """Return the memory before the first gradient."""
        return Memory(jnp.zeros_like(z), jnp.zeros((), z.dtype))

    def after(self, memory: Memory, g: Float[Array, " d"]) -> Memory:
        """Update v = a v + (1 - a) g^2."""
        return Memory(self.decay * memory.v + (1 - self.decay) * g**2, memory.count + 1)

    def at(self, memory: Memory) -> Diagonal:
        """Return D from v / (1 - a^count)."""
        share = -jnp.expm1(memory.count * jnp.log(jnp.maximum(self.decay, 1e-30)))
        return _diagonal(memory.v / jnp.maximum(share, 1e-30), self.epsilon)


@as_pytree
@dataclass(frozen=True)
class AdaGrad:
    """The matrix D = diag 1 / (epsilon + sqrt v), v the sum of squared mean-gradients.

    D shrinks as long as it adapts, so the length of the burn-in determines its size.

    Example:
      >>> import sgld
      >>> sgld.AdaGrad()
      AdaGrad(epsilon=1e-05, gamma=False, freeze=True)
    """

    epsilon: Any = 1e-5
    gamma: bool = field(default=False, metadata={"static": True})
    freeze: bool = field(default=True, metadata={"static": True})

    adapts: ClassVar[bool] = True

    def prepare(self, layout: Layout) -> AdaGrad:
        """Check the numbers: UsageError for an epsilon that is not positive."""
        _checked("AdaGrad", self.epsilon)
        return AdaGrad(jnp.asarray(self.epsilon, layout.dtype), self.gamma, self.freeze)

    def start(self, z: Float[Array, " d"]) -> Memory:
        """Return the memory before the first gradient."""
        return Memory(jnp.zeros_like(z), jnp.zeros((), z.dtype))

    def after(self, memory: Memory, g: Float[Array, " d"]) -> Memory:
        """Update v = v + g^2."""
        return Memory(memory.v + g**2, memory.count + 1)

    def at(self, memory: Memory) -> Diagonal:
        """Return D from v."""
        return _diagonal(memory.v, self.epsilon)
