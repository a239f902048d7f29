"""The table of a network's layers: a few lines, however many weights there are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.text import columns

__all__ = ["HEADS", "MOST_LINES", "VAST", "layer_rows", "layer_table", "predictions_lines"]

Layer = Mapping[str, Any]
VAST = 1000.0  # a temperature that is told by its first digits
HEADS = ("layer", "weights", "mean", "sd", "temperature")
MOST_LINES = 15


def layer_rows(layers: Sequence[Layer]) -> list[list[str]]:
    """Cells of every layer, of groups of them where they are many, and of the rest together.

    Groups have the names of their layers up to a last attribute or index.

    Example:
      >>> one = {"name": "net.weight", "weights": 4, "mean": 0.0, "sd": 1.0, "temperature": 1.0}
      >>> layer_rows([one, {**one, "name": "net.bias", "temperature": None}])
      [['net.weight', '4', '0', '1', '1.000'], ['net.bias', '4', '0', '1', '-']]
    """
    shown = list(layers)
    while len(shown) > MOST_LINES:
        grouped = _grouped(shown)
        if len(grouped) == len(shown):
            break
        shown = grouped
    if len(shown) > MOST_LINES:
        rest = shown[MOST_LINES - 1 :]
        shown = [*shown[: MOST_LINES - 1], _together(f"{len(rest)} more", rest)]
    return [
        [
            str(layer["name"]), f"{layer['weights']:,}", _layer_text(layer["mean"], ".4g"),
            _layer_text(layer["sd"], ".4g"), _warmth(layer["temperature"]),
        ] for layer in shown
    ]  # fmt: skip


def layer_table(layers: Sequence[Layer]) -> list[str]:
    """Lines of text."""
    return columns([list(HEADS), *layer_rows(layers)])


def predictions_lines(found: Mapping[str, Any]) -> list[str]:
    """How well the predictions at probe rows have mixed, in a line, and the stiffest directions in another.

    Example:
      >>> found = {"kind": "means", "rows": 64, "r_hat": 1.01, "max_r_hat": 1.02, "ess": 240.0,
      ...     "variation": None, "temperatures": {"the stiffest directions": [1.02, 0.01]}}
      >>> predictions_lines(found)
      ['predictions (means) at 64 rows: R-hat 1.010 (95%), 1.020 (all), ESS 240',
       'temperature of the stiffest directions: 1.020 +- 0.010']
    """
    text = (
        f"predictions ({found['kind']}) at {found['rows']} rows: R-hat {_layer_text(found['r_hat'], '.3f')} (95%), "
        f"{_layer_text(found['max_r_hat'], '.3f')} (all), ESS {_layer_text(found['ess'], '.0f')}"
    )
    if found.get("variation") is not None:
        text += f", total variation between halves of the chains {found['variation']:.4f}"
    stiff = list(found["temperatures"].items())[-1:]
    return [
        text,
        *(f"temperature of {name}: {_warmth(t)} +- {_warmth(se)}" for name, (t, se) in stiff),
    ]


def _grouped(layers: Sequence[Layer]) -> list[Layer]:
    groups: dict[str, list[Layer]] = {}
    for layer in layers:
        stem = re.sub(r"(\.[^.\[\]]+|\[\d+\])$", "", str(layer["name"]))
        groups.setdefault(stem, []).append(layer)
    return [_together(name, parts) for name, parts in groups.items()]


def _together(name: str, parts: Sequence[Layer]) -> Layer:
    """Several layers as one: means by their weights, the temperature of the warmest."""
    size = np.array([part["weights"] for part in parts], float)
    known = [part["temperature"] for part in parts if part["temperature"] is not None]
    return {
        "name": name,
        "weights": int(size.sum()),
        "mean": float(np.average([part["mean"] for part in parts], weights=size)),
        "sd": float(np.sqrt(np.average([part["sd"] ** 2 for part in parts], weights=size))),
        "temperature": max(known) if known else None,
    }


def _warmth(value: float | None) -> str:
    return _layer_text(value, ".3f" if value is None or value < VAST else ".3g")


def _layer_text(value: float | None, form: str) -> str:
    return "-" if value is None or not np.isfinite(value) else format(value, form)
