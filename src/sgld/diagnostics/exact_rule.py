"""Verdict on chains that follow the posterior for any step size: mixing, tails, and several modes.

Many short chains hide what few long ones show, so the requirements are stricter: an ESS of 20 per
chain, R-hat of groups of chains (`results.mixing.r_hat`), no divergence, and energies that change
fast enough.

If exact chains were kept in several modes, each region is judged by itself, then the masses. A
region must have mixed as any run of exact chains must. The masses must be accurate, by themselves
and in the errors that they cause in every mean and sd. Flows between regions must balance: if the
chains of one region would go to another, those of the other must come back. If J_gh is the share of
one region's trajectories that were refused for ending in another, M_g J_gh and M_h J_hg are about
the same (exactly so for one metric, by detailed balance). If they are not, there is mass in h next
to g that no chain of h has seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..approximation.propriety import unresolved
from ..model.problem import Problem
from ..results.draws import Draws
from ..results.mixing import pareto_k
from ..results.statistics import Strata
from ..results.verdict import MODES, TAILS, Modes, Verdict
from .hidden_mass import remedy
from .rule import MAX_MEAN_ERROR, MAX_SE, Evidence, heavy_tail_text, standing_doubts, unmixed

MIN_ENERGY = 0.3  # E-BFMI; Stan's limit is the same
# Pareto k of a tail; from .25 the error of an sd is infinite, and tails that chains seldom visit look
# lighter than they are: Student's t with 2.5 degrees of freedom had .17 to .5
MAX_EXACT_PARETO_K = 0.15


def heavy_tail(draws: Draws) -> str | None:
    """Return a text if a tail is too heavy to estimate its sd from draws; else None."""
    k = np.nan_to_num(pareto_k(draws.flat()[0]))
    worst = int(np.argmax(k))
    if k[worst] < MAX_EXACT_PARETO_K:
        return None
    return (
        f"the tails of {draws.names[worst]!r} are too heavy for an sd to be estimated from draws (Pareto k = "
        f"{k[worst]:.2f}); use quantiles"
    )


@dataclass(frozen=True)
class Trajectories:
    """Totals over all trajectories of a run.

    Attributes:
      num: the number of trajectories of all chains.
      divergences: the number of trajectories that diverged.
      left: [region, region], the share of one region's trajectories that were refused for ending in
        another; None if chains are not confined.
      energy: E-BFMI (Betancourt 2016), sum (E_n - E_{n-1})^2 / sum (E_n - mean)^2 of the energies E
        = U + |p|^2 / 2, U = -log p. From one trajectory to the next, E changes only by the momenta,
        which are drawn again: d / (Var(U) + d/2), 1 on a Gaussian. For several regions the
        smallest.
    """

    num: int
    divergences: int
    energy: float
    left: Float[np.ndarray, "region region"] | None = None

    @classmethod
    def of(cls, state: Any, dimension: int) -> Trajectories:
        """Collect the totals from the states of all chains of `sampler.hmc.HMC`."""
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
        """Collect the totals of all chains of `sampler.confined.ConfinedHMC`, region by region."""
        region, left = np.asarray(state.region), np.asarray(state.left, np.float64)
        parts, shares = [], np.zeros((left.shape[1],) * 2)
        for g in np.unique(region):
            own = region == g
            own_state = {
                name: np.asarray(getattr(state.inside, name))[own]
                for name in ("count", "divergences", "mean", "squares")
            }
            parts.append(cls.of(state.inside._replace(**own_state), dimension))
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
    """Return the verdict of the first condition that applies.

    `sd_se` are the Monte Carlo errors of the sds, as shares of them; `tail` is Pareto k of the
    heavier tails; `coarse` names a parameter that moves by single floating-point numbers, if there
    is one.
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
        seen = ", which the chains do not confirm; compare with sgld.reference, or use a prior that excludes it"
        text = e.doubts[0] + remedy(e.doubts[0], seen)
        return Verdict("unknown", (f"exact sampler (HMC), but {text}.",), extra=extra)
    heavy, worst = np.nan_to_num(tail), int(np.argmax(np.nan_to_num(sd_se)))
    if heavy.max() >= MAX_EXACT_PARETO_K:
        name, k = e.names[int(np.argmax(heavy))], heavy.max()
        text = heavy_tail_text(name, float(k))
        return Verdict("unknown", (
            f"exact sampler (HMC), but {text}; use quantiles, or a prior with lighter tails.",
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
    """Return what trajectories show about regions that chains do not reach."""
    reasons = []
    if trajectories.divergences:
        reasons.append(
            f"{trajectories.divergences} of {trajectories.num} trajectories diverged: there are regions that the "
            "chains cannot enter; declare the support of a bounded parameter (constraints=), use other coordinates "
            "(for example non-centred), or NUTS: sgld.reference."
        )
    if not trajectories.energy >= MIN_ENERGY:
        reasons.append(
            f"energies change too slowly to reach the tails (E-BFMI {trajectories.energy:.2f} where {MIN_ENERGY} is "
            "needed); use other coordinates (for example non-centred), or a prior with lighter tails."
        )
    return reasons


# -- several -------------------------------------------------------------------------------


MAX_MASS_SE = 0.015  # standard error of a mass: two of them are .03
# ratio of the flows in both directions; metrics and steps differ between regions
MAX_CROSSING_RATIO = 5.0
MIN_RETURNS = 20.0  # expected returns from which their absence is evidence


def judge_several(
    problem: Problem,
    draws: Draws,
    strata: Strata,
    z: Float[np.ndarray, "chain draw d"],
    trajectories: Trajectories,
    evidence: dict[str, Any],
) -> Verdict:
    """Return the verdict of the first condition that applies, region by region, then for all.

    `evidence` holds what concerns all regions.
    """
    modes = draws.modes
    assert modes is not None
    extra = {
        "nu": evidence["nu"], "excess": None, "exact": "HMC", "divergences": trajectories.divergences,
        "trajectories": trajectories.num, "e_bfmi": trajectories.energy,
    }  # fmt: skip
    if draws.failures:
        return Verdict("biased", draws.failures, extra=extra)
    z = z[draws.healthy]
    for g, own in strata.each.items():
        chains = strata.region == g
        if chains.sum() < 2:
            return Verdict("unknown", (
                f"only one chain is in {_named(modes, g)}, so its mixing cannot be judged; use more "
                "chains (num_chains).",
            ), extra=extra)  # fmt: skip
        found = Evidence(
            **evidence, mean=own.mean, sd=own.sd, **own.mixing._asdict(), num_chains=int(chains.sum()),
        )  # fmt: skip
        coarse = unresolved(problem, z[chains])
        tail = pareto_k(own.values)
        verdict = judge_exact(found, trajectories, own.sd_se, tail, coarse)
        if verdict.word != "trusted":
            return Verdict(
                verdict.word,
                tuple(f"in {_named(modes, g)}: {r}" for r in verdict.reasons),
                extra=extra,
            )
    doubt = (
        _absent(modes, strata)
        or _one_way(modes, strata, trajectories)
        or _uncertain_masses(modes, strata)
    )
    if doubt is not None:
        return Verdict("unknown", (doubt,), extra={**extra, "doubts": [MODES]})
    ess = min(np.nanmin(np.fmin(own.ess, own.ess_square)) for own in strata.each.values())
    assert modes.mass_se is not None
    shares = ", ".join(_share(m, se) for m, se in zip(modes.mass, modes.mass_se, strict=True))
    return Verdict("trusted", (
        f"exact sampler (HMC) in {len(modes)} modes: no step-size bias, and the chains of each have mixed (ESS "
        f"at least {ess:.0f}, R-hat at most {np.nanmax(strata.r_hat):.3f}, no divergences); measured by bridge "
        f"sampling, the modes hold {shares} of the mass.",
    ), extra=extra)  # fmt: skip


def _share(mass: float, se: float) -> str:
    """Format a mass to the first digit of its error, with at least three digits: .9023 +- .0003."""
    places = int(np.clip(-np.floor(np.log10(max(se, 1e-9))), 3, 6))
    return f"{mass:.{places}f} +- {se:.{places}f}"


def _named(modes: Modes, g: int) -> str:
    """Return "mode 2", or "modes 2 and 3"."""
    assert modes.group is not None
    numbers = [str(k + 1) for k in np.flatnonzero(modes.group == g)]
    return f"mode{'s' if len(numbers) > 1 else ''} {' and '.join(numbers)}"


def _absent(modes: Modes, strata: Strata) -> str | None:
    missing = [g for g in range(len(strata.mass)) if g not in strata.each]
    if not missing:
        return None
    return (
        f"no chain is in {_named(modes, missing[0])}, which by Laplace's approximation holds "
        f"{strata.mass[missing[0]]:.2g} of the mass; use more chains (num_chains)."
    )


def _one_way(modes: Modes, strata: Strata, trajectories: Trajectories) -> str | None:
    """Return a sentence if trajectories go from one region to another and do not come back."""
    left = trajectories.left
    if left is None:
        return None
    chains = np.bincount(strata.region, minlength=len(strata.mass))
    number = trajectories.num * chains / chains.sum()
    flow = strata.mass[:, None] * left
    for g, h in np.argwhere(flow > MAX_CROSSING_RATIO * flow.T):
        due = number[h] * flow[g, h] / max(strata.mass[h], 1e-300)
        if due / MAX_CROSSING_RATIO >= MIN_RETURNS:
            return (
                f"trajectories go from {_named(modes, g)} to {_named(modes, h)} and do not come back "
                f"({100 * left[g, h]:.2g}% of them go, {100 * left[h, g]:.2g}% return): there is mass between them that no "
                "chain visits; compare with sgld.reference (NUTS)."
            )
    return None


def _uncertain_masses(modes: Modes, strata: Strata) -> str | None:
    """Return a sentence if the masses are not accurate enough."""
    assert modes.mass_se is not None
    se = np.sqrt(np.diag(strata.covariance))
    worst = int(np.argmax(se))
    mean_se, sd_se = strata.mean_se / strata.sd, strata.sd_se
    if (
        se[worst] <= MAX_MASS_SE
        and 3 * np.max(mean_se) <= MAX_MEAN_ERROR
        and np.max(sd_se) <= MAX_SE / 2
    ):
        return None
    if se[worst] <= MAX_MASS_SE and len(se) > 1:
        carried = np.where(strata.mass > 0, se / np.maximum(strata.mass, 1e-300), 0.0)
        worst = int(np.argmax(carried * (strata.mass < 0.5)))
    what = f"the mass of {_named(modes, worst)} is {strata.mass[worst]:.3g} +- {min(se[worst], 1.0):.2g}"
    return (
        f"{what}, so that an sd is known within {100 * np.max(sd_se):.0f}% and a mean within {np.max(mean_se):.2f} "
        "sd; use more draws (num_draws)."
    )
