"""What a network's run goes by at every door: numbers, and what follows from numbers alone.

What they are applied to is measured in JAX (`from_network`, `network_price`, `network_lengths`, run/other_starts) and in
PyTorch (torch/tuning, torch/chains, torch/other_starts).

How long a network's run is: burn-in, span and draws by the price of a step, by time and by memory.

Prices of a network's steps, predicted in counted operations.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax

from ...diagnostics.function_space.predictions import predictions_of
from ...diagnostics.function_space.temperature import (
    SPEED_NUMBERS,
    SPEED_ROWS,
    WEIGHT_ITERATIONS,
)
from ...model.cost import gradient_price, row_price
from ...model.problem import Problem, Request, is_auto
from ...results.plan import Plan
from ...samplers.gradients.full import Full
from ...samplers.sgld import SGLD

BATCH_SIZE = 100
LEARNING_RATE = 1e-2  # of Adam at first; a half period of a cosine takes it to 0
MAX_OPTIMISER_SECONDS = 20.0
MAX_OPTIMISER_PASSES = 60
MIN_TRAINING_STEPS = 500
MAX_TRAINING_STEPS = 20_000
STAGES, STAGE_STEPS, STAGE_SECONDS = 4, 250, 4.0
# of max_seconds: what optimisers and stages are predicted to take at most, and what both may by the clock
MAX_OPTIMISER_SHARE, MAX_STAGE_SHARE, TUNING_CLOCK_SHARE = 1 / 6, 1 / 20, 0.5
STEP_CUT = 0.25  # of h, after steps in which chains ran away:
MIN_FALL_OVER_DT = 10.0  # log p is lower by so many times d T
STABLE_STIFFNESS, USUAL_TOLERANCE = 0.5, 0.05  # f = delta^2 lambda_1, at this tolerance and above
NOISE_BATCHES = 20  # of which V_l is measured
MAX_FISHER_ROWS, MAX_CURVATURE_ROWS, MIN_CURVATURE_ROWS = 1024, 1024, 64
MAX_FISHER_NUMBERS, MAX_CURVATURE_NUMBERS = 2**26, 2**25  # rows x parameters that are looked at
MAX_FULL_SECONDS = 30.0  # predicted, of so many steps over all rows
# PyTorch's steps have a price whatever their rows (sgld.torch counts it, 4e-4 s and 6e-5 s a layer): batches save less
FULL_STEPS, TORCH_FULL_STEPS = 20_000, 6_000
# in units of delta: a parameter forgets itself after 2 or so in the best of metrics
# (of what a run comes to, a third is left out as burn-in)
BURN_IN_TIME, SAMPLING_TIME, PLANNED_DRAWS = 30.0, 270.0, 750
MAX_RUN_SECONDS = 30.0  # predicted, of burn-in and draws as planned
# of max_seconds, that they may: less where the kernel and the verdict have to be compiled too
MAX_RUN_SHARE, MAX_TORCH_RUN_SHARE = 0.15, 0.25
MIN_RUN_STEPS = 200  # that they are nevertheless
MAX_RUN_GROWTH = 64  # times the planned draws, that a run is prolonged to
MAX_PREDICTION_SHARE = 0.05  # of a run's gradients, that predictions at draws may cost
MAX_KEPT_NUMBERS = 2**26  # of all kept positions
MAX_DIRECTIONS, MIN_DIRECTIONS, DIRECTIONS_SHARE = 16, 4, 0.05  # share of a run's gradients
EARLY_STEP_SHARE, MIN_LATE_DRAWS = (
    1 / 3,
    20,
)  # of a run's steps, which are burn-in; draws that are left in any case
# chains that a run's predictions are held against, and what they may take of a run's seconds, or half of max_seconds
USUAL_OTHER_STARTS, MIN_OTHER_STARTS, OTHER_STARTS_SHARE = 12, 4, 0.2
# so many, each followed to its end, where they take no longer: a function of 3% of the mass is come to by one in ten
MAX_OTHER_STARTS, CHEAP_STARTS_SECONDS = 48, 1.0
# parameters up to which some begin there: of more, init is as good a draw of a prior as any
MAX_PRIOR_START_DIM = 2**14
OTHER_STARTS_SEED = 7919  # added to the run's
# excess temperature of predictions by noise of batches, from which on it is told; pairs of batches of which it is measured
MIN_REPORTED_NOISE, NOISE_BATCH_PAIRS = 0.15, 8
STRETCHES, STRETCH_STEPS = 8, 100  # after the stages; predictions are looked at after half of them


def seconds_of(most: float, share: float, max_seconds: float | None) -> float:
    """`most`, or a share of max_seconds where that is less."""
    return min(most, share * (max_seconds or math.inf))


def fisher_rows(num_data: int, dimension: int) -> int:
    """Rows whose squared gradients make the metric."""
    return min(num_data, MAX_FISHER_ROWS, max(MIN_CURVATURE_ROWS, MAX_FISHER_NUMBERS // dimension))


def curvature_rows(num_data: int, dimension: int) -> int:
    """Rows on which the stiffest directions are looked for."""
    return min(
        num_data,
        max(MIN_CURVATURE_ROWS, min(MAX_CURVATURE_ROWS, MAX_CURVATURE_NUMBERS // dimension)),
    )


def largest_step(V: float, stiffest: float, tolerance: float, friction: float | None) -> float:
    """The h that gradient noise V and the largest curvature allow; of SGLD `friction` is None."""
    heat, longest = 2 * tolerance, STABLE_STIFFNESS / max(1e-12, stiffest)
    if friction is None:
        return min(2 * heat / max(V, 1e-12), heat * longest)
    # what a step adds to the temperature is of order h lambda_1
    longest *= min(1.0, tolerance / USUAL_TOLERANCE)
    return min((2 * friction * heat / max(V, 1e-12)) ** 2, longest)


def burn_in_and_span(rate: float, most: int) -> tuple[int, int]:
    """Steps before the first draw and from there on, of steps of `rate`, at most so many together."""
    burn_in = max(10, min(most // 10, math.ceil(BURN_IN_TIME / rate)))
    return burn_in, max(40, min(most - burn_in, math.ceil(SAMPLING_TIME / rate)))


def least_thin(rows: int) -> int:
    """Steps of a draw, each over so many rows, that its predictions cost little beside."""
    return math.ceil(64 / (3 * MAX_PREDICTION_SHARE * rows))


def most_fallen(dimension: int, T: float) -> float:
    """What log p may be lower after a stage: from a mode to where mass is, d T / 2 of a Gaussian, and some more."""
    return MIN_FALL_OVER_DT * (dimension + 10) * max(1.0, T)


def num_directions(gradients: int, rows: int, dimension: int) -> int:
    """How many stiff directions on so many rows a run pays for: each takes two gradients an iteration."""
    affordable = DIRECTIONS_SHARE * gradients / (2 * WEIGHT_ITERATIONS * rows)
    return int(min(MAX_DIRECTIONS, max(MIN_DIRECTIONS, affordable), dimension))


def first_draw(burn_in: int, thin: int, num_draws: int) -> int:
    """The draw from which a run counts: burn-in is a share of what it came to."""
    first = -(-(int(EARLY_STEP_SHARE * (burn_in + thin * num_draws)) - burn_in) // thin)
    return max(0, min(first, num_draws - MIN_LATE_DRAWS))


# -- network price -------------------------------------------------------------------------


UPDATE_SECONDS = 7e-9  # seconds of a number that an optimiser or a sampler moves, noise included


def affordable(problem: Problem, chains: int) -> bool:
    """Whether full gradients are, for long enough chains."""
    return chains * FULL_STEPS * gradient_price(problem).each <= MAX_FULL_SECONDS


def step_price(problem: Problem, gradient: Any, batch_size: int | None) -> float:
    """Predicted seconds of one chain's step; the problem may hold its rows in any batches."""
    return batch_price(problem, gradient, batch_size) + UPDATE_SECONDS * problem.dimension


