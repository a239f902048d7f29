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

Whether chains predict alike at rows that no probe row stands for.

Of 500 rows six may be of a kind that none of 64 chosen by chance is, and chains may stand in different
functions there although they agree everywhere else, or all in one of two. So a few draws of every chain predict far
more rows (glances), and those where most is suspected are predicted by all draws:

    R-hat       where chains are furthest apart relative to their own draws: over 1.2 at most, since it is the
                largest of thousands of numbers; of few draws over what chance makes of so many
    unlike      chains from other starts (diagnostics/function_space/other_chains.py) that are beyond 4 sds of the run's draws,
                and beyond every one of them, at one row: a quarter of them, and 3 at least
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ...results import statistics
from .predictions import CLASSES, Kind

MIN_UNLIKE_SDS, MIN_UNLIKE_PROB = 4.0, 0.03  # sds; of what is predicted
MAX_LOG_MASS_LOSS = 10.0  # in nats, that the mass may be smaller by, and still be looked at


def numbers(kind: Kind, predicted: Any) -> Float[np.ndarray, "chain draw number"]:
    """Return the numbers to compare: centred logits, or the predictions themselves."""
    found = np.asarray(predicted, np.float64)
    if kind == CLASSES:
        found = found - found.mean(axis=-1, keepdims=True)
    return found.reshape(*found.shape[:2], -1)


def apart(
    kind: Kind, there: Float[np.ndarray, "start m k"], run: Float[np.ndarray, "chain draw m k"],
    far: float = MIN_UNLIKE_SDS, share: float = MIN_UNLIKE_PROB,
) -> Bool[np.ndarray, " start"]:  # fmt: skip
    """Return which starts predict what no draw of the run predicts."""
    drawn = numbers(kind, run).reshape(-1, there[0].size)
    here = numbers(kind, there[:, None])[:, 0]
    beyond = (here > drawn.max(axis=0)) | (here < drawn.min(axis=0))
    beyond &= np.abs(here - drawn.mean(axis=0)) > far * drawn.std(axis=0)
    return beyond.mean(axis=1) > share


def met(
    kind: Kind, there: Float[np.ndarray, "start m k"], run: Float[np.ndarray, "chain draw m k"]
) -> bool:
    """Return whether single draws of the starts are all among the run's, by half the limits of `apart`."""
    return not apart(kind, there, run, MIN_UNLIKE_SDS / 2, MIN_UNLIKE_PROB / 2).any()


def settled(
    kind: Kind, looks: Float[np.ndarray, "look start m k"], run: Float[np.ndarray, "chain draw m k"]
) -> Float[np.ndarray, "start m k"]:
    """Return predictions of starts, averaged over looks, or those of the last look if they are among the run's draws.

    It was on its way, which may have been long, and no function that it passed holds it.
    """
    home = ~apart(kind, looks[-1], run, MIN_UNLIKE_SDS / 2, MIN_UNLIKE_PROB / 2)
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
        """The number of starts."""
        return len(self.predicted)

    @property
    def matters(self) -> Bool[np.ndarray, " start"]:
        """Return which starts are where the mass is not far below the run's."""
        return self.log_mass >= self.own - MAX_LOG_MASS_LOSS - np.sqrt(self.z.shape[1])

    def unlike(self, kind: Kind, predicted: Float[np.ndarray, "chain draw m k"]) -> int:
        """Count the starts that are apart from everything that the run predicted, and matter."""
        return int(np.sum(apart(kind, self.predicted, predicted) & self.matters))


# -- other rows ----------------------------------------------------------------------------


MAX_COMPARED_ROWS, ROWS_PER_CALL = 4096, 256  # that are looked at, and in one piece
MAX_GLANCE_NUMBERS = 2**24  # of all predictions of the glances
MAX_R_HAT = 1.2
GLANCE_DRAWS = 8  # draws of a chain that predict all rows
# of a run's gradients, each as dear as 3 predictions, that the glances may cost
MAX_GLANCE_SHARE = 0.02
MIN_COMPARED_ROWS = 256  # that are looked at in any case
WORST_ROWS = 8  # rows that all draws predict
MIN_UNLIKE_STARTS, MIN_STARTS_SHARE = 3, 0.25  # of the other starts, that are unlike at one row

Predict = Callable[
    [Float[np.ndarray, "chain draw d"], Int[np.ndarray, " m"]], Float[np.ndarray, "chain draw m k"]
]


