"""From a run that is judged by its parameters to draws: reported values, weights and verdict.

The module also judges runs that kept something other than positions. If positions are held in
addition, the parameters are judged as in any run, and the kept values must have mixed as well.
Without positions there is no bias meter: chains that failed or did not mix are reported, and the
verdict promises nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..diagnostics.evidence import assess
from ..diagnostics.rule import Evidence, judge
from ..model.problem import Problem, Request
from ..results import statistics
from ..results.draws import Draws
from ..results.plan import Plan
from ..results.statistics import Histogram, Moments, strata_of
from ..results.verdict import Verdict
from .kept import BatchMoments, Keep
from .outcome import (
    kept_draws,
    last_positions,
    reported_draws,
    sampling_only,
    weight_by_modes,
    within_support,
)
from .sink import Raw


def judge_parameters(
    problem: Problem, plan: Plan, raw: Raw, ask: Request, info: dict[str, Any]
) -> Draws:
    """Return draws of the positions, which must be present, with their verdict."""
    draws = replace(reported_draws(problem, plan, raw, ask.seed), info=info, plan=plan)
    raw, _ = sampling_only(raw)
    assert raw.z is not None
    z = np.moveaxis(raw.z, 0, 1)
    gradient = None if raw.gradient is None else np.moveaxis(raw.gradient, 0, 1)
    draws = weight_by_modes(problem, plan, within_support(problem, draws, z), z, ask.seed)
    verdict = assess(problem, plan, draws, z, gradient, ask.tolerance, ask.seed, raw.trajectories)
    return draws.with_verdict(verdict)


# -- judge kept ----------------------------------------------------------------------------


CONFIRM_REMEDY = "confirm by sgld.step_halving, or keep the positions."
BIAS_UNKNOWN = (
    "the kept values have mixed, but whether they are biased is not known: the bias meter needs positions, which were "
    f"not kept; {CONFIRM_REMEDY}"
)


def judge_kept(
    problem: Problem, plan: Plan, raw: Raw, keep: Keep, ask: Request, info: dict[str, Any]
) -> Draws:
    """Return draws of the kept values, or moments, with their verdict."""
    assert raw.last is not None
    if keep.moments:
        draws = summed_up(problem, plan, raw, keep, ask, info)
        return draws.with_verdict(_of_moments(draws, ask.tolerance))
    draws = replace(kept_draws(problem, plan, raw, ask.seed, keep), info=info, plan=plan)
    if raw.z is None:
        last = np.array([draws.num_draws - 1])
        draws = within_support(problem, draws, raw.last[:, None], last)
        return draws.with_verdict(_of_values(draws, ask.tolerance))
    whole = judge_parameters(problem, plan, raw, ask, info)
    draws = replace(draws, status=whole.status, log_weight=whole.log_weight, info=whole.info)
    return draws.with_verdict(_of_both(draws, whole.verdict, ask.tolerance))


def summed_up(
    problem: Problem, plan: Plan, raw: Raw, keep: Keep, ask: Request, info: dict[str, Any]
) -> Draws:
    """Return the last draws, with the moments of all."""
    assert raw.moments is not None and raw.last is not None
    draws = last_positions(problem, plan, raw, ask.seed, keep)
    moments = moments_of(raw.moments, int((raw.temperature > 0).sum()))
    draws = replace(draws, moments=moments, info=info, plan=plan)
    return within_support(problem, draws, raw.last[:, None], np.array([moments.num_draws - 1]))


def _of_both(draws: Draws, parameters: Verdict, tolerance: float) -> Verdict:
    """Return the parameters' verdict if the kept values have mixed too, without its columns."""
    about = Verdict(
        parameters.word, parameters.reasons, noise_ratio=parameters.noise_ratio,
        extra=parameters.extra,
    )  # fmt: skip
    if parameters.word != "trusted":
        return about
    own = _of_values(draws, tolerance)
    if own.reasons != (BIAS_UNKNOWN,):
        return replace(about, word=own.word, reasons=own.reasons)
    reasons = (f"the parameters behind the kept values: {parameters.reasons[0]}",)
    return replace(about, reasons=reasons)


def _of_values(draws: Draws, tolerance: float) -> Verdict:
    if draws.healthy.size == 0:
        return Verdict("biased", draws.failures)
    values, _ = draws.flat()
    bad = ~np.isfinite(values)
    if bad.any():
        chain, draw, entry = np.argwhere(bad)[0]
        return Verdict("unknown", (
            f"keep returned {values[chain, draw, entry]} for {draws.names[entry]!r} at draw {draw} of chain "
            f"{draws.healthy[chain]}; return finite values at all positions.",
        ))  # fmt: skip
    strata = strata_of(draws, values)
    parts = {None: statistics.Estimates(values, draws.weights)} if strata is None else strata.each
    verdicts = [
        judge(Evidence(
            names=draws.names, mean=found.mean, sd=found.sd, **found.mixing._asdict(),
            num_chains=len(found.values), failures=draws.failures, tolerance=tolerance, why_not=BIAS_UNKNOWN,
        )) for found in parts.values()
    ]  # fmt: skip
    return next(
        (verdict for verdict in verdicts if verdict.reasons != (BIAS_UNKNOWN,)), verdicts[0]
    )


def _of_moments(draws: Draws, tolerance: float) -> Verdict:
    healthy, moments = draws.healthy, draws.moments
    assert moments is not None
    if healthy.size == 0:
        return Verdict("biased", draws.failures)
    ess = moments.ess(healthy)
    evidence = Evidence(
        names=draws.names, mean=moments.mean(healthy), sd=np.sqrt(moments.var(healthy)), ess=ess,
        ess_square=ess, r_hat=moments.r_hat(healthy), num_chains=len(healthy),
        failures=draws.failures, tolerance=tolerance,
        why_not=BIAS_UNKNOWN.replace("the kept values", "the draws"),
    )  # fmt: skip
    return judge(evidence)


def moments_of(m: BatchMoments, num_draws: int) -> Moments:
    """Return mean and variance of every chain from the sums that the chains carried."""

    def flat(tree: Any) -> np.ndarray:
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
        return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)

    whole, part = float(m.weight), float(m.batch_weight)
    total = max(whole + part, 1e-300)
    center, apart = flat(m.center), flat(m.batch) - flat(m.center)
    squares = flat(m.within) + flat(m.between) + whole * part / total * apart**2
    return Moments(
        chain_mean=center + part / total * apart, chain_square=squares / total,
        between=flat(m.between) / max(whole, 1e-300), weight=total,
        squared_weights=float(m.squared_weights), num_batches=int(m.num_batches),
        num_draws=num_draws, histogram=None if m.bins is None else Histogram(*map(np.asarray, m.bins)),
    )  # fmt: skip
