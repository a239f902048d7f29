"""Figures that several entries share, in the report's hand: every function gives one Panel.

An entry may draw on `panel.axes` besides; colours must be those of `COLOURS`, which the page
changes for a dark screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..interfaces.report.figures import COLOURS, WIDE, WIDTH, Panel

__all__ = ["COLOURS", "STYLES", "WIDE", "WIDTH", "Panel", "histogram", "lines", "log_axis"]

# the exact answer first, then what a formula predicts, then anything else
STYLES: tuple[dict[str, Any], ...] = (
    {"color": COLOURS["contrast"], "linewidth": 1.6},
    {"color": COLOURS["ink"], "linewidth": 1.1, "linestyle": (0, (4, 2))},
    {"color": COLOURS["chain-2"], "linewidth": 1.3},
    {"color": COLOURS["chain-3"], "linewidth": 1.3},
)
MOST_POINTS = 600


def histogram(
    title: str,
    values: Float[Any, " n"],
    curves: Sequence[Callable[[Any], Any]] = (),
    *,
    span: tuple[float, float] | None = None,
    top: float | None = None,
    bins: int = 50,
    height: float = 140,
    weights: Float[Any, " n"] | None = None,
) -> Panel:
    """Draws as a histogram of area 1, and densities drawn over it in the order of `STYLES`.

    Args:
      values: [n]; those outside the span count towards the area but are not drawn.
      curves: functions x -> density, such as `law.pdf` of a scipy law.
      span: of the x axis; default: the values and a little more.
      top: of the y axis; default: the highest bar or curve, but at most 4 times the highest bar.
      weights: [n], of the values.
    """
    values = np.asarray(values, float).ravel()
    weights = np.ones(values.size) if weights is None else np.asarray(weights, float).ravel()
    if span is None:
        low, high = np.quantile(values, [0.0005, 0.9995])
        room = 0.08 * (high - low) or max(1e-6, 1e-3 * abs(low))
        span = (low - room, high + room)
    panel = Panel(title, height)
    bar, edges = np.histogram(values, bins, span, weights=weights)
    bar = bar / (weights.sum() * np.diff(edges))
    panel.axes.stairs(bar, edges, fill=True, color=COLOURS["accent-soft"])
    panel.axes.stairs(bar, edges, color=COLOURS["accent"], linewidth=0.8)
    x, highest = np.linspace(*span, 301), bar.max()
    for curve, style in zip(curves, STYLES, strict=False):
        y = np.asarray(curve(x), float)
        panel.axes.plot(x, y, **style)
        highest = max(highest, min(y.max(), 4 * bar.max()))
    panel.axes.set(xlim=span, ylim=(0, 1.05 * (top or highest)))
    panel.only_x()
    panel.ticks("x")
    return panel


def lines(
    title: str,
    curves: Sequence[tuple[str, Any, Any]],
    *,
    styles: Sequence[dict[str, Any]] = STYLES,
    xlabel: str = "",
    ylabel: str = "",
    log: str = "",
    xlim: tuple[float, float] | None = None,
    ylim: tuple[float, float] | None = None,
    level: float | None = None,
    width: float = WIDTH,
    height: float = 170,
    legend: str | None = "best",
) -> Panel:
    """Curves (label, x [n], y [n]); `level` is a horizontal line at the truth.

    `log` names the axes with a logarithmic scale: "", "x", "y" or "xy"; `legend` is where
    matplotlib puts it, None for none. Long curves are thinned to what a page can show.
    """
    panel = Panel(title, height, width=width, xlabel=xlabel, ylabel=ylabel)
    if level is not None:
        panel.axes.axhline(level, color=COLOURS["contrast"], linewidth=1.2)
    for (label, x, y), style in zip(curves, styles, strict=False):
        x, y = np.asarray(x, float), np.asarray(y, float)
        at = np.unique(np.linspace(0, x.size - 1, min(x.size, MOST_POINTS)).round().astype(int))
        panel.axes.plot(x[at], y[at], label=label or None, **style)
    panel.axes.margins(x=0.02)
    if xlim is not None:
        panel.axes.set_xlim(xlim)
    if ylim is not None:
        panel.axes.set_ylim(ylim)
    for axis in "xy":
        if axis in log:
            log_axis(panel, axis)
        else:
            panel.ticks(axis, 5 if axis == "x" else 4)
    if legend is not None and any(label for label, _, _ in curves):
        panel.legend(loc=legend)
    return panel


def log_axis(panel: Panel, axis: str) -> None:
    """A logarithmic axis with few plain numbers: powers of ten, or 1, 2, 5 where it spans little."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    getattr(panel.axes, f"set_{axis}scale")("log")
    low, high = getattr(panel.axes, f"get_{axis}lim")()
    powers = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    places = 10.0**powers
    if np.sum((places >= low) & (places <= high)) < 3:
        places = np.sort(np.concatenate([m * 10.0**powers for m in (1, 2, 5)]))
    places = places[(places >= low) & (places <= high)]
    places = places[:: max(1, -(-len(places) // 6))]
    which = getattr(panel.axes, f"{axis}axis")
    which.set_major_locator(FixedLocator(places.tolist()))
    which.set_minor_locator(NullLocator())
    texts = [f"{v:g}".replace("e-0", "e-").replace("-", "\N{MINUS SIGN}") for v in places]
    which.set_major_formatter(FixedFormatter(texts))
