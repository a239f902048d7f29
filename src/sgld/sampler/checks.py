"""What a sampler's numbers must be, answered when it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import UsageError

__all__ = ["require"]


def require(name: str, value: Any, holds: Callable[[Any], Any], what: str) -> None:
    """UsageError unless `holds(value)`.

    Only numbers that a user writes are looked at: JAX makes samplers anew from its own arrays,
    tracers and placeholders, zeros for tangents among them.
    """
    if isinstance(value, str):
        raise UsageError(f"{name} must be {what}. Got {value!r}.")
    if isinstance(value, (int, float, np.ndarray, np.generic)) and not isinstance(value, bool):
        number = np.asarray(value, float)
        if not (np.isfinite(number).all() and np.all(holds(number))):
            raise UsageError(f"{name} must be {what}. Got {value}.")
