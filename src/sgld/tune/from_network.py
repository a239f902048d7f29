"""The plan of a network: from where optimisers end, by kinetic Langevin dynamics, judged by predictions.

A network's posterior has no mode that stands for it, and its curvature at one is of no use. Every
chain begins where an optimiser of its own ended and takes a few short stages, after each of which

    D      1 / (diagonal of the empirical Fisher information + curvature of the prior), of all chains
    V_l    variance of a batch's gradient in D per parameter of layer l, from a few batches
    delta  min(2 gamma tau / max_l V_l, sqrt(f / lambda_1)),    h = delta^2

are measured where the chains are; then they are frozen. tau is the kinetic temperature that gradient
noise may add (2 tolerance), lambda_1 the largest curvature in D, gamma BAOA's friction. SGLD's
temperature is 1 + h V / 2. Where all rows are affordable at every step there is no noise.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..deadline import past
from ..device import sent, stream_key
from ..draws.plan import Plan
from ..draws.setup import Setup
from ..errors import UsageError
from ..gaussian.known import Known
from ..gaussian.mode import FEW
from ..gaussian.noise import TUNING
from ..gradient.full import Full
from ..mesh import agreed
from ..pace import Work
from ..preconditioner.fixed import Diagonal
from ..probe.directions import stiffest
from ..probe.layers import FEWEST_ENTRIES, Layers
from ..problem.operations import gradient_price, row_price
from ..problem.problem import Problem
from ..problem.request import Request, is_auto
from ..problem.rows import row_gradient
from ..sampler.baoa import BAOA
from ..sampler.sgld import SGLD
from ..schedule import as_schedule
from ..stages import stage
from .estimator import no_step, plain_batches, prepared
from .from_optimisers import optimised
from .metric import settled

__all__ = [
    "FISHER_ROWS",
    "affordable",
    "batch_price",
    "curvature_rows",
    "fisher",
    "from_network",
    "is_network",
    "most_draws",
    "most_kept",
    "moved",
    "network_lengths",
    "optimiser_ends",
    "other_starts_affordable",
    "tuned",
]

FULL_SECONDS, FULL_STEPS = 30.0, 20_000  # predicted, of so many full gradients of every chain
OPTIMISER_SECONDS, MOST_PASSES, FEWEST_STEPS, MOST_STEPS = 20.0, 60, 500, 20_000
UPDATED = 7e-9  # seconds of a number that an optimiser or a sampler moves, noise included
# of max_seconds: what optimisers and stages are predicted to take at most, and what they and both may by the clock
OPTIMISER_SHARE, STAGE_SHARE, OPTIMISED_BY, TUNED_BY = 1 / 6, 1 / 20, 0.3, 0.5
ARRIVING = 1500  # steps in which starts a prior's sd away come to the mode: after 500 one was 4 posterior sds off
STAGES, STAGE_STEPS, STAGE_SECONDS = 4, 250, 4.0
CAUTION = 0.25  # of h, after a stage in which chains did not stay finite
TRIALS = 4  # of the last h
STABLE = 0.5  # f = delta^2 lambda_1
BATCHES = 20  # of which V_l is measured
FISHER_ROWS, CURVATURE_ROWS, FEWEST_ROWS = 1024, 1024, 64
# rows x parameters of the rows that are looked at
FISHER_NUMBERS, CURVATURE_NUMBERS = 2**26, 2**25
PIECE = 2**20  # numbers of gradients of single rows that are held together
# in units of delta: a parameter forgets itself after 2 or so in the best of metrics
# (of what a run comes to, a third is left out as burn-in)
BURN_IN, SPAN, DRAWS = 30.0, 270.0, 750
RUN_SECONDS = 30.0  # predicted, of burn-in and draws as planned
RUN_SHARE, LEAST_STEPS = 0.15, 200  # of max_seconds, that they may; and what they are nevertheless
GROWTH = 64  # times the planned draws, that a run is prolonged to
SHARED = 5e-6  # seconds of a step, whatever the model
PROBE_SHARE = 0.05  # of a run's gradients, that predictions at draws may cost
MOST_NUMBERS, FEWEST_DRAWS = 2**26, 50  # of all kept positions; draws of a chain
# where there is time to use up: times the planned draws that memory has room for, and draws planned at least
ROOM, FEWEST_PLANNED = 8, 28
OTHER_STARTS, FEWEST_STARTS = 12, 4  # chains that a run's predictions are held against
OTHERS_LEAST = 30.0  # max_seconds, of which the verdict's share is enough to compile them
OTHERS_SHARE = 0.2  # of the seconds of a run, and half of that of max_seconds, that they may take
PREDICTED = 1024  # numbers beside the position that a draw has, about


def is_network(problem: Problem) -> bool:
    """Whether predictions are what a run is judged by: the posterior knows them, and there are rows."""
    return problem.has_rows and problem.posterior.predict is not None


def is_like_one(problem: Problem, known: Known) -> bool:
    """Whether a mode was looked for in vain among many parameters, some of them matrices, and there are rows."""
    matrices = any(len(shape) > 1 for shape in problem.layout.shapes)
    return problem.has_rows and problem.dimension > FEW and matrices and not known.usable


def from_network(problem: Problem, ask: Request) -> Plan:
    """Metric, step and batches from where optimisers end; `problem` holds all rows as one batch.

    Raises UsageError for a sampler whose step has no rule here.
    """
    if not is_auto(ask.gradient) and ask.gradient.remembers:
        raise UsageError(
            f"step_size must be given with {type(ask.gradient).__name__} for a network; or use sgld.Minibatch() or "
            "sgld.Full()."
        )
    if not has_rule(ask):
        raise no_step(ask)
    sampler = BAOA() if is_auto(ask.sampler) else ask.sampler
    if isinstance(sampler, SGLD) and is_auto(sampler.noise_correction):
        sampler = SGLD(noise_correction=None)
    whole, chains = problem, ask.chains()
    gradient, problem = plain_batches(problem, ask)
    ends = optimiser_ends(problem, ask)
    if is_auto(ask.gradient) and is_auto(ask.batch_size) and affordable(whole, chains):
        gradient, problem = Full(), whole
    gradient = prepared(gradient, problem, ends[0])
    T = float(as_schedule(ask.temperature, "temperature", zero=True)(0))
    with stage("step size"):
        found = tuned(problem, ask, sampler, gradient, ends, T)
    setup = Setup(
        sampler, gradient, found.D, as_schedule(found.h, "step_size"), *problem.batches,
        starts=np.asarray(found.z, np.float64), predictions=True,
    )  # fmt: skip
    return Plan(setup, num_data=problem.num_data)


def optimiser_ends(problem: Problem, ask: Request) -> np.ndarray:
    """Where chains of a network begin, [chain, d]."""
    small = problem.with_batches(min(100, problem.num_data), "reshuffle")
    start = np.asarray(problem.start, np.float64)
    # a weight alone, or a layer that begins at 0, would be the same in all
    width = np.asarray(_prior_curvature(problem, small.start), np.float64) ** -0.5
    return optimised(
        small, ask, start, _passes(small, ask), np.minimum(width, 1.0), past(OPTIMISED_BY)
    )


@jax.jit
def _prior_curvature(problem: Problem, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """Its diagonal, where a prior's Hessian has no other entries."""
    slope, change = jax.jvp(jax.grad(problem.log_prior), (z,), (jnp.ones_like(z),))
    # where a prior is not convex, as in heavy tails, or has a kink, its slope says how wide it is
    found = jnp.where(-change > 1e-6, -change, slope**2)
    return jnp.where(jnp.isfinite(found), jnp.maximum(found, 1e-6), 1.0)


