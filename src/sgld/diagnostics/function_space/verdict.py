"""The verdict in function space: predictions at probe rows, and kinetic temperatures.

    not mixed   95% of R-hat over 1.05 or one over 1.1, an ESS under 100, probabilities of halves of
                the chains apart by over .02 in total variation, sds whose Monte Carlo error is over
                .075 of them (the median), an R-hat over 1.2 at other rows (more, of few draws), or a temperature under .97
    biased      a layer, the 16 stiffest directions, or what is predicted, warmer than 1.15; or gradients
                that are not the log density's
    unknown     warmer than 1.10, or not known within .03: step halving decides
    trusted     else: probabilities within .01 (means within .15 sd), sd within 10%

by two standard errors where a temperature is held against a limit. A run can be mixed to the eye and
40% too wide: the momentum shows it, whose law is known. Temperatures within 5% are necessary and not
sufficient; what is right within 1.10 in every layer and in the stiffest directions had its predictive
sd within 6% on the networks the limits are from.

`Change` compares predictions with those of a halved step, and gives the verdict that follows.

What a verdict in function space keeps for its pictures: a row per layer, and some of the predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from ...results import statistics
from ...results.summary import MIN_ROUND_TEMPERATURE, errors_of
from ...results.verdict import Verdict, Word
from .. import hidden_mass
from . import other_chains
from .other_chains import OtherStarts, numbers
from .predictions import CLASSES, LIKELIHOODS, Kind
from .temperature import Layers

MAX_USUAL_R_HAT, MAX_R_HAT, MIN_USUAL_SHARE = 1.05, 1.1, 0.95
MIN_ESS = 100
MAX_TOTAL_VARIATION = 0.02
MAX_SD_ERROR = 0.075  # half of what an sd that is `trusted` may be off by at most
MIN_PROBABILITY_SD = 0.01  # of a probability, which is promised within as much
COLD_TEMPERATURE, WARM_TEMPERATURE, HOT_TEMPERATURE = 0.97, 1.10, 1.15
# a temperature to which no noise of gradients brings a step that the library chose
MAX_TEMPERATURE_OF_NOISE = 3.0
MAX_SE = 0.03
TEMPERATURE_BATCHES = 10  # of a chain's draws, whose means give a temperature's standard error
MAX_SPLIT_CHAINS = 8  # chains up to which all ways to halve them are taken
STIFFEST, SPEEDS = "the stiffest directions", "the predictions"
MORE_STEPS_REMEDY = "use more steps (max_seconds, num_draws or thin), and look at other predictions"
ONE_CHAIN_REMEDY = "one chain cannot be held against another; use num_chains=4."
NOT_RESTARTED = (
    "all chains began at one place, and whether there are functions that they missed was not looked for, for want of time or over several "
    "devices; give more max_seconds, or leave step_size to the library."
)
GRADIENTS_UNCHECKED = "whether gradients are those of the log density was not seen, for want of time; give more max_seconds."
SMALLER_STEP_REMEDY = {
    True: "a smaller step_size, or a larger batch_size",
    False: "a smaller tolerance",
}


@dataclass(frozen=True)
class Seen:
    """What was measured at the draws of the chains that did not fail.

    Attributes:
      kind: what the predictions are.
      predicted: log probabilities, means or log likelihoods.
      kinetic: temperatures over T of every layer, of the stiffest directions and, where their speeds are
        known, of predictions; None where the sampler's are not measured.
      weights: of the draws; they sum to 1.
      layers: of the position.
      failures: what failed chains say.
      by_hand: whether the step size was the user's.
      exact: whether a Metropolis test makes every step size right.
      halving: the call that repeats the run with a halved step, in the spelling of the interface.
      others: chains from other starts; None where they were not looked for.
      one_place: whether all chains began at one.
      rows_r_hat: the largest at rows that are no probe rows; None where those were not looked at.
      rows_allowed: up to which that may be chance.
      rows_unlike: chains from other starts that are unlike at one of those rows.
      misses: of integrals of the gradient, of rises of the log density (diagnostics/hidden_mass.py); None where
        that was not looked at, nan where there was no time to.
      by_density: what else to use where the gradient is of another function, in the spelling of the interface.
    """

    kind: Kind
    predicted: Float[np.ndarray, "chain draw m k"]
    kinetic: Float[np.ndarray, "chain draw layer"] | None
    weights: Float[np.ndarray, "chain draw"]
    layers: Layers
    failures: tuple[str, ...] = ()
    by_hand: bool = False
    exact: bool = False
    halving: str = "sgld.networks.step_halving"
    others: OtherStarts | None = None
    one_place: bool = False
    rows_r_hat: float | None = None
    rows_allowed: float = other_chains.MAX_R_HAT
    rows_unlike: int = 0
    misses: float | None = None
    by_density: str = ", or use sgld.reference, which accepts by the density"

    @property
    def values(self) -> Float[np.ndarray, "chain draw number"]:
        """The numbers that have to mix: centred logits, or the predictions themselves."""
        return numbers(self.kind, self.predicted)


@dataclass(frozen=True)
class Mixed:
    """How well predictions have mixed: quantiles of R-hat, the least ESS, the total variation, the error of sds.

    An sd that a few draws make up, as that of a probability that is nearly always 0, is not known at
    the ESS at which a logit's is: `sd_error` is the median Monte Carlo error, as a share of the sd.
    """

    r_hat: float
    max_r_hat: float
    ess: float
    variation: float | None
    sd_error: float

    @property
    def reasons(self) -> list[str]:
        """Return why predictions have not mixed: the first reason that applies."""
        if not np.isfinite(self.ess):
            return ["the predictions do not move, or the draws are too few; use more draws."]
        if self.r_hat > MAX_USUAL_R_HAT or self.max_r_hat > MAX_R_HAT:
            return [
                f"the chains' predictions disagree: R-hat is {self.r_hat:.3f} at its 95% quantile over rows and "
                f"{self.max_r_hat:.3f} at most, where {MAX_USUAL_R_HAT} and {MAX_R_HAT} are allowed; {MORE_STEPS_REMEDY}."
            ]
        if self.ess < MIN_ESS:
            return [
                f"too few effective draws: {self.ess:.0f} of a prediction where {MIN_ESS} are needed; "
                f"use about {MIN_ESS / max(self.ess, 1.0):.1f} times as many steps (max_seconds, num_draws or thin)."
            ]
        if self.variation is not None and self.variation > MAX_TOTAL_VARIATION:
            return [
                f"halves of the chains give probabilities {self.variation:.3f} apart in total variation, where "
                f"{MAX_TOTAL_VARIATION} is allowed; {MORE_STEPS_REMEDY}."
            ]
        if self.sd_error > MAX_SD_ERROR:
            return [
                f"a few draws make up much of the sds of predictions, which are known within {self.sd_error:.1%} "
                f"(the median), where {MAX_SD_ERROR:.1%} is needed; use about "
                f"{(self.sd_error / MAX_SD_ERROR) ** 2:.1f} times as many steps (max_seconds, num_draws or thin)."
            ]
        return []


UNKNOWN_MIXING = Mixed(np.nan, np.nan, np.nan, None, np.nan)


def mixed(seen: Seen) -> Mixed:
    """Measure R-hat and ESS of every predicted number, how far halves of the chains are apart, and the error of sds."""
    estimates = statistics.Estimates(seen.values, seen.weights)
    found = estimates.mixing
    with np.errstate(invalid="ignore"):
        ess = np.fmin(found.ess, found.ess_square)
    known = ~np.isnan(found.r_hat)
    if not known.any() or not np.isfinite(ess).any():
        return UNKNOWN_MIXING
    r_hat = found.r_hat[known]
    return Mixed(
        float(np.quantile(r_hat, MIN_USUAL_SHARE)), float(r_hat.max()), float(np.nanmin(ess)),
        _variation(seen), _sd_error(seen, estimates),
    )  # fmt: skip


def _variation(seen: Seen) -> float | None:
    """Return the mean total variation between halves of the chains, over rows and over ways to halve them."""
    chains = len(seen.predicted)
    if seen.kind != CLASSES or chains < 2:
        return None
    share = seen.weights.sum(axis=1)
    each = np.exp(np.asarray(seen.predicted, np.float64))
    p = np.einsum("cd,cdmk->cmk", seen.weights, each) / share[:, None, None]
    if chains <= MAX_SPLIT_CHAINS:
        halves = [list(half) for half in combinations(range(chains), chains // 2) if 0 in half]
    else:
        halves = [list(range(0, chains, 2)), list(range(chains // 2))]
    found = []
    for half in halves:
        other = [c for c in range(chains) if c not in half]
        one, two = (np.average(p[part], axis=0, weights=share[part]) for part in (half, other))
        found.append(0.5 * np.abs(one - two).sum(axis=-1).mean())
    return float(np.mean(found))


def _sd_error(seen: Seen, estimates: statistics.Estimates) -> float:
    """Return the median relative Monte Carlo error of the sds of predictions; of probabilities, if these are classes."""
    if seen.kind == CLASSES:
        p = np.exp(np.asarray(seen.predicted, np.float64))
        p = p.reshape(*p.shape[:2], -1)
        clear = np.sqrt(statistics.var(p, seen.weights)) > MIN_PROBABILITY_SD
        if not clear.any():
            return 0.0
        estimates = statistics.Estimates(p[..., clear], seen.weights)
    return float(np.nanmedian(estimates.sd_se))


@dataclass(frozen=True)
class Temperature:
    """Of a layer, of the stiffest directions or of predictions: over T, with its standard error."""

    name: str
    value: float
    se: float
    judged: bool  # whether it has entries enough


def temperatures(seen: Seen) -> list[Temperature]:
    """Return the temperatures of every layer, of the stiffest directions and of predictions, or [] if they were not measured."""
    if seen.kinetic is None:
        return []
    values = np.asarray(seen.kinetic, np.float64)
    parts = np.array_split(np.arange(values.shape[1]), min(TEMPERATURE_BATCHES, values.shape[1]))
    means = np.concatenate([values[:, part].mean(axis=1) for part in parts])
    se = (
        means.std(axis=0, ddof=1) / np.sqrt(len(means))
        if len(means) > 1
        else np.full(values.shape[2], np.inf)
    )
    names, others = seen.layers.names, (STIFFEST, SPEEDS)
    others = others[: values.shape[2] - len(names)]
    judged = [*seen.layers.large] + [True] * len(others)
    mean = values.mean(axis=(0, 1))
    return [
        Temperature(n, float(t), float(s), j)
        for n, t, s, j in zip((*names, *others), mean, se, judged, strict=True)
    ]


def known_well(warmth: list[Temperature]) -> bool:
    """Return whether the judged temperatures are known as well as the rule requires."""
    return all(t.se <= MAX_SE for t in warmth if t.judged)


def sufficient(seen: Seen) -> bool:
    """Return whether predictions have mixed and temperatures are known; one chain's R-hat never is."""
    mixes = len(seen.predicted) == 1 or not mixed(seen).reasons
    return mixes and known_well(temperatures(seen))


