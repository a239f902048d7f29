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
from ..report.drawing import COLOURS, FONT_SIZE, WIDTH, printable, shorten, tick_texts

__all__ = ["Panel"]


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
