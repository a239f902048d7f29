"""Plan the run of a network: start at optimisers' ends, use kinetic Langevin dynamics, and judge predictions.

No single mode represents the posterior of a network, and the curvature at one is of no use. So every chain begins
where an optimiser of its own ended. The rules of network_backend.py then tune metric and step; `JaxBackend` computes
what they need. SGLD's temperature is 1 + h V / 2. If all rows are affordable at every step, gradients have no noise.

`from_optimisers` plans a run where the posterior has no usable Gaussian at the mode.

`heat_of_predictions` measures what the noise of batches does to a network's predictions:

    V_f = mean_i Var[f_i' D g] / |f_i' D^{1/2}|^2,      T_f = 1 + delta V_f / (2 gamma)

g is a batch's gradient and f_i a prediction. The mean of a layer, which chooses the step, hides this effect: in a
network of 199,210 weights layers were at 1.01 and predictions at 20. Where optimisers end, and rows fit, T_f is lower
(3.7 there). V_f is proportional to 1 / rows and the cost of a step to rows, so no batch size helps. Steps over all
rows do; curvature alone limits them.

`from_prior` returns starts that can find what a run's own chains miss. An optimiser that begins near `init` ends
nearby. So of every three starts one is near `init`. The other two follow the dynamics of the prior alone from `init`
and from -init: a prior is often the same at both, and may have a barrier between them.

    theta' = BAOA in D = 1 / curvature of the prior, delta = .2, 500 steps, without rows
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...approximation.gradient_noise import ROW_GRADIENT_NUMBERS, TUNING_STREAM
from ...approximation.known import Known
from ...approximation.low_rank import squared_gradients, stiffness
from ...approximation.mode import MAX_SCALES_DIM, optimise
from ...core.devices import agreed, sent, stream_key
from ...core.progress import past, stage
from ...core.work import Work
from ...data.source import generator
from ...diagnostics.function_space.predictions import Predictions, predictions_of
from ...diagnostics.function_space.temperature import (
    Layers,
    along,
    density_by,
    is_of_layers,
    stiffest,
)
from ...errors import UsageError
from ...model import sums
from ...model.cost import gradient_cost, row_cost
from ...model.problem import Problem, Request, is_auto
from ...model.sums import row_gradient
from ...results.plan import Plan, Setup
from ...samplers.baoa import BAOA
from ...samplers.gradients.full import Full, Minibatch
from ...samplers.preconditioners.fixed import Diagonal, given
from ...samplers.preconditioners.kronecker import Kronecker
from ...samplers.schedules import as_schedule
from ...samplers.sgld import SGLD
from . import network_rules as rule
from .network_backend import Tuned, information, tuned
from .parts import estimate_factors, no_step, plain_batches, prepared, sampler_of, settled

# -- from optimisers -----------------------------------------------------------------------


# least steps of an optimiser, and passes over the data
MIN_OPTIMISER_STEPS, OPTIMISER_PASSES = 1000, 20


def from_optimisers(problem: Problem, ask: Request, known: Known) -> Plan:
    """Plan a run without usable curvature: reshuffled batches, and a diagonal metric estimated where optimisers end.

    Every chain starts where an optimiser of its own ended, from a start of its own, so that chains
    in different modes are seen to disagree.
    """
    gradient, problem = plain_batches(problem, ask)
    z0 = np.asarray(problem.start)
    center = z0 if known.gaussian is None else known.gaussian.center
    starts, near = None, np.asarray(center)[None]
    if not known.usable:
        steps = MIN_OPTIMISER_STEPS
        if problem.has_rows:
            steps = int(np.clip(OPTIMISER_PASSES * problem.num_blocks, steps, 10 * steps))
        starts = near = optimised(problem, ask, starts_near(problem, ask, z0), steps)
    if is_auto(ask.preconditioner):
        squares = [np.asarray(squared_gradients(problem, problem.array(z))) for z in near]
        D = Diagonal(1 / (np.mean(squares, axis=0) + 1e-8)).prepare(problem.layout)
    else:
        D = given(ask.preconditioner, problem.layout)
    matrix = settled(D, problem, near[0])
    stiffest = max(float(stiffness(problem, matrix, problem.array(z))) for z in near)
    h = ask.tolerance / max(1e-12, stiffest)
    setup = Setup(
        sampler_of(ask), prepared(gradient, problem, center), D, as_schedule(h, "step_size"),
        *problem.batches, starts=starts,
    )  # fmt: skip
    return Plan(setup, known, problem.num_data)


def starts_near(
    problem: Problem, ask: Request, z0: np.ndarray, least: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return z0 plus normal noise with the sd of each leaf, or `least` where it is 0, for every chain but the first."""
    rng = generator(ask.seed, TUNING_STREAM, 7)
    spread = np.concatenate([
        np.full(math.prod(shape), np.std(np.asarray(leaf)) if math.prod(shape) > 1 else 0.0)
        for leaf, shape in zip(
            jax.tree.leaves(problem.layout.unravel(problem.array(z0))), problem.layout.shapes, strict=True
        )
    ])  # fmt: skip
    spread = np.where(spread > 0, spread, least)
    xi = rng.standard_normal((ask.chains(), z0.size))
    return z0.astype(np.float64) + spread * xi * (np.arange(ask.chains()) > 0)[:, None]