def others(probed: int, num_data: int, gradients: int) -> Int[np.ndarray, " m"]:
    """Return the numbers of rows to check, in a random order whose first `probed` rows are the probe rows.

    Args:
      probed: number of probe rows.
      num_data: number of rows.
      gradients: number of row gradients that a chain of the run evaluated.
    """
    affordable = int(3 * MAX_GLANCE_SHARE * gradients) // GLANCE_DRAWS
    return np.arange(
        probed, min(num_data, probed + max(MIN_COMPARED_ROWS, min(MAX_COMPARED_ROWS, affordable)))
    )


@dataclass(frozen=True)
class OtherRows:
    """Rows by their numbers, and what a few draws predict there.

    Attributes:
      predict: what positions predict at rows.
      z: positions of the run's draws.
      rows: numbers.
      glances: what GLANCE_DRAWS draws of every chain predict at all of them.

    Example:
      >>> import numpy as np
      >>> z = np.random.default_rng(0).normal(size=(4, 50, 2))
      >>> z[1, :, 1] += 20  # what rows from 7 on predict
      >>> predict = lambda z, rows: np.where(rows < 7, z[..., :1], z[..., 1:])[..., None]
      >>> found = OtherRows.of("means", predict, z, np.arange(20))
      >>> found.r_hat(np.full((4, 50), 1 / 200)) > MAX_R_HAT
      True
      >>> OtherRows.of("means", predict, z, np.arange(7)).r_hat(np.full((4, 50), 1 / 200)) > MAX_R_HAT
      False
    """

    kind: Kind
    predict: Predict
    z: Float[np.ndarray, "chain draw d"]
    rows: Int[np.ndarray, " m"]
    glances: Float[np.ndarray, "chain draw m k"]

    @classmethod
    def of(
        cls, kind: Kind, predict: Predict, z: Float[np.ndarray, "chain draw d"], rows: Int[np.ndarray, " m"]
    ) -> OtherRows | None:  # fmt: skip
        """Return None if there are no rows, or too few draws or chains to compare."""
        chains, draws = z.shape[:2]
        if not len(rows) or chains < 2 or draws < GLANCE_DRAWS:
            return None
        few = z[:, np.linspace(0, draws - 1, GLANCE_DRAWS).astype(int)]
        width = predict(few[:1, :1], rows[:1]).shape[-1]
        rows = rows[: max(1, MAX_GLANCE_NUMBERS // (GLANCE_DRAWS * chains * width))]
        return cls(kind, predict, z, rows, predict(few, rows))

    def r_hat(self, weights: Float[np.ndarray, "chain draw"]) -> float | None:
        """Return the largest R-hat at rows where chains differ most relative to their draws, or None if nothing moves."""
        values = numbers(self.kind, self.glances)
        between, within = values.mean(axis=1).var(axis=0), values.var(axis=1).mean(axis=0)
        apart = self._worst(between / np.maximum(within, np.finfo(np.float64).tiny))
        predicted = numbers(self.kind, self.predict(self.z, apart))
        found = statistics.Estimates(predicted, weights).mixing.r_hat
        return None if np.isnan(found).all() else float(np.nanmax(found))

    @property
    def allowed(self) -> float:
        """Return the largest R-hat that chance explains if draws are independent."""
        chains, draws = self.z.shape[:2]
        count = self.glances[0, 0].size
        return max(MAX_R_HAT, float(statistics.max_r_hat(chains * draws, chains, count)))

    def unlike(self, there: Float[np.ndarray, "start d"]) -> int:
        """Count the starts, at these positions, that are unlike the run at one row; 0 if they are too few to decide."""
        if not len(there):
            return 0
        values = numbers(self.kind, self.predict(there[None], self.rows))[0]
        glances = numbers(self.kind, self.glances).reshape(-1, values.shape[1])
        beyond = np.abs(values - glances.mean(axis=0)) > MIN_UNLIKE_SDS * glances.std(axis=0)
        apart = self._worst(beyond.sum(axis=0))
        here = numbers(self.kind, self.predict(there[None], apart))[0]
        run = numbers(self.kind, self.predict(self.z, apart)).reshape(-1, here.shape[1])
        beyond = np.abs(here - run.mean(axis=0)) > MIN_UNLIKE_SDS * run.std(axis=0)
        beyond &= (here > run.max(axis=0)) | (here < run.min(axis=0))
        most = int(beyond.sum(axis=0).max())
        return most if most >= max(MIN_UNLIKE_STARTS, MIN_STARTS_SHARE * len(there)) else 0

    def _worst(self, suspicion: Any) -> Int[np.ndarray, " w"]:
        """Return the rows with the largest of these numbers, [m k]."""
        each = np.asarray(suspicion).reshape(len(self.rows), -1).max(axis=1)
        return self.rows[np.argsort(-each, kind="stable")[:WORST_ROWS]]
