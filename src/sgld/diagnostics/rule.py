"""Rule for the verdict: the first condition that applies to the measurements, with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..approximation.known import NOT_SEARCHED, describe_departure
from ..results.statistics import MAX_PLAIN_CHAINS, max_r_hat
from ..results.verdict import MODES, Verdict, Word
from .hidden_mass import remedy

MIN_ESS, MIN_ESS_PER_CHAIN = 400, 20  # ESS of all chains; of each if there are many
MAX_EXCESS = 0.10
MAX_RATIO_ERROR = 0.10
MAX_MEAN_ERROR = 0.25
MAX_SE = 0.10
MAX_SE_ALONE = 0.04  # if the meter is the only evidence of bias
# limits beyond which the corrected columns are too inaccurate
MAX_PRINTED_SE, MAX_PRINTED_RATIO = 0.03, 1.3
# with 160 draws of a 5-column regression 1 column is printed; with a limit of 50 all, with 200 none
MIN_CORRECTED_ESS = 100
MIN_R2, MIN_PRINTED_R2 = 0.5, 0.9  # logistic on 200 rows: 4 of 5 printed; at .8 all, at .95 2
MAX_NU = 1.0
MIN_GROUP_SDS = 2.0  # sds between means of groups of chains
MIN_HALF_CHAIN_ESS = 20  # effective draws of half a chain, within its region
SMALLER_TOLERANCE = "use a smaller tolerance, or NUTS: sgld.reference"
_CONFIRM_REMEDY = "confirm by sgld.step_halving, or with NUTS: sgld.reference."


@dataclass(frozen=True)
class Evidence:
    """Measured quantities; None if a quantity was not measured. Arrays are per parameter."""

    names: tuple[str, ...]
    mean: Float[np.ndarray, " m"]
    sd: Float[np.ndarray, " m"]
    ess: Float[np.ndarray, " m"]
    ess_square: Float[np.ndarray, " m"]
    r_hat: Float[np.ndarray, " m"]
    num_chains: int
    ess_alone: Float[np.ndarray, " m"] | None = None  # of the chains within their regions, if known
    gap: Float[np.ndarray, " m"] | None = None  # between means of halves of chains, in their sds
    failures: tuple[str, ...] = ()
    sd_ratio: Float[np.ndarray, " m"] | None = None
    sd_ratio_se: Float[np.ndarray, " m"] | None = None
    r2: Float[np.ndarray, " m"] | None = None
    mean_shift: Float[np.ndarray, " m"] | None = None
    sd_se: Float[np.ndarray, " m"] | None = None  # Monte Carlo error of the sds, as shares of them
    tail: Float[np.ndarray, " m"] | None = None  # Pareto k, 0 where tails are light enough
    excess: Float[np.ndarray, " m"] | None = None
    noise_ratio: float | None = None
    nu: float | None = None
    other_modes: int = 0
    doubts: tuple[str, ...] = ()  # what the run cannot settle: sentences without a period
    tolerance: float = 0.05
    max_se: float = MAX_SE
    min_r2: float = MIN_R2
    why_not: str | None = None  # why there is no meter, in a sentence
    by_hand: bool = True  # whether the user set the step size

    @property
    def alone(self) -> Float[np.ndarray, " m"]:
        """ESS of the chains within their own regions; of all chains together if unknown."""
        return np.fmin(self.ess, self.ess_square) if self.ess_alone is None else self.ess_alone

    @property
    def most_r_hat(self) -> Float[np.ndarray, " m"]:
        """R-hat up to which the chains are consistent with one distribution."""
        return max_r_hat(self.alone, self.num_chains, len(self.names))


def judge(e: Evidence) -> Verdict:
    """Return the verdict of the first condition that applies."""
    word, reasons = _rule(e)
    corrected_mean = corrected_sd = None
    if e.sd_ratio is not None and e.r2 is not None and e.mean_shift is not None:
        good = (e.r2 > MIN_PRINTED_R2) & (e.ess >= MIN_CORRECTED_ESS)
        good &= (e.sd_ratio > 0) & (e.sd_ratio <= MAX_PRINTED_RATIO)
        good &= np.isfinite(np.asarray(_where_known(e, e.sd_ratio), float))
        if e.sd_ratio_se is not None:
            good &= e.sd_ratio_se <= MAX_PRINTED_SE
        corrected_mean = np.where(good, e.mean + e.mean_shift, np.nan)
        corrected_sd = np.full_like(e.sd, np.nan)
        np.divide(e.sd, e.sd_ratio, out=corrected_sd, where=good)
    extra: dict[str, Any] = {"nu": e.nu, "excess": _largest(e.excess), **standing_doubts(e)}
    if e.other_modes > 0:
        extra["doubts"] = [MODES, *extra.get("doubts", [])]
    ratio, ratio_se = (_where_known(e, values) for values in (e.sd_ratio, e.sd_ratio_se))
    return Verdict(
        word, tuple(reasons), ratio, ratio_se, e.r2, corrected_mean, corrected_sd, e.noise_ratio,
        extra,
    )  # fmt: skip


def standing_doubts(e: Evidence) -> dict[str, list[str]]:
    """Return doubts that no other run of the same kind can settle, for `Verdict.extra`.

    These are the doubts of the evidence, and tails that are too heavy.
    """
    tail = np.zeros(1) if e.tail is None else e.tail
    found = [
        *e.doubts,
        *([heavy_tail_text(e.names[int(np.argmax(tail))], tail.max())] if tail.max() > 0 else []),
    ]
    return {"doubts": found} if found else {}


def heavy_tail_text(name: str, k: float) -> str:
    """Return the text on a tail with this Pareto k."""
    return f"the tails of {name!r} are too heavy for its sd to be estimated from draws (Pareto k = {k:.2f})"


def _where_known(e: Evidence, values: np.ndarray | None) -> np.ndarray | None:
    """Return the meter's values, with NaN where the meter is not reliable."""
    if values is None or e.r2 is None:
        return values
    far = e.nu is not None and not e.nu <= MAX_NU
    # the meter knows the mode that it was made at; a search that was not made says nothing of it
    elsewhere = e.other_modes > 0 or any(doubt != NOT_SEARCHED.sentence for doubt in e.doubts)
    nowhere = e.why_not is not None or elsewhere or far
    return np.where((e.r2 >= e.min_r2) & (not nowhere), values, np.nan)


