"""Which doubts of a posterior a finished run leaves standing."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ..gaussian.doubts import Doubt
from ..gaussian.known import Known
from ..gaussian.rays import NEAR

__all__ = ["standing"]

SEEN = 0.3  # of the share that a ray promises, that draws must hold


def standing(known: Known, z: Float[np.ndarray, "chain draw d"], *, exact: bool) -> tuple[str, ...]:
    """Sentences, without an end, on what a run from the Gaussian cannot tell.

    Chains that accept or refuse by the density itself (`exact`) need no gradient of it, and where they
    have been far out as often as the rays say, tails are no doubt any more.
    """
    return tuple(d.sentence for d in known.doubts if not (exact and _settled(d, known, z)))


def _settled(doubt: Doubt, known: Known, z: Float[np.ndarray, "chain draw d"]) -> bool:
    if doubt.kind == "gradient":
        return True
    if doubt.kind != "tails":
        return False
    if doubt.edge is not None:
        assert known.gaussian is not None
        square = np.sum(known.gaussian.whiten(z) ** 2, axis=-1)
        far = np.mean(np.where(square > doubt.edge**2, square, 0.0))
        return bool(far >= SEEN * doubt.share * np.mean(square))
    assert doubt.at is not None and doubt.toward is not None and known.gaussian is not None
    t = (z - known.gaussian.center) @ doubt.toward
    side = np.sign((doubt.at - known.gaussian.center) @ doubt.toward)
    far = np.mean(np.where(side * t > NEAR, t**2, 0.0))
    return bool(far >= SEEN * doubt.share * np.mean(t**2))
