"""Predictive scores of several sets of draws, side by side, each with the law it follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..core.text import columns
from ..core.validation import whole_number
from ..errors import UsageError
from ..results.draws import Draws
from .entropy import classes

__all__ = ["Scores", "scores"]

PyTree = Any
COLUMNS = ("accuracy", "log_score", "log_score_se", "brier", "ece")
HEADS = ("accuracy", "log score", "+-", "Brier", "ECE")


@dataclass(frozen=True)
class Scores:
    """One row per set of draws.

    Attributes:
      names, targets, verdicts: of each set: its name, the law that its draws follow, and what
        the run said of itself.
      accuracy: share of rows whose most probable class is right.
      log_score: mean over rows of log p(y), in nats: the higher the better.
      log_score_se: its standard error over rows.
      brier: mean over rows of sum_k (p_k - [y = k])^2: from 0, the best, to 2.
      ece: expected calibration error: sum over bins of share of rows x
        |accuracy - mean probability of the class named|, in bins of equal width of the latter.

    Example:
      >>> import numpy as np, sgld
      >>> draws = sgld.Draws.of({"b": np.ones((4, 100))})
      >>> x = np.array([[-2.0], [2.0]])
      >>> found = sgld.networks.scores({"one": draws}, lambda p, x: p["b"] * x, x, [0, 1])
      >>> found.accuracy, round(found.to_dict()["one"]["log_score"], 3)
      (array([1.]), -0.127)
    """

    names: tuple[str, ...]
    targets: tuple[str, ...]
    verdicts: tuple[str, ...]
    accuracy: Float[np.ndarray, " m"]
    log_score: Float[np.ndarray, " m"]
    log_score_se: Float[np.ndarray, " m"]
    brier: Float[np.ndarray, " m"]
    ece: Float[np.ndarray, " m"]

    def to_dict(self) -> dict[str, Any]:
        """{name: {"target", "verdict", "accuracy", "log_score", ...}}."""
        return {
            name: {
                "target": self.targets[i],
                "verdict": self.verdicts[i],
                **{column: float(getattr(self, column)[i]) for column in COLUMNS},
            }
            for i, name in enumerate(self.names)
        }

    def __str__(self) -> str:
        head = ["", "target", *HEADS, "verdict"]
        body = [
            [
                name, self.targets[i],
                *(f"{getattr(self, column)[i]:.4f}" for column in COLUMNS),
                self.verdicts[i],
            ]
            for i, name in enumerate(self.names)
        ]  # fmt: skip
        return "\n".join(columns([head, *body], left=(0, 1, len(head) - 1)))

    def __repr__(self) -> str:
        return str(self)


def scores(
    sets: Mapping[str, Draws], f: Callable[[PyTree, PyTree], Any], x: PyTree, y: Any, *,
    bins: int = 15, batch_size: int | None = None,
) -> Scores:  # fmt: skip
    """How well sets of draws predict classes, each row named with the law that its draws follow.

    Draws at T < 1 often predict better than the posterior (Wenzel et al. 2020): they follow
    p(theta | data)^(1/T), which is not the posterior, so no interval of theirs is a credible
    interval. The table says which is which.

    Args:
      sets: {name: draws}, of the same network.
      f, x, batch_size: as for `classes`.
      y: the classes [row], whole numbers from 0.
      bins: of the calibration error.

    Raises: UsageError for y of another length, kind or range.

    Example:
      >>> import numpy as np, sgld
      >>> warm = np.random.default_rng(0).normal(1.0, 0.5, (4, 250))
      >>> cold = sgld.Draws.of({"b": 1 + (warm - 1) / 10}, temperature=np.full((4, 250), 0.01))
      >>> x = np.array([[-2.0], [-1.0], [1.0], [2.0]])
      >>> sets = {"warm": sgld.Draws.of({"b": warm}), "cold": cold}
      >>> print(sgld.networks.scores(sets, lambda p, x: p["b"] * x, x, [0, 1, 1, 1]))
            target                             accuracy  log score      +-   Brier     ECE  verdict
      warm  posterior, T = 1                     0.7500    -0.4851  0.2612  0.3222  0.1878  not judged
      cold  cold, T = 0.01: not the posterior    0.7500    -0.4703  0.2837  0.3175  0.1753  not judged
    """
    if not isinstance(sets, Mapping) or not sets:
        raise UsageError("sets must be a dict {name: draws} with at least one entry.")
    whole_number("bins", bins)
    found = {}
    for name, draws in sets.items():
        if not isinstance(draws, Draws):
            raise UsageError(f"{name!r} must be Draws. Got {type(draws).__name__}.")
        p = classes(draws, f, x, batch_size=batch_size).probabilities
        found[str(name)] = _scores(p, _labels(y, *p.shape), bins)
    columns = {column: np.array([row[column] for row in found.values()]) for column in COLUMNS}
    return Scores(
        tuple(found),
        tuple(map(_target, sets.values())),
        tuple(d.verdict.word if d.verdict.judged else "not judged" for d in sets.values()),
        **columns,
    )


def _labels(y: Any, rows: int, count: int) -> Int[np.ndarray, " row"]:
    labels = np.asarray(y)
    if labels.shape != (rows,):
        raise UsageError(f"y must be one class per row, [{rows}]. Got shape {labels.shape}.")
    if not rows:
        raise UsageError("x has no rows, of which there is no score; give one row at least.")
    if not np.issubdtype(labels.dtype, np.integer):
        raise UsageError(f"y must be whole numbers from 0. Got dtype {labels.dtype}.")
    bad = (labels < 0) | (labels >= count)
    if bad.any():
        row = int(np.argmax(bad))
        raise UsageError(
            f"y must lie between 0 and {count - 1}, the classes that f has. Got {labels[row]} in "
            f"row {row}."
        )
    return labels


def _scores(
    p: Float[np.ndarray, "row class"], y: Int[np.ndarray, " row"], bins: int
) -> dict[str, float]:
    each = np.arange(len(y))
    with np.errstate(divide="ignore"):
        log_p = np.log(p[each, y])
    named, sure = p.argmax(1), p.max(1)
    right = (named == y).astype(float)
    hit = np.zeros_like(p)
    hit[each, y] = 1
    place = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = np.bincount(place, right - sure, bins)
    spread = log_p.std(ddof=1) if len(y) > 1 and np.isfinite(log_p).all() else np.nan
    return {
        "accuracy": right.mean(),
        "log_score": log_p.mean(),
        "log_score_se": spread / np.sqrt(len(y)),
        "brier": ((p - hit) ** 2).sum(1).mean(),
        "ece": np.abs(gaps).sum() / len(y),
    }


def _target(draws: Draws) -> str:
    """The law that the draws follow, in a few words."""
    info = draws.info
    if info.get("target") == "sandwich":
        return "sandwich: not the posterior"
    method = {
        "laplace": "Laplace approximation",
        "bayes_by_backprop": "variational approximation",
    }.get(info.get("method", ""))
    temperature = np.unique(draws.temperature[draws.healthy])
    if temperature.size != 1:
        return "temperature changes: not the posterior"
    if temperature[0] == 1:
        return method or "posterior, T = 1"
    kind = "cold" if temperature[0] < 1 else "tempered"
    return f"{kind}, T = {temperature[0]:g}: not the posterior"
