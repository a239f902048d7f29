"""Panels written as SVG text: a few lines, areas and words in one pair of axes.

A report has some twenty panels, and a plotting library takes longer to load and to lay them out than the run
itself. These are laid out by hand: margins from the lengths of the words, numbers at round places. Text stays
text; colours and font are those of the page; what lies beyond the axes is cut by an inner <svg>, so that no
panel needs a name that another might have.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = [
    "COLOURS",
    "FONT_SIZE",
    "WIDE",
    "WIDTH",
    "Axis",
    "Drawing",
    "linear_axis",
    "log_axis",
    "printable",
    "shorten",
    "text_width",
    "tick_texts",
]

WIDTH = 330
WIDE = 380
FONT_SIZE = 11
LETTER = 0.56  # of the font size, the width of a letter of a usual sans-serif font
ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)

# name of the page's variable -> the colour where there is no page
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


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, with numbers `texts` at `places`; none of them: no line either."""

    low: float
    high: float
    places: Any = ()
    texts: tuple[str, ...] = ()
    label: str = ""
    log: bool = False

    def share(self, values: Any) -> np.ndarray:
        """Where values lie, 0 at the lower end and 1 at the upper."""
        v, ends = np.asarray(values, float), np.array([self.low, self.high])
        if self.log:
            v, ends = np.log(np.maximum(v, 1e-300)), np.log(ends)
        return (v - ends[0]) / (ends[1] - ends[0])


def linear_axis(
    low: float, high: float, count: int = 5, label: str = "", *, room: float = 0.0
) -> Axis:
    """About `count` plain numbers between the ends, none within a share `room` of either."""
    low, high = float(low), float(high)
    scale = 10.0 ** np.floor(np.log10((high - low) / count))
    step = next((s * scale for s in ROUND if (high - low) <= s * scale * (count + 0.5)), 10 * scale)
    places = step * np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1)
    margin = room * (high - low)
    places = places[
        (places >= low + margin) & (places <= high - max(margin, 0.03 * (high - low) * (room > 0)))
    ]
    return Axis(low, high, places, tuple(tick_texts(places)), label)


