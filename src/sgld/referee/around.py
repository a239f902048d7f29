"""`sgld.sample`'s checks, for the other engines."""

from __future__ import annotations

from typing import Any

from ..posterior import Posterior
from ..problem import prepare as arguments
from ..problem.prepare import Prepared
from ..problem.request import Request

__all__ = ["prepare"]


def prepare(
    posterior: Posterior, data: Any, init: Any, *, num_chains: Any = 1, num_draws: Any = 1,
    thin: Any = 1, seed: Any = 0,
) -> Prepared:  # fmt: skip
    """`sgld.sample`'s checks of posterior, data, init and counts."""
    auto = "auto"
    ask = Request(
        auto, auto, 0.05, 1.0, auto, auto, auto, auto, num_chains, num_draws, auto, thin, seed
    )
    return arguments.prepare(posterior, data, init, ask, None)
