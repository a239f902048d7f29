"""Verdict on a run: one word, the reasons, and the numbers behind them; modes and phases of a run.

trusted     every sd is right within 10%, every mean within .25 sd, and this was measured
biased      an sd or mean is wrong by more, or a chain became non-finite
not mixed   the draws are too few or the chains disagree, whatever their bias
unknown     the bias could not be determined; a run is never `trusted` without evidence

`Modes` describes the modes that a run found: position, density, and share of the mass.

`Phase` says whether a run optimises or samples, from the gradient noise relative to the injected
noise,

    alpha = (h / 2T) lambda_max(D^{1/2}^T Cov(ghat) D^{1/2})                (Welling & Teh 2011, sec. 4)

If alpha is far above 1, the run optimises; if it is far below 1, it samples. With per-datum
gradients s_i of covariance V_S over the rows, and batches of n of N rows, Cov(ghat) = N^2 V_S / n,
and alpha = h N^2 / (2 T n) lambda_max(D^{1/2}^T V_S D^{1/2}): their eps N^2 / (4n) with eps = 2h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from ..core.text import columns
from .late import Shown

Word = Literal["trusted", "biased", "not mixed", "unknown"]
MODES, TAILS = "modes", "tails"  # names of doubts


@dataclass(frozen=True, repr=False)
class Verdict(Shown):
    """Verdict, reasons, and the numbers behind them.

    Attributes:
      word: "trusted", "biased", "not mixed" or "unknown".
      reasons: sentences: the number, the parameter, the remedy.
      sd_ratio: per parameter, sd of the run / sd of the posterior (above 1: too wide).
      noise_ratio: Welling & Teh's alpha: variance of the gradient noise over that of the injected
        noise, in the worst direction; far below 1 in the sampling phase.
      mean_corrected, sd_corrected: the predicted true moments where r2 > .9, else NaN; for a
        confirmed run, the results of the confirmation.
      judged: whether the draws were judged; draws from elsewhere are `unknown` and not judged.
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

    def __repr__(self) -> str:
        return f"Verdict({self.word!r}, {' '.join(self.reasons)!r})"

    def __str__(self) -> str:
        return f"{self.word}: " + " ".join(self.reasons)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Doubts that a smaller step cannot settle: MODES, TAILS, or a text; may be empty."""
        return tuple(self.extra.get("doubts", ()))

    @property
    def confirmed_by(self) -> str | None:
        """Method that the run was compared with (NUTS, step halving), or None."""
        return self.extra.get("confirmed_by")

    def with_comparison(self, by: str, sentence: str) -> Verdict:
        """Return the same verdict with an added sentence on a check `by` that settled nothing.

        Only the last sentence of each check is kept.
        """
        before = self.extra.get("told", {})
        kept = tuple(reason for reason in self.reasons if reason != before.get(by))
        extra = {**self.extra, "told": {**before, by: sentence}}
        return replace(self, reasons=(*kept, sentence), extra=extra)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON; values that are not finite become None."""
        return {
            "word": self.word,
            "reasons": list(self.reasons),
            **{name: _listed(getattr(self, name)) for name in _ARRAYS},
            "noise_ratio": _number(self.noise_ratio),
            "extra": {name: _number(value) for name, value in self.extra.items()},
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Verdict:
        """Rebuild a verdict from `to_dict`."""
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
    """Return the value, or None for a float that is not finite."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


_ARRAYS = ("sd_ratio", "sd_ratio_se", "r2", "mean_corrected", "sd_corrected")


def _listed(values: np.ndarray | None) -> list[float | None] | None:
    return None if values is None else [float(v) if np.isfinite(v) else None for v in values]


NOT_JUDGED = Verdict("unknown", ("the draws were not judged",), judged=False)


# -- modes ---------------------------------------------------------------------------------


MAX_PRINTED_PLACES = 6  # parameters whose positions are printed


@dataclass(frozen=True)
class Modes:
    """All modes that were found, the heaviest by Laplace's approximation first.

    Attributes:
      names: the names of the parameters.
      position: [mode, parameter], each mode on the reported scale.
      log_density: [mode], the log density of free coordinates.
      mass: [mode], shares of the posterior, which sum to 1.
      covariance: [mode, mode], covariance of the masses' errors, if they were measured from exact
        chains in each mode; None if they are Laplace's approximation, exp(log density) (det
        J)^{-1/2}.
      group: [mode], the number of the region that holds the mode; modes that chains move between
        share a region. None if chains were not confined.
      chain: [chain], the region that each chain was kept in; None if chains were not confined.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(
      ...     lambda t: jnp.logaddexp(-0.5 * t**2, -2.0 - 0.5 * (t - 9.0) ** 2))
      >>> draws = sgld.sample(posterior, None, 0.0, num_draws=50, progress=False)
      >>> draws.modes.position.round(2).tolist()
      [[0.0], [9.0]]
    """

    names: tuple[str, ...]
    position: Float[np.ndarray, "mode parameter"]
    log_density: Float[np.ndarray, " mode"]
    mass: Float[np.ndarray, " mode"]
    covariance: Float[np.ndarray, "mode mode"] | None = None
    group: Int[np.ndarray, " mode"] | None = None
    chain: Int[np.ndarray, " chain"] | None = None

    def __len__(self) -> int:
        return len(self.mass)

    @property
    def measured(self) -> bool:
        """Whether the masses were measured."""
        return self.covariance is not None

    @property
    def mass_se(self) -> Float[np.ndarray, " mode"] | None:
        """[mode], standard errors of the masses; None if they were not measured."""
        return None if self.covariance is None else np.sqrt(np.diag(self.covariance))

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "names": list(self.names),
            **{
                name: None if (value := getattr(self, name)) is None else np.asarray(value).tolist()
                for name in _MODE_ARRAYS
            },
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Modes:
        """Rebuild the modes from `to_dict`; null stands for a value that is not finite."""
        arrays: dict[str, Any] = {
            name: None if stored[name] is None else np.array(stored[name], kind)
            for name, kind in _MODE_ARRAYS.items()
        }
        return cls(tuple(stored["names"]), **arrays)

    def __str__(self) -> str:
        """Return a table of masses, log densities, and positions of the modes."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the lines of the table, its title first."""
        shown = self.names[:MAX_PRINTED_PLACES]
        errors = self.mass_se
        head = ["", "mass", *([] if errors is None else ["se"]), "log_density", *shown]
        rows = []
        for k in range(len(self)):
            error = [] if errors is None else [f"{errors[k]:.2g}"]
            places = [f"{value:.4g}" for value in self.position[k, : len(shown)]]
            density = f"{self.log_density[k]:.4g}"
            rows.append([f"mode {k + 1}", f"{self.mass[k]:.4g}", *error, density, *places])
        how = "measured from exact chains" if self.measured else "by Laplace's approximation"
        more = len(self.names) - len(shown)
        rest = f"; {more} more parameters in draws.modes" if more else ""
        return [f"{len(self)} modes, masses {how}{rest}", *columns([head, *rows])]


