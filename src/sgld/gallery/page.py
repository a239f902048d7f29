"""Results and HTML pages of the gallery: `Check`, `Section`, `Entry`, figures and page templates.

An entry returns sections of text and figures, and a table of checks. Every figure function returns
one Panel in the style of the report; an entry may also draw on `panel.axes`, with the colours of
`COLOURS`, which the page changes on a dark screen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..interfaces.report.figures import COLOURS, FIGURE_WIDTH, Panel
from ..interfaces.report.html import PAGE, safe

if TYPE_CHECKING:
    from .make import Result

# -- draw ----------------------------------------------------------------------------------


# the exact answer first, then what a formula predicts, then anything else
STYLES: tuple[dict[str, Any], ...] = (
    {"color": COLOURS["contrast"], "linewidth": 1.6},
    {"color": COLOURS["ink"], "linewidth": 1.1, "linestyle": (0, (4, 2))},
    {"color": COLOURS["chain-2"], "linewidth": 1.3},
    {"color": COLOURS["chain-3"], "linewidth": 1.3},
)
MAX_PLOTTED_POINTS = 600


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
    """Plot draws as a histogram of area 1 with densities over it, in the order of `STYLES`.

    Args:
      title: printed above the figure.
      values: [n]; those outside the span count towards the area but are not drawn.
      curves: functions x -> density, such as `law.pdf` of a scipy law.
      span: of the x axis; default: the values and a little more.
      top: of the y axis; default: the highest bar or curve, but at most 4 times the highest bar.
      bins: number of bars.
      height: of the figure, in points.
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
    width: float = FIGURE_WIDTH,
    height: float = 170,
    legend: str | None = "best",
) -> Panel:
    """Plot curves (label, x [n], y [n]); `level` is a horizontal line at the truth.

    `log` names the axes with a logarithmic scale: "", "x", "y" or "xy"; `legend` is where
    matplotlib puts it, None for none. Long curves are thinned to what a page can show.
    """
    panel = Panel(title, height, width=width, xlabel=xlabel, ylabel=ylabel)
    if level is not None:
        panel.axes.axhline(level, color=COLOURS["contrast"], linewidth=1.2)
    for (label, x, y), style in zip(curves, styles, strict=False):
        x, y = np.asarray(x, float), np.asarray(y, float)
        at = np.unique(
            np.linspace(0, x.size - 1, min(x.size, MAX_PLOTTED_POINTS)).round().astype(int)
        )
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
    """Draw a logarithmic axis with few plain numbers: powers of ten, or 1, 2, 5 for a short range."""
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