def optimised(
    problem: Problem, ask: Request, starts: np.ndarray, steps: int, until: float = math.inf
) -> np.ndarray:
    """Return where `steps` of Adam end for every chain.

    By the time `until` (of time.monotonic) all are cut short, each with an equal share of what is left when it
    begins.
    """
    import optax

    gradient = Full() if not problem.has_rows else Minibatch()
    optimizer = optax.adam(optax.cosine_decay_schedule(rule.LEARNING_RATE, steps))
    ends = []
    for chain, start in enumerate(starts):
        now = time.monotonic()
        own = now + max(0.0, until - now) / (len(starts) - chain)
        end, *_ = optimise(
            problem, problem.array(start), optimizer, gradient, steps, None, ask.seed + chain, own,
        )  # fmt: skip
        ends.append(np.asarray(end, np.float64))
    return np.array(ends)


# -- noise of predictions ------------------------------------------------------------------


def heat_of_predictions(
    problem: Problem, gradient: Any, D: Any, zs: Float[Array, "chain d"], seed: int, delta: float,
    friction: float,
) -> float:  # fmt: skip
    """Return T_f - 1 of BAOA's steps; `problem` holds the rows in the run's batches."""
    entries = sent(problem.source.chunk((seed, 2**31 - 5), 0, 2 * rule.NOISE_BATCH_PAIRS))
    V = _prediction_noise(problem, predictions_of(problem), gradient, D, zs, entries)
    return float(jnp.mean(V)) * delta / (2 * friction)


@jax.jit
def _prediction_noise(
    problem: Problem, predictions: Predictions, gradient: Any, D: Any, zs: Array, entries: Array
) -> Float[Array, " chain"]:
    """Compute V_f at every z from the differences of pairs of batches."""

    def one(z: Array) -> Array:
        def pair(turn: Array) -> tuple[Array, Array]:
            g = [gradient.at(problem, entries[2 * turn + i])(z) for i in (0, 1)]
            lengths, moves = along(predictions, problem, D, z, D.pullback(g[0] - g[1]), turn)
            felt = lengths > 0  # a row whose units are dead says nothing
            speeds = jnp.where(felt, moves**2 / jnp.where(felt, lengths, 1), 0)
            return jnp.sum(speeds) / 2, jnp.sum(felt, dtype=z.dtype)

        sums, counts = jax.lax.map(pair, jnp.arange(rule.NOISE_BATCH_PAIRS, dtype=jnp.int32))
        return jnp.sum(sums) / jnp.maximum(jnp.sum(counts), 1)

    return jax.lax.map(one, zs)


def warmed(batch_size: int, heat: float) -> str:
    """Return a note on what noise of batches will do to predictions."""
    return (
        f"noise of batches of {batch_size} rows will warm predictions to a temperature of {1 + heat:.3g} or more, where 1 "
        "is right, so that they spread too far; gradient=sgld.Full() has no such noise, and takes more time (max_seconds)."
    )


# -- prior starts --------------------------------------------------------------------------


