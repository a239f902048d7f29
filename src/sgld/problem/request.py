"""What was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Request", "is_auto"]


@dataclass(frozen=True)
class Request:
    """What the user asked for, as given; "auto" where it was left open. `check_request` refuses."""

    sampler: Any
    step_size: Any
    tolerance: Any
    temperature: Any
    gradient: Any
    preconditioner: Any
    order: Any
    batch_size: Any
    num_chains: Any
    num_draws: Any
    burn_in: Any
    thin: Any
    seed: Any
    max_steps: Any = None
    max_seconds: Any = None
    always_in: Any = "auto"
    noise: Any = "auto"

    def chains(self, otherwise: int = 4) -> int:
        """The number of chains, `otherwise` where it was left open."""
        return otherwise if is_auto(self.num_chains) else int(self.num_chains)


def is_auto(value: Any) -> bool:
    """Whether an argument was left to the library."""
    return isinstance(value, str) and value == "auto"
