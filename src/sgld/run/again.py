"""What the library does by itself when its own plan misses: another plan, and a sentence why.

Only where step size and lengths were left to it. A posterior far from Gaussian goes to pilot
chains, where those are affordable; a biased run goes again with half the step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data.source import Source
from ..draws.verdict import Verdict
from ..problem.request import Request, is_auto
from ..problem.target import Target
from ..schedule import as_schedule
from ..tune.piloted import from_pilot
from ..tune.plan import with_lengths
from ..tune.request import Plan
from .outcome import LEFT_SUPPORT

__all__ = ["MOST_ATTEMPTS", "another", "revised"]

MOST_ATTEMPTS = 3


def another(
    plan: Plan, ask: Request, verdict: Verdict, attempts: list[dict[str, str]]
) -> list[str]:
    """What to try next, the first that can be done: "pilot", "halve", or nothing."""
    if any(LEFT_SUPPORT in reason for reason in verdict.reasons):  # no step is small enough
        return []
    left_open = is_auto(ask.step_size) and is_auto(ask.num_draws) and is_auto(ask.burn_in)
    if verdict.word == "trusted" or not left_open or len(attempts) >= MOST_ATTEMPTS:
        return []
    halve = ["halve"] if verdict.word == "biased" and plan.laplace is not None else []
    if plan.starts is None and not any(a["what"] == "pilot" for a in attempts):
        return ["pilot", *halve]
    return halve


def revised(
    plan: Plan,
    attempt: dict[str, str],
    target: Target,
    source: Source | None,
    z0: Any,
    ask: Request,
) -> Plan | None:
    """The plan of an attempt, made from the one before; None where it cannot be made."""
    if attempt["what"] == "pilot":
        found = from_pilot(target, source, ask, plan.laplace, z0, float(plan.temperature(0)))
        if found is None:
            return None
        said = "metric and step were taken from pilot chains"
        plan = replace(
            found, temperature=plan.temperature, laplace=plan.laplace, nu=plan.nu,
            log_density=plan.log_density, other_modes=plan.other_modes, modes=plan.modes,
            notes=found.notes + plan.notes,
        )  # fmt: skip
    else:
        h = float(plan.step_size(0)) / 2
        said = f"the step size was halved to {h:.3g}"
        rate = None if plan.rate is None else plan.rate / 2
        plan = replace(plan, step_size=as_schedule(h, "step_size"), rate=rate)
    note = f"a first run was not enough ({attempt['why'].rstrip('.')}), so {said}."
    return with_lengths(replace(plan, notes=(*plan.notes, note)), ask)
