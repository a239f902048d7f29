"""Rules for a network's run in JAX and in PyTorch: constants, and what follows from numbers alone.

The quantities they apply to are measured by one interface (network_backend.py), in JAX and in PyTorch.

The module also predicts the cost of a network's steps in counted operations. It sets the length of
a run, that is burn-in, span and draws, by the cost of a step, by time and by memory.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax

from ...diagnostics.function_space.predictions import predictions_of
from ...diagnostics.function_space.temperature import SPEED_NUMBERS, SPEED_ROWS, WEIGHT_ITERATIONS
from ...model.cost import gradient_cost, row_cost
from ...model.problem import Problem, Request, is_auto
from ...results.plan import Plan
from ...samplers.gradients.full import Full
from ...samplers.sgld import SGLD

BATCH_SIZE = 100
LEARNING_RATE = 1e-2  # first learning rate of Adam; half a period of a cosine takes it to 0
MAX_OPTIMISER_SECONDS = 20.0
MAX_OPTIMISER_PASSES = 60
MIN_TRAINING_STEPS = 500
MAX_TRAINING_STEPS = 20_000
STAGES, STAGE_STEPS, STAGE_SECONDS = 4, 250, 4.0
# shares of max_seconds: predicted for optimisers and for stages, and for both by the clock
MAX_OPTIMISER_SHARE, MAX_STAGE_SHARE, TUNING_CLOCK_SHARE = 1 / 6, 1 / 20, 0.5
STEP_CUT = 0.25  # factor of h after steps in which chains diverged
MIN_FALL_OVER_DT = 10.0  # fall of log p over d T, from which a chain diverged
STABLE_STIFFNESS, USUAL_TOLERANCE = 0.5, 0.05  # f = delta^2 lambda_1, at this tolerance and above
NOISE_BATCHES = 20  # batches from which V_l is measured
MAX_FISHER_ROWS, MAX_CURVATURE_ROWS, MIN_CURVATURE_ROWS = 1024, 1024, 64
MAX_FISHER_NUMBERS, MAX_CURVATURE_NUMBERS = 2**26, 2**25  # rows x parameters of each estimate
MAX_FULL_SECONDS = 30.0  # predicted seconds of FULL_STEPS steps over all rows
# PyTorch's steps have a fixed cost (sgld.torch counts it, 4e-4 s and 6e-5 s a layer), so batches save less
FULL_STEPS, TORCH_FULL_STEPS = 20_000, 6_000
# in units of delta: a parameter decorrelates after about 2 in the best of metrics
# (a third of the final length of a run is burn-in)
BURN_IN_TIME, SAMPLING_TIME, PLANNED_DRAWS = 30.0, 270.0, 750
MAX_RUN_SECONDS = 30.0  # predicted seconds of burn-in and draws as planned
# share of max_seconds for the same: less if the kernel and the verdict must be compiled too
MAX_RUN_SHARE, MAX_TORCH_RUN_SHARE = 0.15, 0.25
MIN_RUN_STEPS = 200  # least steps of the same
MAX_RUN_GROWTH = 64  # multiple of the planned draws to which a run may grow
MAX_PREDICTION_SHARE = 0.05  # share of a run's gradients that predictions at draws may cost
MAX_KEPT_NUMBERS = 2**26  # numbers of all kept positions
MAX_DIRECTIONS, MIN_DIRECTIONS, DIRECTIONS_SHARE = 16, 4, 0.05  # share of a run's gradients
EARLY_STEP_SHARE, MIN_LATE_DRAWS = (
    1 / 3,
    20,
)  # share of a run's steps that is burn-in; draws that are left in any case
# restarts with which a run's predictions are compared, and their share of a run's seconds, or half of max_seconds
USUAL_OTHER_STARTS, MIN_OTHER_STARTS, OTHER_STARTS_SHARE = 12, 4, 0.2
# restarts run to their end if they take no longer than this: one in ten finds a function of 3% of the mass
MAX_OTHER_STARTS, CHEAP_STARTS_SECONDS = 48, 1.0
# parameters up to which some restarts are draws of the prior: beyond, init is as good a draw as any
MAX_PRIOR_START_DIM = 2**14
OTHER_STARTS_SEED = 7919  # added to the run's seed
# excess temperature of predictions by batch noise from which it is reported; pairs of batches that measure it
MIN_REPORTED_NOISE, NOISE_BATCH_PAIRS = 0.15, 8
STRETCHES, STRETCH_STEPS = 8, 100  # after the stages; predictions are examined after half of them


def seconds_of(most: float, share: float, max_seconds: float | None) -> float:
    """Return `most`, or a share of max_seconds if that is less."""
    return min(most, share * (max_seconds or math.inf))


def fisher_rows(num_data: int, dimension: int) -> int:
    """Return the number of rows whose squared gradients make the metric."""
    return min(num_data, MAX_FISHER_ROWS, max(MIN_CURVATURE_ROWS, MAX_FISHER_NUMBERS // dimension))


def curvature_rows(num_data: int, dimension: int) -> int:
    """Return the number of rows on which the stiffest directions are searched."""
    return min(
        num_data,
        max(MIN_CURVATURE_ROWS, min(MAX_CURVATURE_ROWS, MAX_CURVATURE_NUMBERS // dimension)),
    )


def largest_step(V: float, stiffest: float, tolerance: float, friction: float | None) -> float:
    """Return the h that gradient noise V and the largest curvature allow.

    `friction` is None for SGLD.
    """
    excess, longest = 2 * tolerance, STABLE_STIFFNESS / max(1e-12, stiffest)
    if friction is None:
        return min(2 * excess / max(V, 1e-12), excess * longest)
    # a step raises the temperature by order h lambda_1
    longest *= min(1.0, tolerance / USUAL_TOLERANCE)
    return min((2 * friction * excess / max(V, 1e-12)) ** 2, longest)


def burn_in_and_span(rate: float, most: int) -> tuple[int, int]:
    """Return steps before the first draw and after it, for steps of `rate`, at most `most`."""
    burn_in = max(10, min(most // 10, math.ceil(BURN_IN_TIME / rate)))
    return burn_in, max(40, min(most - burn_in, math.ceil(SAMPLING_TIME / rate)))


def least_thin(rows: int) -> int:
    """Return the steps per draw, each over `rows` rows, at which predictions cost little."""
    return math.ceil(64 / (3 * MAX_PREDICTION_SHARE * rows))


def most_fallen(dimension: int, T: float) -> float:
    """Return the largest plausible fall of log p after a stage.

    From a mode to the bulk of a Gaussian log p falls by d T / 2; the limit adds a margin.
    """
    return MIN_FALL_OVER_DT * (dimension + 10) * max(1.0, T)


def num_directions(gradients: int, rows: int, dimension: int) -> int:
    """Return the number of stiff directions on `rows` rows that a run can afford.

    Each takes two gradients per iteration.
    """
    affordable = DIRECTIONS_SHARE * gradients / (2 * WEIGHT_ITERATIONS * rows)
    return int(min(MAX_DIRECTIONS, max(MIN_DIRECTIONS, affordable), dimension))


def restart_steps() -> int:
    """Return the steps of a chain from another start, after its optimiser."""
    return STAGES * STAGE_STEPS + STRETCHES * STRETCH_STEPS


def num_restarts(fixed: float, each: float, max_seconds: float | None) -> tuple[int, bool]:
    """Return how many chains from other starts are affordable, and whether following all of them is cheap.

    The count is 0 if too few are affordable.

    Args:
      fixed: predicted seconds whatever the number of starts.
      each: predicted seconds of each start.
      max_seconds: the user's limit.
    """
    seconds = OTHER_STARTS_SHARE * seconds_of(MAX_RUN_SECONDS, 1 / 2, max_seconds)
    cheap = (CHEAP_STARTS_SECONDS - fixed) / each
    wanted = max(USUAL_OTHER_STARTS, min(cheap, MAX_OTHER_STARTS))
    count = int(min(wanted, (seconds - fixed) / each))
    return (count, count <= cheap) if count >= MIN_OTHER_STARTS else (0, False)


def first_draw(burn_in: int, thin: int, num_draws: int) -> int:
    """Return the first draw that counts: burn-in is a share of the final length of a run."""
    first = -(-(int(EARLY_STEP_SHARE * (burn_in + thin * num_draws)) - burn_in) // thin)
    return max(0, min(first, num_draws - MIN_LATE_DRAWS))


# -- network cost --------------------------------------------------------------------------


UPDATE_SECONDS = 7e-9  # seconds per number that an optimiser or a sampler updates, noise included


def affordable(problem: Problem, chains: int) -> bool:
    """Return whether full gradients are affordable, for long enough chains."""
    return chains * FULL_STEPS * gradient_cost(problem).each <= MAX_FULL_SECONDS


def step_cost(problem: Problem, gradient: Any, batch_size: int | None) -> float:
    """Return the predicted seconds of one chain's step; the problem's batches do not matter."""
    return batch_cost(problem, gradient, batch_size) + UPDATE_SECONDS * problem.dimension


def batch_cost(problem: Problem, gradient: Any, batch_size: int | None) -> float:
    """Return the predicted seconds of a step's gradient alone."""
    if isinstance(gradient, Full) or batch_size is None:
        return gradient_cost(problem).each
    return batch_size * row_cost(problem)


