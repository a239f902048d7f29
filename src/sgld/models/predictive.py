"""Posterior predictive means, sds and intervals, in NumPy and in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..checks import fraction
from ..errors import UsageError
from .family import Family

__all__ = ["predictive", "probabilities"]

PyTree = Any
CHUNK_CELLS = 4_000_000  # draws times rows held at once


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
) -> dict[str, Float[np.ndarray, " N"]]:
    """`mean`, `sd`, `lower`, `upper` of y for every row of x, over draws with weights w.

        mean = sum_s w_s E[y | s],     sd^2 = sum_s w_s (Var[y | s] + (E[y | s] - mean)^2)

    The interval's ends are quantiles of one outcome sampled from each of at most `max_draws`
    draws. `position`, `x` and the offset in `extra` are of one scale, and the result is too.

    Raises UsageError for prob outside (0, 1), or weights of another shape or not weights.
    """
    fraction("prob", prob)
    coefficients = np.asarray(position["coefficients"], np.float64)
    weight, chosen = _weigh(weights, coefficients.shape[:-1], max_draws)
    z = coefficients.reshape(-1, coefficients.shape[-1])
    noise = {
        name: np.asarray(position[name], np.float64).reshape(-1, 1) for name in family.dispersion
    }
    chosen_noise = {name: value[chosen] for name, value in noise.items()}
    out = {name: np.empty(len(x)) for name in ("mean", "sd", "lower", "upper")}
    size = max(1, CHUNK_CELLS // len(z))
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        here = {name: value[rows] for name, value in extra.items()}
        eta = z @ x[rows].T + here.pop("offset", 0.0)
        mean = family.mean(eta, {**noise, **here})
        centre = weight @ mean
        spread = family.sd(eta, {**noise, **here}) ** 2
        out["mean"][rows] = centre
        out["sd"][rows] = np.sqrt(weight @ (spread + (mean - centre) ** 2))
        rng = np.random.default_rng([seed, start])
        draws = family.sample(rng, eta[chosen], {**chosen_noise, **here})
        out["lower"][rows], out["upper"][rows] = np.quantile(
            draws, [(1 - prob) / 2, (1 + prob) / 2], axis=0, method="inverted_cdf"
        )
    return out


def probabilities(
    family: Family,
    position: PyTree,
    x: Float[np.ndarray, "N p"],
    extra: dict[str, Float[np.ndarray, " N"]],
    *,
    weights: np.ndarray | None,
) -> Float[np.ndarray, "N K"]:
    """Of each level of a categorical outcome, for every row of x: sum_s w_s P(level | s).

    Raises UsageError as `predictive`.
    """
    coefficients = np.asarray(position["coefficients"], np.float64)
    weight, _ = _weigh(weights, coefficients.shape[:-2], 1)
    z = coefficients.reshape(-1, *coefficients.shape[-2:])
    out = np.empty((len(x), z.shape[1] + 1))
    size = max(1, CHUNK_CELLS // (len(z) * out.shape[1]))
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        eta = np.einsum("skp,np->snk", z, x[rows])
        if "offset" in extra:
            eta = eta + extra["offset"][rows, None]
        out[rows] = np.einsum("s,snk->nk", weight, family.mean(eta, {}))
    return out


def _weigh(
    weights: np.ndarray | None, shape: tuple[int, ...], most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Normalised flat weights [S], and indices of draws that stand for them with equal weights."""
    if weights is not None and np.shape(weights) != shape:
        raise UsageError(f"weights have shape {np.shape(weights)}; the draws have {shape}.")
    flat = np.ones(shape).ravel() if weights is None else np.asarray(weights, np.float64).ravel()
    if not (np.all(np.isfinite(flat)) and np.all(flat >= 0) and flat.sum() > 0):
        raise UsageError("weights must be finite, not negative, and not all zero.")
    flat = flat / flat.sum()
    count = min(flat.size, most)
    # systematic resampling; without weights and within `most` it is every draw once
    places = np.searchsorted(np.cumsum(flat), (np.arange(count) + 0.5) / count)
    return flat, np.minimum(places, flat.size - 1)
