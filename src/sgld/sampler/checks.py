"""What a sampler's numbers must be, answered when it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..errors import UsageError

__all__ = ["require"]


def require(name: str, value: Any, holds: Callable[[Any], Any], what: str) -> None:
    """UsageError unless `holds(value)`; tracers and JAX's placeholders are passed on."""
    if isinstance(value, str):
        raise UsageError(f"{name} must be {what}. Got {value!r}.")
    if isinstance(value, (bool, jax.core.Tracer)):
        return
    if isinstance(value, (int, float, np.ndarray, np.generic, jax.Array)):
        number = np.asarray(value, float)
        if not (np.isfinite(number).all() and np.all(holds(number))):
            raise UsageError(f"{name} must be {what}. Got {value}.")
