"""Predicted costs of a run: per effective draw, of exact chains, in memory, and in total; lengths.

Choice of estimator, batch and order: by their predicted cost per effective draw.

Ensembles of exact chains: their cost is predicted in counted operations, and determines how many
chains there are. A leapfrog of C chains takes their gradients, whose cost is counted in the model's
jaxpr, and for each chain two products with the metric's factor:

    seconds = shared + C (each + 2 METRIC_SECONDS d^2)

If trajectories follow a guide of some rows, a leapfrog takes their share of that, and the end of
the trajectory END_GRADIENTS of all rows.

No clock is read when a plan is made. Chains adapt their metric from one another, and fewer chains
adapt a worse one (16 on a Gaussian process of 53 parameters took twice the seconds of 64, and some
diverged): fewer are used only if 64 are not affordable.

Memory of a run: predicted from the request before any computation, and again from its plan.

    bytes = KEPT_BYTES draws chains d + CARRIED_BYTES chains d

A draw's number is held as a position, a gradient and a reported value, and again in float64 for the
verdict, in parts for more than a thousand parameters. The constants were measured at the peak.

Totals of a plan: gradients, seconds and memory, counted from the plan's own numbers. A chain's step
takes the gradient of its rows, normals and the metric's products, whose costs are as in
`model.cost`,

    seconds = steps (STEP_SECONDS + shared + chains (CHAIN_STEP_SECONDS + rows row_cost +
    NORMAL_SECONDS d + 2 METRIC_SECONDS d^2))

and a trajectory takes as many gradients of all rows as it has leapfrogs. The constants of bytes are
resident memory of runs of 10^5 to 10^7 kept numbers and of tables of 10 to 50 MiB. All were
measured once; no clock is read.

Lengths of a run: burn-in, thinning and draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...approximation.gradient_noise import Level, Levels
from ...core.devices import check_memory
from ...data.source import Source
from ...errors import UsageError
from ...model.cost import Cost, gradient_cost, row_cost
from ...model.problem import Problem, Request, is_auto
from ...results.plan import Plan, Predicted, Setup
from ...samplers.confined_hmc import ConfinedHMC
from ...samplers.gradients.control_variates import ControlVariates, is_centred
from ...samplers.gradients.full import Full, Minibatch, goes_by_tiles
from ...samplers.gradients.saga import SAGA
from ...samplers.hmc import HMC
from ...samplers.sgld import SGLD
from ...samplers.stationary import Law, largest_step, of_sampler
from .ensemble import ENSEMBLE_CHAINS, TRAJECTORIES
from .parts import sampler_of

FETCH_SECONDS = 5e-10  # seconds per number of a row that is read from the table
# chains that take gradients of a large table together: a step of each at 20,000 x 1,000 takes 3.4 ms with 4 chains,
# 1.3 with 16, 1.1 with 32, .7 with 64; only if the posterior is nearly Gaussian, as each chain is short
SHARING_CHAINS, MAX_MANY_CHAINS_NU = 64, 0.3

STEP_OVERHEAD_ROWS = 32  # rows whose gradients cost as much as a step's fixed part
# largest step under noise correction, in units of the posterior; .15 would take 1.75 times the steps
MAX_CORRECTED_STEP = 0.3
# the same with exact gradients near a Gaussian, and the largest relative error of an sd for it
MAX_EXACT_STEP, MAX_SD_ERROR = 0.8, 0.025
MAX_STABLE_STEP = 0.5  # largest step times the deviation of a batch's curvature from all rows'
MAX_ROW_THROW_SDS = 3.0  # sds by which the largest row of a batch may move a chain in a step
MAX_COST_RATIO = 0.9  # largest ratio of the cost with rows in every batch to that without


@dataclass(frozen=True)
class Choice:
    """An estimator on batches, and its cost."""

    gradient: Any
    batch_size: int
    order: str
    corrected: bool
    cost: float
    noise: float = 0.0  # variance of the gradient in the noisiest direction
    longest: float = np.inf  # largest step, whatever the noise
    always: int = 0  # number of rows with the largest gradients that are in every batch
    chains: int = 0  # number of chains, 0: as usual


class Together(NamedTuple):
    """How chains take gradients of all rows together.

    chains: how many (0: the usual number); row: cost of a row to them, over that of a row in a
    chain's own batch; step: the largest step under noise correction.
    """

    chains: int = 0
    row: float = 1.0
    step: float = MAX_CORRECTED_STEP


def together(problem: Problem, ask: Request, nu: float, bias: float) -> Together:
    """Return how chains share a large table in memory, which matrix products read once for all.

    A row costs a chain row_cost + FETCH_SECONDS width if it reads the row by itself, and row_cost
    + FETCH_SECONDS width / chains if all chains share it. With an exact gradient a corrected step h
    whitens to the variance 1 + h (E U'' - 1) / 2, U'' the curvature over the metric's, and (E U'' -
    1)^2 is at most nu: the sd is within `bias` up to h = 4 bias / nu^{1/2}. There are many chains
    if no lengths were requested.
    """
    if problem.mesh is not None or not goes_by_tiles(Full(), problem):
        return Together()
    most = 4 * min(bias, MAX_SD_ERROR) / np.sqrt(max(nu, 1e-12))
    step = float(np.clip(most, MAX_CORRECTED_STEP, MAX_EXACT_STEP))
    lengths = (ask.num_chains, ask.num_draws, ask.burn_in, ask.thin)
    many = all(map(is_auto, lengths)) and ask.max_steps is None and ask.max_seconds is None
    many = many and type(sampler_of(ask)) is SGLD and nu < MAX_MANY_CHAINS_NU
    chains = SHARING_CHAINS if many else ask.chains()
    own, fetched = row_cost(problem), FETCH_SECONDS * problem.source.row_width
    return Together(SHARING_CHAINS if many else 0, (own + fetched / chains) / (own + fetched), step)


def cheapest_choice(
    source: Source, levels: tuple[Levels, Levels], ask: Request, correctable: bool, bias: float, T: float,
    longest: float = np.inf, whole: Together = Together(),
) -> Choice:  # fmt: skip
    """Return the cheapest of control variates, plain minibatches and full gradients, per draw.

    `levels` of plain and of centred gradients are computed on demand: rows are put into every batch
    as long as that may pay. `longest` is the largest step, whatever the noise. `whole` says how
    full gradients are taken.
    """
    N, sampler = source.num_data, sampler_of(ask)
    given = None if is_auto(ask.gradient) else ask.gradient

    def priced(gradient: Any, n: int, order: str, level: Level, correctable: bool) -> Choice:
        """Return the cost in rows per effective draw, on a one-dimensional whitened target."""
        share = 1 / n - 1 / N
        V, thrown = level.variance * share, MAX_ROW_THROW_SDS * n / max(level.size, 1e-12)
        most = min(longest, MAX_STABLE_STEP / max(level.curved * share, 1e-12), thrown)
        period = -(-N // n) if order in ("reshuffle", "symmetric") else 1
        corrected = correctable and period == 1
        if corrected:
            most = min(most, whole.step if isinstance(gradient, Full) else MAX_CORRECTED_STEP)
            rate = min(most, corrected_step(V, T))
        else:
            one = np.ones((1, 1))
            law = of_sampler(Law(np.ones(1), one, V * one, one, period), sampler)
            assert law is not None  # the caller refuses a sampler without one
            rate = law.rate(min(most, largest_step(law, bias, T)))
        rows, chains = n + level.always, 0
        if isinstance(gradient, Full):
            rows, chains = n * whole.row, whole.chains
        cost = (rows + STEP_OVERHEAD_ROWS) * (2 - rate) / rate
        return Choice(gradient, n, order, corrected, cost, V, most, level.always, chains)

    exact, best = Level(), None
    sizes = [N] if isinstance(given, Full) else [ask.batch_size]
    if is_auto(sizes[0]):
        sizes = [2**k for k in range(N.bit_length()) if 2**k < N] + [N]
    if sizes[-1] == N and (given is None or isinstance(given, Full)):
        best = priced(given or Full(), sizes.pop(), "reshuffle", exact, correctable)
    if not sizes:
        assert best is not None
        return best
    kinds = []
    if given is None or is_centred(given):
        order = "independent" if is_auto(ask.order) else ask.order
        kinds.append((given or ControlVariates(), order, levels[1], correctable))
    if given is None or not kinds:
        order = "reshuffle" if is_auto(ask.order) else ask.order
        kinds.append((given or Minibatch(), order, levels[0], False))
    for gradient, order, of, may in kinds:
        fixed = sizes[0] + STEP_OVERHEAD_ROWS
        each = priced(gradient, sizes[0], order, exact, may).cost / fixed
        for level in of():
            limit = (
                np.inf if best is None else best.cost * (MAX_COST_RATIO if level.always else 1.0)
            )
            if (fixed + level.always) * each >= limit:
                break
            may_pay = [n for n in sizes if (n + level.always + STEP_OVERHEAD_ROWS) * each < limit]
            found = min((priced(gradient, n, order, level, may) for n in may_pay), key=_cost)
            if found.cost < limit:
                best = found
    assert best is not None
    return best


def _cost(choice: Choice) -> float:
    return choice.cost


def corrected_step(largest_noise: float, T: float) -> float:
    """Return the step that noise correction allows, by the noise of the noisiest direction."""
    return 0.8 * T / (T + largest_noise)


# -- exact chains --------------------------------------------------------------------------


METRIC_SECONDS = 1.5e-11  # seconds of a multiplication and addition
EXACT_DRAWS = 12_800  # draws of all chains together, before a run is prolonged: 200 each of 64
# largest multiple of these draws, of their numbers, and of their seconds, for a cheap model
MAX_EXACT_GROWTH, MAX_EXACT_NUMBERS, MAX_SHORT_SECONDS = 4, 2**20, 2.0
# predicted seconds up to which exact chains are tried first, if another method might do
MAX_CHEAP_SECONDS = 5.0
EXACT_SECONDS = 60.0  # the same if no other method would
END_GRADIENTS = 2.0  # cost in gradients of log p at the end of a trajectory: softplus
REDUCED_CHAINS, REDUCED_DRAWS = 16, 3_840  # if the usual ones would exceed EXACT_SECONDS


class Exact(NamedTuple):
    """Number of chains, draws of each, and the predicted seconds of warm-up and draws."""

    chains: int
    draws: int
    seconds: float


def exact_chains(price: Cost, dimension: int, share: float = 1.0) -> Exact:
    """Return chains and draws for a gradient of this cost, of which a guide follows `share`.

    There are more draws if they cost next to nothing, to detect heavy tails: for Student's t with
    2.5 degrees of freedom 2 of 6 runs of 12,800 draws seemed to have light tails, 1 of 10 of
    51,200.
    """
    one = trajectory_seconds(price, dimension, ENSEMBLE_CHAINS)
    affordable = min(MAX_EXACT_NUMBERS // dimension, MAX_SHORT_SECONDS / one * ENSEMBLE_CHAINS)
    draws = (
        int(min(max(affordable, EXACT_DRAWS), MAX_EXACT_GROWTH * EXACT_DRAWS)) // ENSEMBLE_CHAINS
    )
    if (TRAJECTORIES + EXACT_DRAWS / ENSEMBLE_CHAINS) * one <= EXACT_SECONDS:
        return Exact(ENSEMBLE_CHAINS, draws, (TRAJECTORIES + draws) * one)
    draws = REDUCED_DRAWS // REDUCED_CHAINS
    one = trajectory_seconds(price, dimension, REDUCED_CHAINS)
    if share < 1:
        one *= share + END_GRADIENTS / (5 * dimension**0.25)
    return Exact(REDUCED_CHAINS, draws, (TRAJECTORIES + draws) * one)


def trajectory_seconds(price: Cost, dimension: int, chains: int) -> float:
    """Return the seconds of one trajectory of every chain, 5 d^{1/4} leapfrogs.

    The step that is accepted falls as d^{-1/4}, and posteriors far from Gaussian take a few times
    as many leapfrogs as a Gaussian.
    """
    d = dimension
    return 5 * d**0.25 * (price.seconds(chains) + chains * 2 * METRIC_SECONDS * d**2)


# -- memory --------------------------------------------------------------------------------


# bytes per number of a draw; the same for more numbers per draw than WIDE_NUMBERS
KEPT_BYTES, WIDE_BYTES, WIDE_NUMBERS = 112, 40, 1000
CARRIED_BYTES = 80.0  # bytes per number of a chain's position: starts, carry, transfers
MIN_DRAWS_PER_CHAIN = 20  # least draws of a chain, for any request
MIN_CHAINS = 4


def draws_bytes(num_chains: int, num_draws: int, width: int) -> int:
    """Return the bytes of the draws at the peak, of `width` kept numbers each."""
    return (KEPT_BYTES if width <= WIDE_NUMBERS else WIDE_BYTES) * num_chains * num_draws * width


def check_asked(problem: Problem, ask: Request, kept: int | None = None) -> None:
    """Raise UsageError if the request takes more memory than there is, whatever the plan."""
    chains = MIN_CHAINS if is_auto(ask.num_chains) else ask.num_chains
    draws = MIN_DRAWS_PER_CHAIN if is_auto(ask.num_draws) else ask.num_draws
    if ask.max_steps is not None:  # limits the draws
        draws = min(draws, ask.max_steps)
    check_planned(chains, draws, problem.dimension, kept)


def check_planned(num_chains: int, num_draws: int, dimension: int, kept: int | None = None) -> None:
    """Raise UsageError if a plan takes more memory than there is."""
    width = f"{dimension:,} parameter{'s' * (dimension != 1)}"
    if kept is not None:
        width = f"{kept:,} kept number{'s' * (kept != 1)}"
    check_memory(
        draws_bytes(num_chains, num_draws, dimension if kept is None else kept)
        + CARRIED_BYTES * num_chains * dimension,
        f"{num_chains:,} chains with {num_draws:,} draws each of {width}",
        "ask for fewer chains or draws, or keep less of a draw (keep=)",
    )


# -- predict -------------------------------------------------------------------------------


# seconds of a step: of all chains together, and of each
STEP_SECONDS, CHAIN_STEP_SECONDS = 5e-7, 1e-7
# seconds of a normal drawn, used and kept, and of a count of bits
NORMAL_SECONDS, BIT_COUNT_SECONDS = 6e-9, 3e-9
VERDICT_SECONDS = 6e-7  # seconds per kept number of a draw: ESS, R-hat, quantiles
INTERPRETER_BYTES = 380 * 2**20  # JAX, its compiled functions, the interpreter
ROW_COPIES = 6  # copies of the rows: the user's, shuffled, on the device, pieces at work
NORMAL_BYTES = 16  # bytes of a normal
# steps, and normals, of a chain that are drawn at once, at most
MAX_STEPS_OF_NORMALS, MAX_NORMALS_AT_ONCE = 512, 2**16
DENSE_BYTES = 80  # bytes per number of a dense matrix
ROW_GRADIENT_BYTES = 32  # bytes per row whose gradient is taken, in each chain


def predicted(problem: Problem, setup: Setup, kept: int | None = None) -> Predicted:
    """Predict gradients, seconds and bytes of a run whose rows are in the setup's batches.

    `kept` is as for `predicted_bytes`.
    """
    d, N, chains = problem.dimension, problem.num_data, setup.num_chains
    steps = setup.steps()
    whole, metric = gradient_cost(problem), 0.0
    if type(setup.preconditioner).__name__ == "Dense":
        metric = 2 * METRIC_SECONDS * d**2
    exact = isinstance(setup.gradient, Full) or not N
    times, price, rows = 1.0, whole, max(1, N)
    if isinstance(setup.sampler, (HMC, ConfinedHMC)):
        times = float(setup.sampler.leapfrogs) / 2 + 1.5
        guide = getattr(setup.gradient, "guide", None)
        if guide is not None:
            times = END_GRADIENTS + times * len(guide.numbers) / N
        times = max(2.0, times)
    elif not exact:
        rows = setup.batch_size or N
        one = row_cost(problem) + FETCH_SECONDS * problem.source.row_width
        # control variates and SAGA take the batch's gradients at a centre, or in a table, too
        rows *= 1 if type(setup.gradient).__name__ == "Minibatch" else 2
        price = Cost(max(0.0, whole.each - N * row_cost(problem)) + rows * one, whole.shared)
    injected = NORMAL_SECONDS if setup.noise == "normal" else BIT_COUNT_SECONDS
    noise = injected * d * getattr(setup.sampler, "num_noises", 1)
    each = CHAIN_STEP_SECONDS + noise + times * (price.each + metric)
    seconds = steps * (STEP_SECONDS + times * price.shared + chains * each)
    seconds += VERDICT_SECONDS * chains * setup.num_draws * (d if kept is None else kept)
    gradients = float(chains * steps * times * rows)
    return Predicted(gradients, seconds, predicted_bytes(problem, setup, kept))


def predicted_bytes(problem: Problem, setup: Setup, kept: int | None = None) -> int:
    """Return the peak resident memory of a run, including its verdict.

    `kept`: the numbers kept per draw (None: those of the position; 0 for moments).
    """
    d, N, chains = problem.dimension, problem.num_data, setup.num_chains
    held = problem.has_rows and not problem.rows_on_disk
    rows = N * problem.source.row_width * 4 if held else 0
    draws = draws_bytes(chains, setup.num_draws, d if kept is None else kept)
    batch = N if isinstance(setup.gradient, Full) else setup.batch_size or 0
    table = 4 * N * d if isinstance(setup.gradient, SAGA) and setup.gradient.features is None else 0
    noise = NORMAL_BYTES * max(d, min(MAX_STEPS_OF_NORMALS * d, MAX_NORMALS_AT_ONCE))
    each = noise + ROW_GRADIENT_BYTES * (batch + d) + table
    dense = DENSE_BYTES * d**2 if type(setup.preconditioner).__name__ == "Dense" else 0
    return INTERPRETER_BYTES + ROW_COPIES * rows + draws + chains * each + dense


# -- lengths -------------------------------------------------------------------------------


DEFAULT_DRAWS = 1000  # draws of each of four chains
# largest number of steps of a chain that the library takes by itself: of an unreliable plan, and of others
MAX_SHORT_RUN_STEPS, MAX_RUN_STEPS = 10**5, 10**8
# least steps, and largest rows x steps, if an optimiser chose the starts
MIN_OPTIMISED_STEPS, MAX_ROW_STEPS = 2000, 2**26
# largest number of draws, and number to which max_steps reduces thinning
MAX_PLANNED_DRAWS, MIN_THINNED_DRAWS = 10**5, 50
# share that a step forgets from which every step is a draw: .84 independent draws for a variance
MIN_FORGET_SHARE = 0.7
MIN_BURN_IN = 1000  # least burn-in of an adaptive preconditioner


def with_lengths(plan: Plan, ask: Request) -> Plan:
    """Return the plan with burn-in, thinning and draws."""
    setup = plan.setup
    num_chains = ask.chains(setup.num_chains or (ENSEMBLE_CHAINS if setup.exact else 4))
    if setup.exact:
        return replace(
            plan, setup=replace(setup, num_chains=num_chains, **_exact(plan, ask, num_chains))
        )
    rate = _rate(plan, ask.tolerance)
    # a plan without a promised accuracy does not justify billions of steps
    longest = (
        MAX_SHORT_RUN_STEPS if plan.known.hopeless or setup.starts is not None else MAX_RUN_STEPS
    )
    if setup.starts is not None and setup.batch_size is not None:
        longest = max(MIN_OPTIMISED_STEPS, min(longest, MAX_ROW_STEPS // setup.batch_size))
    if plan.law is not None and not is_auto(ask.step_size) and ask.max_steps is None:
        _check_long(ask, rate)
    burn_in = min(longest, _whole(6 / rate)) if is_auto(ask.burn_in) else int(ask.burn_in)
    if is_auto(ask.burn_in) and setup.preconditioner.adapts:
        burn_in = max(burn_in, MIN_BURN_IN)
    if not is_auto(ask.thin):
        thin = int(ask.thin)
    elif is_auto(ask.step_size):
        apart = 1 if rate >= MIN_FORGET_SHARE else _whole(1 / rate)
        thin = max(1, min(longest // DEFAULT_DRAWS, apart))
    else:
        thin = 1
    num_draws = ask.num_draws
    if is_auto(num_draws):
        decay = (1 - min(rate, 1.0)) ** (2 * thin)
        needed = 2 / ask.tolerance**2 * (1 + decay) / (1 - decay) / num_chains
        least = 4 * DEFAULT_DRAWS // num_chains if is_auto(ask.num_chains) else DEFAULT_DRAWS
        num_draws = max(least, _whole(min(1.25 * needed, MAX_PLANNED_DRAWS)))
        if plan.law is None or not is_auto(ask.step_size):
            num_draws = least
    if ask.max_steps is not None:
        if is_auto(ask.burn_in):
            burn_in = min(burn_in, ask.max_steps // 4)
        if is_auto(ask.thin):
            thin = max(1, min(thin, (ask.max_steps - burn_in) // MIN_THINNED_DRAWS))
        room = 1 + (ask.max_steps - burn_in - 1) // thin
        if not isinstance(ask.num_draws, str) and room < ask.num_draws:
            plan = plan.with_notes(
                f"max_steps = {ask.max_steps} leaves {room} of {num_draws} draws per chain."
            )
        num_draws = min(num_draws, room)
    setup = replace(
        setup, burn_in=burn_in, thin=thin, num_draws=int(num_draws), num_chains=num_chains
    )
    return replace(plan, setup=setup)


def _whole(steps: float) -> int:
    """Return steps rounded up, except for rounding errors, so the last bit decides nothing."""
    return math.ceil(steps * (1 - 1e-6))


def _check_long(ask: Request, rate: float) -> None:
    """Raise UsageError if a manual step would take more steps than the library takes by itself."""
    if is_auto(ask.burn_in) and 6 / rate > MAX_RUN_STEPS:
        raise UsageError(
            f"step_size is so small that burn-in alone would take {6 / rate:.1e} steps or more, above the default limit "
            f"of {MAX_RUN_STEPS:,}; give a larger step_size, or burn_in or max_steps to run it nevertheless."
        )


def _exact(plan: Plan, ask: Request, num_chains: int) -> dict[str, int]:
    """Return the lengths of chains that have already settled: every trajectory is a draw."""
    burn_in = plan.setup.burn_in if is_auto(ask.burn_in) else int(ask.burn_in)
    thin = 1 if is_auto(ask.thin) else int(ask.thin)
    if is_auto(ask.num_draws):
        planned = plan.setup.num_chains * plan.setup.num_draws or EXACT_DRAWS
        num_draws = max(MIN_THINNED_DRAWS, planned // num_chains)
    else:
        num_draws = int(ask.num_draws)
    if ask.max_steps is not None:
        num_draws = min(num_draws, 1 + (ask.max_steps - burn_in - 1) // thin)
    return {"burn_in": burn_in, "thin": thin, "num_draws": num_draws}


def _rate(plan: Plan, tolerance: float) -> float:
    """Return the share that a step forgets in the slowest direction."""
    if plan.law is not None:
        return max(plan.law.rate(float(plan.setup.step_size(0))), 1e-12)
    # without a stationary distribution the step is `tolerance` of the stiffest direction's time scale
    return tolerance / 10 if plan.rate is None else plan.rate
