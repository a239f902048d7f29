"""The verdict of a run: one word, the reasons, and the numbers behind them.

trusted     every sd is right within 10%, every mean within .25 sd, and that is known
biased      a sd or mean is off by more, or a chain became non-finite
not mixed   the draws are too few or the chains disagree, whatever their bias
unknown     the library cannot tell; never `trusted` when it does not know
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

__all__ = ["MODES", "NOT_JUDGED", "TAILS", "Verdict", "Word"]

Word = Literal["trusted", "biased", "not mixed", "unknown"]
MODES, TAILS = "modes", "tails"  # doubts


@dataclass(frozen=True)
class Verdict:
    """The word, the reasons, and the numbers behind them.

    Attributes:
      word: "trusted", "biased", "not mixed" or "unknown".
      reasons: sentences: the number, the parameter, the remedy.
      sd_ratio: per parameter, sd of the run / sd of the posterior (above 1: too wide).
      noise_ratio: Welling & Teh's alpha: variance of the gradient noise over that of the
        injected noise, in the worst direction; far below 1 in the sampling phase.
      mean_corrected, sd_corrected: the predicted truth where r2 > .9, else NaN; of a confirmed run
        what confirmed it found.
      judged: whether anything judged the draws; draws from elsewhere are `unknown` and not judged.
    """

    word: Word
    reasons: tuple[str, ...]
    sd_ratio: Float[np.ndarray, " m"] | None = None
    sd_ratio_se: Float[np.ndarray, " m"] | None = None
    r2: Float[np.ndarray, " m"] | None = None
    mean_corrected: Float[np.ndarray, " m"] | None = None
    sd_corrected: Float[np.ndarray, " m"] | None = None
    noise_ratio: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    judged: bool = True

    def __str__(self) -> str:
        return f"{self.word}: " + " ".join(self.reasons)

    def _repr_html_(self) -> str:
        from ..notebook.views import view

        return view(self)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What a smaller step cannot answer: MODES, TAILS, or in words; empty for nothing."""
        return tuple(self.extra.get("doubts", ()))

    @property
    def confirmed_by(self) -> str | None:
        """What the run was held against (NUTS, half the step), or None."""
        return self.extra.get("confirmed_by")

    def told(self, by: str, sentence: str) -> Verdict:
        """The same word, with what `by` found out in vain beside its reasons; only the last time is told."""
        before = self.extra.get("told", {})
        kept = tuple(reason for reason in self.reasons if reason != before.get(by))
        extra = {**self.extra, "told": {**before, by: sentence}}
        return replace(self, reasons=(*kept, sentence), extra=extra)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what is not finite becomes None."""
        return {
            "word": self.word,
            "reasons": list(self.reasons),
            **{name: _listed(getattr(self, name)) for name in _ARRAYS},
            "noise_ratio": _number(self.noise_ratio),
            "extra": {name: _number(value) for name, value in self.extra.items()},
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Verdict:
        """The inverse of `to_dict`."""
        arrays: dict[str, Any] = {
            name: None if stored[name] is None else np.array(
                [np.nan if v is None else v for v in stored[name]], float
            )
            for name in _ARRAYS
        }  # fmt: skip
        return cls(
            stored["word"], tuple(stored["reasons"]), **arrays,
            noise_ratio=stored["noise_ratio"], extra={**stored["extra"]},
        )  # fmt: skip


def _number(value: Any) -> Any:
    """The value, None where it is a number that is not finite."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


_ARRAYS = ("sd_ratio", "sd_ratio_se", "r2", "mean_corrected", "sd_corrected")


def _listed(values: np.ndarray | None) -> list[float | None] | None:
    return None if values is None else [float(v) if np.isfinite(v) else None for v in values]


NOT_JUDGED = Verdict("unknown", ("the draws were not judged",), judged=False)
