"""Posterior predictive checks: outcomes that the model simulates, compared with the observed ones.

For draws s = 1 .. S of the posterior, outcomes y_s are drawn for the rows of the data themselves.
A model that fits produces data sets that look like the observed one (Gelman et al. 1996).

Outcomes are drawn for a sample of rows at once, which is plotted, and for all rows in pieces, which
are reduced to single numbers. A number of a part of the rows can look right where that of all rows
is far off, since its replicas spread as 1/sqrt(rows). The sentences of the page therefore use
numbers of all rows.

The module also plots the predictions of a network at the probe rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from ...regression.formula import FormulaModel
from ...results.draws import Draws
from ...results.statistics import systematic
from . import figures
from .figures import COLOURS, WIDE_WIDTH, Panel, printable

# -- totals --------------------------------------------------------------------------------


CERTAIN_INTERVAL = (0.005, 0.995)  # a sentence that reports a misfit is wrong in 1% of cases
MIN_REPLICAS = 100  # replicas below which outer quantiles come from a t distribution
MAX_LEVERAGE_POWERS = 4


@dataclass
class Totals:
    """Sums over rows; each array holds the observed data set first, then the replicas.

    Attributes:
      center, scale: of the outcomes, so that their powers do not cancel.
      edges: the edges between the bins of the predicted mean.
      count: the number of outcomes.
      num_rows: the number of rows.
      powers: [4, 1 + S], sums of ((y - center) / scale)^k, k = 1 to 4.
      zeros: [1 + S], numbers of outcomes that are 0.
      bins: [bins, 1 + S], sums of the outcomes in each bin.
      predicted, sizes: [bins], sums of the predicted means, and numbers of outcomes.
    """

    center: float
    scale: float
    edges: Float[np.ndarray, " k"]
    count: int = 0
    num_rows: int = 0
    powers: np.ndarray | float = 0.0
    zeros: np.ndarray | float = 0.0
    bins: np.ndarray | float = 0.0
    predicted: np.ndarray | float = 0.0
    sizes: np.ndarray | float = 0.0

    @classmethod
    def like(cls, observed: Float[np.ndarray, " n"], mean: Float[np.ndarray, " n"]) -> Totals:
        """Return empty sums, with center, scale and bins that suit outcomes like these."""
        count = int(np.clip(mean.size // 50, 2, 10))
        edges = np.unique(np.quantile(mean, np.arange(1, count) / count))
        return cls(float(observed.mean()), float(observed.std()) or 1.0, edges)

    def add(
        self,
        observed: Float[np.ndarray, " n"],
        replicas: Float[np.ndarray, "S n"],
        mean: Float[np.ndarray, " n"],
        num_rows: int,
    ) -> None:
        """Add these outcomes to the sums."""
        every = np.concatenate([observed[None], replicas])
        self.count += observed.size
        self.num_rows += num_rows
        self.zeros = self.zeros + np.count_nonzero(every == 0, axis=1)
        bin_of = np.searchsorted(self.edges, mean, side="right")
        member = np.eye(len(self.edges) + 1)[bin_of]
        self.bins = self.bins + member.T @ every.T
        self.predicted = self.predicted + member.T @ mean
        self.sizes = self.sizes + member.sum(axis=0)
        z = (every - self.center) / self.scale
        power, sums = z, []
        for _ in range(MAX_LEVERAGE_POWERS):
            sums.append(power.sum(axis=1))
            power = power * z
        self.powers = self.powers + np.array(sums)

    @property
    def share_of_zeros(self) -> Float[np.ndarray, " data_sets"]:
        """Zeros per outcome."""
        return np.asarray(self.zeros) / self.count

    @property
    def variance(self) -> Float[np.ndarray, " data_sets"]:
        """Variance of the outcomes, about their own mean."""
        return self.scale**2 * self._central()[0]

    @property
    def skewness(self) -> Float[np.ndarray, " data_sets"]:
        """Third central moment over the second to the power 3/2."""
        second, third, _ = self._central()
        return third / second**1.5

    @property
    def kurtosis(self) -> Float[np.ndarray, " data_sets"]:
        """Fourth central moment over the square of the second; 3 for a normal distribution."""
        second, _, fourth = self._central()
        return fourth / second**2

    @property
    def rates(self) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, "bins data_sets"]]:
        """Mean predictions and mean outcomes of the bins that hold outcomes."""
        sizes = np.asarray(self.sizes)
        held = sizes > 0
        return (
            np.asarray(self.predicted)[held] / sizes[held],
            np.asarray(self.bins)[held] / sizes[held, None],
        )

    def _central(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first, second, third, fourth = np.asarray(self.powers) / self.count
        return (
            second - first**2,
            third - 3 * first * second + 2 * first**3,
            fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4,
        )


def band(
    replicas: Float[np.ndarray, " S"], tails: tuple[float, float] = CERTAIN_INTERVAL
) -> tuple[float, float]:
    """Return the interval that holds the number of one more data set.

    Its probability is that between `tails`.
    It uses quantiles if there are many replicas, and Student's prediction interval if there are
    few.
    """
    if len(replicas) < 2:
        return -np.inf, np.inf
    if len(replicas) >= MIN_REPLICAS:
        low, high = np.quantile(replicas, tails)
        return float(low), float(high)
    spread = np.std(replicas, ddof=1) * np.sqrt(1 + 1 / len(replicas))
    low, high = scipy.stats.t.ppf(tails, len(replicas) - 1) * spread + np.mean(replicas)
    return float(low), float(high)


# -- replicated ----------------------------------------------------------------------------


MAX_REPLICAS = 100
MAX_PICTURED_ROWS = 5000  # plotted rows
MIN_ALL_ROW_DRAWS = 20  # draws for all rows
MAX_CHECK_CELLS = 20_000_000  # draws x rows for all rows; about a second
MAX_PERMUTED_ROWS = 2**24  # rows whose indices fit in memory at once
MAX_CHECKED_ROWS = 2_000_000  # rows beyond which a sample of this size represents all
CELLS_AT_ONCE = 1_000_000  # draws x rows x levels in memory at once


@dataclass(frozen=True)
class Replicated:
    """Rows of the data, and outcomes drawn for them.

    Attributes:
      observed: [n], on the original scale.
      replicas: [S, n], one simulated data set per row.
      mean: [n], the predicted mean of each outcome.
      outcome: the column's name.
      num_data: the number of rows of the whole data.
      num_rows: the number of rows that were used; for an outcome with levels, n is this times the
        levels.
      totals: single numbers of all rows; by default those of the rows that were used.
    """

    observed: Float[np.ndarray, " n"]
    replicas: Float[np.ndarray, "S n"]
    mean: Float[np.ndarray, " n"]
    outcome: str
    num_data: int
    num_rows: int
    totals: Totals | None = None

    def all_rows(self) -> Totals:
        """Return `totals`, or the sums of the rows that were used."""
        if self.totals is not None:
            return self.totals
        totals = Totals.like(self.observed, self.mean)
        totals.add(self.observed, self.replicas, self.mean, self.num_rows)
        return totals


def replicate(
    model: FormulaModel,
    draws: Draws,
    seed: int,
    most_draws: int = MAX_REPLICAS,
    most_rows: int = MAX_PICTURED_ROWS,
) -> Replicated:
    """Simulate outcomes of `most_draws` draws for `most_rows` rows, and sum up all rows."""
    assert model.data is not None
    rng = np.random.default_rng([seed, 5])
    data, num_data = model.leaves(), model.num_data
    rows = _some(rng, num_data, most_rows)
    position = _positions(model, draws, most_draws)
    observed, replicas, mean = _outcomes(model, position, rng, _take(data, rows))
    totals = None
    if len(rows) < num_data:
        totals = _of_all_rows(model, draws, rng, data, Totals.like(observed, mean))
    outcome = model.spec["design"]["outcome"]
    return Replicated(observed, replicas, mean, outcome, num_data, len(rows), totals)


def _of_all_rows(
    model: FormulaModel, draws: Draws, rng: np.random.Generator, data: Any, totals: Totals
) -> Totals:
    """Add every row to `totals`, one piece at a time."""
    num_data = len(data[1])
    count = min(num_data, MAX_CHECKED_ROWS)
    rows = _some(rng, num_data, count)
    position = _positions(
        model, draws, int(np.clip(MAX_CHECK_CELLS // count, MIN_ALL_ROW_DRAWS, MAX_REPLICAS))
    )
    width = len(position["coefficients"]) * max(1, len(model.spec.get("levels") or ()))
    step = max(1, CELLS_AT_ONCE // width)
    for start in range(0, count, step):
        piece = rows[start : start + step]
        totals.add(*_outcomes(model, position, rng, _take(data, piece)), len(piece))
    return totals


def _some(rng: np.random.Generator, num_data: int, most: int) -> Int[np.ndarray, " n"]:
    """Return the indices of all rows, or of a random sample of `most`, in order."""
    if num_data <= most:
        return np.arange(num_data)
    if num_data <= MAX_PERMUTED_ROWS:
        return np.sort(rng.permutation(num_data)[:most])
    return np.sort(rng.choice(num_data, most, replace=False, shuffle=False))


def _take(data: Any, rows: Int[np.ndarray, " n"]) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf[rows], np.float64), data)


def _positions(model: FormulaModel, draws: Draws, most: int) -> Any:
    """Return at most `most` standardised positions that represent all with equal weights."""
    weights = draws.weights.ravel()
    chosen = systematic(weights, min(most, weights.size))

    def pick(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)[draws.healthy]
        return leaf.reshape(-1, *leaf.shape[2:])[chosen]

    return model.to_standardised(jax.tree.map(pick, draws.position))


def _outcomes(
    model: FormulaModel, position: Any, rng: np.random.Generator, rows: Any
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "S n"], Float[np.ndarray, " n"]]:
    """Return observed, simulated and mean outcomes of some rows, on the original scale."""
    x, y, *more = rows
    given = {name: position[name][:, None] for name in model.family.dispersion}
    given |= more[0] if more else {}
    eta = np.einsum("s...p,np->sn...", position["coefficients"], x)
    if "offset" in given:
        eta = eta + given["offset"].reshape(-1, *([1] * (eta.ndim - 2)))
    observed, mean = y, model.family.mean(eta, given).mean(axis=0)
    replicas = model.family.sample(rng, eta, given)
    if model.family.levels:  # each level against the others, one level after the other
        levels = np.arange(mean.shape[1])
        observed, mean = (y[:, None] == levels).ravel(), mean.ravel()
        replicas = (replicas[..., None] == levels).reshape(len(replicas), -1).astype(np.float64)
    if model.family.trials:
        observed, replicas, mean = (v / given["trials"] for v in (observed, replicas, mean))
    shift, stretch = model.spec["outcome_center"], model.spec["outcome_scale"]
    return shift + stretch * observed, shift + stretch * replicas, shift + stretch * mean


# -- check ---------------------------------------------------------------------------------


TAIL_PROBABILITIES = (0.05, 0.95)


def check(family: str, made: Replicated) -> tuple[str, str]:
    """Return the panel of a predictive check, and its description in plain text.

    "count" is the family of counts with another distribution. All families not listed use
    densities.
    """
    checks: dict[str, Callable] = {
        "poisson": partial(_counts, "a Poisson model"),
        "negative-binomial": partial(_counts, "a negative binomial model"),
        "count": partial(_counts, "the model"),
        "bernoulli": _calibration, "binomial": _calibration, "categorical": _calibration,
    }  # fmt: skip
    return checks.get(family, _density)(made)


def _counts(kind: str, made: Replicated) -> tuple[str, str]:
    """Compare the frequencies of 0, 1, 2, ...; the last bar holds all larger counts."""
    most = int(np.clip(np.quantile(made.observed, 0.98), 5, 25))
    edges = np.append(np.arange(most + 1), np.inf) - 0.5

    def shares(y: np.ndarray) -> np.ndarray:
        return np.histogram(np.minimum(y, most), np.append(edges[:-1], most + 0.5))[0] / y.size

    observed = shares(made.observed)
    replicas = np.array([shares(row) for row in made.replicas])
    low, high = np.quantile(replicas, TAIL_PROBABILITIES, axis=0)
    mean, x = replicas.mean(axis=0), np.arange(most + 1)
    panel = Panel(f"Frequencies of {made.outcome}", 215, width=WIDE_WIDTH, ylabel="% of rows")
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
    low, high = np.clip(band(replicated, TAIL_PROBABILITIES), 0, 1)
    text = (
        f"Observed zeros are {_percent(zeros)} of the rows; replicated ones "
        f"{_percent(replicated.mean())} (90% band {_percent(low)} to {_percent(high)}). "
    )
    variance, spread = totals.variance[0], totals.variance[1:]
    few, many = band(replicated)
    if zeros > many:
        text += "The model predicts too few zeros. "
    elif zeros < few:
        text += "The model predicts too many zeros. "
    name = printable(made.outcome)
    text += f"The variance of {name} is {variance:.3g}, replicated {spread.mean():.3g}"
    low, high = band(spread)
    if variance > high:
        return text + (
            f": the counts are overdispersed, so the intervals of {kind} are too narrow, "
            "even if sampling is exact."
        )
    if variance < low:
        return text + f": the counts vary less than {kind} predicts."
    if not few <= zeros <= many:
        return text + ": the variance fits, but the zeros do not."
    if totals.num_rows < made.num_data:
        return text + f": the spread fits in {totals.num_rows:,} of the {made.num_data:,} rows."
    return text + ": the spread fits."


def _density(made: Replicated) -> tuple[str, str]:
    """Compare the densities of the observed and the replicated outcomes, over the same bins."""
    low, high = np.quantile(made.observed, [0.001, 0.999])
    room = 0.1 * (high - low)
    edges = np.linspace(low - room, high + room, 41)

    def density(y: np.ndarray) -> np.ndarray:
        return np.histogram(y, edges)[0] / (y.size * (edges[1] - edges[0]))

    observed = density(made.observed)
    replicas = np.array([density(row) for row in made.replicas])
    band = np.quantile(replicas, TAIL_PROBABILITIES, axis=0)
    panel = Panel(f"Density of {made.outcome}", 215, width=WIDE_WIDTH)
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
        value, *replicas = np.arcsinh(measured)  # arcsinh has a distribution with shorter tails
        low, high = band(np.array(replicas))
        if not low <= value <= high:
            wrong.append(high_word if value > high else low_word)
    name = printable(made.outcome)
    if wrong:
        return text + f"{name} has {' and '.join(wrong)} than the model predicts."
    if outside > bins // 4:
        return text + f"The shape of {name} differs from the model's."
    part = "" if totals.num_rows == made.num_data else f" in {totals.num_rows:,} rows"
    return text + f"Skewness and tails of {name} agree with the model{part}."


def _calibration(made: Replicated) -> tuple[str, str]:
    """Compare observed rates with predicted ones, in bins of the predicted ones, for all rows."""
    predicted, rates = made.all_rows().rates
    observed, replicas = rates[:, 0], rates[:, 1:]
    low, high = np.clip([band(row, TAIL_PROBABILITIES) for row in replicas], 0, 1).T
    panel = Panel(
        f"Calibration of {made.outcome}", 250, width=WIDE_WIDTH,
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
    """Describe the calibration by the distance of all bins from the replicas' means.

    The distance is compared with the replicas' own distances.
    """
    low, high = np.transpose([band(row, TAIL_PROBABILITIES) for row in replicas])
    wrong = int(np.sum((observed < low) | (observed > high)))
    text = f"The observed rate leaves the 90% band in {wrong} of {len(predicted)} bins"
    mean = replicas.mean(axis=1, keepdims=True)
    sd = np.maximum(replicas.std(axis=1, ddof=min(1, replicas.shape[1] - 1), keepdims=True), 1e-9)
    away = (observed - mean[:, 0]) / sd[:, 0]
    distances = np.sum(((replicas - mean) / sd) ** 2, axis=0)
    if np.sum(away**2) <= _far(distances, len(predicted)):
        return text + ", which is consistent with chance: the probabilities are calibrated."
    worst = int(np.argmax(np.abs(away)))
    return text + (
        f", more than chance explains: the probabilities are not calibrated. Where the model predicts "
        f"{_percent(predicted[worst])}, {_percent(observed[worst])} were observed; the model may lack "
        "a term."
    )


def _far(distances: np.ndarray, bins: int) -> float:
    """Return the 99% quantile of the squared distance of one more data set."""
    count = len(distances)
    if count >= MIN_REPLICAS or count < 2:
        return float(np.quantile(distances, 0.99))
    return bins * (1 + 1 / count) * float(scipy.stats.f.ppf(0.99, bins, count - 1))


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if 0.01 < share < 0.99 else f"{100 * share:.1f}%"


# -- predictions ---------------------------------------------------------------------------


def pictures(found: Mapping[str, Any]) -> tuple[list[str], list[str], str]:
    """Return panels of predictions at the probe rows, traces of the worst rows, and a text.

    Args:
      found: the result of `diagnose.pictured`.
    """
    wide, said = [], ""
    if "entropy" in found:
        wide.append(_entropy(np.array(found["entropy"]), np.array(found["aleatoric"])))
        said = (
            "The entropy of each row's probabilities: the average uncertainty of a single network (aleatoric), and "
            "the disagreement of the draws, which more data would reduce (epistemic)."
        )
    elif "mean" in found:
        wide.append(_intervals(*(np.array(found[name]) for name in ("mean", "low", "high"))))
        said = "Mean and 90% interval of the predictions, without the noise of outcomes."
    return wide, [_trace(one) for one in found["traces"]], said


def _entropy(entropy: np.ndarray, aleatoric: np.ndarray) -> str:
    order = np.argsort(-entropy, kind="stable")
    entropy, aleatoric = entropy[order], np.minimum(aleatoric, entropy)[order]
    panel = Panel(
        "Entropy of predictions, in nats", 190, width=WIDE_WIDTH, xlabel="probe row, in order"
    )
    x = np.arange(len(entropy))
    panel.axes.bar(x, aleatoric, 0.85, color=COLOURS["accent-soft"], label="aleatoric")
    panel.axes.bar(
        x, entropy - aleatoric, 0.85, bottom=aleatoric, color=COLOURS["contrast"], label="epistemic"
    )
    panel.axes.set(xlim=(-0.6, len(x) - 0.4), ylim=(0, 1.1 * max(entropy.max(), 1e-6)))
    panel.ticks("x")
    panel.ticks("y", 4)
    panel.legend(loc="upper right")
    return panel.svg()


def _intervals(mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    order = np.argsort(mean, kind="stable")
    panel = Panel("Predictions", 190, width=WIDE_WIDTH, xlabel="probe row, in order")
    x = np.arange(len(mean))
    panel.axes.vlines(x, low[order], high[order], color=COLOURS["accent"], linewidth=1.6)
    panel.axes.plot(x, mean[order], "o", color=COLOURS["accent"], markersize=3)
    panel.axes.set_xlim(-0.6, len(x) - 0.4)
    panel.ticks("x")
    panel.ticks("y", 4)
    return panel.svg()


def _trace(one: Mapping[str, Any]) -> str:
    values = np.array(one["values"])
    name = f"row {one['row']}, output {one['number']}"
    return figures.trace(name, np.arange(values.shape[1]), values)
