"""What a network's run goes by at every door: numbers, and what follows from numbers alone.

What they are applied to is measured in JAX (`from_network`, `network_price`, `network_lengths`, run/other_starts) and in
PyTorch (torch/tuning, torch/chains, torch/other_starts).
"""

from __future__ import annotations

import math

from ..diagnostics.function_space.temperature import ITERATIONS

__all__ = [
    "burn_in_and_span",
    "curvature_rows",
    "first_draw",
    "fisher_rows",
    "largest_step",
    "least_thin",
    "most_fallen",
    "num_directions",
    "seconds_of",
]

BATCH_SIZE = 100
LEARNING_RATE = 1e-2  # of Adam at first; a half period of a cosine takes it to 0
OPTIMISER_SECONDS, MOST_PASSES, FEWEST_STEPS, MOST_STEPS = 20.0, 60, 500, 20_000
STAGES, STAGE_STEPS, STAGE_SECONDS = 4, 250, 4.0
# of max_seconds: what optimisers and stages are predicted to take at most, and what both may by the clock
OPTIMISER_SHARE, STAGE_SHARE, TUNED_BY = 1 / 6, 1 / 20, 0.5
CAUTION = 0.25  # of h, after steps in which chains ran away:
FALLEN = 10.0  # log p is lower by so many times d T
STABLE, USUAL = 0.5, 0.05  # f = delta^2 lambda_1, at this tolerance and above
BATCHES = 20  # of which V_l is measured
FISHER_ROWS, CURVATURE_ROWS, FEWEST_ROWS = 1024, 1024, 64
FISHER_NUMBERS, CURVATURE_NUMBERS = 2**26, 2**25  # rows x parameters that are looked at
FULL_SECONDS = 30.0  # predicted, of so many steps over all rows
# PyTorch's steps have a price whatever their rows (sgld.torch counts it, 4e-4 s and 6e-5 s a layer): batches save less
FULL_STEPS, TORCH_FULL_STEPS = 20_000, 6_000
# in units of delta: a parameter forgets itself after 2 or so in the best of metrics
# (of what a run comes to, a third is left out as burn-in)
BURN_IN, SPAN, DRAWS = 30.0, 270.0, 750
RUN_SECONDS = 30.0  # predicted, of burn-in and draws as planned
# of max_seconds, that they may: less where the kernel and the verdict have to be compiled too
RUN_SHARE, TORCH_RUN_SHARE = 0.15, 0.25
LEAST_STEPS = 200  # that they are nevertheless
GROWTH = 64  # times the planned draws, that a run is prolonged to
PROBE_SHARE = 0.05  # of a run's gradients, that predictions at draws may cost
MOST_NUMBERS = 2**26  # of all kept positions
DIRECTIONS, FEWEST_DIRECTIONS, DIRECTIONS_SHARE = 16, 4, 0.05  # share of a run's gradients
EARLY, FEWEST_LATE = (
    1 / 3,
    20,
)  # of a run's steps, which are burn-in; draws that are left in any case
# chains that a run's predictions are held against, and what they may take of a run's seconds, or half of max_seconds
OTHER_STARTS, FEWEST_STARTS, OTHERS_SHARE = 12, 4, 0.2
# so many, each followed to its end, where they take no longer: a function of 3% of the mass is come to by one in ten
MOST_STARTS, CHEAP_SECONDS = 48, 1.0
FROM_PRIOR = (
    2**14
)  # parameters up to which some begin there: of more, init is as good a draw of a prior as any
OTHERS_SEED = 7919  # added to the run's
# excess temperature of predictions by noise of batches, from which on it is told; pairs of batches of which it is measured
NOISY, PAIRS = 0.15, 8
STRETCHES, STRETCH_STEPS = 8, 100  # after the stages; predictions are looked at after half of them


def seconds_of(most: float, share: float, max_seconds: float | None) -> float:
    """`most`, or a share of max_seconds where that is less."""
    return min(most, share * (max_seconds or math.inf))


def fisher_rows(num_data: int, dimension: int) -> int:
    """Rows whose squared gradients make the metric."""
    return min(num_data, FISHER_ROWS, max(FEWEST_ROWS, FISHER_NUMBERS // dimension))


def curvature_rows(num_data: int, dimension: int) -> int:
    """Rows on which the stiffest directions are looked for."""
    return min(num_data, max(FEWEST_ROWS, min(CURVATURE_ROWS, CURVATURE_NUMBERS // dimension)))


def largest_step(V: float, stiffest: float, tolerance: float, friction: float | None) -> float:
    """The h that gradient noise V and the largest curvature allow; of SGLD `friction` is None."""
    heat, longest = 2 * tolerance, STABLE / max(1e-12, stiffest)
    if friction is None:
        return min(2 * heat / max(V, 1e-12), heat * longest)
    # what a step adds to the temperature is of order h lambda_1
    longest *= min(1.0, tolerance / USUAL)
    return min((2 * friction * heat / max(V, 1e-12)) ** 2, longest)


def burn_in_and_span(rate: float, most: int) -> tuple[int, int]:
    """Steps before the first draw and from there on, of steps of `rate`, at most so many together."""
    burn_in = max(10, min(most // 10, math.ceil(BURN_IN / rate)))
    return burn_in, max(40, min(most - burn_in, math.ceil(SPAN / rate)))


def least_thin(rows: int) -> int:
    """Steps of a draw, each over so many rows, that its predictions cost little beside."""
    return math.ceil(64 / (3 * PROBE_SHARE * rows))


def most_fallen(dimension: int, T: float) -> float:
    """What log p may be lower after a stage: from a mode to where mass is, d T / 2 of a Gaussian, and some more."""
    return FALLEN * (dimension + 10) * max(1.0, T)


def num_directions(gradients: int, rows: int, dimension: int) -> int:
    """How many stiff directions on so many rows a run pays for: each takes two gradients an iteration."""
    affordable = DIRECTIONS_SHARE * gradients / (2 * ITERATIONS * rows)
    return int(min(DIRECTIONS, max(FEWEST_DIRECTIONS, affordable), dimension))


def first_draw(burn_in: int, thin: int, num_draws: int) -> int:
    """The draw from which a run counts: burn-in is a share of what it came to."""
    first = -(-(int(EARLY * (burn_in + thin * num_draws)) - burn_in) // thin)
    return max(0, min(first, num_draws - FEWEST_LATE))
