"""The posterior predictive check: outcomes that the model would make, beside those that came.

For draws s = 1 .. S of the posterior, outcomes y_s are drawn for the rows of the data themselves;
a model that fits makes data sets that look like the observed one (Gelman et al. 1996).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from ..draws.draws import Draws
from ..models.formula import FormulaModel
from .canvas import COLOURS, WIDE, Panel, printable

__all__ = ["Replicated", "check", "replicate", "representative"]

MOST_DRAWS = 100
MOST_ROWS = 5000
TAILS = (0.05, 0.95)
SURE = (0.005, 0.995)  # a sentence that finds fault is wrong once in a hundred times


@dataclass(frozen=True)
class Replicated:
    """Rows of the data, and outcomes drawn for them.

    Attributes:
      observed: [n], on the original scale.
      replicas: [S, n], one drawn data set per row.
      mean: [n], the predicted mean of each outcome.
      outcome: the column's name.
      num_data: rows of the whole data.
      num_rows: rows that were taken; of an outcome with levels n is that many times the levels.
    """

    observed: Float[np.ndarray, " n"]
    replicas: Float[np.ndarray, "S n"]
    mean: Float[np.ndarray, " n"]
    outcome: str
    num_data: int
    num_rows: int


def representative(weights: Float[np.ndarray, " m"], most: int) -> Int[np.ndarray, " S"]:
    """At most `most` indices that stand, with equal weights, for draws of these weights."""
    count = min(most, weights.size)
    places = (np.arange(count) + 0.5) / count
    found = np.searchsorted(np.cumsum(weights) / np.sum(weights), places)
    return np.minimum(found, weights.size - 1)


def replicate(
    model: FormulaModel,
    draws: Draws,
    seed: int,
    most_draws: int = MOST_DRAWS,
    most_rows: int = MOST_ROWS,
) -> Replicated:
    """Outcomes of at most `most_draws` draws for at most `most_rows` rows of the model's data."""  # fmt: skip
    assert model.data is not None
    rng = np.random.default_rng([seed, 5])
    chosen = representative(draws.weights.ravel(), most_draws)

    def pick(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)[draws.healthy]
        return leaf.reshape(-1, *leaf.shape[2:])[chosen]

    position = model.to_standardised(jax.tree.map(pick, draws.position))
    num_data = len(model.data[1])
    rows = np.sort(rng.permutation(num_data)[:most_rows])
    x, y, *more = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[rows], model.data)
    given = {name: position[name][:, None] for name in model.family.dispersion}
    given |= more[0] if more else {}
    eta = np.einsum("s...p,np->sn...", position["coefficients"], x)
    if "offset" in given:
        eta = eta + given["offset"].reshape(-1, *([1] * (eta.ndim - 2)))
    observed, mean = y, model.family.mean(eta, given).mean(axis=0)
    replicas = model.family.sample(rng, eta, given)
    if model.family.levels:  # each level against the others, all levels after one another
        levels = np.arange(mean.shape[1])
        observed, mean = (y[:, None] == levels).ravel(), mean.ravel()
        replicas = (replicas[..., None] == levels).reshape(len(replicas), -1).astype(np.float64)
    if model.family.trials:
        observed, replicas, mean = (v / given["trials"] for v in (observed, replicas, mean))
    shift, stretch = model.spec["outcome_center"], model.spec["outcome_scale"]
    return Replicated(
        observed=shift + stretch * observed,
        replicas=shift + stretch * replicas,
        mean=shift + stretch * mean,
        outcome=model.spec["design"]["outcome"],
        num_data=num_data,
        num_rows=len(rows),
    )