def log_axis(low: float, high: float) -> Axis:
    """Powers of ten, or 1, 2, 5 where the axis spans little."""
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    within = 10.0 ** decades[(10.0**decades >= low) & (10.0**decades <= high)]
    if len(within) < 3:
        fine = np.sort(np.concatenate([m * 10.0**decades for m in (1, 2, 5)]))
        within = fine[(fine >= low) & (fine <= high)]
    within = within[:: max(1, len(within) // 5)]
    texts = tuple(f"{v:g}".replace("e-0", "e-").replace("-", "\N{MINUS SIGN}") for v in within)
    return Axis(low, high, within, texts, log=True)


class Drawing:
    """One panel; `svg` is what the page holds.

    Args:
      title: above the axes, left; what the panel says to who cannot see it, too.
      height, width: of the whole panel.
      x, y: the axes. Values may be given in any order of theirs.
      left, right: room beside the axes for words of one's own.
    """

    def __init__(
        self, title: str, height: float, x: Axis, y: Axis, *, width: float = WIDTH, left: float = 0.0,
        right: float = 0.0,
    ) -> None:  # fmt: skip
        self.label, self.title = printable(title), shorten(title, 44)
        self.x, self.y, self.width, self.height = x, y, width, height
        numbers = max((text_width(t, FONT_SIZE - 1) for t in y.texts), default=0.0)
        self.left = left or 3 + (numbers + 7 if y.texts else 3) + 14 * bool(y.label)
        self.right, self.top = right or 8, 20 if title else 4
        self.across = width - self.left - self.right
        self.down = height - self.top - (17 if x.texts else 4) - 14 * bool(x.label)
        self.inside: list[str] = []
        self.words: list[str] = []

    def at(self, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Places within the axes, from their upper left corner; what is far outside stays near."""
        px = np.clip(self.x.share(x), -9, 10) * self.across
        return px, (1 - np.clip(self.y.share(y), -9, 10)) * self.down

    def line(
        self, x: Any, y: Any, colour: str, width: float = 1.0, *, dash: str = "", opacity: float = 1.0
    ) -> None:  # fmt: skip
        """A line through points."""
        if len(x):
            style = _stroke(colour, width, dash, opacity)
            self.inside.append(
                f'<path d="{_through(*self.at(x, y))}" style="fill: none; {style}"/>'
            )

    def segments(self, x: Any, y: Any, to_x: Any, to_y: Any, colour: str, width: float) -> None:
        """Separate straight lines."""
        ends = zip(*(np.atleast_1d(v) for v in (*self.at(x, y), *self.at(to_x, to_y))), strict=True)
        d = " ".join(f"M {a:.2f} {b:.2f} L {c:.2f} {e:.2f}" for a, b, c, e in ends)
        self.inside.append(f'<path d="{d}" style="{_stroke(colour, width)}"/>')

    def area(self, x: Any, low: Any, high: Any, colour: str, *, opacity: float = 1.0) -> None:
        """What lies between two lines over x."""
        there, back = (
            self.at(x, np.broadcast_to(high, np.shape(x))),
            self.at(x, np.broadcast_to(low, np.shape(x))),
        )
        d = _through(*(np.concatenate([a, b[::-1]]) for a, b in zip(there, back, strict=True)))
        style = f"fill: {_var(colour)}" + (f"; opacity: {opacity:g}" if opacity < 1 else "")
        self.inside.append(f'<path d="{d} Z" style="{style}"/>')

    def block(self, x: tuple[float, float], y: tuple[float, float], colour: str) -> None:
        """A rectangle."""
        self.area(np.array(x), np.full(2, y[0]), np.full(2, y[1]), colour)

    def dots(self, x: Any, y: Any, colour: str, radius: float = 2.3, edge: str = "") -> None:
        """Points."""
        style = f"fill: {_var(colour)}" + (f"; {_stroke(edge, 0.7)}" if edge else "")
        for a, b in zip(*self.at(x, y), strict=True):
            self.inside.append(
                f'<circle cx="{a:.2f}" cy="{b:.2f}" r="{radius:g}" style="{style}"/>'
            )

    def text(
        self, x: float, y: float, words: str, colour: str = "muted", *, anchor: str = "start",
        dx: float = 0.0, dy: float = 0.0, size: float = FONT_SIZE - 0.5, places: bool = False,
    ) -> None:  # fmt: skip
        """Words at (x, y), moved by (dx, dy), the letters standing on it; `places`: (x, y) are shares."""
        if places:
            px, py = x * self.across, (1 - y) * self.down
        else:
            px, py = (float(v) for v in self.at(x, y))
        self._word(self.left + px + dx, self.top + py + dy, printable(words), colour, anchor, size)

    def legend(self, entries: list[tuple[str, str, str]], where: str) -> None:
        """Keys (words, colour, "area" or "line"), below one another at the "left" or "right", or "beside"."""
        widths = [text_width(words, FONT_SIZE - 1) + 26 for words, _, _ in entries]
        x = {"left": 6.0, "right": self.across - max(widths)}.get(
            where, (self.across - sum(widths)) / 2
        )
        for i, (words, colour, kind) in enumerate(entries):
            y, tall = 4 + (0 if where == "beside" else 15 * i), 8 if kind == "area" else 2
            self.inside.append(
                f'<rect x="{x:.2f}" y="{y + 4 - tall / 2:.2f}" width="15" height="{tall}" style="fill: {_var(colour)}"/>'
            )
            self._word(self.left + x + 20, self.top + y + 8, words, "muted", "start", FONT_SIZE - 1)
            x += widths[i] if where == "beside" else 0

    def svg(self) -> str:
        """The panel as an <svg> element, its colours those of the page."""
        words, self.words = self.words, []
        ticks = [*self._x_axis(), *self._y_axis()]
        if self.title:
            self._word(2, 12, self.title, "ink", "start", FONT_SIZE)
        inner = (
            f'<svg x="{self.left:.2f}" y="{self.top}" width="{self.across:.2f}" height="{self.down:.2f}" '
            f'overflow="hidden">{"".join(self.inside)}</svg>'
        )
        label = escape(self.label, quote=True)
        body = "\n".join([inner, *ticks, *words, *self.words])
        self.words = words
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{label}">\n{body}\n</svg>'
        )

    def _word(self, x: float, y: float, words: str, colour: str, anchor: str, size: float) -> None:
        self.words.append(
            f'<text x="{x:.2f}" y="{y:.2f}" style="font-size: {size:g}px; text-anchor: {anchor}; '
            f'fill: {_var(colour)}">{escape(words)}</text>'
        )

    def _x_axis(self) -> list[str]:
        if not self.x.texts:
            return []
        floor, left = self.top + self.down, self.left
        lines = [f"M {left:.2f} {floor:.2f} L {left + self.across:.2f} {floor:.2f}"]
        for place, words in zip(self.x.share(self.x.places), self.x.texts, strict=True):
            x = left + place * self.across
            lines.append(f"M {x:.2f} {floor:.2f} L {x:.2f} {floor + 3:.2f}")
            self._word(x, floor + 13, words, "muted", "middle", FONT_SIZE - 1)
        if self.x.label:
            middle = left + self.across / 2
            self._word(middle, floor + 27, self.x.label, "muted", "middle", FONT_SIZE - 0.5)
        return [f'<path d="{" ".join(lines)}" style="{_stroke("muted", 0.7)}"/>']

    def _y_axis(self) -> list[str]:
        if not self.y.texts:
            return []
        left = self.left
        lines = [f"M {left:.2f} {self.top} L {left:.2f} {self.top + self.down:.2f}"]
        for place, words in zip(self.y.share(self.y.places), self.y.texts, strict=True):
            y = self.top + (1 - place) * self.down
            lines.append(f"M {left - 3:.2f} {y:.2f} L {left:.2f} {y:.2f}")
            self._word(left - 5, y + 3.5, words, "muted", "end", FONT_SIZE - 1)
        if self.y.label:
            y = self.top + self.down / 2
            self.words.append(
                f'<text transform="translate(11 {y:.2f}) rotate(-90)" style="font-size: {FONT_SIZE - 0.5:g}px; '
                f'text-anchor: middle; fill: {_var("muted")}">{escape(self.y.label)}</text>'
            )
        return [f'<path d="{" ".join(lines)}" style="{_stroke("muted", 0.7)}"/>']


def _var(colour: str) -> str:
    return f"var(--{colour}, {COLOURS[colour]})"


def _stroke(colour: str, width: float, dash: str = "", opacity: float = 1.0) -> str:
    style = f"stroke: {_var(colour)}; stroke-width: {width:g}; stroke-linejoin: round"
    style += f"; stroke-dasharray: {dash}" if dash else ""
    return style + (f"; opacity: {opacity:g}" if opacity < 1 else "")


def _through(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> str:
    return "M " + " L ".join(f"{a:.2f} {b:.2f}" for a, b in zip(x, y, strict=True))


def text_width(text: str, size: float) -> float:
    """About how wide a line of text is."""
    return size * sum(1.0 if ord(c) > 0x2E80 else LETTER for c in text)


def printable(text: str) -> str:
    """`text` without characters that XML or a line of text cannot hold."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shorten(text: str, most: int) -> str:
    """At most `most` characters: the start, and more of the end, which tells names apart."""
    text = printable(text)
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"


def tick_texts(places: np.ndarray) -> list[str]:
    """The numbers at equidistant `places`, all with the decimals that their distance needs."""
    places = np.asarray(places, float)
    step = np.min(np.diff(places)) if len(places) > 1 else abs(places[0]) if len(places) else 1
    largest = np.max(np.abs(places), initial=0.0)
    decimals = 0 if step <= 0 else max(0, int(-np.floor(np.log10(step) + 1e-9)))
    while decimals < 12 and step > 0 and abs(round(step, decimals) - step) > 1e-6 * step:
        decimals += 1  # 0.025 needs one more than 0.02
    if decimals > 5 or largest >= 1e6:
        return [_power(v) if abs(v) > 1e-9 * largest else "0" for v in places]
    return [f"{v:.{decimals}f}".replace("-", "\N{MINUS SIGN}") for v in places + 0.0]


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.3e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}".replace("-", "\N{MINUS SIGN}")
