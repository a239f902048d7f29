"""The verdict as a picture: what was measured of every parameter, beside what a trusted run needs."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics import rule as limits
from ..report.canvas import COLOURS, printable, shorten
from ..report.style import LIGHT_WORDS
from ..results import statistics
from ..results.draws import Draws

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["verdict_plot"]

WIDTH, ROW, LETTERS = 9.0, 0.26, 105
WORDS = {"trusted": "good", "biased": "bad", "not mixed": "warn", "unknown": "doubt"}


def verdict_plot(draws: Draws, parameters: np.ndarray, said: str) -> Figure:
    """Ratio of sds, effective draws and R-hat of some parameters; the word and its reasons above.

    A bar marks the limit of each: that of R-hat depends on the effective draws.
    """
    import matplotlib.pyplot as plt

    verdict, names = draws.verdict, [draws.names[i] for i in parameters]
    found = statistics.Estimates(draws.flat()[0][..., parameters], draws.weights)
    lines = textwrap.wrap(" ".join(verdict.reasons), LETTERS)[:4] + ([said] if said else [])
    head = 0.85 + 0.17 * len(lines)
    figure = plt.figure(figsize=(WIDTH, head + ROW * len(names) + 0.8), facecolor=COLOURS["paper"])
    height = figure.get_figheight()
    axes: Any = figure.subplots(1, 3, sharey=True, width_ratios=(1.3, 1, 1))
    figure.subplots_adjust(left=0.2, right=0.97, top=1 - head / height, bottom=0.55 / height, wspace=0.12)  # fmt: skip
    top = 1 - 0.12 / height
    figure.text(0.02, top, verdict.word, fontsize=17, weight="bold", color=_colour(verdict.word), va="top")  # fmt: skip
    text = "\n".join(map(printable, lines))
    figure.text(0.02, top - 0.36 / height, text, fontsize=9, color=COLOURS["muted"], va="top", parse_math=False)  # fmt: skip
    _ratios(axes[0], draws, parameters)
    y = np.arange(len(names))
    chains = max(1, len(draws.healthy))
    highest = statistics.max_r_hat(found.mixing.ess_alone, chains, len(draws.names))
    _numbers(axes[1], y, found.ess, "effective draws", np.full(len(y), limits.MIN_ESS), 0.0)
    _numbers(axes[2], y, np.asarray(found.mixing.r_hat), "R-hat", highest, 1.0)
    axes[0].set_yticks(y, [shorten(name, 24) for name in names], fontsize=9)
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    plt.close(figure)  # a notebook shows what a cell returns
    return figure


def _colour(word: str) -> str:
    """The report's colour of a word."""
    found = re.search(rf"--{WORDS[word]}: (#\w+);", LIGHT_WORDS)
    assert found is not None
    return found[1]


def _ratios(axes: Any, draws: Draws, parameters: np.ndarray) -> None:
    """sd of the run over the posterior's, with two standard errors."""
    verdict, worst = draws.verdict, limits.MAX_RATIO_ERROR
    axes.set_title("sd of the run / sd of the posterior", fontsize=9, color=COLOURS["ink"])
    _plain(axes)
    if verdict.sd_ratio is None or len(verdict.sd_ratio) != len(draws.names):
        axes.set_xticks([])
        axes.text(
            0.5, 0.5, "not measured of these draws", transform=axes.transAxes, ha="center", fontsize=9,
            color=COLOURS["muted"],
        )  # fmt: skip
        return
    y, ratio = np.arange(len(parameters)), verdict.sd_ratio[parameters]
    se = np.zeros(len(y)) if verdict.sd_ratio_se is None else verdict.sd_ratio_se[parameters]
    axes.axvspan(1 - worst, 1 + worst, color=COLOURS["shade"], zorder=0)
    axes.axvline(1, color=COLOURS["muted"], linewidth=0.8)
    good = np.abs(ratio - 1) <= worst
    for which, colour in ((good, COLOURS["accent"]), (~good, COLOURS["contrast"])):
        axes.errorbar(ratio[which], y[which], xerr=2 * se[which], fmt="o", color=colour, markersize=4, linewidth=1.2)  # fmt: skip
    reach = max(1.5 * worst, 1.1 * float(np.nanmax(np.abs(ratio - 1) + 2 * se, initial=0.0)))
    axes.set_xlim(max(0.0, 1 - reach), 1 + reach)


def _numbers(
    axes: Any, y: np.ndarray, values: np.ndarray, title: str, limit: np.ndarray, start: float
) -> None:
    """A number per parameter from `start` on, and its limit: R-hat must not be above, draws not below it."""
    _plain(axes)
    axes.set_title(title, fontsize=9, color=COLOURS["ink"])
    good = values >= limit if start == 0 else values <= limit
    colours = [COLOURS["accent"] if one else COLOURS["contrast"] for one in good]
    axes.hlines(y, start, values, color=colours, linewidth=1.2)
    axes.scatter(values, y, color=colours, s=14, zorder=3)
    axes.scatter(limit, y, color=COLOURS["muted"], marker="|", s=60, linewidth=1.0, zorder=2)
    finite = np.append(values, limit)[np.isfinite(np.append(values, limit))]
    axes.set_xlim(start, start + 1.12 * (finite.max() - start))


def _plain(axes: Any) -> None:
    axes.patch.set_visible(False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=COLOURS["muted"], labelsize=8, length=3, left=False)