def check(family: str, made: Replicated) -> tuple[str, str]:
    """The panel, and its reading in sentences (plain text)."""
    checks: dict[str, Callable] = {
        "poisson": partial(_counts, "Poisson"),
        "negative-binomial": partial(_counts, "negative binomial"),
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
    return panel.svg(), _read_counts(kind, made, observed[0], replicas[:, 0])


def _read_counts(kind: str, made: Replicated, zeros: float, replicated: np.ndarray) -> str:
    low, high = np.quantile(replicated, TAILS)
    text = (
        f"Observed zeros are {_percent(zeros)} of the rows; replicated ones "
        f"{_percent(replicated.mean())} (90% band {_percent(low)} to {_percent(high)}). "
    )
    variance, spread = made.observed.var(), made.replicas.var(axis=1)
    few, many = np.quantile(replicated, SURE)
    if zeros > many:
        text += "The model makes too few zeros. "
    elif zeros < few:
        text += "The model makes too many zeros. "
    name = printable(made.outcome)
    text += f"The variance of {name} is {variance:.3g}, replicated {spread.mean():.3g}"
    band = np.quantile(spread, SURE)
    if variance > band[1]:
        return text + (
            f": the counts are overdispersed, so the intervals of a {kind} model are too narrow, "
            "however well it was sampled."
        )
    if variance < band[0]:
        return text + f": the counts vary less than a {kind} model lets them."
    if not few <= zeros <= many:
        return text + ": the variance fits, the zeros do not."
    if made.num_rows < made.num_data:
        return text + f": the spread fits in these {made.num_rows:,} rows."
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
    def skewness(y: np.ndarray) -> np.ndarray | np.floating:
        centred = y - y.mean(axis=-1, keepdims=True)
        return (centred**3).mean(axis=-1) / (centred**2).mean(axis=-1) ** 1.5

    def kurtosis(y: np.ndarray) -> np.ndarray | np.floating:
        centred = y - y.mean(axis=-1, keepdims=True)
        return (centred**4).mean(axis=-1) / (centred**2).mean(axis=-1) ** 2

    text = (
        f"The observed density leaves the 90% band in {outside} of {bins} bins; about "
        f"{bins // 10} would by chance. "
    )
    wrong = []
    for measure, low_word, high_word in (
        (skewness, "a longer lower tail", "a longer upper tail"),
        (kurtosis, "lighter tails", "heavier tails"),
    ):
        value, band = measure(made.observed), np.quantile(measure(made.replicas), SURE)
        if not band[0] <= value <= band[1]:
            wrong.append(high_word if value > band[1] else low_word)
    name = printable(made.outcome)
    if wrong:
        return text + f"{name} has {' and '.join(wrong)} than the model makes."
    if outside > bins // 4:
        return text + f"The shape of {name} is not the one the model makes."
    return text + f"Skewness and tails of {name} are those the model makes."


def _calibration(made: Replicated) -> tuple[str, str]:
    """Observed rates against predicted ones, in bins of equally many rows."""
    count = int(np.clip(made.mean.size // 50, 2, 10))
    bins = np.array_split(np.argsort(made.mean, kind="stable"), count)
    predicted = np.array([made.mean[rows].mean() for rows in bins])
    observed = np.array([made.observed[rows].mean() for rows in bins])
    replicas = np.array([made.replicas[:, rows].mean(axis=1) for rows in bins])
    low, high = np.quantile(replicas, TAILS, axis=1)
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
    low, high = np.quantile(replicas, TAILS, axis=1)
    wrong = int(np.sum((observed < low) | (observed > high)))
    text = f"The observed rate leaves the 90% band in {wrong} of {len(predicted)} bins"
    mean, sd = replicas.mean(axis=1), np.maximum(replicas.std(axis=1), 1e-9)
    away = (observed - mean) / sd
    usual = np.sum(((replicas - mean[:, None]) / sd[:, None]) ** 2, axis=0)
    if np.sum(away**2) <= np.quantile(usual, 0.99):
        return text + ", as chance may have it: the probabilities are calibrated."
    worst = int(np.argmax(np.abs(away)))
    return text + (
        f", further than chance would: the probabilities are not calibrated. Where the model says "
        f"{_percent(predicted[worst])}, {_percent(observed[worst])} were seen; a term of the formula "
        "may be missing."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if 0.01 < share < 0.99 else f"{100 * share:.1f}%"