def _largest(values: np.ndarray | None) -> float | None:
    if values is None or not np.isfinite(values).all():
        return None
    return float(np.max(values))


def _rule(e: Evidence) -> tuple[Word, Sequence[str]]:
    if e.failures:
        return "biased", e.failures
    mixing = unmixed(e)
    if mixing:
        return "not mixed", mixing
    if e.excess is not None and not np.max(e.excess) <= MAX_EXCESS:  # NaN too
        return "biased", [_excess_reason(e, e.excess)]
    in_doubt = _doubt(e)
    if in_doubt:
        return "unknown", [in_doubt]
    assert e.sd_ratio is not None and e.mean_shift is not None
    error = _error(e.sd_ratio, e.r2)
    mean_error = np.abs(e.mean_shift) / (e.sd / e.sd_ratio)
    if np.max(error) > MAX_RATIO_ERROR or np.max(mean_error) > MAX_MEAN_ERROR:
        return _wrong(e, error, mean_error)
    uncertain = _uncertain(e)
    if uncertain:
        return uncertain
    return "trusted", [f"{_within(error)}."]


def _error(ratio: np.ndarray, r2: np.ndarray | None) -> Float[np.ndarray, " m"]:
    """Return the relative error of the sds: the meter's reading over the share of it that it sees.

    In tails heavier than the Gaussian's, gradients level off, and the meter reads half to two
    thirds of a bias. No other check would detect a run that is too narrow, so its share counts
    twice.
    """
    error = np.abs(ratio - 1)
    if r2 is None:
        return error
    share = np.where(r2 < MIN_PRINTED_R2, np.clip(r2, MIN_R2, 1.0), 1.0)
    return error / np.where(ratio < 1, share**2, share)


def _uncertain(e: Evidence) -> tuple[Word, list[str]] | None:
    """Return why the draws do not determine their sds, or None."""
    heavy = standing_doubts(e).get("doubts", [])
    if heavy:
        return "unknown", [f"{heavy[0]}; use quantiles, or a prior with lighter tails."]
    if e.sd_se is None:
        return None
    worst = int(np.argmax(np.nan_to_num(e.sd_se)))
    if not e.sd_se[worst] > MAX_SE / 2:
        return None
    return "not mixed", [
        f"too few effective draws: the sd of {e.names[worst]!r} is known within {100 * e.sd_se[worst]:.0f}% "
        "only; use more (num_draws or thin)."
    ]