def other_starts_affordable(problem: Problem, ask: Request, steps: int) -> int:
    """How many chains from other starts are, each of so many steps after the stages; 0 where too few are."""
    if ask.max_seconds is not None and ask.max_seconds < OTHERS_LEAST:
        return 0
    small = problem.with_batches(min(100, problem.num_data), "reshuffle")
    optimiser = _passes(small, ask) * small.source.batch_size * row_price(problem)
    step = small.source.batch_size * row_price(problem)
    if affordable(problem, ask.chains()):
        step = gradient_price(problem).each
    seconds = OTHERS_SHARE * min(RUN_SECONDS, (ask.max_seconds or np.inf) / 2)
    count = int(min(OTHER_STARTS, seconds / (optimiser + (STAGES * STAGE_STEPS + steps) * step)))
    return count if count >= FEWEST_STARTS else 0


def has_rule(ask: Request) -> bool:
    """Whether the step of the sampler asked for follows from temperatures, and its estimator forgets."""
    forgets = is_auto(ask.gradient) or not ask.gradient.remembers
    return forgets and (is_auto(ask.sampler) or isinstance(ask.sampler, (BAOA, SGLD)))


def affordable(problem: Problem, chains: int) -> bool:
    """Whether full gradients are, for long enough chains."""
    return chains * FULL_STEPS * gradient_price(problem).each <= FULL_SECONDS


