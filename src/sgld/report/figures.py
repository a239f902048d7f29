"""The pictures of a run. Each function takes plain arrays and gives one panel as SVG text."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from .canvas import COLOURS, WIDE, Panel, in_two_lines

__all__ = ["by_scale", "forest", "marginal", "noise_phase", "over_steps", "trace"]

MOST_BINS = 50
MOST_CHAINS = 8
MOST_GROUPS = 4  # of intervals that share an axis
TRACE_POINTS = 200
LONG_NAME = 14  # of one line
LONG_LINE = 22  # of two


def by_scale(low: Float[np.ndarray, " m"], high: Float[np.ndarray, " m"]) -> list[np.ndarray]:
    """Indices of intervals that can share an axis with its zero, the furthest from zero first.

    An interval joins a group whose axis reaches to `top` where it reaches to a sixth of that,
    or is wide enough to be read on it: a twentieth. The last of MOST_GROUPS takes what is
    left. Order is kept within groups.
    """
    reach = np.maximum(np.abs(low), np.abs(high))
    groups: list[list[int]] = []
    for i in np.argsort(-reach, kind="stable"):
        size = max(reach[i], 10 / 3 * (high[i] - low[i]))
        fits = [group for group in groups if 6 * size >= reach[group[0]]]
        if not fits and len(groups) < MOST_GROUPS:
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
    """Rows of name, point and intervals on one axis with a line at zero, and the numbers.

    Where a name is long, names and numbers have two lines beside the bar.

    `span` is what the axis holds besides zero, where it is to be that of other panels.
    """
    count = len(names)
    tall = max(map(len, names)) > LONG_NAME
    panel = Panel("", (31 if tall else 20) * count + 34, width=WIDE)
    panel.label = f"Intervals of {', '.join(names)}"
    axes, y = panel.axes, np.arange(count)
    axes.axvline(0, color=COLOURS["muted"], linewidth=0.8, linestyle=(0, (3, 2)))
    axes.hlines(y, *outer, color=COLOURS["accent"], linewidth=1.2)
    axes.hlines(y, *inner, color=COLOURS["accent"], linewidth=3.6)
    axes.plot(
        middle, y, "o", color=COLOURS["accent"], markersize=4.5, markeredgecolor=COLOURS["paper"],
        markeredgewidth=0.7,
    )  # fmt: skip
    low, high = span or (outer[0].min(), outer[1].max())
    low, high = min(0.0, low), max(0.0, high)
    room = 0.04 * (high - low) or 1.0
    axes.set(xlim=(low - room, high + room), ylim=(count - 0.5, -0.5))
    panel.only_x()
    axes.grid(axis="x", color=COLOURS["line"], linewidth=0.5)
    axes.set_axisbelow(True)
    # outside the axes on both sides, so that no line crosses a letter
    for i, (name, ends) in enumerate(zip(names, outer.T, strict=True)):
        numbers = _interval_text(middle[i], ends)
        _beside(panel, i, in_two_lines(name, LONG_LINE) if tall else [name], "ink", -0.02, "right")
        _beside(panel, i, numbers if tall else ["  ".join(numbers)], "muted", 1.02, "left")
    panel.ticks("x", 4)
    return panel.svg()


def _beside(panel: Panel, row: int, lines: list[str], colour: str, x: float, side: str) -> None:
    """One line at the height of a row's bar, or two, above and below it."""
    style = {"transform": panel.axes.get_yaxis_transform(), "ha": side}
    heights = ["center"] if len(lines) == 1 else ["bottom", "top"]
    for line, height in zip(lines, heights, strict=True):
        panel.text(x, row, line, colour, va=height, **style)