def _within(error: np.ndarray) -> str:
    count = len(error)
    every = f"all {count} parameters" if count > 1 else "the parameter"
    # round up, so that the sentence does not promise more than was measured
    percent = max(1, int(np.ceil(100 * np.max(error) - 1e-9)))
    return f"sd within {percent}% of the posterior's on {every}"


def beyond_limits(
    names: tuple[str, ...], ratio: Float[np.ndarray, " m"], mean_error: Float[np.ndarray, " m"]
) -> tuple[str | None, str | None]:
    """Return texts on the worst sd and the worst mean, or None where within the limits."""
    sd = mean = None
    worst = int(np.argmax(np.abs(ratio - 1)))
    if abs(ratio[worst] - 1) > MAX_RATIO_ERROR:
        sd = f"sd of {names[worst]!r} is about {_too(ratio[worst])}"
    worst = int(np.argmax(mean_error))
    if mean_error[worst] > MAX_MEAN_ERROR:
        mean = f"mean of {names[worst]!r} is about {mean_error[worst]:.2f} sd off"
    return sd, mean


def _too(ratio: float) -> str:
    """Format a ratio: 18% too wide, 40% too narrow, 15 times as wide as it should be."""
    if ratio > 2:
        return f"{_figure(ratio)} times as wide as it should be"
    return f"{100 * abs(ratio - 1):.0f}% too {'wide' if ratio > 1 else 'narrow'}"


def least_ess(num_chains: int) -> int:
    """Return the ESS that a parameter needs.

    With more than 8 chains, the ESS per chain must be large enough too. 64 chains at different
    places have an ESS of 64 from their starts alone, even if none of them has moved far.
    """
    return (
        MIN_ESS if num_chains <= MAX_PLAIN_CHAINS else max(MIN_ESS, MIN_ESS_PER_CHAIN * num_chains)
    )


def unmixed(e: Evidence) -> list[str]:
    """Return why the draws are too few or the chains disagree; an empty list if neither."""
    ess = np.fmin(e.ess, e.ess_square)
    if np.isnan(ess).all():
        return ["the draws are too few, or do not move; use more draws."]
    alone, limit = e.alone, e.most_r_hat
    over = np.nan_to_num(e.r_hat / limit, nan=0.0)
    if e.gap is not None:
        apart = np.where(separate(e.r_hat, limit, alone, e.gap, e.num_chains), e.gap, 0.0)
        if apart.any():
            worst = int(np.argmax(apart))
            return [
                f"the chains stay apart: in {e.names[worst]!r} groups of chains are {apart[worst]:.0f} sds apart "
                f"(R-hat {e.r_hat[worst]:.2f}), and each chain has mixed in its own region; look for several modes."
            ]
    # if only the between-chain variance makes the ESS small, more steps do not help
    disagree = np.where(alone >= MIN_ESS, over, 0.0)
    worst = int(np.nanargmin(ess))
    needed = least_ess(e.num_chains)
    if ess[worst] < needed and not disagree.max() > 1:
        factor = needed / max(ess[worst], 1.0)
        return [
            f"too few effective draws: {ess[worst]:.0f} for {e.names[worst]!r} where {needed} are "
            f"needed; use about {factor:.1f} times as many steps (num_draws or thin)."
        ]
    if over.max() > 1:
        worst = int(np.argmax(disagree if disagree.max() > 1 else over))
        return [
            f"the chains disagree: R-hat of {e.names[worst]!r} is {e.r_hat[worst]:.3f}, above the "
            f"limit {limit[worst]:.3f}; use a longer burn_in, and more steps (num_draws or thin)."
        ]
    return []


def separate(
    r_hat: np.ndarray, limit: np.ndarray, ess_alone: np.ndarray, gap: np.ndarray, num_chains: int
) -> Bool[np.ndarray, " m"]:
    """Return where chains form groups that are further apart than they are wide, and mixed inside.

    A slow chain is narrow and far from the others too, but has few effective draws of its own.
    """
    settled = ess_alone >= MIN_HALF_CHAIN_ESS * 2 * num_chains
    return (np.nan_to_num(r_hat) > limit) & settled & (gap > MIN_GROUP_SDS)


