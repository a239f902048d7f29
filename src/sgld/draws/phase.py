"""Optimisation or sampling: the noise of the gradient against the noise that is injected.

    alpha = (h / 2T) lambda_max(D^{1/2}^T Cov(ghat) D^{1/2})                (Welling & Teh 2011, sec. 4)

far above 1 a run optimises, far below 1 it samples. With per-datum gradients s_i, of
covariance V_S over the rows, and batches of n of N rows, Cov(ghat) = N^2 V_S / n, and
alpha = h N^2 / (2 T n) lambda_max(D^{1/2}^T V_S D^{1/2}): their eps N^2 / (4n) with eps = 2h.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

__all__ = ["Phase"]


@dataclass(frozen=True)
class Phase:
    """The record of a run: `level` is the largest eigenvalue of D^{1/2}^T Cov(ghat) D^{1/2}.

    Attributes:
      step, step_size, temperature: [probe].
      level: [probe, chain].
    """

    step: Int[np.ndarray, " probe"]
    step_size: Float[np.ndarray, " probe"]
    temperature: Float[np.ndarray, " probe"]
    level: Float[np.ndarray, "probe chain"]

    @property
    def alpha(self) -> Float[np.ndarray, "probe chain"]:
        """alpha = h level / (2T); infinite where T = 0."""
        return _ratio(self.step_size, self.temperature, self.level)

    def along(
        self, step: Int[np.ndarray, " n"], h: Float[np.ndarray, " n"], T: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "n chain"]:
        """alpha at other steps, with their own h and T and the level between the probes."""
        level = [np.interp(step, self.step, chain) for chain in self.level.T]
        return _ratio(h, T, np.stack(level, axis=-1))

    @property
    def crossing(self) -> int | None:
        """The step from which alpha < 1, on average over chains that did not fail; None: never."""
        alpha = self._average
        optimising = np.flatnonzero(alpha >= 1)
        if optimising.size == 0:
            return int(self.step[0])
        last = int(optimising[-1])
        if last + 1 == len(alpha):
            return None
        first, second = self.step[last], self.step[last + 1]
        if not np.isfinite(alpha[last]) or alpha[last + 1] <= 0:
            return int(second)
        share = np.log(alpha[last]) / np.log(alpha[last] / alpha[last + 1])
        return round(first + share * (second - first))

    @property
    def _average(self) -> Float[np.ndarray, " probe"]:
        good = ~np.isnan(self.alpha)
        return np.where(good, self.alpha, 0.0).sum(axis=1) / np.maximum(good.sum(axis=1), 1)

    def sentence(self, corrected: bool = False) -> str:
        """Which phase the run was in, for a reader; `corrected`: the gradient's noise was taken off."""
        alpha, crossing = self._average, self.crossing
        most, end = float(alpha.max()), float(alpha[-1])
        if corrected:
            return f"sampling: gradient noise, {np.median(alpha):.2g} times the injected noise, is taken off it"
        if np.isnan(self.level[1:]).all():
            return "every chain failed"
        if np.all(self.temperature == 0):
            return "optimisation: the temperature is 0"
        if crossing is None:
            return f"optimisation to the end: gradient noise / injected noise is {end:.2g}"
        if crossing == self.step[0]:
            near = "" if most < 0.1 else ", not small: see the verdict"
            return f"sampling: gradient noise / injected noise is at most {most:.2g}{near}"
        top = f"{most:.2g}" if np.isfinite(most) else "infinity (T = 0)"
        return (
            f"optimisation to step {crossing:,}, then sampling: gradient noise / injected noise "
            f"falls from {top} to {end:.2g}"
        )

    def to_dict(self) -> dict[str, list]:
        """JSON-ready."""
        level = [[float(v) if np.isfinite(v) else None for v in row] for row in self.level]
        names = ("step", "step_size", "temperature")
        return {**{name: getattr(self, name).tolist() for name in names}, "level": level}

    @classmethod
    def from_dict(cls, stored: dict[str, list]) -> Phase:
        """The inverse of `to_dict`."""
        level = np.array(
            [[np.nan if v is None else v for v in row] for row in stored["level"]], float
        )
        return cls(
            np.asarray(stored["step"], np.int64), np.asarray(stored["step_size"], float),
            np.asarray(stored["temperature"], float), level,
        )  # fmt: skip


def _ratio(h: np.ndarray, T: np.ndarray, level: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = h[:, None] * level / (2 * T[:, None])
    return np.where((T[:, None] == 0) & (level > 0), np.inf, alpha)
