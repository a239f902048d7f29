"""What the referee is asked about: a posterior with its rows, or a run that knows both."""

from __future__ import annotations

from typing import Any

import jax

from ..errors import UsageError
from ..model.numpyro import opened
from ..model.posterior import Posterior
from ..results.draws import Draws
from ..results.plan import known_of

__all__ = ["asked_about", "draws_of"]


def draws_of(given: Any) -> Draws | None:
    """The draws that `given` is, or holds as what `sgld.fit` returned does."""
    found = getattr(given, "draws", given)
    return found if isinstance(found, Draws) else None


def asked_about(given: Any, data: Any, init: Any, function: str) -> tuple[Any, Any, Any]:
    """Posterior, rows and start: as they are given, or as the draws know them, one of which is the start.

    Raises UsageError where these know no posterior.
    """
    draws = draws_of(given)
    if draws is None:
        return opened(given, data, init)
    origin = known_of(draws.origin)
    known = origin if origin.model is None else origin.model
    if known.posterior is None:
        raise UsageError(
            "these draws do not know their posterior (they were loaded, copied or made elsewhere); give it "
            f"with its rows: sgld.{function}(posterior, data, ...)."
        )
    posterior, data, init = opened(known.posterior, known.data if data is None else data, init)
    if init is None and posterior.init is None and _are_positions(posterior, draws):
        init = jax.tree.map(lambda a: a[draws.healthy[0], -1], draws.position)
    return posterior, data, init


def _are_positions(posterior: Posterior, draws: Draws) -> bool:
    kept = draws.moments is not None or (draws.origin is not None and draws.origin.kept)
    return posterior.output is None and not kept and draws.healthy.size > 0