PRIOR_START_STEPS, PRIOR_START_DELTA = 500, 0.2
PRIOR_START_STREAM = 18
# curvature of a prior that says nothing of a parameter's scale; 1 is taken
MIN_PRIOR_CURVATURE = 1e-5


@jax.jit
def prior_curvature(problem: Problem, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """Return the diagonal of the prior's curvature, if its Hessian has no other entries."""
    slope, change = jax.jvp(jax.grad(problem.log_prior), (z,), (jnp.ones_like(z),))
    # where a prior is not convex, as in heavy tails, or has a kink, its slope says how wide it is
    found = jnp.where(-change > 1e-6, -change, slope**2)
    return jnp.where(jnp.isfinite(found), jnp.maximum(found, 1e-6), 1.0)


def narrowness(problem: Problem, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """Return the prior's curvature for a metric: at least that of a normal prior of its scales, in a heavy tail too.

    A tail is wider the further out chains are, and steps of its own width there take them further still.
    """
    found, normal = prior_curvature(problem, z), as_normal(problem, tails=True)
    if normal is problem:
        return found
    return jnp.maximum(found, prior_curvature(normal, problem.start))


def as_normal(problem: Problem, tails: bool = False) -> Problem:
    """Fix the sds that a prior estimates at their nominal values; with `tails`, replace Student's t by a normal prior.

    An sd that is integrated out makes a peak at 0, where a network predicts the same of all rows.
    """
    from ...model.network_priors import LearntPrior, NormalPrior, StudentTPrior

    # bound to a function, as a module's is, a prior is a part of a pytree
    log_prior, heavy = problem.posterior.log_prior, lambda part: isinstance(part, kinds)
    kinds = (LearntPrior, StudentTPrior) if tails else (LearntPrior,)
    if not any(map(heavy, jax.tree.leaves(log_prior, is_leaf=heavy))):
        return problem

    def normal(part: Any) -> Any:
        return NormalPrior(part.scales, part.patterns, part.fan_in) if heavy(part) else part

    posterior = replace(problem.posterior, log_prior=jax.tree.map(normal, log_prior, is_leaf=heavy))
    return replace(problem, target=replace(problem.target, posterior=posterior))


def from_prior(problem: Problem, near: Float[np.ndarray, "m d"], seed: int) -> np.ndarray:
    """Move two of every three starts by the prior's dynamics; those that do not stay finite are unchanged."""
    moved, kind = near.copy(), np.arange(len(near)) % 3
    if problem.dimension > rule.MAX_PRIOR_START_DIM:
        return moved
    key = jax.random.fold_in(stream_key(seed, TUNING_STREAM), PRIOR_START_STREAM)
    for k in np.flatnonzero(kind):
        begin = problem.array(near[k] if kind[k] == 1 else -near[k])
        found, log_p = _moved(problem, begin, jax.random.fold_in(key, k))
        if np.isfinite(log_p):
            moved[k] = found
    return moved


@jax.jit
def _moved(problem: Problem, z: Float[Array, " d"], key: Array) -> tuple[Array, Array]:
    """Return where the prior's dynamics ends, and the log prior there."""
    curvature = prior_curvature(problem, z)
    D = Diagonal(1 / jnp.where(curvature > MIN_PRIOR_CURVATURE, curvature, 1.0))
    sampler, gradient = BAOA(), jax.grad(problem.log_prior)

    def one(state, key):
        xi = jax.random.normal(key, z.shape, z.dtype)
        return sampler.step(state, gradient, PRIOR_START_DELTA**2, xi, preconditioner=D), None

    state, _ = jax.lax.scan(one, sampler.init(z), jax.random.split(key, PRIOR_START_STEPS))
    return state.position, problem.log_prior(state.position)


# -- from network --------------------------------------------------------------------------


OPTIMISER_SHARE = 0.3  # of max_seconds, what optimisers may take by the clock
# steps in which starts a prior's sd away come to the mode: after 500 one was 4 posterior sds off
ARRIVAL_STEPS = 1500
# of which V_l is measured: batches x chains x parameters
MIN_NOISE_BATCHES, MAX_NOISE_NUMBERS = 8, 2**25
MIN_RESTART_SECONDS = 30.0  # max_seconds, of which the verdict's share is enough to compile them


def is_network(problem: Problem) -> bool:
    """Return whether a run is judged by predictions: the posterior has rows, and predictions or layers."""
    return problem.has_rows and (
        problem.posterior.predict is not None or is_of_layers(problem.layout)
    )


def is_like_one(problem: Problem, known: Known) -> bool:
    """Return whether a posterior with rows has many parameters, some of them matrices, and no usable mode."""
    matrices = any(len(shape) > 1 for shape in problem.layout.shapes)
    return problem.has_rows and problem.dimension > MAX_SCALES_DIM and matrices and not known.usable


def from_network(problem: Problem, ask: Request) -> Plan:
    """Plan metric, step and batches from where optimisers end; `problem` holds all rows as one batch.

    Raises UsageError for a sampler whose step has no rule here.
    """
    if not is_auto(ask.gradient) and ask.gradient.remembers:
        raise UsageError(
            f"step_size must be given with {type(ask.gradient).__name__} for a network; or use sgld.Minibatch() or "
            "sgld.Full()."
        )
    if not has_rule(ask):
        raise no_step(ask)
    sampler = BAOA() if is_auto(ask.sampler) else sampler_of(ask)
    whole, chains = problem, ask.chains()
    gradient, problem = plain_batches(problem, ask)
    ends = optimiser_ends(problem, ask)
    if is_auto(ask.gradient) and is_auto(ask.batch_size) and rule.affordable(whole, chains):
        gradient, problem = Full(), whole
    gradient = prepared(gradient, problem, ends[0])
    T = float(as_schedule(ask.temperature, "temperature", zero=True)(0))
    notes: tuple[str, ...] = ()
    with stage("step size"):
        backend = JaxBackend(problem, ask, sampler, gradient, T)
        found = tuned(backend, problem.array(ends), past(rule.TUNING_CLOCK_SHARE))
        if isinstance(gradient, Minibatch) and isinstance(sampler, BAOA) and T > 0:
            notes = _of_heat(problem, ask, float(sampler.friction), gradient, found, T)
    setup = Setup(
        sampler, gradient, found.D, as_schedule(found.h, "step_size"), *problem.batches,
        starts=np.asarray(found.z, np.float64), predictions=True,
    )  # fmt: skip
    return Plan(setup, num_data=problem.num_data, notes=notes)


def _of_heat(
    problem: Problem, ask: Request, friction: float, gradient: Any, found: Tuned, T: float
) -> tuple[str, ...]:
    """Return a note if noise of batches inflates predictions, or nothing if the time for tuning is over."""
    if agreed(time.monotonic() > past(rule.TUNING_CLOCK_SHARE)):
        return ()
    matrix, delta = settled(found.D, problem, found.z[0]), found.h**0.5
    heat = heat_of_predictions(problem, gradient, matrix, found.z, ask.seed, delta, friction) / T
    return (warmed(problem.source.batch_size, heat),) if heat > rule.MIN_REPORTED_NOISE else ()


def optimiser_ends(problem: Problem, ask: Request, elsewhere: bool = False) -> np.ndarray:
    """Return where optimisers end, [chain, d]; with `elsewhere`, some begin where the prior's dynamics ends."""
    small = problem.with_batches(min(rule.BATCH_SIZE, problem.num_data), "reshuffle")
    start = np.asarray(problem.start, np.float64)
    # a weight alone, or a layer that begins at 0, would be the same in all
    width = np.asarray(prior_curvature(problem, small.start), np.float64) ** -0.5
    starts = starts_near(small, ask, start, np.minimum(width, 1.0))
    if elsewhere:
        starts = from_prior(small, starts, ask.seed)
    return optimised(as_normal(small), ask, starts, _passes(small, ask), past(OPTIMISER_SHARE))


def other_starts_affordable(problem: Problem, ask: Request) -> tuple[int, bool]:
    """Return how many chains from other starts are affordable, and whether following all of them is cheap."""
    if ask.max_seconds is not None and ask.max_seconds < MIN_RESTART_SECONDS:
        return 0, False
    small = problem.with_batches(min(rule.BATCH_SIZE, problem.num_data), "reshuffle")
    optimiser = _passes(small, ask) * small.source.batch_size * row_cost(problem)
    step = small.source.batch_size * row_cost(problem)
    if rule.affordable(problem, ask.chains()):
        step = gradient_cost(problem).each
    return rule.num_restarts(0.0, optimiser + rule.restart_steps() * step, ask.max_seconds)


def has_rule(ask: Request) -> bool:
    """Return whether a rule chooses the sampler's step: it follows from temperatures, and the estimator has no memory."""
    forgets = is_auto(ask.gradient) or not ask.gradient.remembers
    return forgets and (is_auto(ask.sampler) or type(ask.sampler) in (BAOA, SGLD))


def _passes(problem: Problem, ask: Request) -> int:
    """Return the steps of an optimiser, by the cost of a step."""
    seconds = rule.seconds_of(rule.MAX_OPTIMISER_SECONDS, rule.MAX_OPTIMISER_SHARE, ask.max_seconds)
    price = problem.source.batch_size * row_cost(problem) + rule.UPDATE_SECONDS * problem.dimension
    most = max(rule.MAX_OPTIMISER_PASSES * problem.num_blocks, ARRIVAL_STEPS)
    steps = min(seconds / (ask.chains() * price), most)
    return int(np.clip(steps, rule.MIN_TRAINING_STEPS, rule.MAX_TRAINING_STEPS))


@dataclass
class JaxBackend:
    """A network in JAX as a `NetworkBackend`; `problem` holds the rows in the run's batches."""

    problem: Problem
    ask: Request
    sampler: Any
    gradient: Any
    temperature: float

    @property
    def friction(self) -> float | None:
        """The sampler's friction; None for SGLD."""
        return None if isinstance(self.sampler, SGLD) else float(self.sampler.friction)

    @cached_property
    def predictions(self) -> Predictions:
        """Predictions at probe rows."""
        return predictions_of(self.problem)

    def log_density(self, z: Array, rows: int | None) -> np.ndarray:
        """Return the log posterior density of every chain by all rows or the first `rows`."""
        if rows is None:
            whole = self.problem.as_one_batch()
            return np.array([float(sums.log_density(whole, place)) for place in z])
        return np.array([_density(self.problem, place, rows=rows) for place in z])

    def information(self, z: Array, first: int, rows: int) -> np.ndarray:
        """Return the diagonal of the Fisher information plus the prior's curvature at one position."""
        return np.asarray(fisher(self.problem, z, sent(first, np.int32), rows=rows))

    def measured(self, z: Array) -> tuple[Any, float, float]:
        """Return D, max_l V_l and lambda_1; D is the user's or the diagonal of the chains' average."""
        problem, D = self.problem, self.ask.preconditioner
        if isinstance(D, Kronecker) and not D.known:
            prior = np.mean([np.asarray(narrowness(problem, place)) for place in z], axis=0)
            rows = rule.fisher_rows(problem.num_data, problem.dimension)
            D = estimate_factors(problem, z, prior, rows)
        elif not is_auto(D):
            D = given(D, problem.layout)
        else:
            D = Diagonal(1 / information(self, z)).prepare(problem.layout)
        matrix, rows = settled(D, problem, z[0]), rule.curvature_rows(problem.num_data, z.shape[1])
        _, values = stiffest(problem, matrix, z, count=min(2, problem.dimension), rows=rows)
        return D, _noise(problem, self.gradient, matrix, z, self.ask.seed), float(jnp.max(values))

    def predicted(self, z: Array) -> np.ndarray:
        """Return predictions of every chain at the probe rows."""
        return np.asarray(_predicted_by_chains(self.predictions, self.problem, z))

    def restored(self, lost: np.ndarray, old: Array, new: Array) -> Array:
        """Return `new` with the positions of lost chains replaced by `old`."""
        return jnp.where(lost[:, None], old, new)

    def positions(self, z: Array) -> np.ndarray:
        """Return z in float64 on the host."""
        return np.asarray(z, np.float64)

    def step_seconds(self, chains: int) -> float:
        """Return the predicted seconds of a step of all chains."""
        return chains * rule.step_cost(self.problem, self.gradient, self.problem.source.batch_size)

    def moved(self, z: Array, D: Any, h: float, stretch: tuple[int, int, int]) -> Array:
        """Return positions after a stage; `stretch` holds its number, its length and the number of stages."""
        number, steps, stages = stretch
        problem, seed, matrix = self.problem, self.ask.seed, settled(D, self.problem, z[0])
        begin, state = number * steps, jax.vmap(self.sampler.init)(z)
        key = jax.random.fold_in(stream_key(seed, TUNING_STREAM), number)
        numbers = problem.array(h), problem.array(self.temperature)
        with Work("optimising") as work:
            for first, count in work.pieces(begin, begin + steps, most=64, of=stages * steps):
                entries = None
                if not isinstance(self.gradient, Full):
                    chunks = [problem.source.chunk((seed, 2**30 + c), first, count) for c in range(len(z))]  # fmt: skip
                    padded = np.zeros((64, len(z), *problem.source.entry_shape), np.int32)
                    padded[:count] = np.stack(chunks, axis=1)
                    entries = sent(padded)
                state = _advanced(
                    problem, self.sampler, self.gradient, matrix, state, entries, numbers, key,
                    sent(first, np.int32), sent(count, np.int32),
                )  # fmt: skip
                jax.block_until_ready(state)
        return state.position if hasattr(state, "position") else state


@jax.jit
def _predicted_by_chains(
    found: Predictions, problem: Problem, zs: Float[Array, "chain d"]
) -> Float[Array, "chain m k"]:
    return jax.vmap(lambda z: found.at(problem.target, z))(zs)


@partial(jax.jit, static_argnames="rows")
def _density(problem: Problem, z: Float[Array, " d"], *, rows: int) -> Float[Array, ""]:
    return density_by(problem, rows)(z)


@partial(jax.jit, static_argnames="rows")
def fisher(
    problem: Problem, z: Float[Array, " d"], first: Array, *, rows: int
) -> Float[Array, " d"]:
    """Return the diagonal of the empirical Fisher information plus the prior's curvature by `narrowness`.

    Of so many rows from the `first` on, scaled up; past the last row they begin again.
    """
    prior = narrowness(problem, z)
    together = min(rows, max(1, ROW_GRADIENT_NUMBERS // z.size))

    def add(i: Array, total: Array) -> Array:
        places = i * together + jnp.arange(together, dtype=jnp.int32)
        numbers = (first + places) % problem.num_data
        g = jax.vmap(lambda row: row_gradient(problem, z, row))(numbers)
        return total + jnp.sum(jnp.where((places < rows)[:, None], g**2, 0), axis=0)

    turns = jnp.int32(-(-rows // together))
    squares = jax.lax.fori_loop(jnp.int32(0), turns, add, jnp.zeros_like(z))
    return prior + squares * (problem.num_data / rows)


def _noise(problem: Problem, gradient: Any, D: Any, zs: Array, seed: int) -> float:
    """Return V of the noisiest of the layers whose temperature is judged."""
    if isinstance(gradient, Full):
        return 0.0
    batches = int(np.clip(MAX_NOISE_NUMBERS // zs.size, MIN_NOISE_BATCHES, rule.NOISE_BATCHES))
    entries = sent(problem.source.chunk((seed, 2**31 - 3), 0, batches))
    layers = Layers.of(problem.layout)
    V = np.asarray(_layer_noise(problem, gradient, D, zs, entries, layers.sizes)).mean(axis=0)
    return float(V[np.array(layers.large)].max())


@partial(jax.jit, static_argnames="sizes")
def _layer_noise(
    problem: Problem, gradient: Any, D: Any, zs: Array, entries: Array, sizes: tuple[int, ...]
) -> Float[Array, "chain layer"]:
    # all chains at once: XLA adds a gradient to a vector of its own up to 17 times slower, by chance
    def add(sums: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], None]:
        g = jax.vmap(lambda z: D.pullback(gradient.at(problem, x)(z)))(zs)
        return (sums[0] + g, sums[1] + g**2), None

    zero = jnp.zeros_like(zs)
    (total, squares), _ = jax.lax.scan(add, (zero, zero), entries)
    mean = total / len(entries)
    variances = (squares - len(entries) * mean**2) / (len(entries) - 1)
    return Layers(("",) * len(sizes), sizes).means(variances)


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
