"""Plots of a run: each function takes plain arrays and returns one panel as SVG text.

A panel is a matplotlib figure that takes its colours and its font from the page. Text stays text,
so a panel is small, can be searched and prints sharply. Every panel has a width of 330 or 380
units, about that of a phone, so one font size fits all; pages place several panels next to each
other. The code uses no pyplot and no global state.

Plots of modes show the mass of each mode, and the density between two modes.
"""

from __future__ import annotations

import io
import re
import warnings
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ...errors import need
from ...results.verdict import Modes

# -- canvas --------------------------------------------------------------------------------


FIGURE_WIDTH = 330
WIDE_WIDTH = 380
FONT_SIZE = 11
# where to break a name, best first: between terms, before brackets, after words, anywhere
NAME_BREAKS = (r"(?<=: )|(?=:(?! ))", r"(?=[\[(])", r"(?<=[ _.-])", r"(?=.)")

# name of the page's variable -> matplotlib's colour; each colour occurs once
COLOURS = {
    "ink": "#1d2733",
    "muted": "#66717f",
    "line": "#d4dae1",
    "accent": "#2563a8",
    "accent-soft": "#8fb6de",
    "contrast": "#c2410c",
    "shade": "#eef1f5",
    "paper": "#fffffe",
    "chain-0": "#2b6cb0",
    "chain-1": "#c05621",
    "chain-2": "#2f855a",
    "chain-3": "#9b4d96",
    "chain-4": "#b7791f",
    "chain-5": "#4c7a8a",
}


class Panel:
    """One figure with one axes; `svg` returns the element for the page.

    Args:
      title: text above the axes, left; also the label for screen readers.
      height: in units of a panel of width `width`.
      width: the width in units.
      xlabel: the label of the x axis.
      ylabel: the label of the y axis.
    """

    def __init__(
        self,
        title: str,
        height: float = 150,
        *,
        width: float = FIGURE_WIDTH,
        xlabel: str = "",
        ylabel: str = "",
    ) -> None:
        need("matplotlib", "report")
        from matplotlib.figure import Figure

        self.label = printable(title)
        self.bare = False
        self.figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        self.figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr]
        self.axes: Any = self.figure.add_subplot()
        self.figure.patch.set_visible(False)
        self.axes.patch.set_visible(False)
        for side in ("top", "right"):
            self.axes.spines[side].set_visible(False)
        for side in ("bottom", "left"):
            self.axes.spines[side].set(color=COLOURS["muted"], linewidth=0.7)
        self.axes.tick_params(colors=COLOURS["muted"], labelsize=FONT_SIZE - 1, length=3, width=0.7)
        if title:
            self.figure.suptitle(
                shorten(title, 44), x=0.006, ha="left", fontsize=FONT_SIZE, color=COLOURS["ink"],
                parse_math=False,
            )  # fmt: skip
        style = {"fontsize": FONT_SIZE - 0.5, "color": COLOURS["muted"]}
        self.axes.set_xlabel(xlabel, **style)
        self.axes.set_ylabel(ylabel, **style)

    def only_x(self) -> None:
        """Remove the y axis, for densities, whose heights have no meaning by themselves."""
        self.bare = True
        self.axes.spines["left"].set_visible(False)
        self.axes.set_yticks([])

    def ticks(self, axis: str, count: int = 5) -> None:
        """Place about `count` plain numbers on a linear axis, without an offset."""
        from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

        low, high = self.axes.get_xlim() if axis == "x" else self.axes.get_ylim()
        places = MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        # a number centred on the end of the x axis would reach beyond it
        room = (high - low) * np.array([0.05 * self.bare, 0.03]) * (axis == "x")
        places = places[(places >= low + room[0]) & (places <= high - room[1])]
        which = getattr(self.axes, f"{axis}axis")
        which.set_major_locator(FixedLocator(places))
        which.set_major_formatter(FixedFormatter(tick_texts(places)))

    def text(self, x: float, y: float, words: str, colour: str = "muted", **style: Any) -> None:
        """Write text at (x, y); it is never parsed as mathematics."""
        style = {"fontsize": FONT_SIZE - 0.5, "parse_math": False, **style}
        self.axes.text(x, y, printable(words), color=COLOURS[colour], **style)

    def legend(self, **style: Any) -> None:
        """Show the labelled artists, without a frame."""
        self.axes.legend(
            frameon=False, fontsize=FONT_SIZE - 1, labelcolor=COLOURS["muted"],
            **{"handlelength": 1.4, "borderaxespad": 0.1, **style},
        )  # fmt: skip

    def svg(self) -> str:
        """Return the panel as an <svg> element with the colours of the page."""
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        file = io.StringIO()
        options = {"svg.fonttype": "none", "svg.hashsalt": self.label, "path.simplify": True}
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with matplotlib.rc_context(options), warnings.catch_warnings():
            # the reader's font may have a glyph that matplotlib's font lacks
            warnings.filterwarnings("ignore", "Glyph .* missing")
            warnings.filterwarnings("ignore", ".*constrained_layout not applied")
            FigureCanvasSVG(self.figure).print_svg(file, metadata=nothing)
        return _inline(file.getvalue(), self.label)