# -- network lengths -----------------------------------------------------------------------


NETWORK_STEP_SECONDS = 5e-6  # seconds of a step, whatever the model
# numbers of positions that fit in memory, and least draws of a chain: from half of them to all are held, of which a
# third is burn-in. With 1,006,510 weights a run then takes 1.5 GB at its peak
MAX_HELD_NUMBERS, MIN_HELD_DRAWS = 3 * 2**25, 24
MIN_NUMBERS_PER_DRAW = 1024  # approximate least numbers of a draw in addition to its position
# seconds per number of a position at a draw, if single rows' gradients exceed caches (function_space/temperature.py):
# with 253,260 and 1,006,510 weights a draw took as long as .9 steps of 100 rows
PROBE_SECONDS = 1.2e-8


def network_lengths(plan: Plan, problem: Problem, ask: Request) -> Plan:
    """Set burn-in and span by the step size and its cost, thinning by the cost of predictions."""
    setup, chains = plan.setup, ask.chains()
    h = float(setup.step_size(0))
    rate = h if isinstance(setup.sampler, SGLD) else math.sqrt(h)
    price = NETWORK_STEP_SECONDS + chains * step_cost(problem, setup.gradient, setup.batch_size)
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
    """Return the steps per draw at which the measurements at a draw cost little."""
    least, d = least_thin(rows), problem.dimension
    if SPEED_ROWS * d <= SPEED_NUMBERS:
        return least
    step = step_cost(problem, plan.setup.gradient, plan.setup.batch_size)
    return max(least, math.ceil(PROBE_SECONDS * d / (MAX_PREDICTION_SHARE * step)))


