"""Which doubts of a posterior a finished run leaves standing."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ..gaussian.doubts import Doubt
from ..gaussian.known import Known
from ..gaussian.rays import NEAR, within

__all__ = ["standing"]

SEEN = 0.5  # of the share that a ray promises, that draws must hold


def standing(
    known: Known,
    z: Float[np.ndarray, "chain draw d"],
    *,
    exact: bool,
    weights: Float[np.ndarray, "chain draw"] | None = None,
) -> tuple[str, ...]:
    """Sentences, without an end, on what a run from the Gaussian cannot tell.

    Chains that accept or refuse by the density itself (`exact`) need no gradient of it, and where they
    have been far out as often as the rays say, tails are no doubt any more.
    """
    share = np.ones(z.shape[:2]) if weights is None else weights
    return tuple(d.sentence for d in known.doubts if not (exact and _settled(d, known, z, share)))


def _settled(
    doubt: Doubt,
    known: Known,
    z: Float[np.ndarray, "chain draw d"],
    weights: Float[np.ndarray, "chain draw"],
) -> bool:
    if doubt.kind == "gradient":
        return True
    if doubt.kind != "tails":
        return False
    if doubt.edge is not None:
        assert known.gaussian is not None
        square = np.sum(known.gaussian.whiten(z) ** 2, axis=-1)
        far = np.sum(weights * np.where(square > doubt.edge**2, square, 0.0))
        return bool(far >= SEEN * doubt.share * np.sum(weights * square))
    assert doubt.at is not None and doubt.toward is not None and known.gaussian is not None
    t = (z - known.gaussian.center) @ doubt.toward
    side = np.sign((doubt.at - known.gaussian.center) @ doubt.toward)
    there = (side * t > NEAR) & ~within(t, doubt.modes)
    far = np.sum(weights * np.where(there, t**2, 0.0))
    return bool(far >= SEEN * doubt.share * np.sum(weights * t**2))