def judge_predictions(seen: Seen) -> Verdict:
    """Return the verdict by the first rule that applies, with the measurements in `extra["predictions"]`."""
    warmth = temperatures(seen)
    agreement = mixed(seen) if len(seen.predicted) else UNKNOWN_MIXING
    word, reasons, too_warm = _rule(seen, agreement, warmth)
    extra: dict[str, Any] = {
        "predictions": {
            "kind": seen.kind, "rows": seen.predicted.shape[2],
            **{name: _number(getattr(agreement, name)) for name in ("r_hat", "max_r_hat", "ess", "variation", "sd_error")},
            "temperatures": {t.name: [_number(t.value), _number(t.se)] for t in warmth},
            "other_rows": seen.rows_r_hat, "gradient_misses": _number(seen.misses),
            "other_starts": None if seen.others is None else [_unlike(seen), seen.others.tried],
            "unseen": _unseen(seen), "failed": bool(seen.failures),
            "too_warm": None if too_warm is None else too_warm.name,
        }
    }  # fmt: skip
    return Verdict(word, tuple(reasons), extra=extra)


def _rule(
    seen: Seen, agreement: Mixed, warmth: list[Temperature]
) -> tuple[Word, list[str], Temperature | None]:
    """Return the verdict's word and reasons, and the temperature that is known to be too high, if that is why."""
    if seen.failures:
        return "biased", list(seen.failures), None
    bad = ~np.isfinite(seen.predicted)
    if bad.any():
        chain, draw, row, _ = np.argwhere(bad)[0]
        return (
            "biased",
            [f"a prediction is not finite, of probe row {row} at draw {draw} of chain {chain}."],
            None,
        )
    if len(seen.predicted) == 1:
        return "unknown", [ONE_CHAIN_REMEDY], None
    looked_at = [t for t in warmth if t.judged]
    hot = None if seen.exact else _beyond(looked_at, lambda t: t.value - HOT_TEMPERATURE)
    if agreement.reasons:
        too_far = [] if hot is None else [f"{_spread(hot)}, which more steps do not reduce."]
        return "not mixed", agreement.reasons + too_far, None
    if seen.rows_r_hat is not None and seen.rows_r_hat > seen.rows_allowed:
        return "not mixed", [_at_other_rows(seen.rows_r_hat, seen.rows_allowed)], None
    unlike = _unlike(seen)
    if unlike:
        return "not mixed", [_elsewhere(unlike, seen)], None
    if seen.misses is not None and seen.misses > hidden_mass.MAX_GRADIENT_MISFIT:
        said = f"{hidden_mass.named_misfit(seen.misses)}; write it without{seen.by_density}."
        return "biased", [said], None
    if seen.exact:
        return _unless_unseen(seen)
    cold = _beyond(looked_at, lambda t: COLD_TEMPERATURE - t.value)
    if cold is not None:
        return "not mixed", [_cold(cold)], None
    if hot is not None:
        return "biased", [_hot(hot, seen)], hot
    doubt, warm = _doubt(looked_at)
    if doubt is not None:
        return (
            "unknown",
            [f"{doubt}; confirm by {seen.halving}, or {SMALLER_STEP_REMEDY[seen.by_hand]}."],
            warm,
        )
    return _unless_unseen(seen)


