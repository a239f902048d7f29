"""The posterior predictive check: outcomes that the model would make, beside those that came.

For draws s = 1 .. S of the posterior, outcomes y_s are drawn for the rows of the data themselves;
a model that fits makes data sets that look like the observed one (Gelman et al. 1996).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.stats

from .canvas import COLOURS, WIDE, Panel, printable
from .replicated import Replicated
from .totals import FEW, band

__all__ = ["check"]

TAILS = (0.05, 0.95)


def check(family: str, made: Replicated) -> tuple[str, str]:
    """The panel, and its reading in sentences (plain text); "count" is the family of counts whose law has no name here."""
    checks: dict[str, Callable] = {
        "poisson": partial(_counts, "a Poisson model"),
        "negative-binomial": partial(_counts, "a negative binomial model"),
        "count": partial(_counts, "the model"),
        "gaussian": _density, "student-t": _density, "gamma": _density,
        "bernoulli": _calibration, "binomial": _calibration, "categorical": _calibration,
    }  # fmt: skip
    return checks[family](made)


def _counts(kind: str, made: Replicated) -> tuple[str, str]:
    """Frequencies of 0, 1, 2, ..., the last bar holding all larger counts."""
    most = int(np.clip(np.quantile(made.observed, 0.98), 5, 25))
    edges = np.append(np.arange(most + 1), np.inf) - 0.5

    def shares(y: np.ndarray) -> np.ndarray:
        return np.histogram(np.minimum(y, most), np.append(edges[:-1], most + 0.5))[0] / y.size

    observed = shares(made.observed)
    replicas = np.array([shares(row) for row in made.replicas])
    low, high = np.quantile(replicas, TAILS, axis=0)
    mean, x = replicas.mean(axis=0), np.arange(most + 1)
    panel = Panel(f"Frequencies of {made.outcome}", 215, width=WIDE, ylabel="% of rows")
    panel.axes.bar(x, 100 * observed, 0.8, color=COLOURS["accent-soft"], label="observed")
    panel.axes.errorbar(
        x, 100 * mean, 100 * np.array([mean - low, high - mean]).clip(0), fmt="o",
        color=COLOURS["contrast"], markersize=4, linewidth=1.4, label="replicated, 90% band",
    )  # fmt: skip
    panel.axes.set_xlim(-0.6, most + 0.6)
    panel.ticks("y", 4)
    every = 1 if most <= 12 else 2 if most <= 16 else 5
    places = [i for i in range(0, most, every) if i <= most - 0.8 * every] + [most]
    panel.axes.set_xticks(places, [*map(str, places[:-1]), f"{most}+"])
    panel.legend(loc="upper right")
    return panel.svg(), _read_counts(kind, made)


def _read_counts(kind: str, made: Replicated) -> str:
    totals = made.all_rows()
    zeros, replicated = totals.share_of_zeros[0], totals.share_of_zeros[1:]
    low, high = np.clip(band(replicated, TAILS), 0, 1)
    text = (
        f"Observed zeros are {_percent(zeros)} of the rows; replicated ones "
        f"{_percent(replicated.mean())} (90% band {_percent(low)} to {_percent(high)}). "
    )
    variance, spread = totals.variance[0], totals.variance[1:]
    few, many = band(replicated)
    if zeros > many:
        text += "The model makes too few zeros. "
    elif zeros < few:
        text += "The model makes too many zeros. "
    name = printable(made.outcome)
    text += f"The variance of {name} is {variance:.3g}, replicated {spread.mean():.3g}"
    low, high = band(spread)
    if variance > high:
        return text + (
            f": the counts are overdispersed, so the intervals of {kind} are too narrow, "
            "however well it was sampled."
        )
    if variance < low:
        return text + f": the counts vary less than {kind} lets them."
    if not few <= zeros <= many:
        return text + ": the variance fits, the zeros do not."
    if totals.num_rows < made.num_data:
        return text + f": the spread fits in {totals.num_rows:,} of the {made.num_data:,} rows."
    return text + ": the spread fits."


def _density(made: Replicated) -> tuple[str, str]:
    """Densities of the observed outcome and of the replicated ones, over the same bins."""
    low, high = np.quantile(made.observed, [0.001, 0.999])
    room = 0.1 * (high - low)
    edges = np.linspace(low - room, high + room, 41)

    def density(y: np.ndarray) -> np.ndarray:
        return np.histogram(y, edges)[0] / (y.size * (edges[1] - edges[0]))

    observed = density(made.observed)
    replicas = np.array([density(row) for row in made.replicas])
    band = np.quantile(replicas, TAILS, axis=0)
    panel = Panel(f"Density of {made.outcome}", 215, width=WIDE)
    panel.axes.stairs(
        band[1], edges, baseline=band[0], fill=True, color=COLOURS["contrast"], alpha=0.3,
        label="replicated, 90% band",
    )  # fmt: skip
    panel.axes.stairs(replicas.mean(axis=0), edges, color=COLOURS["contrast"], linewidth=1)
    panel.axes.stairs(observed, edges, color=COLOURS["accent"], linewidth=1.5, label="observed")
    panel.axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.3 * max(observed.max(), band[1].max())))
    panel.only_x()
    panel.ticks("x")
    panel.legend(loc="upper center", ncols=2)
    outside = int(np.sum((observed < band[0]) | (observed > band[1])))
    return panel.svg(), _read_density(made, outside, len(observed))


def _read_density(made: Replicated, outside: int, bins: int) -> str:
    totals = made.all_rows()
    text = (
        f"The observed density leaves the 90% band in {outside} of {bins} bins; about "
        f"{bins // 10} would by chance. "
    )
    wrong = []
    for measured, low_word, high_word in (
        (totals.skewness, "a longer lower tail", "a longer upper tail"),
        (totals.kurtosis, "lighter tails", "heavier tails"),
    ):
        value, *replicas = np.arcsinh(measured)  # whose own law has shorter tails
        low, high = band(np.array(replicas))
        if not low <= value <= high:
            wrong.append(high_word if value > high else low_word)
    name = printable(made.outcome)
    if wrong:
        return text + f"{name} has {' and '.join(wrong)} than the model makes."
    if outside > bins // 4:
        return text + f"The shape of {name} is not the one the model makes."
    part = "" if totals.num_rows == made.num_data else f" in {totals.num_rows:,} rows"
    return text + f"Skewness and tails of {name} are those the model makes{part}."


def _calibration(made: Replicated) -> tuple[str, str]:
    """Observed rates against predicted ones, in bins of the predicted ones, of all rows."""
    predicted, rates = made.all_rows().rates
    observed, replicas = rates[:, 0], rates[:, 1:]
    low, high = np.clip([band(row, TAILS) for row in replicas], 0, 1).T
    panel = Panel(
        f"Calibration of {made.outcome}", 250, width=WIDE,
        xlabel="predicted probability", ylabel="observed rate",
    )  # fmt: skip
    panel.axes.fill_between(
        predicted, low, high, color=COLOURS["contrast"], alpha=0.25, linewidth=0,
        label="replicated, 90% band",
    )  # fmt: skip
    panel.axes.plot([0, 1], [0, 1], color=COLOURS["muted"], linewidth=0.8, linestyle=(0, (3, 2)))
    panel.axes.plot(
        predicted, observed, "o-", color=COLOURS["accent"], markersize=4.5, linewidth=1,
        label="observed",
    )  # fmt: skip
    room = 0.06 * max(high.max(), observed.max())
    top = min(1.0, max(high.max(), observed.max(), predicted.max()) + room)
    panel.axes.set(xlim=(0, top), ylim=(0, top))
    for axis in "xy":
        panel.ticks(axis)
    panel.legend(loc="upper left")
    return panel.svg(), _read_calibration(predicted, observed, replicas)


def _read_calibration(predicted: np.ndarray, observed: np.ndarray, replicas: np.ndarray) -> str:
    """All bins together: the distance from the replicas' means, against the replicas' own."""
    low, high = np.transpose([band(row, TAILS) for row in replicas])
    wrong = int(np.sum((observed < low) | (observed > high)))
    text = f"The observed rate leaves the 90% band in {wrong} of {len(predicted)} bins"
    mean = replicas.mean(axis=1, keepdims=True)
    sd = np.maximum(replicas.std(axis=1, ddof=min(1, replicas.shape[1] - 1), keepdims=True), 1e-9)
    away = (observed - mean[:, 0]) / sd[:, 0]
    distances = np.sum(((replicas - mean) / sd) ** 2, axis=0)
    if np.sum(away**2) <= _far(distances, len(predicted)):
        return text + ", as chance may have it: the probabilities are calibrated."
    worst = int(np.argmax(np.abs(away)))
    return text + (
        f", further than chance would: the probabilities are not calibrated. Where the model says "
        f"{_percent(predicted[worst])}, {_percent(observed[worst])} were seen; a term of the model "
        "may be missing."
    )


def _far(distances: np.ndarray, bins: int) -> float:
    """What the squared distance of one more data set exceeds once in a hundred times."""
    count = len(distances)
    if count >= FEW or count < 2:
        return float(np.quantile(distances, 0.99))
    return bins * (1 + 1 / count) * float(scipy.stats.f.ppf(0.99, bins, count - 1))


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if 0.01 < share < 0.99 else f"{100 * share:.1f}%"
