"""The modes of a run as pictures: how much of the mass each holds, and where it lies between them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ..results.verdict import Modes
from .canvas import COLOURS, WIDE, Panel

__all__ = ["along", "masses", "separating"]

BINS = 60


def masses(modes: Modes) -> str:
    """A bar for each mode, with two standard errors where its mass was measured."""
    count, errors = len(modes), modes.mass_se
    panel = Panel("Mass of each mode", 22 * count + 52, width=WIDE)
    y = np.arange(count)
    panel.axes.barh(y, modes.mass, height=0.62, color=COLOURS["accent-soft"])
    if errors is not None:
        panel.axes.hlines(
            y, np.clip(modes.mass - 2 * errors, 0, 1), np.clip(modes.mass + 2 * errors, 0, 1),
            color=COLOURS["contrast"], linewidth=2.2,
        )  # fmt: skip
    panel.axes.set(xlim=(0, 1), ylim=(count - 0.45, -0.55))
    panel.only_x()
    panel.ticks("x", 5)
    across = panel.axes.get_yaxis_transform()
    for k in range(count):
        style = {"transform": across, "va": "center"}
        error = "" if errors is None else f" ± {errors[k]:.2g}"
        panel.text(-0.02, k, f"mode {k + 1}", "ink", ha="right", **style)
        panel.text(1.02, k, f"{modes.mass[k]:.3g}{error}", ha="left", **style)
    return panel.svg()


def separating(
    modes: Modes, values: Float[np.ndarray, "n m"], one: int, other: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws and modes along the direction that tells two modes apart: 0 at one, 1 at the other.

    Fisher's direction, S^{-1} (m_2 - m_1), S the variances of draws around the nearest mode.
    """
    places = modes.position
    scale = np.maximum(values.std(0), 1e-300)
    away = ((values[:, None] - places) / scale) ** 2
    nearest = np.argmin(away.sum(-1), axis=1)
    within = np.maximum(((values - places[nearest]) ** 2).mean(0), 1e-12 * scale**2)
    direction = (places[other] - places[one]) / within
    length = float(direction @ (places[other] - places[one]))
    if not length > 0:
        return np.zeros(len(values)), np.zeros(len(places))
    project = lambda x: (x - places[one]) @ direction / length  # noqa: E731
    return project(values), project(places)


def along(
    values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"],
    places: Float[np.ndarray, " k"], one: int, other: int,
) -> str:  # fmt: skip
    """The weighted histogram along a direction from mode to mode, the modes marked by number."""
    title = f"From mode {one + 1} (0) to mode {other + 1} (1), draws weighted"
    panel = Panel(title, 150, width=WIDE)
    inside = np.append(np.quantile(values, [0.001, 0.999]), places)
    room = 0.06 * float(np.ptp(inside)) or 1.0
    low, high = float(inside.min()) - room, float(inside.max()) + room
    height, edges = np.histogram(values, BINS, (low, high), weights=weights)
    panel.axes.stairs(height, edges, fill=True, color=COLOURS["accent-soft"])
    panel.axes.stairs(height, edges, color=COLOURS["accent"], linewidth=0.8)
    top = max(float(height.max()), 1e-300)
    panel.axes.vlines(places, 0, 1.12 * top, color=COLOURS["contrast"], linewidth=1.2)
    for k, place in enumerate(places):
        panel.text(place, 1.14 * top, f"{k + 1}", ha="center", va="bottom")
    panel.axes.set(xlim=(low, high), ylim=(0, 1.35 * top))
    panel.only_x()
    panel.ticks("x")
    return panel.svg()