def _unless_unseen(seen: Seen) -> tuple[Word, list[str], None]:
    unseen = _unseen(seen)
    return (
        ("trusted", [_promise(seen.kind)], None) if unseen is None else ("unknown", [unseen], None)
    )


def _unseen(seen: Seen) -> str | None:
    """Return what was not checked and so keeps a run from being trusted, even after step halving."""
    if len(seen.predicted) == 1:
        return ONE_CHAIN_REMEDY
    if seen.one_place and seen.others is None:
        return NOT_RESTARTED
    return GRADIENTS_UNCHECKED if seen.misses is not None and np.isnan(seen.misses) else None


def _at_other_rows(r_hat: float, allowed: float) -> str:
    return (
        f"the chains' predictions disagree at rows of the data that are not among the probe rows: R-hat is {r_hat:.3f} at "
        f"most, where {allowed:.3g} is allowed; {MORE_STEPS_REMEDY}."
    )


def _beyond(warmth: list[Temperature], by: Callable[[Temperature], float]) -> Temperature | None:
    """Return the temperature that is furthest beyond a limit, if by more than two standard errors."""
    over = [t for t in warmth if by(t) > 2 * t.se]
    return max(over, key=by) if over else None


def _cold(t: Temperature) -> str:
    return (
        f"the kinetic temperature of {_called(t)} is {t.value:.3f}: the chains are still on their way from where "
        "they began; use a longer burn_in."
    )


