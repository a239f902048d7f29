"""What half the step changes in predictions, and the word that follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..probe.predictions import CLASSES, Kind
from ..results import statistics
from ..results.summary import errors_of
from ..results.verdict import Verdict

__all__ = ["HALF", "Change", "compared"]

HALF = "half the step"
SAME_SD, SAME_PROBABILITY, SAME_MEAN = 0.05, 0.01, 0.15


@dataclass(frozen=True)
class Change:
    """Between a run at h and one with half the step.

    Attributes:
      sd_ratio: of every number that is predicted (centred logits, or means), sd at h over sd at the half.
      sd_ratio_se: Monte Carlo error of it.
      mean_shift: of their means, in sds.
      variation: total variation between mean probabilities, averaged over rows; None of means.
    """

    sd_ratio: Float[np.ndarray, " m"]
    sd_ratio_se: Float[np.ndarray, " m"]
    mean_shift: Float[np.ndarray, " m"]
    variation: float | None

    @property
    def agrees(self) -> bool:
        """Whether sds are within 5%, and probabilities within .01 or means within .15 sd, but for noise.

        The sds together: the median ratio, whose noise is small, for what a step does to all of them,
        and the largest, beyond its noise, for what it does to one.
        """
        if not np.median(self.sd_ratio_se) <= SAME_SD:
            return False  # too little is known
        beyond = np.abs(self.sd_ratio - 1) - 3 * self.sd_ratio_se
        sds = abs(np.median(self.sd_ratio) - 1) <= SAME_SD and beyond.max() <= 2 * SAME_SD
        if self.variation is not None:
            return bool(sds and self.variation <= SAME_PROBABILITY)
        return bool(sds and np.median(np.abs(self.mean_shift)) <= SAME_MEAN)

    @property
    def said(self) -> str:
        """What changes, and by how much; no sentence of its own yet."""
        ratio = float(np.median(self.sd_ratio))
        where = f"means by {np.median(np.abs(self.mean_shift)):.2f} sd"
        if self.variation is not None:
            where = f"probabilities by {self.variation:.4f}"
        return f"{HALF} changes predictions' sds by {100 * abs(ratio - 1):.0f}% and {where}"

    def verdict(self, first: Verdict, *, failed: bool = False) -> Verdict:
        """The first run's own where it is worse than `unknown`; else what half the step says.

        `failed` says whether a chain of the second run did.
        """
        if first.word in ("biased", "not mixed"):
            return first
        unseen = first.extra.get("predictions", {}).get("unseen")
        if unseen is not None:  # half the step tells nothing of that
            return Verdict("unknown", (unseen,), extra=first.extra)
        said, extra = self.said, {**first.extra, "confirmed_by": HALF}
        if self.agrees and not failed:
            return Verdict("trusted", (f"{said}; single weights are not judged.",), extra=extra)
        if float(np.median(self.sd_ratio)) > 1 + SAME_SD:
            return Verdict("biased", (f"{said}; use a smaller step_size.",), extra=extra)
        return Verdict(
            "unknown", (f"{said}; use more draws, or a smaller step_size.",), extra=extra
        )


def compared(
    kind: Kind, one: np.ndarray, two: np.ndarray, weights: np.ndarray, other_weights: np.ndarray
) -> Change:
    """Predictions [chain, draw, row, k] of a run and of one with half the step, and weights [chain, draw]."""
    variation = None
    if kind == CLASSES:
        means = [np.exp(values.astype(np.float64)).mean(axis=(0, 1)) for values in (one, two)]
        variation = float(0.5 * np.abs(means[0] - means[1]).sum(axis=-1).mean())
        one, two = (values - values.mean(axis=-1, keepdims=True) for values in (one, two))
    first, second = (
        statistics.Estimates(v.reshape(*v.shape[:2], -1).astype(np.float64), w)
        for v, w in ((one, weights), (two, other_weights))
    )
    shift, ratio, _, ratio_se = errors_of(first, second)
    return Change(ratio, ratio_se, shift, variation)
