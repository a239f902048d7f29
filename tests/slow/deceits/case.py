"""What a family of posteriors is made of, and moments that several of them need.

A family's `build(rng, deceit)` draws one configuration: from the same generator the deceptive one and
its twin, alike but for what deceives. Numbers are bound to the functions by `jax.tree_util.Partial`, so
that configurations of one shape share what is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

__all__ = ["Case", "Family", "bound", "moments", "normal_mixture"]


class Case(NamedTuple):
    """A posterior, how it is sampled, and what is true of each reported parameter.

    Attributes:
      label: the numbers that were drawn, for the table of single rows.
      posterior, data, init: as `sgld.sample` takes them.
      mean, sd: arrays over the reported parameters.
      options: further arguments of `sgld.sample`.
      halved: whether `sgld.step_halving` has the last word.
    """

    label: str
    posterior: Any
    data: Any
    init: Any
    mean: np.ndarray
    sd: np.ndarray
    options: dict[str, Any] = {}  # noqa: RUF012
    halved: bool = False


class Family(NamedTuple):
    """`count` deceptive configurations of a seed, and as many twins; `kind` is the class of deceit."""

    kind: str
    count: int
    build: Callable[[np.random.Generator, bool], Case]


def bound(function: Callable, *numbers: Any) -> Partial:
    """The function with its first arguments bound, as arrays in single precision."""
    return Partial(function, *(jnp.asarray(number, jnp.float32) for number in numbers))


def moments(x: np.ndarray, log_density: np.ndarray) -> tuple[float, float]:
    """Mean and sd of a density on an increasing grid, by the trapezium rule."""
    width = np.gradient(x)
    weight = np.exp(log_density - log_density.max()) * width
    weight /= weight.sum()
    mean = float(weight @ x)
    return mean, float(np.sqrt(weight @ (x - mean) ** 2))


def normal_mixture(
    weight: np.ndarray, means: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of each column of a mixture: `means` and `variances` [component, m]."""
    weight = np.asarray(weight, float) / np.sum(weight)
    mean = weight @ means
    return mean, np.sqrt(weight @ (variances + (means - mean) ** 2))