def _inline(text: str, label: str) -> str:
    """Return an <svg> to embed in a page: no header, size or ids, and the page's colours."""
    text = text[text.index("<svg") :]
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', head)
    assert box is not None
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"<[^>]*>", _tag, body)  # only tags: text comes from the user
    space = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    label = escape(label, quote=True)
    return f'<svg {space} viewBox="{box[1]}" role="img" aria-label="{label}">{body.strip()}'


def _tag(found: re.Match) -> str:
    tag = re.sub(r'<g id="[^"]*"', "<g", found[0])  # two panels of a page must not share ids
    tag = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", tag)
    tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)
    for name, colour in COLOURS.items():
        tag = tag.replace(colour, f"var(--{name}, {colour})")
    return tag


def printable(text: str) -> str:
    """Replace characters that XML or a line of text cannot hold."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shorten(text: str, most: int) -> str:
    """Shorten to at most `most` characters: keep the start, and the end, where names differ."""
    text = printable(text)
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"


def in_two_lines(text: str, most: int) -> list[str]:
    """Break `text` into at most two lines of at most `most` characters, at a joint of the name.

    Example:
      >>> from sgld.interfaces.report.figures import in_two_lines
      >>> in_two_lines("C(region)[T.North]:smoker[T.yes]", 22)
      ['C(region)[T.North]', ':smoker[T.yes]']
    """
    text = printable(text)
    if len(text) <= most:
        return [text]
    places = [
        (rank, found.start())
        for rank, joint in enumerate(NAME_BREAKS)
        for found in re.finditer(joint, text)
        if found.start()
    ]

    def cost(place: tuple[int, int]) -> tuple[int, int, int]:
        rank, at = place
        lost = max(0, at - most) + max(0, len(text) - at - most)
        return lost // most, rank, abs(len(text) - 2 * at)

    _, at = min(places, key=cost)
    return [shorten(part.strip(), most) for part in (text[:at], text[at:])]


def tick_texts(places: np.ndarray) -> list[str]:
    """Format the numbers at equidistant `places` with the decimals that their distance needs."""
    places = np.asarray(places, float)
    step = np.min(np.diff(places)) if len(places) > 1 else abs(places[0]) if len(places) else 1
    largest = np.max(np.abs(places), initial=0.0)
    decimals = 0 if step <= 0 else max(0, int(-np.floor(np.log10(step) + 1e-9)))
    while decimals < 12 and step > 0 and abs(round(step, decimals) - step) > 1e-6 * step:
        decimals += 1  # 0.025 needs one decimal more than 0.02
    if decimals > 5 or largest >= 1e6:
        return [_power(v) if abs(v) > 1e-9 * largest else "0" for v in places]
    return [f"{v:.{decimals}f}".replace("-", "\N{MINUS SIGN}") for v in places + 0.0]


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.3e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}".replace("-", "\N{MINUS SIGN}")


# -- figures -------------------------------------------------------------------------------


MAX_BINS = 50
MAX_TRACED_CHAINS = 8
MAX_INTERVAL_GROUPS = 4  # groups of intervals that share an axis
MAX_TRACE_POINTS = 200
ONE_LINE_CHARS = 14  # characters of a name in one line
TWO_LINE_CHARS = 22  # characters per line in two lines


def by_scale(low: Float[np.ndarray, " m"], high: Float[np.ndarray, " m"]) -> list[np.ndarray]:
    """Group intervals that can share an axis with its zero, the furthest from zero first.

    An interval joins a group whose axis reaches to `top` if it reaches to a sixth of `top`, or if
    its width is a twentieth of `top`, wide enough to read. The last of MAX_INTERVAL_GROUPS takes
    the rest. Order is kept within groups.
    """
    reach = np.maximum(np.abs(low), np.abs(high))
    groups: list[list[int]] = []
    for i in np.argsort(-reach, kind="stable"):
        size = max(reach[i], 10 / 3 * (high[i] - low[i]))
        fits = [group for group in groups if 6 * size >= reach[group[0]]]
        if not fits and len(groups) < MAX_INTERVAL_GROUPS:
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
    """Draw rows of name, point and intervals on one axis with a line at zero, and the numbers.

    If a name is long, names and numbers take two lines next to the bar. `span` is the range of the
    axis besides zero, if it must equal that of other panels.
    """
    count = len(names)
    tall = max(map(len, names)) > ONE_LINE_CHARS
    panel = Panel("", (31 if tall else 20) * count + 34, width=WIDE_WIDTH)
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
    # outside the axes on both sides, so that no line crosses the text
    for i, (name, ends) in enumerate(zip(names, outer.T, strict=True)):
        numbers = _interval_text(middle[i], ends)
        _lines(
            panel, i, in_two_lines(name, TWO_LINE_CHARS) if tall else [name], "ink", -0.02, "right"
        )
        _lines(panel, i, numbers if tall else ["  ".join(numbers)], "muted", 1.02, "left")
    panel.ticks("x", 4)
    return panel.svg()


def _lines(panel: Panel, row: int, lines: list[str], colour: str, x: float, side: str) -> None:
    """Write one line at the height of a row's bar, or two lines, above and below it."""
    style = {"transform": panel.axes.get_yaxis_transform(), "ha": side}
    heights = ["center"] if len(lines) == 1 else ["bottom", "top"]
    for line, height in zip(lines, heights, strict=True):
        panel.text(x, row, line, colour, va=height, **style)