def _passes(problem: Problem, ask: Request) -> int:
    """Steps of an optimiser, by the price of a step."""
    seconds = min(OPTIMISER_SECONDS, OPTIMISER_SHARE * (ask.max_seconds or math.inf))
    price = problem.source.batch_size * row_price(problem) + UPDATED * problem.dimension
    steps = min(seconds / (ask.chains() * price), max(MOST_PASSES * problem.num_blocks, ARRIVING))
    return int(np.clip(steps, FEWEST_STEPS, MOST_STEPS))


class Tuned(NamedTuple):
    z: Array  # [chain, d], where the chains are
    D: Any
    h: float


def tuned(
    problem: Problem, ask: Request, sampler: Any, gradient: Any, ends: np.ndarray, T: float
) -> Tuned:
    """Short stages, each with the metric and the step that were measured where the last one ended."""
    z, h, D, caution, until = problem.array(ends), 0.0, None, 1.0, past(TUNED_BY)
    price = len(ends) * _step_price(problem, gradient, problem.source.batch_size)
    seconds = min(STAGE_SECONDS, STAGE_SHARE * (ask.max_seconds or math.inf))
    steps = int(np.clip(seconds / price / STAGES, 20, STAGE_STEPS))
    for number in range(STAGES + 1):
        D = _metric(problem, ask, z)
        h = caution * step_size(problem, sampler, gradient, settled(D, problem, z[0]), z, ask)
        if number == STAGES or agreed(time.monotonic() > until):
            break
        matrix = settled(D, problem, z[0])
        new = moved(problem, ask, sampler, gradient, matrix, z, h, T, (number, steps))
        lost = ~jnp.all(jnp.isfinite(new), axis=1)
        if bool(lost.any()):  # curvature is larger where they went: the stage goes for nothing
            caution *= CAUTION
        z = jnp.where(lost[:, None], z, new)
    matrix = settled(D, problem, z[0])
    for _ in range(TRIALS):  # chains that move there, and stay where they were
        end = moved(problem, ask, sampler, gradient, matrix, z, h, T, (STAGES, steps))
        if bool(jnp.isfinite(end).all()):
            break
        h *= CAUTION
    return Tuned(z, D, h)


def _step_price(problem: Problem, gradient: Any, batch_size: int | None) -> float:
    """Predicted seconds of one chain's step; the problem may hold its rows in any batches."""
    return batch_price(problem, gradient, batch_size) + UPDATED * problem.dimension


