"""How long to run: burn-in, thinning, draws."""

from __future__ import annotations

import math
from dataclasses import replace

from ..errors import UsageError
from ..metropolis.ensemble import CHAINS
from ..model.problem import Request, is_auto
from ..results.plan import Plan
from .exact_price import DRAWS

__all__ = ["with_lengths"]

DEFAULT_DRAWS = 1000  # of each of four chains
SHORT_RUN, LONG = 10**5, 10**8  # most steps of a chain that the library takes by itself
LEAST, MOST_ROW_STEPS = 2000, 2**26  # steps, and rows x steps, where an optimiser chose the starts
MOST_DRAWS, FEWEST = 10**5, 50  # most draws, and those that max_steps leaves by less thinning
FORGETS = 0.7  # share that a step forgets from which every step is a draw: for a variance .84 independent ones
ADAPTING = 1000  # least burn-in of an adaptive preconditioner


def with_lengths(plan: Plan, ask: Request) -> Plan:
    """The plan with those of its setup."""
    setup = plan.setup
    num_chains = ask.chains(setup.num_chains or (CHAINS if setup.exact else 4))
    if setup.exact:
        return replace(
            plan, setup=replace(setup, num_chains=num_chains, **_exact(plan, ask, num_chains))
        )
    rate = _rate(plan, ask.tolerance)
    # where nothing is promised anyway, nobody waits for billions of steps
    longest = SHORT_RUN if plan.known.hopeless or setup.starts is not None else LONG
    if setup.starts is not None and setup.batch_size is not None:
        longest = max(LEAST, min(longest, MOST_ROW_STEPS // setup.batch_size))
    if plan.law is not None and not is_auto(ask.step_size) and ask.max_steps is None:
        _check_long(ask, rate)
    burn_in = min(longest, _whole(6 / rate)) if is_auto(ask.burn_in) else int(ask.burn_in)
    if is_auto(ask.burn_in) and setup.preconditioner.adapts:
        burn_in = max(burn_in, ADAPTING)
    if not is_auto(ask.thin):
        thin = int(ask.thin)
    elif is_auto(ask.step_size):
        apart = 1 if rate >= FORGETS else _whole(1 / rate)
        thin = max(1, min(longest // DEFAULT_DRAWS, apart))
    else:
        thin = 1
    num_draws = ask.num_draws
    if is_auto(num_draws):
        decay = (1 - min(rate, 1.0)) ** (2 * thin)
        needed = 2 / ask.tolerance**2 * (1 + decay) / (1 - decay) / num_chains
        least = 4 * DEFAULT_DRAWS // num_chains if is_auto(ask.num_chains) else DEFAULT_DRAWS
        num_draws = max(least, _whole(min(1.25 * needed, MOST_DRAWS)))
        if plan.law is None or not is_auto(ask.step_size):
            num_draws = least
    if ask.max_steps is not None:
        if is_auto(ask.burn_in):
            burn_in = min(burn_in, ask.max_steps // 4)
        if is_auto(ask.thin):
            thin = max(1, min(thin, (ask.max_steps - burn_in) // FEWEST))
        room = 1 + (ask.max_steps - burn_in - 1) // thin
        if not isinstance(ask.num_draws, str) and room < ask.num_draws:
            plan = plan.noted(
                f"max_steps = {ask.max_steps} leaves {room} of {num_draws} draws per chain."
            )
        num_draws = min(num_draws, room)
    setup = replace(
        setup, burn_in=burn_in, thin=thin, num_draws=int(num_draws), num_chains=num_chains
    )
    return replace(plan, setup=setup)


def _whole(steps: float) -> int:
    """Steps, rounded up where they are not whole to rounding: the last bit of a rate decides nothing."""
    return math.ceil(steps * (1 - 1e-6))


def _check_long(ask: Request, rate: float) -> None:
    """UsageError where a step by hand would take the library more steps than it takes by itself."""
    if is_auto(ask.burn_in) and 6 / rate > LONG:
        raise UsageError(
            f"step_size is so small that burn-in alone would take {6 / rate:.1e} steps or more, and no run "
            f"takes more than {LONG:,} by itself; give a larger one, or burn_in or max_steps to have it all the same."
        )


def _exact(plan: Plan, ask: Request, num_chains: int) -> dict[str, int]:
    """Of chains that have settled already: every trajectory is a draw."""
    burn_in = plan.setup.burn_in if is_auto(ask.burn_in) else int(ask.burn_in)
    thin = 1 if is_auto(ask.thin) else int(ask.thin)
    if is_auto(ask.num_draws):
        planned = plan.setup.num_chains * plan.setup.num_draws or DRAWS
        num_draws = max(FEWEST, planned // num_chains)
    else:
        num_draws = int(ask.num_draws)
    if ask.max_steps is not None:
        num_draws = min(num_draws, 1 + (ask.max_steps - burn_in - 1) // thin)
    return {"burn_in": burn_in, "thin": thin, "num_draws": num_draws}


def _rate(plan: Plan, tolerance: float) -> float:
    """The share that a step forgets in the slowest direction."""
    if plan.law is not None:
        return max(plan.law.rate(float(plan.setup.step_size(0))), 1e-12)
    # without a law the step is `tolerance` of the stiffest direction's time scale
    return tolerance / 10 if plan.rate is None else plan.rate
