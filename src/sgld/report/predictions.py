"""Pictures of what a network predicts at the probe rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import figures
from .canvas import COLOURS, WIDE, Panel

__all__ = ["pictures"]


def pictures(found: Mapping[str, Any]) -> tuple[list[str], list[str], str]:
    """One panel of all probe rows where there is one, the traces of those that mixed worst, and what they show.

    Args:
      found: what `diagnose.pictured` kept.
    """
    wide, said = [], ""
    if "entropy" in found:
        wide.append(_entropy(np.array(found["entropy"]), np.array(found["aleatoric"])))
        said = (
            "The entropy of each row's probabilities: what a single network is unsure of, on average (aleatoric), and "
            "what the draws disagree about, which more data would remove (epistemic)."
        )
    elif "mean" in found:
        wide.append(_intervals(*(np.array(found[name]) for name in ("mean", "low", "high"))))
        said = "Mean and 90% interval of what is predicted, without the noise of outcomes."
    return wide, [_trace(one) for one in found["traces"]], said


def _entropy(entropy: np.ndarray, aleatoric: np.ndarray) -> str:
    order = np.argsort(-entropy, kind="stable")
    entropy, aleatoric = entropy[order], np.minimum(aleatoric, entropy)[order]
    panel = Panel("Entropy of predictions, in nats", 190, width=WIDE, xlabel="probe row, in order")
    x = np.arange(len(entropy))
    panel.axes.bar(x, aleatoric, 0.85, color=COLOURS["accent-soft"], label="aleatoric")
    panel.axes.bar(
        x, entropy - aleatoric, 0.85, bottom=aleatoric, color=COLOURS["contrast"], label="epistemic"
    )
    panel.axes.set(xlim=(-0.6, len(x) - 0.4), ylim=(0, 1.1 * max(entropy.max(), 1e-6)))
    panel.ticks("x")
    panel.ticks("y", 4)
    panel.legend(loc="upper right")
    return panel.svg()


def _intervals(mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    order = np.argsort(mean, kind="stable")
    panel = Panel("Predictions", 190, width=WIDE, xlabel="probe row, in order")
    x = np.arange(len(mean))
    panel.axes.vlines(x, low[order], high[order], color=COLOURS["accent"], linewidth=1.6)
    panel.axes.plot(x, mean[order], "o", color=COLOURS["accent"], markersize=3)
    panel.axes.set_xlim(-0.6, len(x) - 0.4)
    panel.ticks("x")
    panel.ticks("y", 4)
    return panel.svg()


def _trace(one: Mapping[str, Any]) -> str:
    values = np.array(one["values"])
    name = f"row {one['row']}, output {one['number']}"
    return figures.trace(name, np.arange(values.shape[1]), values)
