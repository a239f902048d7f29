"""How long a network's run is: burn-in, span and draws by the price of a step, by time and by memory."""

from __future__ import annotations

import math
from dataclasses import replace

import jax

from ..diagnostics.function_space.predictions import predictions_of
from ..diagnostics.function_space.temperature import AT_ONCE, SPEED_ROWS
from ..model.problem import Problem, Request, is_auto
from ..results.plan import Plan
from ..samplers.gradients.full import Full
from ..samplers.sgld import SGLD
from . import network_rule as rule
from .network_price import step_price

__all__ = ["held", "most_at_once", "most_draws", "most_kept", "network_lengths"]

SHARED = 5e-6  # seconds of a step, whatever the model
# numbers of positions there is room for, and draws of a chain in any case: from half of them to all are held, of which a
# third is burn-in. Of 1,006,510 weights a run then has 1.5 GB at its peak
HELD, FEWEST_HELD = 3 * 2**25, 24
PREDICTED = 1024  # numbers beside a position that a draw has at least, about
# seconds of a number of a position at a draw, where single rows' gradients are longer than caches (diagnostics/function_space/temperature.py): of
# 253,260 and 1,006,510 weights a draw took as long as .9 steps of 100 rows
PROBED = 1.2e-8


def network_lengths(plan: Plan, problem: Problem, ask: Request) -> Plan:
    """Burn-in and span by the step and the price of one, thinning by what predictions cost."""
    setup, chains = plan.setup, ask.chains()
    h = float(setup.step_size(0))
    rate = h if isinstance(setup.sampler, SGLD) else math.sqrt(h)
    price = SHARED + chains * step_price(problem, setup.gradient, setup.batch_size)
    seconds = rule.seconds_of(rule.RUN_SECONDS, rule.RUN_SHARE, ask.max_seconds)
    most = max(1000 if ask.max_seconds is None else rule.LEAST_STEPS, int(seconds / price))
    burn_in, span = rule.burn_in_and_span(rate, most)
    if ask.max_steps is not None:
        burn_in = min(burn_in, ask.max_steps // 4)
        span = min(span, ask.max_steps - burn_in)
    burn_in = burn_in if is_auto(ask.burn_in) else int(ask.burn_in)
    num_draws = min(rule.DRAWS, span) if is_auto(ask.num_draws) else int(ask.num_draws)
    rows = problem.num_data if isinstance(setup.gradient, Full) else setup.batch_size or 1
    thin = max(_least_thin(plan, problem, rows), span // num_draws)
    if ask.max_steps is not None:
        least = rule.FEWEST_LATE if is_auto(ask.num_draws) else num_draws
        thin = min(thin, max(1, span // least))
    thin = thin if is_auto(ask.thin) else int(ask.thin)
    if is_auto(ask.num_draws):
        num_draws = min(num_draws, max(1, span // thin))
    if ask.max_steps is not None:
        num_draws = min(num_draws, 1 + (ask.max_steps - burn_in - 1) // thin)
    setup = replace(setup, burn_in=burn_in, thin=thin, num_draws=num_draws, num_chains=chains)
    return replace(plan, setup=setup)


def _least_thin(plan: Plan, problem: Problem, rows: int) -> int:
    """Steps of a draw, that what is measured at it costs little beside."""
    least, d = rule.least_thin(rows), problem.dimension
    if SPEED_ROWS * d <= AT_ONCE:
        return least
    step = step_price(problem, plan.setup.gradient, plan.setup.batch_size)
    return max(least, math.ceil(PROBED * d / (rule.PROBE_SHARE * step)))


def held(problem: Problem, ask: Request, chains: int) -> float:
    """Draws of a chain for whose positions there is memory while it runs: all where their number was given."""
    if not is_auto(ask.num_draws):
        return math.inf
    return max(FEWEST_HELD, HELD // (chains * problem.dimension))


def _predicted(problem: Problem, chains: int) -> int:
    """Draws of a chain for whose predictions there is."""
    predictions = predictions_of(problem)
    found = jax.eval_shape(lambda z: predictions.at(problem.target, z), problem.start)
    return max(FEWEST_HELD, 2 * rule.MOST_NUMBERS // (chains * max(PREDICTED, found.size)))


def most_draws(plan: Plan, problem: Problem) -> int:
    """Draws of a chain that a run may be prolonged to where time has no limit: by memory and by price."""
    setup = plan.setup
    price = SHARED + setup.num_chains * step_price(problem, setup.gradient, setup.batch_size)
    most = (int(rule.RUN_SECONDS / price) - setup.burn_in) // setup.thin
    most = min(most, rule.GROWTH * setup.num_draws, _predicted(problem, setup.num_chains))
    return max(setup.num_draws, most)


def most_at_once(plan: Plan, problem: Problem, *, on_disk: bool) -> int:
    """Draws of a chain that a run may hold; those beyond them make it drop every second one, or end where it is on disk.

    What more of them would tell is little beside what it costs to hold and to judge them.
    """
    most = _predicted(problem, plan.setup.num_chains)
    most = most if on_disk else min(most, rule.GROWTH * plan.setup.num_draws)
    return max(plan.setup.num_draws, most)


def most_kept(problem: Problem, chains: int) -> int:
    """Positions of a chain that a run gives back."""
    return min(rule.DRAWS, max(FEWEST_HELD // 2, rule.MOST_NUMBERS // (chains * problem.dimension)))