# -- entry ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """One number next to its truth; made by `in_sd`, `in_ratio` or `in_value`.

    Attributes:
      quantity: what it is, in words.
      truth: the exact value, or a long reference run's.
      ours: what the entry computed.
      error: in sd, as a ratio ours / truth, or as a plain difference: what `unit` says.
      limit: of |error|; of a ratio, how far it may be from 1 (.05: from 1 / 1.05 to 1.05).
      unit: "sd", "ratio" or "".
      expected_miss: why the number misses its truth, for one computed as the document prints it.

    Example:
      >>> from sgld.gallery import Check
      >>> Check.in_ratio("sd of b1", truth=0.5, ours=0.51, limit=0.05).word
      'pass'
      >>> Check.in_ratio("sd of b1", 0.5, 5.0, 0.05, expected_miss="the step is too large").word
      'as printed'
      >>> Check.in_sd("mean of b1", truth=1.0, ours=1.05, sd=0.5, limit=0.2).error
      0.10000000000000009
      >>> Check.in_value("draws", truth=100, ours=90, limit=5).passed
      False
    """

    quantity: str
    truth: float
    ours: float
    error: float
    limit: float
    unit: str = ""
    expected_miss: str | None = None

    @classmethod
    def in_sd(
        cls, quantity: str, truth: Any, ours: Any, sd: Any, limit: float,
        expected_miss: str | None = None,
    ) -> Check:  # fmt: skip
        """Check that |ours - truth| is at most `limit` of the true sd.

        Args:
          quantity: as in `Check`.
          truth: as in `Check`.
          ours: as in `Check`.
          sd: of the truth.
          limit: as in `Check`.
          expected_miss: as in `Check`.
        """
        error = (float(ours) - float(truth)) / float(sd)
        return cls(quantity, float(truth), float(ours), error, limit, "sd", expected_miss)

    @classmethod
    def in_ratio(
        cls, quantity: str, truth: Any, ours: Any, limit: float, expected_miss: str | None = None
    ) -> Check:
        """Check that ours / truth lies between 1 / (1 + limit) and 1 + limit.

        Args:
          quantity: as in `Check`.
          truth: as in `Check`.
          ours: as in `Check`.
          limit: as in `Check`.
          expected_miss: as in `Check`.
        """
        error = float(ours) / float(truth)
        return cls(quantity, float(truth), float(ours), error, limit, "ratio", expected_miss)

    @classmethod
    def in_value(
        cls, quantity: str, truth: Any, ours: Any, limit: float, expected_miss: str | None = None
    ) -> Check:
        """Check that |ours - truth| is at most `limit`, in the units of the quantity itself.

        Args:
          quantity: as in `Check`.
          truth: as in `Check`.
          ours: as in `Check`.
          limit: as in `Check`.
          expected_miss: as in `Check`.
        """
        error = float(ours) - float(truth)
        return cls(quantity, float(truth), float(ours), error, limit, "", expected_miss)

    @property
    def passed(self) -> bool:
        """Whether the error is within the limit; never where it is not a number."""
        if self.unit == "ratio":
            return bool(1 / (1 + self.limit) <= self.error <= 1 + self.limit)
        return bool(math.isfinite(self.error) and abs(self.error) <= self.limit)

    @property
    def word(self) -> str:
        """ "pass", "miss", or "as printed": a miss that the document's own method makes."""
        if self.passed:
            return "pass"
        return "miss" if self.expected_miss is None else "as printed"


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs and the figures below them.

    Attributes:
      heading: of the section.
      text: paragraphs of plain text; `words` between backticks are shown as code.
      figures: panels (`sgld.gallery.page` makes them), several side by side.
      key: (colour, words) of what is drawn in all the figures; colours are those of the report.

    Example:
      >>> from sgld.gallery import Section
      >>> Section("What is seen", ("The sd is `h / 4` too large.",)).figures
      ()
    """

    heading: str
    text: tuple[str, ...] = ()
    figures: tuple[Panel, ...] = ()
    key: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Entry:
    """A page of the gallery.

    Attributes:
      title: of the page.
      lead: what it shows, in a sentence or two.
      sections: of the page, in order.
      checks: numbers with their truths.

    Example:
      >>> from sgld.gallery import Entry, Section
      >>> Entry("X0", "Nothing is shown.", (Section("Nothing"),), ()).checks
      ()
    """

    title: str
    lead: str
    sections: tuple[Section, ...]
    checks: tuple[Check, ...]


# -- page ----------------------------------------------------------------------------------


INDEX = re.compile(r"(\b\w|\))([_^])(\{[^{}]*\}|\w(?!\w))")
MINUS = re.compile(r"(?<![\w.)-])-(?=\.?\d)")
WRAP = 'style="white-space: normal"'  # so that a phone shows more columns
CELL = 'style="white-space: normal; min-width: 7.5rem"'


def entry_page(result: Result, entry: Entry, sources: Mapping[str, str]) -> str:
    """Render the page of one entry; `sources` are its source files by name, its own first."""
    code = "".join(
        f"<details><summary>Show <code>{safe(file)}</code></summary>"
        f'<div class="scroll" tabindex="0"><pre><code>{says_lines(text)}</code></pre></div></details>'
        for file, text in sources.items()
    )
    where = '<p class="note"><a href="index.html">Gallery</a></p>'
    parts = [
        where,
        f"<h1>{safe(result.name)}: {safe(entry.title)}</h1>",
        _banner(result, entry),
        *(_section(section) for section in entry.sections),
        f'<section id="checks"><h2>Checks</h2>\n{_table(entry.checks)}\n</section>',
        "<section><h2>The code</h2>\n<p>All of it, but for the figures' style: this page is an "
        f"example.</p>\n{code}</section>",
        where,
    ]
    return PAGE.substitute(
        title=f"{safe(result.name)}: {safe(entry.title)}",
        content="\n".join(parts),
        footer=_facts(result),
    )


def index_page(results: Sequence[Result]) -> str:
    """Render the index: a row per entry with the count of its checks."""
    head = "".join(
        f'<th scope="col">{words}</th>' for words in ("entry", "passed", "missed", "as printed")
    )
    rows = []
    for result in results:
        title = f"{safe(result.name)}: {safe(result.title)}"
        if result.lacks is not None:
            counts = [f'<td class="none" colspan="3" {CELL}>not made: {safe(result.lacks)}</td>']
        elif result.error is None:
            title = f'<a href="{safe(result.name.lower())}.html">{title}</a>'
            counts = [f"<td>{result.count('pass')}</td>"]
            missed = result.count("miss")
            mark = ' class="miss"' if missed else ""
            counts.append(f"<td{mark}>{missed}</td>")
            counts.append(f"<td>{result.count('as printed')}</td>")
        else:
            counts = [f'<td class="miss" colspan="3" {CELL}>{safe(result.error)}</td>']
        size = "quick size" if result.quick else "full size"
        took = f'<p class="note" style="font-weight: 400">{size}, {result.seconds:.1f}&nbsp;s</p>'
        took = "" if result.lacks else took
        rows.append(f'<tr><th scope="row" {CELL}>{title}{took}</th>{"".join(counts)}</tr>')
    content = (
        "<h1>Gallery</h1>\n<p>The experiments of five documents on Langevin dynamics and Bayesian "
        "learning, each as printed, with what is wrong with it, next to the exact answer and to "
        "what this package makes of the same budget. A row counts its checks: those that passed, "
        "those that missed, and numbers computed <em>as printed</em>, which miss the truth for a "
        "reason that their page gives.</p>\n"
        f'<div class="scroll" tabindex="0"><table id="index"><thead><tr>{head}</tr></thead>\n'
        "<tbody>" + "\n".join(rows) + "</tbody></table></div>"
    )
    footer = "Made by <code>sgld gallery</code>."
    return PAGE.substitute(title="Gallery", content=content, footer=footer)


def says_lines(text: str) -> str:
    """Escape several lines for <pre>; `safe` alone would replace the line ends."""
    return "\n".join(safe(line) for line in text.splitlines())


def _banner(result: Result, entry: Entry) -> str:
    missed, printed = result.count("miss"), result.count("as printed")
    word = "As expected" if printed else "All checks pass"
    if missed:
        word = f"{missed} of {len(entry.checks)} checks missed"
    facts = f"{result.count('pass')} of {len(entry.checks)} numbers are right"
    if printed:
        miss = "misses" if printed == 1 else "miss"
        facts += f"; {printed} computed as printed {miss} the truth, as explained below"
    kind = "biased" if missed else "trusted"
    return (
        f'<section class="banner {kind}" id="verdict">\n<p class="word">{word}</p>\n'
        f"<p>{_prose(entry.lead)}</p>\n"
        f'<p class="note">{facts}. <a href="#checks">The table of checks</a></p>\n</section>'
    )


def _section(section: Section) -> str:
    parts = [f"<section><h2>{safe(section.heading)}</h2>"]
    parts += [f"<p>{_prose(paragraph)}</p>" for paragraph in section.text]
    if section.key:
        keys = (
            '<span style="display: inline-block"><span class="key" '
            f'style="background: var(--{colour})"></span>{safe(words)}</span>'
            for colour, words in section.key
        )
        parts.append(f'<p class="note">{"&emsp; ".join(keys)}</p>')
    if section.figures:
        svgs = "\n".join(f"<div>{panel.svg()}</div>" for panel in section.figures)
        wide = max(panel.figure.get_figwidth() for panel in section.figures) * 72 > FIGURE_WIDTH + 1
        parts.append(f'<div class="panels{" wide" if wide else ""}">{svgs}</div>')
    return "\n".join(parts) + "</section>"


def _prose(text: str) -> str:
    """Render a paragraph: `code` between backticks, and s_i, D^{1/2} of single characters as indices."""
    parts = safe(" ".join(text.split())).split("`")
    plain = (MINUS.sub("\N{MINUS SIGN}", part) for part in parts[0::2])
    parts[0::2] = [INDEX.sub(_index, part) for part in plain]
    parts[1::2] = [f"<code>{part}</code>" for part in parts[1::2]]
    return "".join(parts)


def _index(found: re.Match) -> str:
    tag = "sub" if found[2] == "_" else "sup"
    return f"{found[1]}<{tag}>{found[3].strip('{}')}</{tag}>"


def _table(checks: Sequence[Check]) -> str:
    head = "".join(
        f'<th scope="col">{words}</th>'
        for words in ("quantity", "result", "truth", "ours", "error", "limit")
    )
    reasons = list(
        dict.fromkeys(c.expected_miss for c in checks if c.word == "as printed" and c.expected_miss)
    )
    body = []
    for check in checks:
        mark = "" if check.passed else ' class="miss"' if check.word == "miss" else ' class="none"'
        word = check.word
        if word == "as printed" and check.expected_miss:
            word += f" ({reasons.index(check.expected_miss) + 1})"
        cells = [_number(check.truth), _number(check.ours), _error(check), _limit(check)]
        body.append(
            f'<tr><th scope="row" {CELL}>{_prose(check.quantity)}</th>'
            + f"<td{mark} {WRAP}>{safe(word)}</td>"  # second, so that a phone shows it
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + "</tr>"
        )
    table = (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of checks"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>" + "\n".join(body) + "</tbody></table></div>"
    )
    if reasons:
        notes = "".join(f"<li>{_prose(reason)}</li>" for reason in reasons)
        table += f'\n<div class="note"><p>As printed:</p><ol>{notes}</ol></div>'
    return table


def _number(value: float) -> str:
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}")


def _error(check: Check) -> str:
    if check.unit == "ratio":
        return f"× {check.error:.3f}" if check.error < 100 else f"× {check.error:.0f}"
    unit = " sd" if check.unit == "sd" else ""
    return f"{check.error:+.2g}{unit}".replace("-", "\N{MINUS SIGN}")


def _limit(check: Check) -> str:
    if check.unit == "ratio":
        return f"× {1 / (1 + check.limit):.3g} to {1 + check.limit:.3g}"
    return f"± {check.limit:.3g}" + (" sd" if check.unit == "sd" else "")


def _facts(result: Result) -> str:
    size = "the quick size" if result.quick else "full size"
    return f"Seed {result.seed}, {size}, {result.seconds:.1f} s."
