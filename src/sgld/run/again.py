"""What the library does by itself when its own plan misses: another plan, and a sentence why.

Only where step size and lengths were left to it. A posterior far from Gaussian goes to exact
chains, where those are affordable, and again with half the step where very few of them diverge; a
biased run with half the step too, and so a network whose momentum is too warm.
"""

from __future__ import annotations

from dataclasses import replace

from ..model.problem import Problem, Request, is_auto
from ..results.plan import Plan
from ..results.verdict import Verdict
from ..samplers.schedules import as_schedule
from ..tune.from_chains import from_chains
from ..tune.lengths import with_lengths
from ..tune.network_lengths import network_lengths
from .outcome import LEFT_SUPPORT

__all__ = ["MOST_ATTEMPTS", "another", "revised"]

MOST_ATTEMPTS = 3
# share of trajectories: half the step took 3 of 51,200 away, and 17 (a banana), but left 109 of 375 in 409,600 (a
# funnel) and 30 of 53 in 70,000 (centred eight schools), and the word as it was, for half as many seconds again
RARE = 5e-4
# and where energies change as fast as on a banana (E-BFMI .98; horseshoes .8, a funnel .46, centred eight schools .15):
# there are no places that chains cannot enter, and a step too long for some is all there is. 85 of 155,136 went to none
SEVERAL, SWIFT = 2e-3, 0.6


def another(
    plan: Plan, ask: Request, verdict: Verdict, attempts: list[dict[str, str]]
) -> list[str]:
    """What to try next, the first that can be done: "exact", "finer", "halve", "quarter", or nothing."""
    if any(LEFT_SUPPORT in reason for reason in verdict.reasons):  # no step is small enough
        return []
    left_open = is_auto(ask.step_size) and is_auto(ask.num_draws) and is_auto(ask.burn_in)
    if verdict.word == "trusted" or not left_open or len(attempts) >= MOST_ATTEMPTS:
        return []
    if plan.setup.predictions:
        found = verdict.extra.get("predictions", {})
        return ["quarter"] if found.get("failed") else ["halve"] if found.get("too_warm") else []
    halve = ["halve"] if verdict.word == "biased" and plan.known.gaussian is not None else []
    if plan.setup.exact:
        diverged, of, energy = (
            verdict.extra.get(name, 0) for name in ("divergences", "trajectories", "e_bfmi")
        )
        rare = 0 < diverged <= (SEVERAL if energy >= SWIFT else RARE) * of
        return ["finer"] if rare and not any(a["what"] == "finer" for a in attempts) else []
    if plan.setup.starts is None and not any(a["what"] == "exact" for a in attempts):
        return ["exact", *halve]
    return halve


def revised(plan: Plan, attempt: dict[str, str], problem: Problem, ask: Request) -> Plan | None:
    """The plan of an attempt, made from the one before; None where it cannot be made."""
    setup = plan.setup
    if attempt["what"] == "exact":
        T = float(setup.temperature(0))
        found = from_chains(problem, ask, plan.known, T, first=False)
        if found is None:
            return None
        said = "the posterior is sampled exactly"
        setup = replace(found.setup, temperature=setup.temperature)
        plan = replace(found, setup=setup, notes=found.notes + plan.notes)
    elif attempt["what"] == "finer":
        sampler = replace(setup.sampler, leapfrogs=2 * setup.sampler.leapfrogs)
        h = float(setup.step_size(0)) / 4
        said = "trajectories took steps half as long"
        setup = replace(setup, sampler=sampler, step_size=as_schedule(h, "step_size"))
        plan = replace(plan, setup=setup)
    else:
        parts = 4 if attempt["what"] == "quarter" else 2  # where chains failed, curvature grows
        h = float(setup.step_size(0)) / parts
        said = f"the step size was {'quartered' if parts == 4 else 'halved'} to {h:.3g}"
        rate = None if plan.rate is None else plan.rate / parts
        plan = replace(plan, setup=replace(setup, step_size=as_schedule(h, "step_size")), rate=rate)
    # what its verdict said to do is done, and this run's verdict says what is left to do
    why = attempt["why"].split("; ")[0].rstrip(".")
    note = f"a first run was not enough ({why}), so {said}."
    if plan.setup.predictions:
        return network_lengths(plan.noted(note), problem, ask)
    return with_lengths(plan.noted(note), ask)