def batch_price(problem: Problem, gradient: Any, batch_size: int | None) -> float:
    """Predicted seconds of a step's gradient alone."""
    if isinstance(gradient, Full) or batch_size is None:
        return gradient_price(problem).each
    return batch_size * row_price(problem)


def _metric(problem: Problem, ask: Request, zs: Array) -> Any:
    """D as asked for, or the diagonal of the chains' average."""
    if not is_auto(ask.preconditioner):
        return ask.preconditioner.prepare(problem.layout)
    rows = min(problem.num_data, FISHER_ROWS, max(FEWEST_ROWS, FISHER_NUMBERS // problem.dimension))
    share = -(-rows // len(zs))  # rows of its own for every chain
    each = [
        np.asarray(fisher(problem, z, sent(k * share, np.int32), rows=share))
        for k, z in enumerate(zs)
    ]
    squares = np.mean(each, axis=0)
    return Diagonal(1 / np.maximum(squares, 1e-8)).prepare(problem.layout)


@jax.jit(static_argnames="rows")
def fisher(
    problem: Problem, z: Float[Array, " d"], first: Array, *, rows: int
) -> Float[Array, " d"]:
    """Diagonal of the empirical Fisher information plus the prior's curvature.

    Of so many rows from the `first` on, scaled up; past the last row they begin again.
    """
    prior = _prior_curvature(problem, z)
    together = min(rows, max(1, PIECE // z.size))

    def add(i: Array, total: Array) -> Array:
        places = i * together + jnp.arange(together, dtype=jnp.int32)
        numbers = (first + places) % problem.num_data
        g = jax.vmap(lambda row: row_gradient(problem, z, row))(numbers)
        return total + jnp.sum(jnp.where((places < rows)[:, None], g**2, 0), axis=0)

    turns = jnp.int32(-(-rows // together))
    squares = jax.lax.fori_loop(jnp.int32(0), turns, add, jnp.zeros_like(z))
    return prior + squares * (problem.num_data / rows)


def curvature_rows(problem: Problem) -> int:
    """Rows on which the stiffest directions are looked for."""
    most = min(CURVATURE_ROWS, CURVATURE_NUMBERS // problem.dimension)
    return min(problem.num_data, max(FEWEST_ROWS, most))


def step_size(
    problem: Problem, sampler: Any, gradient: Any, D: Any, zs: Array, ask: Request
) -> float:
    """The largest h that noise and curvature allow where the chains are."""
    _, stiff = stiffest(problem, D, zs, count=2, rows=curvature_rows(problem))
    longest = STABLE / max(1e-12, float(jnp.max(stiff)))
    allowed = 2 * ask.tolerance
    V = _noise(problem, gradient, D, zs, ask.seed)
    if isinstance(sampler, SGLD):
        return min(2 * allowed / max(V, 1e-12), allowed * longest)
    return min((2 * float(sampler.friction) * allowed / max(V, 1e-12)) ** 2, longest)


def _noise(problem: Problem, gradient: Any, D: Any, zs: Array, seed: int) -> float:
    """V of the noisiest layer of those that are looked at."""
    if isinstance(gradient, Full):
        return 0.0
    entries = sent(problem.source.chunk((seed, 2**31 - 3), 0, BATCHES))
    layers = Layers.of(problem.layout)
    V = np.asarray(_layer_noise(problem, gradient, D, zs, entries, layers.sizes)).mean(axis=0)
    large = np.array(layers.sizes) >= min(FEWEST_ENTRIES, max(layers.sizes))
    return float(V[large].max())


@jax.jit(static_argnames="sizes")
def _layer_noise(
    problem: Problem, gradient: Any, D: Any, zs: Array, entries: Array, sizes: tuple[int, ...]
) -> Float[Array, "chain layer"]:
    layers = Layers(("",) * len(sizes), sizes)

    def one(z: Array) -> Array:
        white = lambda x: D.pullback(gradient.at(problem, x)(z))  # noqa: E731

        def add(sums: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], None]:
            g = white(x)
            return (sums[0] + g, sums[1] + g**2), None

        zero = jnp.zeros_like(z)
        (total, squares), _ = jax.lax.scan(add, (zero, zero), entries)
        mean = total / BATCHES
        return layers.means((squares - BATCHES * mean**2) / (BATCHES - 1))

    return jax.lax.map(one, zs)


def moved(
    problem: Problem, ask: Request, sampler: Any, gradient: Any, D: Any, z: Array, h: float,
    T: float, stretch: tuple[int, int],
) -> Array:  # fmt: skip
    """Where the chains are after the steps of a stage, whose number and length `stretch` holds."""
    number, steps = stretch
    begin, state = number * steps, jax.vmap(sampler.init)(z)
    key = jax.random.fold_in(stream_key(ask.seed, TUNING), number)
    numbers = problem.array(h), problem.array(T)
    with Work("optimising") as work:
        for first, count in work.pieces(begin, begin + steps, most=64, of=STAGES * steps):
            entries = None
            if not isinstance(gradient, Full):
                chunks = [problem.source.chunk((ask.seed, 2**30 + c), first, count) for c in range(len(z))]  # fmt: skip
                padded = np.zeros((64, len(z), *problem.source.entry_shape), np.int32)
                padded[:count] = np.stack(chunks, axis=1)
                entries = sent(padded)
            state = _advanced(
                problem, sampler, gradient, D, state, entries, numbers, key, sent(first, np.int32),
                sent(count, np.int32),
            )  # fmt: skip
            jax.block_until_ready(state)
    return state.position if hasattr(state, "position") else state


@jax.jit
def _advanced(
    problem: Problem, sampler: Any, gradient: Any, D: Any, state: Any, entries: Any,
    numbers: tuple[Array, Array], key: Any, first: Array, count: Array,
) -> Any:  # fmt: skip
    h, T = numbers

    def one(i: Array, state: Any) -> Any:
        xi = jax.random.normal(jax.random.fold_in(key, first + i), state.position.shape, h.dtype)
        x = None if entries is None else entries[i]

        def step(state: Any, x: Any, xi: Array) -> Any:
            estimate = gradient.at(problem, x)
            return sampler.step(state, estimate, h, xi, preconditioner=D, temperature=T)

        return jax.vmap(step, in_axes=(0, None if x is None else 0, 0))(state, x, xi)

    return jax.lax.fori_loop(jnp.int32(0), count, one, state)


def network_lengths(plan: Plan, problem: Problem, ask: Request) -> Plan:
    """Burn-in and span by the step and the price of one, thinning by what predictions cost."""
    setup, chains = plan.setup, ask.chains()
    h = float(setup.step_size(0))
    rate = h if isinstance(setup.sampler, SGLD) else math.sqrt(h)
    price = SHARED + chains * _step_price(problem, setup.gradient, setup.batch_size)
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
    return min(most, max(FEWEST_PLANNED, _held(problem, ask.chains()) // ROOM))


def _held(problem: Problem, chains: int) -> int:
    """Draws of a chain for which there is memory while it runs."""
    return 2 * MOST_NUMBERS // (chains * (problem.dimension + PREDICTED))


def most_draws(plan: Plan, problem: Problem, *, limited: bool) -> int:
    """Draws of a chain that a run may be prolonged to: by memory, and by price where time has no limit."""
    setup = plan.setup
    most = min(_held(problem, setup.num_chains), GROWTH * setup.num_draws)
    if not limited:
        price = SHARED + setup.num_chains * _step_price(problem, setup.gradient, setup.batch_size)
        most = min(most, (int(RUN_SECONDS / price) - setup.burn_in) // setup.thin)
    return max(setup.num_draws, most)


def most_kept(problem: Problem, chains: int) -> int:
    """Positions of a chain that a run gives back."""
    return min(DRAWS, max(FEWEST_DRAWS, MOST_NUMBERS // (chains * problem.dimension)))