def _excess_reason(e: Evidence, excess: np.ndarray) -> str:
    worst = int(np.argmax(excess))
    if not np.isfinite(excess[worst]):
        much = "use a much smaller step_size" if e.by_hand else SMALLER_TOLERANCE
        return f"the step size is beyond the limit of stability; {much}."
    ratio = 1 + excess[worst]
    if e.sd_ratio is not None and e.sd_ratio[worst] > 1 + MAX_RATIO_ERROR:
        ratio = e.sd_ratio[worst]  # the table's number, if it agrees
    text = f"sd of {e.names[worst]!r} is about {_too(ratio)}"
    if e.noise_ratio is not None and e.noise_ratio > 0.05:
        smaller = (
            "use a smaller step_size, a larger batch_size, gradient=ControlVariates(), or leave step_size to "
            "the library"
        )
        return (
            f"{text}: gradient noise is {_figure(e.noise_ratio)} times the injected noise; "
            f"{smaller if e.by_hand else SMALLER_TOLERANCE}."
        )
    smaller = f"divide it by {1 + 10 * excess[worst]:.0f}" if e.by_hand else SMALLER_TOLERANCE
    return f"{text}: the step size is too large; {smaller}."


def _figure(ratio: float) -> str:
    return f"{ratio:.0f}" if 10 <= ratio < 10_000 else f"{ratio:.2g}"


def _doubt(e: Evidence) -> str | None:
    """Return why the meter is not reliable here, in a sentence, or None."""
    if e.why_not is not None:
        return e.why_not
    measured = (e.sd_ratio, e.sd_ratio_se, e.r2, e.mean_shift)
    if any(values is None or not np.isfinite(values).all() for values in measured):
        return "the bias meter gave no finite answer; compare with sgld.reference (NUTS)."
    assert e.sd_ratio_se is not None and e.r2 is not None
    if e.other_modes:
        return (
            f"the posterior has at least {e.other_modes + 1} modes, and the share of draws in each mode may "
            "differ from its mass; compare with sgld.reference, or use sgld.ReplicaExchange()."
        )
    if e.doubts:
        return e.doubts[0] + remedy(e.doubts[0], "; compare with NUTS: sgld.reference") + "."
    if e.nu is not None and not e.nu <= MAX_NU:
        return (
            f"the posterior is {describe_departure(e.nu)}, so the bias meter is unreliable; "
            + _CONFIRM_REMEDY
        )
    worst = int(np.argmin(e.r2))
    if e.r2[worst] < e.min_r2:
        return (
            f"the bias meter explains too little of {e.names[worst]!r} (r2 = {e.r2[worst]:.2f}); "
            + _CONFIRM_REMEDY
        )
    worst = int(np.argmax(e.sd_ratio_se))
    if e.sd_ratio_se[worst] > e.max_se:
        return (
            f"the bias meter is uncertain by {100 * e.sd_ratio_se[worst]:.0f}% on "
            f"{e.names[worst]!r}; use more draws."
        )
    return None


def _wrong(e: Evidence, error: np.ndarray, mean_error: np.ndarray) -> tuple[Word, list[str]]:
    assert e.sd_ratio is not None
    worst = int(np.argmax(error))
    noise = 3 / np.sqrt(2 * e.ess_square[worst])
    small_excess = e.excess is not None and np.max(e.excess) < e.tolerance
    if np.max(mean_error) <= MAX_MEAN_ERROR and error[worst] < noise and small_excess:
        return "not mixed", [
            f"too few draws: sd of {e.names[worst]!r} is {100 * error[worst]:.0f}% off, within the "
            "Monte Carlo error of this many draws; use more."
        ]
    reasons = []
    ratio = np.maximum(1 + np.sign(e.sd_ratio - 1) * error, 0.0)
    sd, mean = beyond_limits(e.names, ratio, mean_error)
    if sd is not None:
        if e.sd_ratio[worst] > 1 and e.noise_ratio is not None and e.noise_ratio > 0.05:
            sd += f": gradient noise is {_figure(e.noise_ratio)} times the injected noise"
        smaller = (
            "use a smaller step_size or a larger batch_size" if e.by_hand else SMALLER_TOLERANCE
        )
        reasons.append(f"{sd}; {smaller}.")
    if mean is not None:
        reasons.append(f"{mean}; use a longer burn_in or more draws.")
    return "biased", reasons
