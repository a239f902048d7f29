"""Matplotlib figures of draws, `draws.plot(kind)`, made by ArviZ where it has the plot.

ArviZ supports no weights. It therefore receives draws resampled to equal weights, one scalar for
each selected parameter, and only the first few of many chains if each chain has its own line.

The kind "verdict" shows the measured values of every parameter and the limits of a trusted run.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.validation import one_of
from ..diagnostics import rule as limits
from ..errors import UsageError, did_you_mean, need
from ..results import statistics
from ..results.draws import Draws
from .arviz_pointwise import Subject, subject_of
from .arviz_rows import Chosen, choose
from .notebook import outcomes_of
from .report.figures import COLOURS, printable, shorten
from .report.html import LIGHT_WORDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

MAX_PLOTTED = {"forest": 40, "trace": 8, "marginal": 16, "pair": 5, "verdict": 40}
MAX_PLOTTED_CHAINS = 8  # chains with their own line
MAX_PLOTTED_DRAWS = 4000  # draws in a figure
MAX_PAIR_POINTS = 1500  # points
# values of an integer outcome up to which its frequencies are plotted
MAX_DISCRETE_VALUES = 40


def plot(
    draws: Draws, kind: str = "forest", *, names: Sequence[str] | None = None,
    posterior: Any = None, data: Any = None, seed: int = 0, **how: Any,
) -> Figure:  # fmt: skip
    """Compute `Draws.plot`."""
    need("matplotlib", "report")
    one_of("kind", kind, PLOT_OF_KIND)
    if draws.moments is not None:
        raise UsageError("this run kept only moments and cannot be plotted; sample without keep.")
    if kind == "ppc":
        subject = subject_of(draws, posterior, data, **how)
        return _finished(_ppc(draws, subject, seed), "")
    chosen, said = _parameters(draws, names, MAX_PLOTTED[kind])
    if kind == "verdict":
        return verdict_plot(draws, chosen, said)
    return _finished(PLOT_OF_KIND[kind](draws, chosen), said)


def _parameters(draws: Draws, names: Sequence[str] | None, most: int) -> tuple[np.ndarray, str]:
    """Return indices of the plotted parameters, and a sentence if they are not all."""
    every = list(draws.names)
    if names is not None:
        names = [names] if isinstance(names, str) else list(names)
        chosen: list[int] = []
        for name in names:
            found = [i for i, own in enumerate(every) if own == name or own.startswith(f"{name}[")]
            if not found:
                raise UsageError(
                    f"names holds {name!r}, which is not a parameter; the parameters are {', '.join(every[:5])}"
                    f"{', ...' if len(every) > 5 else ''}.{did_you_mean(name, every)}"
                )
            chosen += found
        return np.array(chosen), ""
    if len(every) <= most:
        return np.arange(len(every)), ""
    ess = statistics.Estimates(draws.flat()[0], draws.weights).ess
    lowest = np.sort(np.argsort(np.nan_to_num(ess), kind="stable")[:most])
    return lowest, f"{most} of {len(every):,} parameters, those with the lowest ESS; see names="


def _tree(draws: Draws, parameters: np.ndarray, chosen: Chosen) -> DataTree:
    """Return a DataTree with one scalar variable per parameter."""
    flat, _ = draws.flat()
    values = flat.reshape(-1, flat.shape[-1])[chosen.at]
    return _from_dict({"posterior": {draws.names[i]: values[..., i] for i in parameters}})


def _from_dict(groups: dict[str, Any]) -> DataTree:
    from arviz_base import from_dict

    with warnings.catch_warnings():  # many chains of few draws are intended
        warnings.filterwarnings("ignore", message="Found chain dimension to be longer")
        return from_dict(groups)


def _arviz(function: str, tree: DataTree, **how: Any) -> Figure:
    """Return the figure of one of ArviZ's plots.

    The figure is closed in pyplot, since a notebook shows the value that a cell returns.
    """
    plots: Any = need("arviz_plots", "report")
    import matplotlib.pyplot as plt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings on layouts, and on ArviZ's calls of matplotlib
        made = getattr(plots, function)(tree, backend="matplotlib", **how)
        figure = made.viz["figure"].item()
        plt.close(figure)
        figure.set_layout_engine("constrained")
    return figure


def _forest(draws: Draws, parameters: np.ndarray) -> Figure:
    tree = _tree(draws, parameters, choose(draws, MAX_PLOTTED_DRAWS))
    figure = _arviz("plot_forest", tree, combined=True, ci_probs=(0.5, 0.9), ci_kind="eti")
    names, intervals = figure.axes
    names.set_axis_off()
    low, high = intervals.get_xlim()
    if low < 0 < high:
        intervals.axvline(0, color="gray", linewidth=0.8, linestyle=(0, (3, 2)), zorder=0)
    return figure


def _trace(draws: Draws, parameters: np.ndarray) -> Figure:
    chosen = choose(draws, weights=False)
    few = Chosen(chosen.at[:MAX_PLOTTED_CHAINS], False)
    return _arviz("plot_trace_dist", _tree(draws, parameters, few), compact=False)


def _marginal(draws: Draws, parameters: np.ndarray) -> Figure:
    tree = _tree(draws, parameters, choose(draws, MAX_PLOTTED_DRAWS))
    return _arviz("plot_dist", tree, kind="hist", ci_prob=0.9, ci_kind="eti", point_estimate="median")  # fmt: skip


def _pair(draws: Draws, parameters: np.ndarray) -> Figure:
    if len(parameters) < 2:
        raise UsageError("a pair plot needs at least two parameters.")
    return _arviz("plot_pair", _tree(draws, parameters, choose(draws, MAX_PAIR_POINTS)))


def _ppc(draws: Draws, subject: Subject, seed: int) -> Figure:
    """Plot simulated and observed outcomes, with a plot that fits the kind of the outcome."""
    found = outcomes_of(draws, subject, seed)
    observed, values = found.observed, found.made
    if found.whole:
        observed, values = observed.astype(int), values.astype(int)
    tree = _from_dict(
        {"posterior_predictive": {found.name: values}, "observed_data": {found.name: observed}}
    )
    if found.whole and set(np.unique(observed)) <= {0, 1}:
        return _arviz("plot_ppc_pava", tree)
    if found.whole and observed.min() >= 0 and len(np.unique(observed)) <= MAX_DISCRETE_VALUES:
        return _arviz("plot_ppc_rootogram", tree)
    return _arviz("plot_ppc_dist", tree, num_samples=min(100, values.shape[0] * values.shape[1]))


def _finished(figure: Figure, said: str) -> Figure:
    if said:
        figure.suptitle(said, fontsize=8, color="gray", x=0.01, ha="left", parse_math=False)
    return figure


PLOT_OF_KIND: dict[str, Callable[..., Any]] = {
    "forest": _forest, "trace": _trace, "marginal": _marginal, "pair": _pair, "ppc": _ppc,
    "verdict": lambda draws, chosen: None,
}  # fmt: skip


# -- verdict plot --------------------------------------------------------------------------


PLOT_INCHES, ROW_INCHES, LINE_CHARACTERS = 9.0, 0.26, 105
CLASS_OF_VERDICT = {"trusted": "good", "biased": "bad", "not mixed": "warn", "unknown": "doubt"}


def verdict_plot(draws: Draws, parameters: np.ndarray, said: str) -> Figure:
    """Plot sd ratio, ESS and R-hat of some parameters below the verdict and its reasons.

    A bar marks the limit of each; the limit of R-hat depends on the ESS.
    """
    import matplotlib.pyplot as plt

    verdict, names = draws.verdict, [draws.names[i] for i in parameters]
    found = statistics.Estimates(draws.flat()[0][..., parameters], draws.weights)
    lines = textwrap.wrap(" ".join(verdict.reasons), LINE_CHARACTERS)[:4] + ([said] if said else [])
    head = 0.85 + 0.17 * len(lines)
    figure = plt.figure(
        figsize=(PLOT_INCHES, head + ROW_INCHES * len(names) + 0.8), facecolor=COLOURS["paper"]
    )
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
    """Return the report's colour of a verdict."""
    return LIGHT_WORDS[CLASS_OF_VERDICT[word]]


def _ratios(axes: Any, draws: Draws, parameters: np.ndarray) -> None:
    """Plot the sd of the run over the posterior's sd, with two standard errors."""
    verdict, worst = draws.verdict, limits.MAX_RATIO_ERROR
    axes.set_title("sd of the run / sd of the posterior", fontsize=9, color=COLOURS["ink"])
    _plain(axes)
    if verdict.sd_ratio is None or len(verdict.sd_ratio) != len(draws.names):
        axes.set_xticks([])
        axes.text(
            0.5, 0.5, "not measured for these draws", transform=axes.transAxes, ha="center", fontsize=9,
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
    """Plot a number per parameter from `start` on, and its limit.

    R-hat must not be above its limit, and the effective draws not below theirs.
    """
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