_MODE_ARRAYS: dict[str, Any] = {
    "position": float, "log_density": float, "mass": float, "covariance": float, "group": int, "chain": int,
}  # fmt: skip


# -- phase ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Phase:
    """Gradient noise along a run: `level`, the largest eigenvalue of D^{1/2}^T Cov(ghat) D^{1/2}.

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
        """Return alpha at other steps, with their own h and T and the level between the probes."""
        level = [np.interp(step, self.step, chain) for chain in self.level.T]
        return _ratio(h, T, np.stack(level, axis=-1))

    @property
    def crossing(self) -> int | None:
        """Step from which alpha < 1, averaged over chains that did not fail; None: never."""
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
        """Return a sentence on the phase; `corrected`: the injected noise was reduced."""
        alpha, crossing = self._average, self.crossing
        most, end = float(alpha.max()), float(alpha[-1])
        if corrected:
            return (
                f"sampling. Gradient noise is {np.median(alpha):.2g} x the injected noise, which is "
                "reduced to compensate."
            )
        if np.isnan(self.level[1:]).all():
            return "every chain failed"
        if np.all(self.temperature == 0):
            return "optimisation, because the temperature is 0"
        if crossing is None:
            return f"optimisation throughout. Gradient noise is {end:.2g} x the injected noise."
        if crossing == self.step[0]:
            near = "" if most < 0.1 else ", which is not small (see the verdict)"
            return f"sampling. Gradient noise is at most {most:.2g} x the injected noise{near}."
        top = f"{most:.2g}" if np.isfinite(most) else "infinity (T = 0)"
        return (
            f"optimisation to step {crossing:,}, then sampling. Gradient noise falls from {top} to "
            f"{end:.2g} x the injected noise."
        )

    def to_dict(self) -> dict[str, list]:
        """Return a dict for JSON."""
        level = [[float(v) if np.isfinite(v) else None for v in row] for row in self.level]
        names = ("step", "step_size", "temperature")
        return {**{name: getattr(self, name).tolist() for name in names}, "level": level}

    @classmethod
    def from_dict(cls, stored: dict[str, list]) -> Phase:
        """Rebuild the phase from `to_dict`."""
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


# -- misfit --------------------------------------------------------------------------------


MISFIT, TOO_SMALL = "the model looks misspecified: ", "times too small"  # parts of a plan's note


def split_misfit(word: str, notes: Sequence[str]) -> tuple[str, list[str]]:
    """Return the sentence on sds that a misfit makes too small, and the other notes.

    The verdict `word` is about the draws, so the sentence is shown with it, equally large. It is
    empty if no note reports such a misfit.

    Example:
      >>> split_misfit("trusted", ["the model looks misspecified: sds may be 2 times too small.", "a note"])
      ('The computation can be trusted. The model does not fit: sds may be 2 times too small.', ['a note'])
    """
    found = [note for note in notes if note.startswith(MISFIT) and TOO_SMALL in note]
    computed = "The computation can be trusted. " if word == "trusted" else ""
    said = [f"{computed}The model does not fit: {note.removeprefix(MISFIT)}" for note in found]
    return " ".join(said), [note for note in notes if note not in found]
