"""What was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Request", "is_auto"]


@dataclass(frozen=True)
class Request:
    """What the user asked for; "auto" where it was left open."""

    sampler: Any
    step_size: Any
    tolerance: float
    temperature: Any
    gradient: Any
    preconditioner: Any
    order: str
    batch_size: int | str
    num_chains: int
    num_draws: int | str
    burn_in: int | str
    thin: int | str
    seed: int
    max_steps: int | None = None
    max_seconds: float | None = None


def is_auto(value: Any) -> bool:
    """Whether an argument was left to the library."""
    return isinstance(value, str) and value == "auto"
