"""What a plan will take, predicted before it runs: gradients, seconds and memory.

Counted from the plan's own numbers. Seconds: a chain's step takes the gradient of its rows, normals and
the metric's products, all priced as in `problem.operations`,

    seconds = steps (SHARED + shared + chains (STEP + rows row_price + NORMAL d + 2 METRIC d^2))

and a trajectory so many gradients of all rows as it has leapfrogs. Bytes: the constants are resident
memory of runs of 10^5 to 10^7 kept numbers and of tables of 10 to 50 MiB. All were measured once; no
clock is read.
"""

from __future__ import annotations

from ..model.cost import Price, gradient_price, row_price
from ..model.problem import Problem
from ..results.plan import Predicted, Setup
from ..samplers.confined_hmc import ConfinedHMC
from ..samplers.gradients.full import Full
from ..samplers.gradients.saga import SAGA
from ..samplers.hmc import HMC
from .exact_price import ENDS, METRIC
from .memory import draws_bytes
from .price import FETCHED

__all__ = ["predicted", "predicted_bytes"]

SHARED, STEP = 5e-7, 1e-7  # seconds of a step: of all chains together, and of each
NORMAL, COUNTED = 6e-9, 3e-9  # of a normal drawn, used and kept, and of a count of bits
JUDGED = 6e-7  # of a number of a draw that is kept: ESS, R-hat, quantiles
BASE = 380 * 2**20  # JAX, its compiled functions, the interpreter
ROWS = 6  # times the rows: the user's, shuffled, on the device, pieces of them at work
NOISE = 16  # of a normal
STEPS, PREDICTED_NUMBERS = 512, 2**16  # of a chain's normals that are drawn at once, at most
DENSE = 80  # of a number of a dense matrix
AT_WORK = 32  # of a row whose gradient is taken, in each chain


def predicted(problem: Problem, setup: Setup, kept: int | None = None) -> Predicted:
    """Of a run whose rows are in the setup's batches; `kept` as for `predicted_bytes`."""
    d, N, chains = problem.dimension, problem.num_data, setup.num_chains
    steps = setup.steps()
    whole, metric = gradient_price(problem), 0.0
    if type(setup.preconditioner).__name__ == "Dense":
        metric = 2 * METRIC * d**2
    exact = isinstance(setup.gradient, Full) or not N
    times, price, rows = 1.0, whole, max(1, N)
    if isinstance(setup.sampler, (HMC, ConfinedHMC)):
        times = float(setup.sampler.leapfrogs) / 2 + 1.5
        guide = getattr(setup.gradient, "guide", None)
        if guide is not None:
            times = ENDS + times * len(guide.numbers) / N
        times = max(2.0, times)
    elif not exact:
        rows = setup.batch_size or N
        one = row_price(problem) + FETCHED * problem.source.row_width
        # differences from a centre, or a table, take the batch's gradients there, too
        rows *= 1 if type(setup.gradient).__name__ == "Minibatch" else 2
        price = Price(max(0.0, whole.each - N * row_price(problem)) + rows * one, whole.shared)
    injected = NORMAL if setup.noise == "normal" else COUNTED
    noise = injected * d * getattr(setup.sampler, "num_noises", 1)
    each = STEP + noise + times * (price.each + metric)
    seconds = steps * (SHARED + times * price.shared + chains * each)
    seconds += JUDGED * chains * setup.num_draws * (d if kept is None else kept)
    gradients = float(chains * steps * times * rows)
    return Predicted(gradients, seconds, predicted_bytes(problem, setup, kept))


def predicted_bytes(problem: Problem, setup: Setup, kept: int | None = None) -> int:
    """Peak resident memory of a run, its verdict included.

    `kept`: the numbers that a draw leaves, those of the position if None; 0 where only moments are.
    """
    d, N, chains = problem.dimension, problem.num_data, setup.num_chains
    held = problem.has_rows and not problem.rows_on_disk
    rows = N * problem.source.row_width * 4 if held else 0
    draws = draws_bytes(chains, setup.num_draws, d if kept is None else kept)
    batch = N if isinstance(setup.gradient, Full) else setup.batch_size or 0
    table = 4 * N * d if isinstance(setup.gradient, SAGA) and setup.gradient.features is None else 0
    noise = NOISE * max(d, min(STEPS * d, PREDICTED_NUMBERS))
    each = noise + AT_WORK * (batch + d) + table
    dense = DENSE * d**2 if type(setup.preconditioner).__name__ == "Dense" else 0
    return BASE + ROWS * rows + draws + chains * each + dense