def _interval_text(middle: float, ends: np.ndarray) -> list[str]:
    """Format the point, and its interval in brackets."""
    width = ends[1] - ends[0]  # a quarter of it is shown with two digits
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
    """Draw the weighted histogram of one parameter.

    `gaussian` (mean, sd) adds a curve, and `marks` adds vertical lines.
    """
    panel = Panel(name, 130)
    low, high = _range(values, weights)
    bins = int(np.clip(np.sqrt(1 / np.sum((weights / weights.sum()) ** 2)), 8, MAX_BINS))
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
    """Return the .1% and the 99.9% quantile with a margin, or a range around a single value."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    low, high = values[order][np.searchsorted(share, [0.001, 0.999]).clip(max=len(values) - 1)]
    room = 0.08 * (high - low) or max(1e-6, 1e-3 * abs(low))
    return low - room, high + room


def trace(
    name: str, steps: Int[np.ndarray, " draw"], values: Float[np.ndarray, "chain draw"]
) -> str:
    """Draw one parameter over the steps, one colour per chain, thinned, without failed draws."""
    panel = Panel(name, 130)
    at = np.unique(np.linspace(0, len(steps) - 1, MAX_TRACE_POINTS).round().astype(int))
    values = values[:MAX_TRACED_CHAINS, at]
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
    """Draw a step size or a temperature over the steps; its first value holds during burn-in."""
    panel = Panel(title, 190, width=WIDE_WIDTH, xlabel="step")
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
    """Draw Welling & Teh's alpha of every chain: above 1 it optimises, below 1 it samples.

    `crossing` is the step from which the last chain stays below 1; None: never.
    """
    panel = Panel("α, gradient noise / injected noise", 190, width=WIDE_WIDTH, xlabel="step")
    at = np.unique(np.linspace(0, len(steps) - 1, 400).round().astype(int))
    x, chains = steps[at].astype(float), np.asarray(alpha, float)[at, :MAX_TRACED_CHAINS]
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
    # place the text away from the end of the curve
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
    """Place powers of ten on a log axis, or 1, 2, 5 if it spans little."""
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


# -- modes ---------------------------------------------------------------------------------


DENSITY_BINS = 60


def masses(modes: Modes) -> str:
    """Draw a bar for each mode, with two standard errors if its mass was measured."""
    count, errors = len(modes), modes.mass_se
    panel = Panel("Mass of each mode", 22 * count + 52, width=WIDE_WIDTH)
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
    """Project draws and modes on the direction that separates two modes: 0 at one, 1 at the other.

    The direction is Fisher's, S^{-1} (m_2 - m_1), with S the variances of draws around the nearest
    mode.
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
    """Draw the weighted histogram along a direction between two modes, with numbered modes."""
    title = f"From mode {one + 1} (0) to mode {other + 1} (1), draws weighted"
    panel = Panel(title, 150, width=WIDE_WIDTH)
    inside = np.append(np.quantile(values, [0.001, 0.999]), places)
    room = 0.06 * float(np.ptp(inside)) or 1.0
    low, high = float(inside.min()) - room, float(inside.max()) + room
    height, edges = np.histogram(values, DENSITY_BINS, (low, high), weights=weights)
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