def held(problem: Problem, ask: Request, chains: int) -> float:
    """Return the draws of a chain whose positions fit in memory; all if the number was given."""
    if not is_auto(ask.num_draws):
        return math.inf
    return max(MIN_HELD_DRAWS, MAX_HELD_NUMBERS // (chains * problem.dimension))


def _predicted(problem: Problem, chains: int) -> int:
    """Return the draws of a chain whose predictions fit in memory."""
    predictions = predictions_of(problem)
    found = jax.eval_shape(lambda z: predictions.at(problem.target, z), problem.start)
    return max(
        MIN_HELD_DRAWS, 2 * MAX_KEPT_NUMBERS // (chains * max(MIN_NUMBERS_PER_DRAW, found.size))
    )


def most_draws(plan: Plan, problem: Problem) -> int:
    """Return the draws of a chain to which a run without time limit may grow.

    Memory and cost limit them.
    """
    setup = plan.setup
    price = NETWORK_STEP_SECONDS + setup.num_chains * step_cost(
        problem, setup.gradient, setup.batch_size
    )
    most = (int(MAX_RUN_SECONDS / price) - setup.burn_in) // setup.thin
    most = min(most, MAX_RUN_GROWTH * setup.num_draws, _predicted(problem, setup.num_chains))
    return max(setup.num_draws, most)


def most_at_once(plan: Plan, problem: Problem, *, on_disk: bool) -> int:
    """Return the draws of a chain that a run may hold.

    Beyond them the run drops every second draw, or ends if it is on disk. More draws would add
    little information for the cost of holding and judging them.
    """
    most = _predicted(problem, plan.setup.num_chains)
    most = most if on_disk else min(most, MAX_RUN_GROWTH * plan.setup.num_draws)
    return max(plan.setup.num_draws, most)


def most_kept(problem: Problem, chains: int) -> int:
    """Return the number of positions of a chain that a run returns."""
    return min(
        PLANNED_DRAWS, max(MIN_HELD_DRAWS // 2, MAX_KEPT_NUMBERS // (chains * problem.dimension))
    )