def _hot(t: Temperature, seen: Seen) -> str:
    seething = not seen.by_hand and t.value > MAX_TEMPERATURE_OF_NOISE
    first = "scale inputs and outcomes to sds near 1, or " if seething else ""
    return f"{_spread(t)}; {first}use {SMALLER_STEP_REMEDY[seen.by_hand]}."


def _spread(t: Temperature) -> str:
    value = f"{t.value:.2f}" if t.value < MIN_ROUND_TEMPERATURE else f"{t.value:.3g}"
    return f"the kinetic temperature of {_called(t)} is {value} where 1 is right, so predictions spread too far"


def _doubt(warmth: list[Temperature]) -> tuple[str | None, Temperature | None]:
    """Return why the temperatures keep a run from being trusted, and the one that is too high, if any."""
    if not warmth:
        return (
            "no temperature is measured of this sampler, so that a step that is too large would not show",
            None,
        )
    worst = max(warmth, key=lambda t: t.value)
    if worst.value > WARM_TEMPERATURE:
        return (
            f"the kinetic temperature of {_called(worst)} is {worst.value:.2f}, where up to {WARM_TEMPERATURE:.2f} is known to do",
            worst,
        )
    if not known_well(warmth):
        worst = max(warmth, key=lambda t: np.nan_to_num(t.se, nan=np.inf))
        return (
            f"the kinetic temperature of {_called(worst)} is known within {worst.se:.2f} only",
            None,
        )
    return None, None


def _unlike(seen: Seen) -> int:
    """Count chains from other starts that predict what this run has not seen, at probe rows or others."""
    unlike = 0 if seen.others is None else seen.others.unlike(seen.kind, seen.predicted)
    return max(unlike, seen.rows_unlike)


def _elsewhere(unlike: int, seen: Seen) -> str:
    assert seen.others is not None
    return (
        f"{unlike} of {seen.others.tried} chains from other starts predict what no draw of this run does, and stay "
        "there: there are functions that all its chains missed; use more chains, or another init."
    )


