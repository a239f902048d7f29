"""Which doubts of a posterior a finished run leaves standing."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ..approximation.known import UNSEEN, Doubt, Known
from ..approximation.rays import NEAR, within
from ..results import statistics

__all__ = ["remedy", "standing"]

SEEN = 0.5  # of what a ray promises, that draws must hold; of one parameter, whose ray is the density, by far most
SEEN_ALONE = 0.8  # an sd is then right within 11%
GONE = 0.5  # of the chains, that must have been where a ray says that the mass is; a quarter began there
VISITS = 50.0  # effective ones: what draws hold there is known within 14%, and an sd, of which it is a part, far better


def standing(
    known: Known,
    z: Float[np.ndarray, "chain draw d"],
    *,
    exact: bool,
    weights: Float[np.ndarray, "chain draw"] | None = None,
    began_there: bool = False,
) -> tuple[str, ...]:
    """Sentences, without an end, on what a run from the Gaussian cannot tell.

    Chains that accept or refuse by the density itself (`exact`) need no gradient of it, and where they
    have been far out as often as the rays say, tails are no doubt any more. Nor are they where rays
    promise more than there is: some of the chains have begun where a ray has its mass
    (`began_there`), and most of all have been there, often enough for what they say of it to be known. By
    detailed balance what would keep the others from that mass would keep those in it.
    """
    share = np.ones(z.shape[:2]) if weights is None else weights
    settled = (
        exact and (_settled(d, known, z, share) or (began_there and _visited(d, known, z, share)))
        for d in known.doubts
    )
    return tuple(d.sentence for d, gone in zip(known.doubts, settled, strict=True) if not gone)


def remedy(doubt: str, otherwise: str) -> str:
    """What to do about the sentence of a doubt: look again, where nobody looked."""
    return "; give more of it" if doubt == UNSEEN.sentence else otherwise


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
    if doubt.toward is None:
        assert doubt.edge is not None and known.gaussian is not None
        square = np.sum(known.gaussian.whiten(z) ** 2, axis=-1)
        far = np.sum(weights * np.where(square > doubt.edge**2, square, 0.0))
        return bool(far >= SEEN * doubt.share * np.sum(weights * square))
    assert doubt.at is not None and known.gaussian is not None
    t = (z - known.gaussian.center) @ doubt.toward
    place = float((doubt.at - known.gaussian.center) @ doubt.toward)
    there = (np.sign(place) * t > (doubt.edge or NEAR)) & ~within(t, doubt.modes)
    square = weights * t**2
    seen = SEEN if z.shape[-1] > 1 else SEEN_ALONE
    # held against what is not there: where the share is nearly all, half of what is far is nearly all too
    wanted = seen * doubt.share * np.sum(square, where=~there)
    outer = np.sum(square, where=there & (np.abs(t) > abs(place)))
    far = np.sum(square, where=there)
    # half of it is farther out than its place, and may be another thing than what is nearer
    return bool(far * (1 - doubt.share) >= wanted and 2 * outer * (1 - doubt.share) >= wanted)


def _visited(
    doubt: Doubt,
    known: Known,
    z: Float[np.ndarray, "chain draw d"],
    weights: Float[np.ndarray, "chain draw"],
) -> bool:
    """Whether chains know what is beyond the place around which a ray has its mass.

    Of one parameter the ray is the density itself, and draws that hold less are wrong.
    """
    if doubt.start is None:
        return False
    assert doubt.toward is not None and known.gaussian is not None
    t = (z - known.gaussian.center) @ doubt.toward
    place = float((doubt.start - known.gaussian.center) @ doubt.toward)
    beyond = np.sign(place) * t > abs(place)
    if not np.mean(beyond.any(axis=1)) >= GONE:
        return False
    ess = statistics.ess(beyond[..., None].astype(float), weights, "mean")
    return bool(ess[0] * np.average(beyond, weights=weights) >= VISITS)