def _interval_text(middle: float, ends: np.ndarray) -> list[str]:
    """The point, and its interval in brackets."""
    width = ends[1] - ends[0]  # of which a quarter is shown with two digits
    decimals = 1 - int(np.floor(np.log10(width / 4))) if width > 0 else 3
    plain = decimals <= 7 and abs(middle) < 1e6
    kind = f".{max(0, decimals)}f" if plain else ".3g"
    texts = f"{middle:{kind}}", f"[{ends[0]:{kind}}, {ends[1]:{kind}}]"
    return [text.replace("-", "\N{MINUS SIGN}") for text in texts]


def marginal(
    name: str,
    values: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    gaussian: tuple[float, float] | None = None,
    marks: Float[np.ndarray, " k"] | None = None,
) -> str:
    """The weighted histogram of one parameter, the curve of a Gaussian (mean, sd) over it, lines at `marks`."""
    panel = Panel(name, 130)
    low, high = _range(values, weights)
    bins = int(np.clip(np.sqrt(1 / np.sum((weights / weights.sum()) ** 2)), 8, MOST_BINS))
    height, edges = np.histogram(values, bins, (low, high), weights=weights)
    height = height / (weights.sum() * np.diff(edges))
    panel.axes.stairs(height, edges, fill=True, color=COLOURS["accent-soft"])
    panel.axes.stairs(height, edges, color=COLOURS["accent"], linewidth=0.8)
    top = height.max()
    if gaussian is not None and gaussian[1] > 0:
        mean, sd = gaussian
        x = np.unique(np.append(np.linspace(low, high, 120), mean + sd * np.linspace(-4, 4, 81)))
        x = x[(x >= low) & (x <= high)]
        curve = np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
        panel.axes.plot(x, curve, color=COLOURS["contrast"], linewidth=1.3)
        top = max(top, min(curve.max(initial=0.0), 3 * top))
    if marks is not None:
        inside = marks[(marks >= low) & (marks <= high)]
        panel.axes.vlines(inside, 0, 1.05 * top, color=COLOURS["contrast"], linewidth=1.0)
    panel.axes.set(xlim=(low, high), ylim=(0, 1.05 * top))
    panel.only_x()
    panel.ticks("x")
    return panel.svg()


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
    panel = Panel(name, 130)
    at = np.unique(np.linspace(0, len(steps) - 1, TRACE_POINTS).round().astype(int))
    values = values[:MOST_CHAINS, at]
    usual = [row for row in values if np.isfinite(row).all()]
    for chain, row in enumerate(values):
        good = np.isfinite(row)
        colour = COLOURS[f"chain-{chain % 6}"]
        panel.axes.plot(steps[at][good], row[good], color=colour, linewidth=0.7, alpha=0.85)
    if usual:
        low, high = np.min(usual), np.max(usual)
        room = 0.06 * (high - low) or 1e-3 * max(1.0, abs(low))
        panel.axes.set_ylim(low - room, high + room)
    panel.axes.set_xlim(steps[0], max(steps[-1], steps[0] + 1))
    panel.ticks("x")
    panel.ticks("y", 3)
    return panel.svg()


def over_steps(
    title: str, steps: Int[np.ndarray, " draw"], values: Float[np.ndarray, " draw"], burn_in: int
) -> str:
    """A step size or a temperature over the steps; its first value holds during burn-in."""
    panel = Panel(title, 190, width=WIDE, xlabel="step")
    x, y = _with_burn_in(steps, values, burn_in)
    panel.axes.plot(x, y, color=COLOURS["accent"], linewidth=1.6)
    ratio = y.max() / y.min() if y.min() > 0 else np.inf
    panel.axes.set_xlim(0, max(x[-1], 1))
    if 3 < ratio < np.inf:
        _log_axis(panel, y.min() / 1.4, y.max() * 1.4)
    else:
        panel.axes.set_ylim(0, 1.25 * y.max() or 1)
        panel.ticks("y", 4)
    _mark_burn_in(panel, burn_in, x[-1])
    panel.ticks("x")
    return panel.svg()