def _called(t: Temperature) -> str:
    return t.name if t.name in (STIFFEST, SPEEDS) else f"layer {t.name!r}"


def _promise(kind: Kind) -> str:
    if kind == LIKELIHOODS:
        return (
            "log likelihoods of single rows: sd within 10% of the posterior's; what the network predicts is not known here (give "
            "predict= of sgld.Posterior), and single weights are not judged."
        )
    mean = "probabilities within .01" if kind == CLASSES else "means within .15 sd"
    return f"predictions: {mean}, sd within 10% of the posterior's; single weights are not judged."


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


# -- halved --------------------------------------------------------------------------------


HALF_STEP = "half the step"
MAX_SD_CHANGE, MAX_PROB_CHANGE, MAX_MEAN_CHANGE = 0.05, 0.01, 0.15


@dataclass(frozen=True)
class Change:
    """Differences between a run at h and one with a halved step.

    Attributes:
      sd_ratio: of every number that is predicted (centred logits, or means), sd at h over sd at the half.
      sd_ratio_se: Monte Carlo error of it.
      mean_shift: of their means, in sds.
      variation: total variation between mean probabilities, averaged over rows; None of means.
    """

    sd_ratio: Float[np.ndarray, " m"]
    sd_ratio_se: Float[np.ndarray, " m"]
    mean_shift: Float[np.ndarray, " m"]
    variation: float | None

    @property
    def agrees(self) -> bool:
        """Return whether sds agree within 5%, and probabilities within .01 or means within .15 sd, up to noise.

        The sds together: the median ratio, whose noise is small, for what a step does to all of them,
        and the largest, beyond its noise, for what it does to one.
        """
        if not np.median(self.sd_ratio_se) <= MAX_SD_CHANGE:
            return False  # too little is known
        beyond = np.abs(self.sd_ratio - 1) - 3 * self.sd_ratio_se
        sds = (
            abs(np.median(self.sd_ratio) - 1) <= MAX_SD_CHANGE and beyond.max() <= 2 * MAX_SD_CHANGE
        )
        if self.variation is not None:
            return bool(sds and self.variation <= MAX_PROB_CHANGE)
        return bool(sds and np.median(np.abs(self.mean_shift)) <= MAX_MEAN_CHANGE)

    @property
    def said(self) -> str:
        """Say what changes, and by how much, as the beginning of a sentence."""
        ratio = float(np.median(self.sd_ratio))
        where = f"means by {np.median(np.abs(self.mean_shift)):.2f} sd"
        if self.variation is not None:
            where = f"probabilities by {self.variation:.4f}"
        return f"{HALF_STEP} changes predictions' sds by {100 * abs(ratio - 1):.0f}% and {where}"

    def judge(self, first: Verdict, *, failed: bool = False) -> Verdict:
        """Return the first run's verdict if it is worse than `unknown`, otherwise that of step halving.

        `failed` says whether a chain of the second run failed.
        """
        if first.word in ("biased", "not mixed"):
            return first
        unseen = first.extra.get("predictions", {}).get("unseen")
        if unseen is not None:  # step halving does not cover that
            return Verdict("unknown", (unseen,), extra=first.extra)
        said, extra = self.said, {**first.extra, "confirmed_by": HALF_STEP}
        if self.agrees and not failed:
            return Verdict("trusted", (f"{said}; single weights are not judged.",), extra=extra)
        if float(np.median(self.sd_ratio)) > 1 + MAX_SD_CHANGE:
            return Verdict("biased", (f"{said}; use a smaller step_size.",), extra=extra)
        return Verdict(
            "unknown", (f"{said}; use more draws, or a smaller step_size.",), extra=extra
        )


def compared(
    kind: Kind, one: np.ndarray, two: np.ndarray, weights: np.ndarray, other_weights: np.ndarray
) -> Change:
    """Compare predictions [chain, draw, row, k] of a run and of one with a halved step, with weights [chain, draw]."""
    variation = None
    if kind == CLASSES:
        means = [np.exp(values.astype(np.float64)).mean(axis=(0, 1)) for values in (one, two)]
        variation = float(0.5 * np.abs(means[0] - means[1]).sum(axis=-1).mean())
        one, two = (values - values.mean(axis=-1, keepdims=True) for values in (one, two))
    first, second = (
        statistics.Estimates(v.reshape(*v.shape[:2], -1).astype(np.float64), w)
        for v, w in ((one, weights), (two, other_weights))
    )
    shift, ratio, _, ratio_se = errors_of(first, second)
    return Change(ratio, ratio_se, shift, variation)