def batch_price(problem: Problem, gradient: Any, batch_size: int | None) -> float:
    """Predicted seconds of a step's gradient alone."""
    if isinstance(gradient, Full) or batch_size is None:
        return gradient_price(problem).each
    return batch_size * row_price(problem)


# -- network lengths -----------------------------------------------------------------------


NETWORK_STEP_SECONDS = 5e-6  # seconds of a step, whatever the model
# numbers of positions there is room for, and draws of a chain in any case: from half of them to all are held, of which a
# third is burn-in. Of 1,006,510 weights a run then has 1.5 GB at its peak
MAX_HELD_NUMBERS, MIN_HELD_DRAWS = 3 * 2**25, 24
MIN_NUMBERS_PER_DRAW = 1024  # numbers beside a position that a draw has at least, about
# seconds of a number of a position at a draw, where single rows' gradients are longer than caches (diagnostics/function_space/temperature.py): of
# 253,260 and 1,006,510 weights a draw took as long as .9 steps of 100 rows
PROBE_SECONDS = 1.2e-8


def network_lengths(plan: Plan, problem: Problem, ask: Request) -> Plan:
    """Burn-in and span by the step and the price of one, thinning by what predictions cost."""
    setup, chains = plan.setup, ask.chains()
    h = float(setup.step_size(0))
    rate = h if isinstance(setup.sampler, SGLD) else math.sqrt(h)
    price = NETWORK_STEP_SECONDS + chains * step_price(problem, setup.gradient, setup.batch_size)
    seconds = seconds_of(MAX_RUN_SECONDS, MAX_RUN_SHARE, ask.max_seconds)
    most = max(1000 if ask.max_seconds is None else MIN_RUN_STEPS, int(seconds / price))
    burn_in, span = burn_in_and_span(rate, most)
    if ask.max_steps is not None:
        burn_in = min(burn_in, ask.max_steps // 4)
        span = min(span, ask.max_steps - burn_in)
    burn_in = burn_in if is_auto(ask.burn_in) else int(ask.burn_in)
    num_draws = min(PLANNED_DRAWS, span) if is_auto(ask.num_draws) else int(ask.num_draws)
    rows = problem.num_data if isinstance(setup.gradient, Full) else setup.batch_size or 1
    thin = max(_least_thin(plan, problem, rows), span // num_draws)
    if ask.max_steps is not None:
        least = MIN_LATE_DRAWS if is_auto(ask.num_draws) else num_draws
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
    least, d = least_thin(rows), problem.dimension
    if SPEED_ROWS * d <= SPEED_NUMBERS:
        return least
    step = step_price(problem, plan.setup.gradient, plan.setup.batch_size)
    return max(least, math.ceil(PROBE_SECONDS * d / (MAX_PREDICTION_SHARE * step)))


def held(problem: Problem, ask: Request, chains: int) -> float:
    """Draws of a chain for whose positions there is memory while it runs: all where their number was given."""
    if not is_auto(ask.num_draws):
        return math.inf
    return max(MIN_HELD_DRAWS, MAX_HELD_NUMBERS // (chains * problem.dimension))


def _predicted(problem: Problem, chains: int) -> int:
    """Draws of a chain for whose predictions there is."""
    predictions = predictions_of(problem)
    found = jax.eval_shape(lambda z: predictions.at(problem.target, z), problem.start)
    return max(
        MIN_HELD_DRAWS, 2 * MAX_KEPT_NUMBERS // (chains * max(MIN_NUMBERS_PER_DRAW, found.size))
    )


def most_draws(plan: Plan, problem: Problem) -> int:
    """Draws of a chain that a run may be prolonged to where time has no limit: by memory and by price."""
    setup = plan.setup
    price = NETWORK_STEP_SECONDS + setup.num_chains * step_price(
        problem, setup.gradient, setup.batch_size
    )
    most = (int(MAX_RUN_SECONDS / price) - setup.burn_in) // setup.thin
    most = min(most, MAX_RUN_GROWTH * setup.num_draws, _predicted(problem, setup.num_chains))
    return max(setup.num_draws, most)


def most_at_once(plan: Plan, problem: Problem, *, on_disk: bool) -> int:
    """Draws of a chain that a run may hold; those beyond them make it drop every second one, or end where it is on disk.

    What more of them would tell is little beside what it costs to hold and to judge them.
    """
    most = _predicted(problem, plan.setup.num_chains)
    most = most if on_disk else min(most, MAX_RUN_GROWTH * plan.setup.num_draws)
    return max(plan.setup.num_draws, most)


def most_kept(problem: Problem, chains: int) -> int:
    """Positions of a chain that a run gives back."""
    return min(
        PLANNED_DRAWS, max(MIN_HELD_DRAWS // 2, MAX_KEPT_NUMBERS // (chains * problem.dimension))
    )
