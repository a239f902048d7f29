"""What a verdict in function space keeps for its pictures: a row per layer, and some of the predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..probe.predictions import CLASSES, LIKELIHOODS
from ..results import statistics
from ..results.verdict import Verdict
from .predictions import Seen

__all__ = ["with_details"]

TRACES, CHAINS, POINTS = 6, 8, 100  # numbers, the worst of them; chains; draws of a chain
DIGITS = 5
TOGETHER = 2**16  # weights whose draws are copied together


def with_details(verdict: Verdict, seen: Seen, z: np.ndarray | None) -> Verdict:
    """The verdict with `extra["layers"]`, of weights z [chain, draw, d], and `extra["predictions"]["pictured"]`."""
    extra = dict(verdict.extra)
    if z is not None:
        extra["layers"] = _layers(seen, verdict, z)
    if seen.predicted.size and np.isfinite(seen.predicted).all():
        extra["predictions"] = {**extra["predictions"], "pictured": pictured(seen)}
    return replace(verdict, extra=extra)


def pictured(seen: Seen) -> dict[str, Any]:
    """Predictions of the probe rows, and traces of those that mixed worst.

        H[mean_s p_s] = mean_s H[p_s] + what draws disagree about     (nats)

    Of classes `entropy` and `aleatoric` of each row; of means `mean`, and the 5% and 95% quantiles of
    each row's first number, `low` and `high`; of both `traces`: row, number, values [chain, draw].
    """
    predicted = np.asarray(seen.predicted, np.float64)
    found: dict[str, Any] = {"traces": _traces(seen, predicted)}
    if seen.kind == CLASSES:
        p = np.einsum("cd,cdmk->mk", seen.weights, np.exp(predicted))
        each = -np.sum(np.exp(predicted) * predicted, axis=-1)
        found["entropy"] = _short(-np.sum(p * np.log(np.maximum(p, 1e-300)), axis=-1))
        found["aleatoric"] = _short(np.einsum("cd,cdm->m", seen.weights, each))
    elif seen.kind != LIKELIHOODS:
        first = predicted[..., 0]
        found["mean"] = _short(statistics.mean(first, seen.weights))
        for name, q in (("low", 0.05), ("high", 0.95)):
            found[name] = _short(statistics.quantile(first, seen.weights, q))
    return found


def _traces(seen: Seen, predicted: np.ndarray) -> list[dict[str, Any]]:
    """Of classes the probability, else the number, whose ESS is lowest, each of another row."""
    _, draws, rows, width = predicted.shape
    ess = np.asarray(statistics.Estimates(seen.values, seen.weights).mixing.ess)
    ess = np.nan_to_num(ess.reshape(rows, width), nan=0.0)
    number = ess.argmin(axis=1)
    worst = np.argsort(ess.min(axis=1), kind="stable")[:TRACES]
    at = np.unique(np.linspace(0, draws - 1, POINTS).round().astype(int))
    values = np.exp(predicted) if seen.kind == CLASSES else predicted
    return [
        {"row": int(i), "number": int(number[i]),
         "values": [_short(chain) for chain in values[:CHAINS, at, i, number[i]]]}
        for i in worst
    ]  # fmt: skip


def _short(values: np.ndarray) -> list[float]:
    """With few digits: they are for pictures."""
    return [float(f"{value:.{DIGITS}g}") for value in np.asarray(values)]


def _layers(seen: Seen, verdict: Verdict, z: np.ndarray) -> list[dict[str, Any]]:
    """Of every layer: weights, mean and sd of one of them, temperature; z [chain, draw, d]."""
    warmth = verdict.extra["predictions"]["temperatures"]
    found = []
    for name, size, begin in zip(
        seen.layers.names, seen.layers.sizes, seen.layers.starts, strict=True
    ):
        here = z[..., begin : begin + size]
        found.append({
            "name": name, "weights": size, "mean": float(here.mean(dtype=np.float64)),
            "sd": float(np.sqrt(_variances(here).mean(dtype=np.float64))),
            "temperature": (warmth.get(name) or [None])[0],
        })  # fmt: skip
    return found


def _variances(z: np.ndarray) -> np.ndarray:
    """Of every weight over all chains and draws; nothing as large as z is copied."""
    pieces = [z[..., at : at + TOGETHER] for at in range(0, z.shape[-1], TOGETHER)]
    return np.concatenate([piece.reshape(-1, piece.shape[-1]).var(axis=0) for piece in pieces])