def noise_phase(
    steps: Int[np.ndarray, " n"], alpha: Float[np.ndarray, "n chain"], crossing: int | None
) -> str:
    """Welling & Teh's alpha of every chain: above 1 it optimises, below 1 it samples.

    `crossing` is the step at which the last chain comes below 1 for good; None: never.
    """
    panel = Panel("α, gradient noise / injected noise", 190, width=WIDE, xlabel="step")
    at = np.unique(np.linspace(0, len(steps) - 1, 400).round().astype(int))
    x, chains = steps[at].astype(float), np.asarray(alpha, float)[at, :MOST_CHAINS]
    usual = chains[np.isfinite(chains) & (chains > 0)]
    y = np.nan_to_num(chains, posinf=np.inf).max(axis=1)
    low, high = min(usual.min(initial=1.0) / 3, 0.03), max(usual.max(initial=0.0) * 3, 30.0)
    panel.axes.set_xlim(0, max(x[-1], 1))
    _log_axis(panel, low, high)
    panel.axes.axhspan(1, high, color=COLOURS["shade"], linewidth=0, zorder=0)
    panel.axes.axhline(1, color=COLOURS["contrast"], linewidth=1, linestyle=(0, (4, 2)))
    for chain, row in enumerate(np.clip(chains, low, high).T):
        panel.axes.plot(x, row, color=COLOURS[f"chain-{chain % 6}"], linewidth=1.2, alpha=0.85)
    if crossing is not None and crossing > x[0]:
        panel.axes.axvline(crossing, color=COLOURS["contrast"], linewidth=1)
        left = crossing > 0.5 * x[-1]
        panel.text(
            crossing, low * 1.25, f" samples from step {crossing:,} ", va="bottom",
            ha="right" if left else "left",
        )  # fmt: skip
    # the words stand where the curve ends least near
    upper = high if y[-1] < np.sqrt(high) else 1.7
    lower = low if y[-1] > np.sqrt(low) else 1 / 1.7
    end = 0.98 * max(x[-1], 1)
    panel.text(
        end, upper / 1.25, "optimisation phase", ha="right", va="top" if upper == high else "bottom"
    )
    panel.text(
        end, lower * 1.25, "sampling phase", ha="right", va="bottom" if lower == low else "top"
    )
    panel.ticks("x")
    return panel.svg()


def _with_burn_in(steps: np.ndarray, values: np.ndarray, burn_in: int) -> tuple:
    at = np.unique(np.linspace(0, len(steps) - 1, 400).round().astype(int))
    x, y = steps[at].astype(float), np.asarray(values, float)[at]
    return (np.append(0.0, x), np.append(y[0], y)) if burn_in else (x, y)


def _mark_burn_in(panel: Panel, burn_in: int, last: float) -> None:
    if burn_in > 0.01 * last:
        panel.axes.axvspan(0, burn_in, color=COLOURS["shade"], linewidth=0, zorder=0)
        panel.text(burn_in / last, 0.03, " burn-in", transform=panel.axes.transAxes, va="bottom")


def _log_axis(panel: Panel, low: float, high: float) -> None:
    """Powers of ten, or 1, 2, 5 where the axis spans little."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    panel.axes.set_yscale("log")
    panel.axes.set_ylim(low, high)
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    within = 10.0 ** decades[(10.0**decades >= low) & (10.0**decades <= high)]
    if len(within) < 3:
        fine = np.sort(np.concatenate([m * 10.0**decades for m in (1, 2, 5)]))
        within = fine[(fine >= low) & (fine <= high)]
    within = within[:: max(1, len(within) // 5)]
    panel.axes.yaxis.set_major_locator(FixedLocator(within.tolist()))
    panel.axes.yaxis.set_minor_locator(NullLocator())
    texts = [f"{v:g}".replace("e-0", "e-").replace("-", "\N{MINUS SIGN}") for v in within]
    panel.axes.yaxis.set_major_formatter(FixedFormatter(texts))
