"""Posterior predictive means, sds and intervals, in NumPy and in bounded memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..core.validation import fraction, one_of
from ..errors import UsageError
from ..results.statistics import systematic
from ..typing import PredictionKind
from .families import Family

PyTree = Any
PREDICTION_KINDS = ("outcome", "mean", "class")
OUTCOMES_PER_ROW = 1000  # simulated outcomes of a row whose interval has no closed form
CHUNK_CELLS = 2**16  # draws times rows per piece of a thread, which fit the processor's cache


def check_kind(family: Family, kind: str) -> None:
    """Raise UsageError for an unknown kind of prediction, or one that the family lacks."""
    one_of("kind", kind, PREDICTION_KINDS)
    if kind == "class" and not (family.levels or family.name == "bernoulli"):
        raise UsageError(
            f"kind 'class' needs an outcome that is one of several, but that of the {family.name} family is a number; "
            "use 'outcome' or 'mean'."
        )


def predict_rows(
    family: Family,
    spec: dict[str, Any],
    position: PyTree,
    x: Float[np.ndarray, "N p"],
    extra: dict[str, Float[np.ndarray, " N"]],
    *,
    kind: PredictionKind = "outcome",
    **how: Any,
) -> dict[str, np.ndarray]:
    """Predict rows of a design, on the scale of the outcome.

    Args:
      family: the family.
      spec: of the model: levels or words of the outcome, its shift and scale.
      position: standardised draws.
      x: the standardised design.
      extra: the rows' offset and trials.
      kind: "outcome": `mean` and `sd` of y, including its noise, and `lower`, `upper` of an interval
        that holds y with probability `prob`; for bernoulli also `probability`. "mean": the same
        four of E[y] under the posterior. "class", for an outcome that is one of several: the likeliest
        `class` and its probability, or for a categorical outcome that of each level.
      **how: prob, weights, seed and max_draws, as for `predictive`.

    Raises UsageError for another kind, "class" of an outcome that is a number, and as `predictive`.
    """
    check_kind(family, kind)
    if family.levels:
        return _predict_levels(family, spec["levels"], position, x, extra, kind, how)
    shift, stretch = spec["outcome_center"], spec["outcome_scale"]
    found = predictive(family, position, x, extra, noise=kind != "mean", **how)
    found = {k: stretch * v + (shift if k != "sd" else 0.0) for k, v in found.items()}
    if family.name != "bernoulli" or kind == "mean":
        return found
    if kind == "outcome":
        return {**found, "probability": found["mean"]}
    second = found["mean"] > 0.5
    return {
        "class": np.asarray(spec.get("words") or [0, 1])[second * 1],
        "probability": np.where(second, found["mean"], 1 - found["mean"]),
    }


def _predict_levels(
    family: Family, levels: list[Any], position: PyTree, x: Any, extra: Any, kind: str, how: Any
) -> dict[str, np.ndarray]:
    fraction("prob", how["prob"])
    found, low, high = probabilities(family, position, x, extra, **how)
    each = {f"probability[{level}]": found[:, k] for k, level in enumerate(levels)}
    if kind != "mean":
        return {"class": np.asarray(levels)[np.argmax(found, axis=1)], **each}
    ends = {f"lower[{level}]": low[:, k] for k, level in enumerate(levels)}
    return {**each, **ends, **{f"upper[{level}]": high[:, k] for k, level in enumerate(levels)}}


def predictive(
    family: Family,
    position: PyTree,
    x: Float[np.ndarray, "N p"],
    extra: dict[str, Float[np.ndarray, " N"]],
    *,
    prob: float,
    weights: np.ndarray | None,
    seed: int,
    max_draws: int,
    noise: bool = True,
) -> dict[str, Float[np.ndarray, " N"]]:
    """Return `mean`, `sd`, `lower`, `upper` of y for every row of x, over draws with weights w.

        mean = sum_s w_s E[y | s],     sd^2 = sum_s w_s (Var[y | s] + (E[y | s] - mean)^2)

    More than `max_draws` draws are resampled to that number. The interval's ends are quantiles of one outcome
    simulated from each of them (from OUTCOMES_PER_ROW for counts), with the same random numbers in every row: a row's
    interval does not depend on the other rows. For outcomes of 0 or 1 they follow from the mean. Without `noise` all
    four refer to E[y | s]: no Var[y | s], and quantiles of E[y | s] itself. `position`, `x` and the offset in `extra`
    are on one scale, which is also that of the result.

    Raises UsageError for prob outside (0, 1), or for invalid weights or their shape.
    """
    fraction("prob", prob)
    coefficients = np.asarray(position["coefficients"], np.float64)
    weight, kept = _weigh(weights, coefficients.shape[:-1], max_draws)
    sampled = noise and not family.location_scale
    chosen = _resampled(weight, OUTCOMES_PER_ROW if sampled else max_draws)
    z = np.ascontiguousarray(coefficients.reshape(-1, coefficients.shape[-1])[kept].T)
    given = {
        name: np.asarray(position[name], np.float64).ravel()[kept] for name in family.dispersion
    }
    chosen_given = {name: value[chosen] for name, value in given.items()}
    out = {name: np.empty(len(x)) for name in ("mean", "sd", "lower", "upper")}
    added = np.zeros(1)
    if noise and family.location_scale:
        none = np.zeros_like(z[0][chosen])
        added = family.sample(np.random.default_rng(seed), none, chosen_given)

    def fill(rows: slice) -> None:
        here = {name: value[rows, None] for name, value in extra.items()}
        eta = x[rows] @ z + here.pop("offset", 0.0)
        mean = family.mean(eta, {**given, **here})
        centre = mean @ weight
        spread = family.sd(eta, {**given, **here}) ** 2 if noise else 0.0
        out["mean"][rows] = centre
        out["sd"][rows] = np.sqrt((spread + (mean - centre[:, None]) ** 2) @ weight)
        if noise and family.name == "bernoulli":
            out["lower"][rows], out["upper"][rows] = (1 - centre < tail for tail in _tails(prob))
            return
        draws = mean[:, chosen] + added
        if sampled:
            for i, draw in enumerate(eta[:, chosen]):  # a row's outcomes do not depend on others
                mine = {**chosen_given, **{name: value[i] for name, value in here.items()}}
                draws[i] = family.sample(np.random.default_rng(seed), draw, mine)
        out["lower"][rows], out["upper"][rows] = _ends(draws, prob)

    in_pieces(fill, len(x), z.shape[1])
    return out


def in_pieces(fill: Callable[[slice], None], num_rows: int, num_cells: int) -> None:
    """Call `fill` for all rows, on all cores, in pieces whose `num_cells` cells fit a cache."""
    size = max(1, CHUNK_CELLS // num_cells)
    pieces = [slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(fill, pieces))


def _ends(values: Float[np.ndarray, "*n S"], prob: float) -> list[Float[np.ndarray, "*n"]]:
    """Return quantiles of the last axis, each one of its values, that enclose `prob`."""
    values = np.sort(values, axis=-1)
    count = values.shape[-1]
    return [values[..., max(0, math.ceil(count * tail - 1e-9) - 1)] for tail in _tails(prob)]


def _tails(prob: float) -> tuple[float, float]:
    return (1 - prob) / 2, (1 + prob) / 2


def probabilities(
    family: Family,
    position: PyTree,
    x: Float[np.ndarray, "N p"],
    extra: dict[str, Float[np.ndarray, " N"]],
    *,
    prob: float,
    weights: np.ndarray | None,
    max_draws: int,
    seed: int = 0,
) -> Float[np.ndarray, "3 N K"]:
    """Return [3, N, K]: each level's probability sum_s w_s P(level | s), and two quantiles.

    The quantiles of P(level | s) enclose `prob`. The seed is not used: nothing is drawn.

    Raises UsageError as `predictive`.
    """
    coefficients = np.asarray(position["coefficients"], np.float64)
    weight, kept = _weigh(weights, coefficients.shape[:-2], max_draws)
    chosen = _resampled(weight, max_draws)
    z = coefficients.reshape(-1, *coefficients.shape[-2:])[kept]
    out = np.empty((3, len(x), z.shape[1] + 1))

    def fill(rows: slice) -> None:
        eta = np.tensordot(x[rows], z, (1, 2))
        if "offset" in extra:
            eta = eta + extra["offset"][rows, None, None]
        each = np.moveaxis(family.mean(eta, {}), 1, -1)
        out[0, rows] = each @ weight
        out[1:, rows] = _ends(each[..., chosen], prob)

    in_pieces(fill, len(x), len(z) * out.shape[-1])
    return out


def _weigh(
    weights: np.ndarray | None, shape: tuple[int, ...], most: int
) -> tuple[Float[np.ndarray, " S"], Int[np.ndarray, " S"] | slice]:
    """Return normalised weights of at most `most` draws, and the flat indices of these draws."""
    if weights is not None and np.shape(weights) != shape:
        raise UsageError(f"weights have shape {np.shape(weights)}; the draws have {shape}.")
    flat = np.ones(shape).ravel() if weights is None else np.asarray(weights, np.float64).ravel()
    if not (np.all(np.isfinite(flat)) and np.all(flat >= 0) and flat.sum() > 0):
        raise UsageError("weights must be finite, not negative, and not all zero.")
    flat = flat / flat.sum()
    if flat.size <= most:
        return flat, slice(None)
    return np.full(most, 1 / most), _resampled(flat, most)


def _resampled(weight: Float[np.ndarray, " S"], most: int) -> Int[np.ndarray, " count"] | slice:
    """Return at most `most` draws that represent all equally, by systematic resampling."""
    places = systematic(weight, min(weight.size, most))
    if places.size == weight.size and np.all(places == np.arange(places.size)):
        return slice(None)  # each once
    return places
