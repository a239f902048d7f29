"""`sgld.reference`: exact samplers of the same Posterior, through BlackJAX, to check a run.

Every method leaves the posterior itself invariant, so only mixing is left to judge. All work in
coordinates u around a centre, z = center + F u. Where the posterior has a mode with a positive
definite curvature J, the centre is the mode and F F^T = J^{-1}, so all scales are 1. Elsewhere the
centre is init and F = I, and the warm-up finds the scales (NUTS and HMC) or a step (the others).

In units of F, with full gradients and step size h where there is one:

    nuts        Hoffman & Gelman (2014), with multinomial proposals (Betancourt 2017)
    hmc         leapfrog, 1 to `max_leapfrogs` steps at random (Neal 2011, sec. 5.4.2.2)
    mala        u' = u + h grad log p + sqrt(2h) xi, accepted or rejected (Roberts & Tweedie 1996)
    metropolis  u' = u + h xi, accepted or rejected

The warm-up adapts the step size by dual averaging, and the scales by the variances of windows of
draws: Hoffman & Gelman (2014), sec. 3.2.1, with Stan's constants and windows (Stan Reference
Manual, "Adaptation"). The adaptation consists of pure functions of one chain's state.

The target is a posterior with its rows, or a run that knows both. BlackJAX's transitions run in
pieces whose size is chosen by time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..approximation.known import Known
from ..approximation.mode import dense_pays, gaussian_at_mode
from ..core.devices import check_memory
from ..core.progress import progress_shown, stage
from ..core.validation import fraction, whole_number
from ..core.work import Work
from ..diagnostics.escapes import left_standing, trajectories_like
from ..diagnostics.hidden_mass import unsettled
from ..diagnostics.rule import Evidence, unmixed
from ..errors import UsageError, did_you_mean
from ..model import sums
from ..model.numpyro import resolve_model
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Problem
from ..results import statistics
from ..results.draws import Draws
from ..results.plan import Origin, known_of
from ..results.verdict import Verdict
from ..typing import Method
from .tuning.ensemble import Around, around
from .tuning.survey import surroundings

if TYPE_CHECKING:
    from ..regression.result import Fit

# -- adaptation ----------------------------------------------------------------------------


STEP_SHRINKAGE, STEP_OFFSET, STEP_DECAY = 0.05, 10.0, 0.75  # gamma, t0 and kappa of the paper
# transitions before the windows, in the first window, and after the windows
FIRST_TRANSITIONS, WINDOW_TRANSITIONS, LAST_TRANSITIONS = 75, 25, 50
# a window's variances are shrunk towards SHRINKAGE_VARIANCE with the weight of SHRINKAGE_DRAWS draws
SHRINKAGE_DRAWS, SHRINKAGE_VARIANCE = 5.0, 1e-3


class Adaptation(NamedTuple):
    """State of the adaptation of one chain.

    `step_size` and `inverse_mass` apply to the next transition; the other fields are running
    averages.
    """

    step_size: Float[Array, ""]
    inverse_mass: Float[Array, " d"]
    center: Float[Array, ""]
    error: Float[Array, ""]
    log_average: Float[Array, ""]
    time: Float[Array, ""]
    count: Float[Array, ""]
    mean: Float[Array, " d"]
    square: Float[Array, " d"]


def begin(u: Float[Array, " d"]) -> Adaptation:
    """Return the initial adaptation: unit scales, and a step size from which the search starts."""
    one, zero, none = jnp.ones((), u.dtype), jnp.zeros((), u.dtype), jnp.zeros_like(u)
    return _restart(
        Adaptation(one, jnp.ones_like(u), zero, zero, zero, zero, zero, none, none), one
    )


def _restart(a: Adaptation, step_size: Array) -> Adaptation:
    zero = jnp.zeros_like(step_size)
    center = jnp.log(10 * step_size)
    return a._replace(step_size=step_size, center=center, error=zero, log_average=zero, time=zero)


def with_mean_step(a: Adaptation) -> Adaptation:
    """Return the adaptation with the averaged step size of the search."""
    return a._replace(step_size=jnp.exp(a.log_average))


def update(
    a: Adaptation, u: Array, acceptance: Array, aim: Array, in_window: Array, ends: Array
) -> Adaptation:
    """Return the adaptation after a transition to u.

    `ends` is true where the transition is the last one of a window.
    """
    time = a.time + 1
    share = 1 / (time + STEP_OFFSET)
    error = (1 - share) * a.error + share * (aim - acceptance)
    log_step = a.center - jnp.sqrt(time) / STEP_SHRINKAGE * error
    new = time**-STEP_DECAY
    a = a._replace(
        step_size=jnp.exp(log_step), error=error, time=time,
        log_average=new * log_step + (1 - new) * a.log_average,
    )  # fmt: skip
    count = a.count + 1
    mean = a.mean + (u - a.mean) / count
    more = a._replace(count=count, mean=mean, square=a.square + (u - a.mean) * (u - mean))
    a = _where(in_window, more, a)
    variance = (
        a.square / jnp.maximum(a.count - 1, 1) * a.count + SHRINKAGE_VARIANCE * SHRINKAGE_DRAWS
    ) / (a.count + SHRINKAGE_DRAWS)
    fresh = a._replace(
        inverse_mass=variance, count=jnp.zeros_like(a.count), mean=jnp.zeros_like(a.mean),
        square=jnp.zeros_like(a.square),
    )  # fmt: skip
    return _where(ends, _restart(fresh, with_mean_step(a).step_size), a)


def _where(which: Array, yes: Adaptation, no: Adaptation) -> Adaptation:
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), yes, no)


def windows(num_warmup: int) -> Int[np.ndarray, "num_warmup 2"]:
    """Mark per transition whether it is in a window of scales, and whether it ends the window.

    Windows double in length. A window extends to the end of the windows if the next one, twice as
    long, would not fit. Short warm-ups keep the proportions; below 20 transitions there is no
    window.
    """
    out = np.zeros((num_warmup, 2), np.int32)
    first, size, last = FIRST_TRANSITIONS, WINDOW_TRANSITIONS, LAST_TRANSITIONS
    if num_warmup < 20:
        return out
    if first + size + last > num_warmup:
        first, last = int(0.15 * num_warmup), int(0.1 * num_warmup)
        size = num_warmup - first - last
    start, end = first, num_warmup - last
    out[start:end, 0] = 1
    while start < end:
        stop = start + size
        if stop + 2 * size > end:
            stop = end
        out[stop - 1, 1] = 1
        start, size = stop, 2 * size
    return out


# -- target --------------------------------------------------------------------------------


def draws_of(given: Any) -> Draws | None:
    """Return `given` itself if it is draws, or its `.draws`, as of a fit; otherwise None."""
    found = getattr(given, "draws", given)
    return found if isinstance(found, Draws) else None


def resolve_target(given: Any, data: Any, init: Any, function: str) -> tuple[Any, Any, Any]:
    """Return posterior, rows and start, either as given or as the draws know them.

    If only draws are given, the last position of a healthy chain is the start.

    Raises UsageError if the draws do not know their posterior.
    """
    draws = draws_of(given)
    if draws is None:
        return resolve_model(given, data, init)
    origin = known_of(draws.origin)
    known = origin if origin.model is None else origin.model
    if known.posterior is None:
        raise UsageError(
            "these draws hold no posterior (they were loaded, copied or made elsewhere); give the posterior "
            f"and its rows: sgld.{function}(posterior, data, ...)."
        )
    posterior, data, init = resolve_model(
        known.posterior, known.data if data is None else data, init
    )
    if init is None and posterior.init is None and _are_positions(posterior, draws):
        init = jax.tree.map(lambda a: a[draws.healthy[0], -1], draws.position)
    return posterior, data, init


def _are_positions(posterior: Posterior, draws: Draws) -> bool:
    kept = draws.moments is not None or (draws.origin is not None and draws.origin.kept)
    return posterior.output is None and not kept and draws.healthy.size > 0


# -- chains --------------------------------------------------------------------------------


MAX_CALL_TRANSITIONS = 256  # transitions that one call of the compiled function may make
MAX_CALL_NUMBERS = 2**22  # numbers that one call may return
REFERENCE_STREAMS = (4, 5)  # random streams of the seed: transitions, starts


class Trace(NamedTuple):
    """Output of the chains: draws [chain, draw, d] in u, and statistics of the transitions."""

    u: np.ndarray
    acceptance: np.ndarray
    divergences: np.ndarray
    gradients: np.ndarray
    step_size: np.ndarray


def _density(local: Problem) -> Callable:
    """Return u -> log density, whose gradient takes one pass over the rows and no more memory."""
    both = partial(sums.value_and_gradient, local)
    value = jax.custom_vjp(lambda u: both(u)[0])
    value.defvjp(both, lambda gradient, cotangent: (cotangent * gradient,))
    return value


def _kernel(method: str, limit: int) -> tuple[Callable, Callable]:
    """Return `init(u, density)` and `step(key, state, density, step size, inverse mass)`.

    A step returns the state, the acceptance probability, whether it diverged, and its gradients.
    """
    import blackjax
    from blackjax.mcmc import random_walk as walk

    if method == "nuts":
        nuts = blackjax.nuts.build_kernel()

        def nuts_step(key, state, density, size, mass):
            state, info = nuts(key, state, density, size, mass, max_num_doublings=limit)
            return state, info.acceptance_rate, info.is_divergent, info.num_integration_steps

        return blackjax.nuts.init, nuts_step
    if method == "hmc":
        hmc = blackjax.hmc.build_kernel()

        def hmc_step(key, state, density, size, mass):
            key, other = jax.random.split(key)
            count = jax.random.randint(other, (), 1, limit + 1)
            state, info = hmc(key, state, density, size, mass, count)
            return state, info.acceptance_rate, info.is_divergent, count

        return blackjax.hmc.init, hmc_step
    if method == "mala":
        mala = blackjax.mala.build_kernel()

        def mala_step(key, state, density, size, mass):
            state, info = mala(key, state, density, size)
            return state, info.acceptance_rate, False, 1

        return blackjax.mala.init, mala_step
    metropolis = walk.build_additive_step()

    def walk_step(key, state, density, size, mass):
        move = lambda key, u: size * jax.random.normal(key, u.shape, u.dtype)  # noqa: E731
        state, info = metropolis(key, state, density, move)
        return state, info.acceptance_rate, False, 1

    return walk.init, walk_step


@partial(jax.jit, static_argnames=("method", "limit"))
def _begin(method: str, limit: int, local: Problem, u: Array) -> Any:
    init, _ = _kernel(method, limit)
    one = _density(local)
    return jax.vmap(lambda q: (init(q, one), begin(q)))(u)


@partial(jax.jit, static_argnames=("method", "limit", "block"))
def _advance(
    method: str, limit: int, block: int, local: Problem, keys: Array, aim: Array,
    stages: Array, carry: Any, first: Array, count: Array, num_warmup: Array, thin: Array,
) -> Any:  # fmt: skip
    """Compute `count` entries from entry `first`: one transition each in warm-up, then `thin`."""
    _, step = _kernel(method, limit)
    one = _density(local)

    def chain(key, carry, entry, stage):
        state, adapt = carry
        warm = entry < num_warmup
        key = jax.random.fold_in(key, entry)
        size = jnp.where(warm, adapt.step_size, with_mean_step(adapt).step_size)

        def transition(j, carry):
            state, *total = carry
            state, *new = step(jax.random.fold_in(key, j), state, one, size, adapt.inverse_mass)
            return state, *(t + jnp.asarray(n, t.dtype) for t, n in zip(total, new, strict=True))

        zero = (jnp.zeros_like(size), jnp.int32(0), jnp.int32(0))
        repeat = jnp.where(warm, 1, thin)
        state, *total = jax.lax.fori_loop(0, repeat, transition, (state, *zero))
        total[0] /= repeat
        updated = update(adapt, state.position, total[0], aim, stage[0] > 0, stage[1] > 0)
        adapt = jax.tree.map(partial(jnp.where, warm), updated, adapt)
        return (state, adapt), (state.position, *total, size)

    def body(i, both):
        carry, kept = both
        chains = jax.vmap(chain, (0, 0, None, None))
        carry, new = chains(keys, carry, first + i, stages[i])
        return carry, tuple(old.at[i].set(row) for old, row in zip(kept, new, strict=True))

    u = carry[0].position
    one_number, whole = jnp.zeros((block, len(u)), u.dtype), jnp.zeros((block, len(u)), jnp.int32)
    kept = (jnp.zeros((block, *u.shape), u.dtype), one_number, whole, whole, one_number)
    return jax.lax.fori_loop(0, count, body, (carry, kept))


def run(
    method: str, limit: int, aim: float, local: Problem, modes: Float[np.ndarray, "modes d"],
    lengths: tuple[int, int, int, int], seed: int,
) -> Trace:  # fmt: skip
    """Run warm-up and draws; the draws do not depend on how the entries are split into calls.

    Chains start around `modes` (in the problem's coordinates) in turn.
    """
    num_chains, num_warmup, num_draws, thin = lengths
    d, dtype = local.target.center.size, local.target.center.dtype
    root = jax.random.key(seed)
    fold, chains = jax.vmap(jax.random.fold_in, (None, 0)), jnp.arange(num_chains)
    keys, starts = (fold(jax.random.fold_in(root, stream), chains) for stream in REFERENCE_STREAMS)
    spread = 1.0 if local.target.factor is None else 2.0
    own = jnp.asarray(modes[np.arange(num_chains) % len(modes)], dtype)
    u = own + spread * jax.vmap(lambda key: jax.random.normal(key, (d,), dtype))(starts)
    for _ in range(20):  # move a start without density towards its mode
        carry = _begin(method, limit, local, u)
        bad = ~jnp.isfinite(carry[0].logdensity)
        if not bool(bad.any()):
            break
        u = jnp.where(bad[:, None], (own + u) / 2, u)
    block = int(np.clip(MAX_CALL_NUMBERS // (num_chains * d), 1, MAX_CALL_TRANSITIONS))
    total = num_warmup + num_draws
    stages = np.zeros((total + block, 2), np.int32)
    if method in ("nuts", "hmc"):
        stages[:num_warmup] = windows(num_warmup)
    parts = []
    with Work("sampling", units="transitions") as work:
        for done, now in work.pieces(0, total, most=block):
            carry, kept = _advance(
                method, limit, block, local, keys, jnp.asarray(aim, dtype),
                jnp.asarray(stages[done : done + block]), carry, jnp.int32(done),
                jnp.int32(now), jnp.int32(num_warmup), jnp.int32(thin),
            )  # fmt: skip
            parts.append(jax.tree.map(lambda leaf: np.array(np.asarray(leaf)[:now]), kept))  # noqa: B023
            work.said = f"h {float(parts[-1][-1][-1, 0]):.3g}"
    joined = [np.swapaxes(np.concatenate(leaf)[num_warmup:], 0, 1) for leaf in zip(*parts)]  # noqa: B905
    u, acceptance, divergences, gradients, step_size = joined
    return Trace(u, acceptance, divergences, gradients, step_size[:, -1])


# -- reference -----------------------------------------------------------------------------


ACCEPTANCE_TARGETS: dict[Method, float] = {"nuts": 0.8, "hmc": 0.8, "mala": 0.57, "metropolis": 0.3}
HIGHER_TARGETS = (0.95, 0.99)  # tried in turn if a first run of NUTS or HMC diverges
DRAW_NUMBER_BYTES = 16.0  # bytes per number of a draw: position, gradient, statistics of the chain
METHOD_TITLES = {"nuts": "NUTS", "hmc": "HMC", "mala": "MALA", "metropolis": "Metropolis"}


def reference(
    posterior: Posterior | Draws | Fit | Any,
    data: Any = None,
    init: Any = None,
    *,
    method: Method = "nuts",
    num_chains: int = 4,
    num_draws: int = 1000,
    num_warmup: int = 1000,
    thin: int = 1,
    target_acceptance: float | None = None,
    max_doublings: int = 10,
    max_leapfrogs: int = 8,
    seed: int = 0,
    progress: bool = True,
) -> Draws:
    """Draw from the posterior by an exact method on all rows: slow, but correct apart from mixing.

    Chains start dispersed, with twice the Laplace sd around the mode if one exists. If more modes
    are found, chains start around them in turn, so that chains that do not move between modes are
    reported as `not mixed`.

    Args:
      posterior: as for `sgld.sample`; or, alone, the draws or the fit to compare with, which know
        all three (except loaded draws that are not from `sgld.fit`).
      data: as for `sgld.sample`.
      init: as for `sgld.sample`.
      method: "nuts", "hmc", "mala" or "metropolis".
      num_chains: number of chains.
      num_draws: kept draws per chain.
      num_warmup: discarded transitions per chain that adapt the step size (and, in NUTS and HMC,
        the scales).
      thin: transitions per kept draw.
      target_acceptance: mean acceptance to which the step size is adapted (None: .8 for NUTS and
        HMC, and again with .95 and .99 while transitions diverge; .57 for MALA, .3 for Metropolis).
      max_doublings: limit of the doublings of a NUTS trajectory.
      max_leapfrogs: limit of the leapfrogs of an HMC trajectory, whose length is random each time.
      seed: seed of all random numbers.
      progress: as for `sgld.sample`.

    Returns: Draws of equal weight. `.info` has method, acceptance_rate, target_acceptance,
    divergences, num_gradients, num_modes, step_size per chain, seconds. The verdict is `trusted` if
    the chains have mixed without a divergence, else `not mixed`.

    Raises: UsageError and DataError for wrong arguments.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
      >>> draws = sgld.reference(posterior, jnp.array([1.0, 2.0, 3.0]), 0.0, progress=False)
      >>> round(float(draws.mean()), 1), round(float(draws.sd()), 1)
      (1.5, 0.5)
    """
    if method not in ACCEPTANCE_TARGETS:
        raise UsageError(
            f"method must be one of {', '.join(ACCEPTANCE_TARGETS)}. Got {method!r}."
            + did_you_mean(method, ACCEPTANCE_TARGETS)
        )
    counts = {
        "num_chains": num_chains, "num_draws": num_draws, "thin": thin, "num_warmup": num_warmup,
        "max_doublings": max_doublings, "max_leapfrogs": max_leapfrogs,
    }  # fmt: skip
    for name, value in counts.items():
        whole_number(name, value)
    aim = ACCEPTANCE_TARGETS[method] if target_acceptance is None else target_acceptance
    fraction("target_acceptance", aim)
    began = time.perf_counter()
    limit = max_leapfrogs if method == "hmc" else max_doublings
    lengths = (num_chains, num_warmup, num_draws, thin)
    # BlackJAX mixes dtypes and ranks, and the branches of its trees look like key reuse
    lax = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
    with progress_shown(progress, ("data", "mode", "curvature", "other modes", "sampling")):
        with stage("data"):
            target, rows, start = resolve_target(posterior, data, init, "reference")
            problem = prepare(target, rows, start, seed=seed)
        check_memory(
            DRAW_NUMBER_BYTES * problem.dimension * num_chains * (num_draws + 100.0),
            f"{num_chains:,} chains of {num_draws:,} draws", "give fewer num_chains or num_draws",
        )  # fmt: skip
        local, known, num_modes, starts = _centers(problem, seed, num_chains)
        with lax[0], lax[1], jax.debug_key_reuse(False):
            trace = run(method, limit, aim, local, starts, lengths, seed)
            for nearer in HIGHER_TARGETS if target_acceptance is None else ():
                if not trace.divergences.any():
                    break
                aim = nearer
                trace = run(method, limit, aim, local, starts, lengths, seed)
    z = _free(local.target, trace.u)
    draws = Draws.at(
        problem,
        z,
        step=num_warmup + thin * np.arange(1, num_draws + 1),
        step_size=np.repeat(trace.step_size[:, None], num_draws, 1),
    )
    info = {
        "method": method,
        "num_data": problem.num_data or None,
        "num_steps": num_warmup + thin * num_draws,
        "num_gradients": int(trace.gradients.sum()),
        "acceptance_rate": float(trace.acceptance.mean()),
        "target_acceptance": aim,
        "num_modes": min(num_modes, num_chains),
        "divergences": int(trace.divergences.sum()),
        "step_size": trace.step_size.tolist(),
        "whitened": local.target.factor is not None,
        "seed": int(seed),
    }
    began_there = len(starts) > num_modes
    z = np.asarray(z, np.float64)
    doubts = unsettled(known, z, exact=True, began_there=began_there)
    if doubts and began_there:
        setup = trajectories_like(problem, z, thin)
        doubts = left_standing(problem, setup, known, doubts, z, seed)
    sentences = tuple(doubt.sentence for doubt in doubts)
    verdict = _verdict(draws, method, info, num_chains * num_draws * thin, sentences)
    info["seconds"] = time.perf_counter() - began
    return replace(draws, verdict=verdict, info=info, origin=Origin(target, rows))


def _centers(
    problem: Problem, seed: int, num_chains: int
) -> tuple[Problem, Known, int, Float[np.ndarray, "starts d"]]:
    """Return the problem whitened around its mode, what is known of it, the mode count and starts.

    The starts are in the problem's coordinates: the modes, then points around which rays found
    mass, for at most half of the chains. If there is no mode, the problem stays around its start.
    """
    start = np.zeros((1, problem.dimension))
    if not dense_pays(problem):
        return around(problem, problem.start), Known(), 1, start
    at = gaussian_at_mode(problem)
    if not (at.converged and at.gaussian.positive_definite):
        return around(problem, problem.start), Known(), 1, start
    at, modes, doubts = surroundings(problem, at, seed, 1.0)
    local = around(problem, at.gaussian.center, at.gaussian.factor)
    if modes is not None:
        start = at.gaussian.whiten(modes.z)
    far = [doubt.start for doubt in doubts if doubt.start is not None][: num_chains // 2]
    starts = np.concatenate([start, *(at.gaussian.whiten(place)[None] for place in far)])
    known = Known(at.gaussian, at.log_density, modes=modes, doubts=doubts)
    return local, known, len(start), starts[: max(len(start), num_chains)]


@jax.jit
def _free(density: Around, u: Array) -> Array:
    return jax.vmap(jax.vmap(density.z))(u)


def _verdict(
    draws: Draws, method: str, info: dict[str, Any], transitions: int, doubts: tuple[str, ...]
) -> Verdict:
    """Return the verdict of exact chains, by mixing and by visits to regions that hold mass."""
    divergences = info["divergences"]
    found = statistics.Estimates(draws.flat()[0], draws.weights)
    # alternating trajectories make the ESS of theta exceed the number of draws; theta^2 mixes
    # slower, and R-hat, which uses both, varies like the smaller of the two
    ess = np.fmin(found.ess, found.ess_square)
    e = Evidence(
        names=draws.names, mean=found.mean, sd=found.sd,
        **found.mixing._replace(ess=ess)._asdict(), num_chains=draws.num_chains,
    )  # fmt: skip
    reasons = unmixed(e)
    if divergences:
        share = f"{divergences} of {transitions} transitions diverged"
        reasons.append(
            f"{share}: {METHOD_TITLES[method]} cannot enter some regions at a target_acceptance of "
            f"{info['target_acceptance']:g}; use a value nearer 1, or other coordinates."
        )
    extra = {"method": method, "divergences": divergences}
    if reasons:
        return Verdict("not mixed", tuple(reasons), extra=extra)
    if doubts:
        reason = (
            f"{METHOD_TITLES[method]} is exact and its chains have mixed, but {doubts[0]}, and the chains did not visit it "
            "accordingly; use more draws, or an init there."
        )
        return Verdict("unknown", (reason,), extra={**extra, "doubts": list(doubts)})
    none = ", no divergences" if method in ("nuts", "hmc") else ""
    reason = (
        f"{METHOD_TITLES[method]} is exact and its chains have mixed: ESS at least {np.nanmin(ess):.0f}, R-hat at most "
        f"{np.nanmax(e.r_hat):.3f}{none}."
    )
    return Verdict("trusted", (reason,), extra=extra)
