"""Panels: matplotlib figures as SVG text that takes its colours and its font from the page.

Text stays text, so a panel is small, can be searched and prints sharply. Every panel is drawn
for a width of 330 or 380 units, about that of a phone, and pages place several side by side; so
one size of letters fits both. Figures are matplotlib objects: no pyplot, no global state.
"""

from __future__ import annotations

import io
import re
import warnings
from html import escape
from typing import Any

import numpy as np

from ..errors import need

__all__ = [
    "COLOURS",
    "WIDE",
    "WIDTH",
    "Panel",
    "in_two_lines",
    "printable",
    "shorten",
    "tick_texts",
]

WIDTH = 330
WIDE = 380
FONT_SIZE = 11
# where a name is best broken, best first: between terms, before brackets, after words, anywhere
JOINTS = (r"(?<=: )|(?=:(?! ))", r"(?=[\[(])", r"(?<=[ _.-])", r"(?=.)")

# name of the page's variable -> the colour matplotlib draws with; each only once
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
    """One figure with one axes; `svg` is what the page holds.

    Args:
      title: above the axes, left; what the panel says to who cannot see it, too.
      height: in units of a panel of width `width`.
      xlabel, ylabel: of the axes.
    """

    def __init__(
        self,
        title: str,
        height: float = 150,
        *,
        width: float = WIDTH,
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
        """No y axis: for densities, whose heights say nothing by themselves."""
        self.bare = True
        self.axes.spines["left"].set_visible(False)
        self.axes.set_yticks([])

    def ticks(self, axis: str, count: int = 5) -> None:
        """About `count` plain numbers on a linear axis, without an offset beside it."""
        from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

        low, high = self.axes.get_xlim() if axis == "x" else self.axes.get_ylim()
        places = MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        # a number centred on the very end of the x axis would stand beyond it
        room = (high - low) * np.array([0.05 * self.bare, 0.03]) * (axis == "x")
        places = places[(places >= low + room[0]) & (places <= high - room[1])]
        which = getattr(self.axes, f"{axis}axis")
        which.set_major_locator(FixedLocator(places))
        which.set_major_formatter(FixedFormatter(tick_texts(places)))

    def text(self, x: float, y: float, words: str, colour: str = "muted", **style: Any) -> None:
        """Words at (x, y), never read as mathematics."""
        style = {"fontsize": FONT_SIZE - 0.5, "parse_math": False, **style}
        self.axes.text(x, y, printable(words), color=COLOURS[colour], **style)

    def legend(self, **style: Any) -> None:
        """The labelled artists, without a frame."""
        self.axes.legend(
            frameon=False, fontsize=FONT_SIZE - 1, labelcolor=COLOURS["muted"],
            **{"handlelength": 1.4, "borderaxespad": 0.1, **style},
        )  # fmt: skip

    def svg(self) -> str:
        """The panel as an <svg> element, its colours those of the page."""
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        file = io.StringIO()
        options = {"svg.fonttype": "none", "svg.hashsalt": self.label, "path.simplify": True}
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with matplotlib.rc_context(options), warnings.catch_warnings():
            # a glyph that matplotlib's font lacks, the reader's may have
            warnings.filterwarnings("ignore", "Glyph .* missing")
            warnings.filterwarnings("ignore", ".*constrained_layout not applied")
            FigureCanvasSVG(self.figure).print_svg(file, metadata=nothing)
        return _inline(file.getvalue(), self.label)


def _inline(text: str, label: str) -> str:
    """An <svg> for the middle of a page: no header, no size, no names, the page's colours."""
    text = text[text.index("<svg") :]
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', head)
    assert box is not None
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"<[^>]*>", _tag, body)  # tags only: text is the user's
    space = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    label = escape(label, quote=True)
    return f'<svg {space} viewBox="{box[1]}" role="img" aria-label="{label}">{body.strip()}'


def _tag(found: re.Match) -> str:
    tag = re.sub(r'<g id="[^"]*"', "<g", found[0])  # two panels of a page must not share names
    tag = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", tag)
    tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)
    for name, colour in COLOURS.items():
        tag = tag.replace(colour, f"var(--{name}, {colour})")
    return tag


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


def in_two_lines(text: str, most: int) -> list[str]:
    """`text` in at most two lines of at most `most` characters, broken at a joint of the name.

    Example:
      >>> from sgld.report.canvas import in_two_lines
      >>> in_two_lines("C(region)[T.North]:smoker[T.yes]", 22)
      ['C(region)[T.North]', ':smoker[T.yes]']
    """
    text = printable(text)
    if len(text) <= most:
        return [text]
    places = [
        (rank, found.start())
        for rank, joint in enumerate(JOINTS)
        for found in re.finditer(joint, text)
        if found.start()
    ]

    def price(place: tuple[int, int]) -> tuple[int, int, int]:
        rank, at = place
        lost = max(0, at - most) + max(0, len(text) - at - most)
        return lost // most, rank, abs(len(text) - 2 * at)

    _, at = min(places, key=price)
    return [shorten(part.strip(), most) for part in (text[:at], text[at:])]


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
