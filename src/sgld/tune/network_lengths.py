"""How long a network's run is: burn-in, span and draws by the price of a step, by time and by memory."""

from __future__ import annotations

import math
from dataclasses import replace

from ..draws.plan import Plan
from ..gradient.full import Full
from ..problem.problem import Problem
from ..problem.request import Request, is_auto
from ..sampler.sgld import SGLD
from .network_price import step_price

__all__ = ["RUN_SECONDS", "held", "most_draws", "most_kept", "network_lengths"]

# in units of delta: a parameter forgets itself after 2 or so in the best of metrics
# (of what a run comes to, a third is left out as burn-in)
BURN_IN, SPAN, DRAWS = 30.0, 270.0, 750
RUN_SECONDS = 30.0  # predicted, of burn-in and draws as planned
RUN_SHARE, LEAST_STEPS = 0.15, 200  # of max_seconds, that they may; and what they are nevertheless
GROWTH = 64  # times the planned draws, that a run is prolonged to
SHARED = 5e-6  # seconds of a step, whatever the model
PROBE_SHARE = 0.05  # of a run's gradients, that predictions at draws may cost
MOST_NUMBERS, FEWEST_DRAWS = 2**26, 28  # of all kept positions; draws of a chain
FEWEST_HELD = (
    40  # draws of a chain that there is room for in any case: half of them can still be judged
)
# where there is time to use up: times the planned draws that memory has room for, and draws planned at least
ROOM, FEWEST_PLANNED = 8, 28
PREDICTED = 1024  # numbers beside the position that a draw has, about


def network_lengths(plan: Plan, problem: Problem, ask: Request) -> Plan:
    """Burn-in and span by the step and the price of one, thinning by what predictions cost."""
    setup, chains = plan.setup, ask.chains()
    h = float(setup.step_size(0))
    rate = h if isinstance(setup.sampler, SGLD) else math.sqrt(h)
    price = SHARED + chains * step_price(problem, setup.gradient, setup.batch_size)
    seconds = min(RUN_SECONDS, RUN_SHARE * (ask.max_seconds or math.inf))
    most = max(1000 if ask.max_seconds is None else LEAST_STEPS, int(seconds / price))
    burn_in = max(10, min(most // 10, math.ceil(BURN_IN / rate)))
    span = max(40, min(most - burn_in, math.ceil(SPAN / rate)))
    if ask.max_steps is not None:
        burn_in = min(burn_in, ask.max_steps // 4)
        span = min(span, ask.max_steps - burn_in)
    burn_in = burn_in if is_auto(ask.burn_in) else int(ask.burn_in)
    num_draws = _planned(problem, ask, span) if is_auto(ask.num_draws) else int(ask.num_draws)
    rows = problem.num_data if isinstance(setup.gradient, Full) else setup.batch_size or 1
    least = math.ceil(64 / (3 * PROBE_SHARE * rows))
    thin = max(least, span // num_draws) if is_auto(ask.thin) else int(ask.thin)
    if is_auto(ask.num_draws):
        num_draws = min(num_draws, max(1, span // thin))
    if ask.max_steps is not None:
        num_draws = min(num_draws, 1 + (ask.max_steps - burn_in - 1) // thin)
    setup = replace(setup, burn_in=burn_in, thin=thin, num_draws=num_draws, num_chains=chains)
    return replace(plan, setup=setup)


def _planned(problem: Problem, ask: Request, span: int) -> int:
    """Draws of a chain; so few, where there is time to use up, that memory does not end the run before."""
    most = min(most_kept(problem, ask.chains()), span)
    if ask.max_seconds is None:
        return most
    return min(most, max(FEWEST_PLANNED, held(problem, ask.chains()) // ROOM))


def held(problem: Problem, chains: int) -> int:
    """Draws of a chain for which there is memory while it runs."""
    most = 2 * MOST_NUMBERS // (chains * (problem.dimension + PREDICTED))
    return max(FEWEST_HELD, most)


def most_draws(plan: Plan, problem: Problem, *, limited: bool) -> int:
    """Draws of a chain that a run may be prolonged to: where time has no limit, by memory and by price."""
    setup = plan.setup
    most = GROWTH * setup.num_draws
    if not limited:
        price = SHARED + setup.num_chains * step_price(problem, setup.gradient, setup.batch_size)
        most = min(most, (int(RUN_SECONDS / price) - setup.burn_in) // setup.thin)
        most = min(most, held(problem, setup.num_chains))
    return max(setup.num_draws, most)


def most_kept(problem: Problem, chains: int) -> int:
    """Positions of a chain that a run gives back."""
    return min(DRAWS, max(FEWEST_DRAWS, MOST_NUMBERS // (chains * problem.dimension)))
