"""What there is of a run that goes on, as lines for a terminal or as a page; names are shown escaped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.text import columns as in_columns
from ..errors import plain
from .canvas import shorten
from .live import Live
from .style import PAGE
from .text import ordinal, says

__all__ = ["EVERY", "as_error_page", "as_lines", "as_page"]

TRACED, DOTS = 6, 300
EVERY = 3  # seconds after which a page asks for itself again


def as_lines(live: Live) -> str:
    """For a terminal; names without letters that it would obey."""
    lines = [live.facts(), live.word()]
    rows = [[shorten(name, 40), f"{m:.4g}", f"{s:.3g}"] for name, m, s in live.rows()]
    if rows:
        lines += ["", *in_columns([["", "mean", "sd"], *rows])]
        lines += [note for note in [_left_out(live, len(rows))] if note]
    return plain("\n".join(lines))


def _left_out(live: Live, shown: int) -> str:
    """Which parameters are shown, where not all are."""
    if shown == live.width:
        return ""
    of = f"{len(live.names):,} evenly of {live.width:,}" if len(live.names) < live.width else f"{live.width:,}"  # fmt: skip
    return f"the {shown} parameters that agree least, of {of}"


def as_page(live: Live, name: str) -> str:
    """One page without scripts, which asks for itself again while there may be more to see."""
    rows = "".join(
        f'<tr><th scope="row">{says(shorten(n, 60))}</th><td>{m:.4g}</td><td>{s:.3g}</td></tr>'
        for n, m, s in live.rows()
    )
    past = list(live.history())
    over = "predictions" if live.by_predictions else "the parameters below"
    figures = [
        _figure("R-hat, the worst", [[(c, a.r_hat) for c, a in past], [(c, a.limit) for c, a in past]], f"draws of a chain; of {over}; the second line is its limit"),
        _figure("ESS, the least", [[(c, a.ess) for c, a in past]], f"draws of a chain; of {over}"),
    ]  # fmt: skip
    every = max(1, live.draws.shape[1] // DOTS)
    for i in live.worst[:TRACED] if live.draws.shape[1] else []:
        chains = [list(enumerate(chain[::every, i])) for chain in live.draws[:6]]
        apart = every * live.every
        figures.append(_figure(shorten(live.names[i], 40), chains, f"every {ordinal(apart)}draw"))  # fmt: skip
    note = _left_out(live, len(live.rows())) if live.rows() else ""
    body = (
        f'<section class="banner unknown" id="verdict"><p class="word">{says(live.state)}</p>'
        f'<p class="only">{says(live.word())}</p><p class="note">{says(live.facts())}</p></section>\n'
        + (f"<table><thead><tr><th></th><th>mean</th><th>sd</th></tr></thead><tbody>{rows}</tbody></table>\n" if rows else "")
        + (f'<p class="note">{says(note)}</p>\n' if note else "")
        + "\n".join(figures)
    )  # fmt: skip
    return _page(body, name, refresh=not live.finished)


def as_error_page(sentence: str, name: str) -> str:
    """A page that says what is wrong, and asks again: the run may go on, or be made anew."""
    body = (
        '<section class="banner unknown" id="verdict"><p class="word">not to be read</p>'
        f'<p class="only">{says(sentence)}</p></section>'
    )
    return _page(body, name, refresh=True)


def _page(body: str, name: str, *, refresh: bool) -> str:
    page = PAGE.substitute(title=says(name), content=body, footer=f"Run <code>{says(name)}</code>.")
    again = f'<meta http-equiv="refresh" content="{EVERY}">' if refresh else ""
    return page.replace("<head>", f"<head>{again}", 1)


def _figure(title: str, lines: Sequence[Sequence[tuple[float, float]]], below: str) -> str:
    """Lines in one frame, as SVG of numbers alone."""
    points = np.array([p for line in lines for p in line if np.isfinite(p[1])], np.float64)
    if len(points) < 2:
        return ""
    low, high = points.min(0), points.max(0)
    span = np.where(high > low, high - low, 1.0)
    drawn = []
    for k, line in enumerate(lines):
        at = [(40 + 540 * (x - low[0]) / span[0], 130 - 120 * (y - low[1]) / span[1]) for x, y in line if np.isfinite(y)]  # fmt: skip
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="var(--chain-{k % 6})" stroke-width="1"/>')  # fmt: skip
    return (
        f'<figure><figcaption>{says(title)}: {low[1]:.4g} to {high[1]:.4g} <span class="note">({says(below)})</span></figcaption>'
        f'<svg viewBox="0 0 600 140" role="img" aria-label="{says(title)}" style="width:100%;max-width:600px">{"".join(drawn)}</svg></figure>'
    )
