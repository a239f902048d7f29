"""Checks of arguments that the files of this folder share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array
from numpy.typing import ArrayLike

from ..core import validation
from ..errors import UsageError

Coefficient = Callable[[Array, Array], ArrayLike]  # of (x, t)


def positive(**numbers: Any) -> None:
    """UsageError unless every number is positive (and whole, where its name begins with num_)."""
    for name, value in numbers.items():
        if name.startswith("num_") and not isinstance(value, (int, np.integer)):
            raise UsageError(f"{name} must be a whole number. Got {value!r}.")
        if isinstance(value, Tracer):
            continue
        validation.positive(name, value)


def floating(x: ArrayLike) -> Array:
    """x as a floating-point array."""
    x = jnp.asarray(x)
    return x.astype(jnp.result_type(float, x))
