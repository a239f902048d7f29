"""The pictures of a run. Each function takes plain arrays and gives one panel as SVG text."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from .drawing import FONT_SIZE, WIDE, Axis, Drawing, linear_axis, log_axis, shorten, text_width

__all__ = ["by_scale", "forest", "marginal", "noise_phase", "over_steps", "trace"]

MOST_BINS = 50
MOST_CHAINS = 8
TRACE_POINTS = 200
LONG_NAME = 14


def by_scale(
    low: Float[np.ndarray, " m"], high: Float[np.ndarray, " m"], *, most: int = 4
) -> list[np.ndarray]:
    """Indices of intervals that can share an axis with its zero, the furthest from zero first.

    An interval joins a group whose axis reaches to `top` where it reaches to a sixth of that,
    or is wide enough to be read on it: a twentieth. The last of `most` groups takes what is
    left. Order is kept within groups.
    """
    reach = np.maximum(np.abs(low), np.abs(high))
    groups: list[list[int]] = []
    for i in np.argsort(-reach, kind="stable"):
        size = max(reach[i], 10 / 3 * (high[i] - low[i]))
        fits = [group for group in groups if 6 * size >= reach[group[0]]]
        if not fits and len(groups) < most:
            groups.append([])
        (fits or groups[-1:])[0].append(int(i))
    return [np.sort(group) for group in groups]


def forest(
    names: list[str],
    outer: Float[np.ndarray, "2 m"],
    inner: Float[np.ndarray, "2 m"],
    middle: Float[np.ndarray, " m"],
    span: tuple[float, float] | None = None,
) -> str:
    """Rows of point and intervals on one axis, the numbers beside them, with a line at zero.

    `span` is what the axis holds besides zero, where it is to be that of other panels.
    """
    count = len(names)
    two_lines = max(map(len, names)) > LONG_NAME
    numbers = [_interval_text(m, o) for m, o in zip(middle, outer.T, strict=True)]
    low, high = span or (outer[0].min(), outer[1].max())
    low, high = min(0.0, low), max(0.0, high)
    room = 0.04 * (high - low) or 1.0
    x = linear_axis(low - room, high + room, 6 if two_lines else 4, room=0.05)
    sides = [max(text_width(t, FONT_SIZE - 0.5) for t in texts) + 8 for texts in (names, numbers)]
    left, right = (0.0, 0.0) if two_lines else sides
    height, y = (31 if two_lines else 20) * count + 26, np.arange(count)
    top = -0.75 if two_lines else -0.5
    panel = Drawing("", height, x, Axis(count - 0.5, top), width=WIDE, left=left, right=right)
    panel.label = f"Intervals of {', '.join(names)}"
    for place in x.places:
        panel.line(np.full(2, place), [count - 0.5, top], "line", 0.5)
    panel.line(np.zeros(2), [count - 0.5, top], "muted", 0.8, dash="2.4 1.6")
    panel.segments(outer[0], y, outer[1], y, "accent", 1.2)
    panel.segments(inner[0], y, inner[1], y, "accent", 3.6)
    panel.dots(middle, y, "accent", edge="paper")
    for i, (name, text) in enumerate(zip(names, numbers, strict=True)):
        at = 1 - (i - top) / (count - 0.5 - top)
        if two_lines:
            panel.text(0, at, shorten(name, 36), "ink", dy=-7, places=True)
            panel.text(1, at, text, anchor="end", dy=-7, places=True)
        else:
            panel.text(0, at, name, "ink", anchor="end", dx=-5, dy=3.5, places=True)
            panel.text(1, at, text, dx=5, dy=3.5, places=True)
    return panel.svg()


def _interval_text(middle: float, ends: np.ndarray) -> str:
    width = ends[1] - ends[0]  # of which a quarter is shown with two digits
    decimals = 1 - int(np.floor(np.log10(width / 4))) if width > 0 else 3
    if decimals <= 7 and abs(middle) < 1e6:
        digits = max(0, decimals)
        text = f"{middle:.{digits}f}  [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"
    else:
        text = f"{middle:.3g}  [{ends[0]:.3g}, {ends[1]:.3g}]"
    return text.replace("-", "\N{MINUS SIGN}")


def marginal(
    name: str,
    values: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    gaussian: tuple[float, float] | None = None,
) -> str:
    """The weighted histogram of one parameter, the curve of a Gaussian (mean, sd) over it."""
    low, high = _range(values, weights)
    bins = int(np.clip(np.sqrt(1 / np.sum((weights / weights.sum()) ** 2)), 8, MOST_BINS))
    height, edges = np.histogram(values, bins, (low, high), weights=weights)
    height = height / (weights.sum() * np.diff(edges))
    top, x, curve = height.max(), np.zeros(0), np.zeros(0)
    if gaussian is not None and gaussian[1] > 0:
        mean, sd = gaussian
        x = np.unique(np.append(np.linspace(low, high, 120), mean + sd * np.linspace(-4, 4, 81)))
        x = x[(x >= low) & (x <= high)]
        curve = np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
        top = max(top, min(curve.max(initial=0.0), 3 * top))
    panel = Drawing(name, 130, linear_axis(low, high, room=0.05), Axis(0, 1.05 * top))
    panel.area(*_steps(edges, height), "accent-soft")
    panel.line(*_outline(edges, height), "accent", 0.8)
    panel.line(x, curve, "contrast", 1.3)
    return panel.svg()


def _steps(edges: np.ndarray, height: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Corners of a histogram: x, the floor, and the height at each."""
    return np.repeat(edges, 2)[1:-1], 0.0, np.repeat(height, 2)