# -- pictured ------------------------------------------------------------------------------


# numbers, the worst of them; chains; draws of a chain
MAX_STORED_TRACES, MAX_TRACE_CHAINS, MAX_TRACE_DRAWS = 6, 8, 100
TRACE_DIGITS = 5
COPIED_WEIGHTS = 2**16  # weights whose draws are copied together


def with_details(verdict: Verdict, seen: Seen, z: np.ndarray | None) -> Verdict:
    """Add to the verdict `extra["layers"]`, from weights z [chain, draw, d], and `extra["predictions"]["pictured"]`."""
    extra = dict(verdict.extra)
    if z is not None:
        extra["layers"] = _layers(seen, verdict, z)
    if seen.predicted.size and np.isfinite(seen.predicted).all():
        extra["predictions"] = {**extra["predictions"], "pictured": pictured(seen)}
    return replace(verdict, extra=extra)


def pictured(seen: Seen) -> dict[str, Any]:
    """Return predictions of the probe rows, and traces of those that mixed worst.

        H[mean_s p_s] = mean_s H[p_s] + what draws disagree about     (nats)

    Of classes `entropy` and `aleatoric` of each row; of means `mean`, and the 5% and 95% quantiles of
    each row's first number, `low` and `high`; of both `traces`: row, number, values [chain, draw].
    """
    predicted = np.asarray(seen.predicted, np.float64)
    found: dict[str, Any] = {"traces": _traces(seen, predicted)}
    if seen.kind == CLASSES:
        p = np.einsum("cd,cdmk->mk", seen.weights, np.exp(predicted))
        each = -np.sum(np.exp(predicted) * predicted, axis=-1)
        found["entropy"] = _short(-np.sum(p * np.log(np.maximum(p, 1e-300)), axis=-1))
        found["aleatoric"] = _short(np.einsum("cd,cdm->m", seen.weights, each))
    elif seen.kind != LIKELIHOODS:
        first = predicted[..., 0]
        found["mean"] = _short(statistics.mean(first, seen.weights))
        for name, q in (("low", 0.05), ("high", 0.95)):
            found[name] = _short(statistics.quantile(first, seen.weights, q))
    return found


def _traces(seen: Seen, predicted: np.ndarray) -> list[dict[str, Any]]:
    """Return the probabilities of classes, or the numbers, whose ESS is lowest, each of another row."""
    _, draws, rows, width = predicted.shape
    ess = np.asarray(statistics.Estimates(seen.values, seen.weights).mixing.ess)
    ess = np.nan_to_num(ess.reshape(rows, width), nan=0.0)
    number = ess.argmin(axis=1)
    worst = np.argsort(ess.min(axis=1), kind="stable")[:MAX_STORED_TRACES]
    at = np.unique(np.linspace(0, draws - 1, MAX_TRACE_DRAWS).round().astype(int))
    values = np.exp(predicted) if seen.kind == CLASSES else predicted
    return [
        {"row": int(i), "number": int(number[i]),
         "values": [_short(chain) for chain in values[:MAX_TRACE_CHAINS, at, i, number[i]]]}
        for i in worst
    ]  # fmt: skip


def _short(values: np.ndarray) -> list[float]:
    """Round to few digits, which is enough for pictures."""
    return [float(f"{value:.{TRACE_DIGITS}g}") for value in np.asarray(values)]


def _layers(seen: Seen, verdict: Verdict, z: np.ndarray) -> list[dict[str, Any]]:
    """Return the number of weights, their mean and sd, and the temperature of every layer; z is [chain, draw, d]."""
    warmth = verdict.extra["predictions"]["temperatures"]
    found = []
    for name, size, begin in zip(
        seen.layers.names, seen.layers.sizes, seen.layers.starts, strict=True
    ):
        here = z[..., begin : begin + size]
        found.append({
            "name": name, "weights": size, "mean": float(here.mean(dtype=np.float64)),
            "sd": float(np.sqrt(_variances(here).mean(dtype=np.float64))),
            "temperature": (warmth.get(name) or [None])[0],
        })  # fmt: skip
    return found


def _variances(z: np.ndarray) -> np.ndarray:
    """Return the variance of every weight over all chains and draws, without a copy as large as z."""
    pieces = [z[..., at : at + COPIED_WEIGHTS] for at in range(0, z.shape[-1], COPIED_WEIGHTS)]
    return np.concatenate([piece.reshape(-1, piece.shape[-1]).var(axis=0) for piece in pieces])
