"""The verdict of exact chains that were kept in several modes: each region by itself, then the masses.

A region must have mixed as any run of exact chains must. The masses must be known, by themselves and
in what their errors make of every mean and sd. And regions must be what they seem: from where the
chains of one would go to another, those of the other must come. If J_gh is the share of one
region's trajectories that were refused for ending in another, M_g J_gh and M_h J_hg are about the same
(exactly so for one metric, by detailed balance); where they are not, there is mass in h next to g that
no chain of h has seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..approximation.propriety import unresolved
from ..model.problem import Problem
from ..results.draws import Draws
from ..results.mixing import pareto_k
from ..results.statistics import Strata
from ..results.verdict import MODES, Modes, Verdict
from .exact import Trajectories, judge_exact
from .rule import MAX_MEAN_ERROR, MAX_SE, Evidence

__all__ = ["judge_several"]

MAX_MASS_SE = 0.015  # of a mass: two of them are .03
UNBALANCED = 5.0  # times as many one way: metrics of two regions differ, and so do their steps
EXPECTED = 20.0  # trajectories that must come back for their absence to say anything


def judge_several(
    problem: Problem,
    draws: Draws,
    strata: Strata,
    z: Float[np.ndarray, "chain draw d"],
    trajectories: Trajectories,
    evidence: dict[str, Any],
) -> Verdict:
    """The first rule that applies, region by region, then for all; `evidence` is what concerns all."""
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
                f"one chain alone is in {_named(modes, g)}, so that nothing tells whether it has mixed; use more "
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
    """To the first digit of its error, and three at least: .9023 +- .0003."""
    places = int(np.clip(-np.floor(np.log10(max(se, 1e-9))), 3, 6))
    return f"{mass:.{places}f} +- {se:.{places}f}"


def _named(modes: Modes, g: int) -> str:
    """mode 2, or modes 2 and 3."""
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
    """A sentence where trajectories go from one region to another and do not come back."""
    left = trajectories.left
    if left is None:
        return None
    chains = np.bincount(strata.region, minlength=len(strata.mass))
    number = trajectories.num * chains / chains.sum()
    flow = strata.mass[:, None] * left
    for g, h in np.argwhere(flow > UNBALANCED * flow.T):
        due = number[h] * flow[g, h] / max(strata.mass[h], 1e-300)
        if due / UNBALANCED >= EXPECTED:
            return (
                f"trajectories go from {_named(modes, g)} to {_named(modes, h)} and do not come back "
                f"({100 * left[g, h]:.2g}% of them, and {100 * left[h, g]:.2g}%): there is mass between them that no "
                "chain sees; compare with sgld.reference (NUTS)."
            )
    return None


def _uncertain_masses(modes: Modes, strata: Strata) -> str | None:
    """A sentence where the masses are not known well enough."""
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