def _outline(edges: np.ndarray, height: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The line around a histogram, from the floor to the floor."""
    return np.repeat(edges, 2), np.concatenate([[0.0], np.repeat(height, 2), [0.0]])


def _range(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """From the .1% to the 99.9% quantile and a little more; some width around a single value."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    low, high = values[order][np.searchsorted(share, [0.001, 0.999]).clip(max=len(values) - 1)]
    room = 0.08 * (high - low) or max(1e-6, 1e-3 * abs(low))
    return low - room, high + room


def trace(
    name: str, steps: Int[np.ndarray, " draw"], values: Float[np.ndarray, "chain draw"]
) -> str:
    """One parameter over the steps, a colour per chain, evenly thinned; failed draws are left out."""
    at = np.unique(np.linspace(0, len(steps) - 1, TRACE_POINTS).round().astype(int))
    values = values[:MOST_CHAINS, at]
    usual = [row for row in values if np.isfinite(row).all()]
    low, high = (np.min(usual), np.max(usual)) if usual else (0.0, 1.0)
    room = 0.06 * (high - low) or 1e-3 * max(1.0, abs(low))
    x = linear_axis(steps[0], max(steps[-1], steps[0] + 1), room=0.01)
    panel = Drawing(name, 130, x, linear_axis(low - room, high + room, 3))
    for chain, row in enumerate(values):
        good = np.isfinite(row)
        panel.line(steps[at][good], row[good], f"chain-{chain % 6}", 0.7, opacity=0.85)
    return panel.svg()


def over_steps(
    title: str, steps: Int[np.ndarray, " draw"], values: Float[np.ndarray, " draw"], burn_in: int
) -> str:
    """A step size or a temperature over the steps; its first value holds during burn-in."""
    x, y = _with_burn_in(steps, values, burn_in)
    ratio = y.max() / y.min() if y.min() > 0 else np.inf
    tall = linear_axis(0, 1.25 * y.max() or 1, 4)
    if 3 < ratio < np.inf:
        tall = log_axis(y.min() / 1.4, y.max() * 1.4)
    along = linear_axis(0, max(x[-1], 1), label="step", room=0.01)
    panel = Drawing(title, 190, along, tall, width=WIDE)
    if burn_in > 0.01 * x[-1]:
        panel.block((0, burn_in), (tall.low, tall.high), "shade")
        panel.text(burn_in / along.high, 0.03, "burn-in", dx=4, places=True)
    panel.line(x, y, "accent", 1.6)
    return panel.svg()


def noise_phase(
    steps: Int[np.ndarray, " n"], alpha: Float[np.ndarray, "n chain"], crossing: int | None
) -> str:
    """Welling & Teh's alpha of every chain: above 1 it optimises, below 1 it samples.

    `crossing` is the step at which the last chain comes below 1 for good; None: never.
    """
    at = np.unique(np.linspace(0, len(steps) - 1, 400).round().astype(int))
    x, chains = steps[at].astype(float), np.asarray(alpha, float)[at, :MOST_CHAINS]
    usual = chains[np.isfinite(chains) & (chains > 0)]
    y = np.nan_to_num(chains, posinf=np.inf).max(axis=1)
    low, high = min(usual.min(initial=1.0) / 3, 0.03), max(usual.max(initial=0.0) * 3, 30.0)
    along = linear_axis(0, max(x[-1], 1), label="step", room=0.01)
    panel = Drawing(
        "α, gradient noise / injected noise", 190, along, log_axis(low, high), width=WIDE
    )
    panel.block((0, along.high), (1, high), "shade")
    panel.line([0, along.high], np.ones(2), "contrast", 1, dash="4 2")
    for chain, row in enumerate(np.clip(chains, low, high).T):
        good = np.isfinite(row)
        panel.line(x[good], row[good], f"chain-{chain % 6}", 1.2, opacity=0.85)
    if crossing is not None and crossing > x[0]:
        panel.line(np.full(2, crossing), [low, high], "contrast", 1)
        end = crossing > 0.5 * x[-1]
        words = f"samples from step {crossing:,}"
        panel.text(
            crossing, low, words, anchor="end" if end else "start", dx=-4 if end else 4, dy=-4
        )
    # the words stand where the curve ends least near
    above = (high, 13) if y[-1] < np.sqrt(high) else (1.0, -5)
    below = (low, -4) if y[-1] > np.sqrt(low) else (1.0, 13)
    for words, (place, dy) in (("optimisation phase", above), ("sampling phase", below)):
        panel.text(along.high, place, words, anchor="end", dx=-5, dy=dy)
    return panel.svg()


def _with_burn_in(steps: np.ndarray, values: np.ndarray, burn_in: int) -> tuple:
    at = np.unique(np.linspace(0, len(steps) - 1, 400).round().astype(int))
    x, y = steps[at].astype(float), np.asarray(values, float)[at]
    return (np.append(0.0, x), np.append(y[0], y)) if burn_in else (x, y)
