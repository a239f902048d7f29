"""Whether chains from other starts come to functions that a run has not seen.

R-hat compares the chains of a run with one another: a function that all of them missed, because
all began near one place or by luck, it cannot show. So some chains more, from other starts, are
moved for a while, and what they predict is held against all that the run predicted:

    apart    on average beyond 4 sds of the run's draws, and beyond every one of them, for over 3% of
             what is predicted,
    matters  log p + (log det D) / 2, a Gaussian's log mass but for a constant, is at most
             10 + sqrt(d) below the run's

A start that is apart in a place of next to no mass, where an optimiser was caught, does no harm, nor one that
was on its way and has come to where the run is (`settled`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..probe.predictions import CLASSES, Kind

__all__ = ["OtherStarts", "apart", "met", "numbers", "settled"]

FAR, SHARE = 4.0, 0.03  # sds; of what is predicted
LESS = 10.0  # in nats, that the mass may be smaller by, and still be looked at


def numbers(kind: Kind, predicted: Any) -> Float[np.ndarray, "chain draw number"]:
    """What has to agree: centred logits, or the predictions themselves."""
    found = np.asarray(predicted, np.float64)
    if kind == CLASSES:
        found = found - found.mean(axis=-1, keepdims=True)
    return found.reshape(*found.shape[:2], -1)


def apart(
    kind: Kind, there: Float[np.ndarray, "start m k"], run: Float[np.ndarray, "chain draw m k"],
    far: float = FAR, share: float = SHARE,
) -> Bool[np.ndarray, " start"]:  # fmt: skip
    """Which starts predict what no draw of the run does."""
    drawn = numbers(kind, run).reshape(-1, there[0].size)
    here = numbers(kind, there[:, None])[:, 0]
    beyond = (here > drawn.max(axis=0)) | (here < drawn.min(axis=0))
    beyond &= np.abs(here - drawn.mean(axis=0)) > far * drawn.std(axis=0)
    return beyond.mean(axis=1) > share


def met(
    kind: Kind, there: Float[np.ndarray, "start m k"], run: Float[np.ndarray, "chain draw m k"]
) -> bool:
    """Whether single draws of the starts are all among the run's: half as far and as often is apart here."""
    return not apart(kind, there, run, FAR / 2, SHARE / 2).any()


def settled(
    kind: Kind, looks: Float[np.ndarray, "look start m k"], run: Float[np.ndarray, "chain draw m k"]
) -> Float[np.ndarray, "start m k"]:
    """What starts predict, averaged over looks; of one that is among the run's draws at the last, what it predicts there.

    It was on its way, which may have been long, and no function that it passed holds it.
    """
    home = ~apart(kind, looks[-1], run, FAR / 2, SHARE / 2)
    return np.where(home[:, None, None], looks[-1], np.mean(looks, axis=0))


@dataclass(frozen=True)
class OtherStarts:
    """What chains from other starts predict, and how much mass there is where they are.

    Attributes:
      predicted: as a draw of `Seen.predicted`, averaged over the draws of a start; nothing that is not finite.
      log_mass: log p + (log det D) / 2 where each of them is.
      own: the same of the run's chains, averaged.
      z: where they are.

    Example:
      >>> import numpy as np
      >>> rng = np.random.default_rng(0)
      >>> run = rng.normal(size=(4, 100, 2, 1))
      >>> there = np.stack([run[0, 0], run[0, 0] + 20])
      >>> z = np.zeros((2, 3))
      >>> OtherStarts(there, np.zeros(2), 0.0, z).unlike("means", run)
      1
      >>> OtherStarts(there, np.array([0.0, -30.0]), 0.0, z).unlike("means", run)
      0
    """

    predicted: Float[np.ndarray, "start m k"]
    log_mass: Float[np.ndarray, " start"]
    own: float
    z: Float[np.ndarray, "start d"]

    @property
    def tried(self) -> int:
        """How many starts there were."""
        return len(self.predicted)

    @property
    def matters(self) -> Bool[np.ndarray, " start"]:
        """Which are where the mass is not far below the run's."""
        return self.log_mass >= self.own - LESS - np.sqrt(self.z.shape[1])

    def unlike(self, kind: Kind, predicted: Float[np.ndarray, "chain draw m k"]) -> int:
        """How many are apart from everything that the run predicted, and matter."""
        return int(np.sum(apart(kind, self.predicted, predicted) & self.matters))
