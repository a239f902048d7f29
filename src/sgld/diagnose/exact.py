"""The verdict of chains that follow the posterior whatever their step size: mixing and tails.

Many short chains hide what few long ones show, so that more is asked of them: ESS of 20 a chain, R-hat of
groups of chains (`draws.weighted.r_hat`), no divergence, and energies that change fast enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..results.draws import Draws
from ..results.mixing import pareto_k
from ..results.verdict import TAILS, Verdict
from .doubted import remedy
from .rule import MAX_SE, Evidence, standing_doubts, too_heavy, unmixed

__all__ = ["Trajectories", "heavy_tail", "judge_exact"]

MIN_ENERGY = 0.3  # E-BFMI; Stan warns below the same
# Pareto k of a tail; from .25 the error of a sd is infinite, and tails that chains seldom visit look
# lighter than they are: Student's t with 2.5 degrees of freedom had .17 to .5
HEAVY = 0.15


def heavy_tail(draws: Draws) -> str | None:
    """In words, where a tail is too heavy for its sd to be known from draws; else None."""
    k = np.nan_to_num(pareto_k(draws.flat()[0]))
    worst = int(np.argmax(k))
    if k[worst] < HEAVY:
        return None
    return (
        f"the tails of {draws.names[worst]!r} are too heavy for an sd to be known from draws (Pareto k = "
        f"{k[worst]:.2f}); go by quantiles"
    )


@dataclass(frozen=True)
class Trajectories:
    """What all trajectories of a run say together.

    Attributes:
      num: trajectories of all chains.
      divergences: those that lost their energy.
      left: [region, region], the share of one region's trajectories that were refused for ending in
        another; None where chains are free.
      energy: E-BFMI (Betancourt 2016), sum (E_n - E_{n-1})^2 / sum (E_n - mean)^2 of the energies E = U +
        |p|^2 / 2, U = -log p. From one trajectory to the next E changes by the momenta alone, which
        are drawn anew: d / (Var(U) + d/2), 1 on a Gaussian. Of several regions the smallest.
    """

    num: int
    divergences: int
    energy: float
    left: Float[np.ndarray, "region region"] | None = None

    @classmethod
    def of(cls, state: Any, dimension: int) -> Trajectories:
        """From the states of all chains of `sampler.hmc.HMC`."""
        count, mean, squares = (
            np.asarray(a, np.float64) for a in (state.count, state.mean, state.squares)
        )
        within = squares / np.maximum(count, 1)
        variance = float(np.mean(within) + np.var(mean))
        return cls(
            int(count.sum()), int(np.sum(state.divergences)),
            dimension / (variance + dimension / 2),
        )  # fmt: skip

    @classmethod
    def within(cls, state: Any, dimension: int) -> Trajectories:
        """From the states of all chains of `sampler.confined.ConfinedHMC`, region by region."""
        region, left = np.asarray(state.region), np.asarray(state.left, np.float64)
        parts, shares = [], np.zeros((left.shape[1],) * 2)
        for g in np.unique(region):
            own = region == g
            told = {
                name: np.asarray(getattr(state.inside, name))[own]
                for name in ("count", "divergences", "mean", "squares")
            }
            parts.append(cls.of(state.inside._replace(**told), dimension))
            shares[g] = left[own].sum(0) / max(parts[-1].num, 1)
        return cls(
            sum(part.num for part in parts), sum(part.divergences for part in parts),
            min(part.energy for part in parts), shares,
        )  # fmt: skip


def judge_exact(
    e: Evidence,
    trajectories: Trajectories,
    sd_se: Float[np.ndarray, " m"],
    tail: Float[np.ndarray, " m"],
    coarse: str | None = None,
) -> Verdict:
    """The first rule that applies.

    `sd_se` are the Monte Carlo errors of the sds, as shares of them; `tail` the Pareto k of the heavier tails;
    `coarse` says of which parameter the chains move by single floating-point numbers, if at all.
    """
    extra = {
        "nu": e.nu, "excess": None, "exact": "HMC", "divergences": trajectories.divergences,
        "trajectories": trajectories.num, "e_bfmi": trajectories.energy, **standing_doubts(e),
    }  # fmt: skip
    if e.failures:
        return Verdict("biased", e.failures, extra=extra)
    reasons = unmixed(e) + _stuck(trajectories) + ([coarse] if coarse else [])
    if reasons:
        return Verdict("not mixed", tuple(reasons), extra=extra)
    if e.doubts:
        seen = ", which the chains have not seen so; compare with sgld.reference, or give a prior that leaves that out"
        told = e.doubts[0] + remedy(e.doubts[0], seen)
        return Verdict("unknown", (f"exact sampler (HMC), but {told}.",), extra=extra)
    heavy, worst = np.nan_to_num(tail), int(np.argmax(np.nan_to_num(sd_se)))
    if heavy.max() >= HEAVY:
        name, k = e.names[int(np.argmax(heavy))], heavy.max()
        told = too_heavy(name, float(k))
        return Verdict("unknown", (
            f"exact sampler (HMC), but {told}; go by quantiles, or use a prior with lighter tails.",
        ), extra={**extra, "doubts": [TAILS]})  # fmt: skip
    if sd_se[worst] > MAX_SE / 2:
        return Verdict("not mixed", (
            f"too few effective draws: the sd of {e.names[worst]!r} is known within {100 * sd_se[worst]:.0f}% "
            "only; use more (num_draws or thin).",
        ), extra=extra)  # fmt: skip
    ess = np.nanmin(np.fmin(e.ess, e.ess_square))
    return Verdict("trusted", (
        f"exact sampler (HMC): no step-size bias, and the chains have mixed (ESS at least {ess:.0f}, R-hat at "
        f"most {np.nanmax(e.r_hat):.3f}, no divergences).",
    ), extra=extra)  # fmt: skip


def _stuck(trajectories: Trajectories) -> list[str]:
    """What trajectories say of places that chains do not reach."""
    reasons = []
    if trajectories.divergences:
        reasons.append(
            f"{trajectories.divergences} of {trajectories.num} trajectories diverged: there are regions that the "
            "chains cannot enter; give a bounded parameter its support (constraints=), use other coordinates "
            "(non-centred, say), or NUTS: sgld.reference."
        )
    if not trajectories.energy >= MIN_ENERGY:
        reasons.append(
            f"energies change too slowly to reach the tails (E-BFMI {trajectories.energy:.2f} where {MIN_ENERGY} is "
            "needed); use other coordinates (non-centred, say), or a prior with lighter tails."
        )
    return reasons
