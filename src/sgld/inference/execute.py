"""From a plan to draws with a verdict: run the plan, judge the draws, try again if that may help.

If a plan misses the tolerance, the library makes another plan and records the reason. It does so
only if step size and lengths were left to it. A posterior far from Gaussian moves on to exact
chains, if they are affordable, and again with the step halved if very few of them diverge. A
biased run is repeated with the step halved too, and so is a network whose momentum is too warm.

The module also decides how many draws a run continues to: until the effective draws suffice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial

from ..approximation.known import MAX_GAUSSIAN_NU
from ..core.devices import check_chains, raise_together, sent, stream_key
from ..core.progress import aside, deadline, sampled_until, stage
from ..core.work import Work
from ..data.source import generator
from ..diagnostics import exact_rule, tails
from ..diagnostics.rule import least_ess, separate
from ..model import sums
from ..model.problem import Problem, Request, is_auto
from ..results import statistics
from ..results.codec import StoredPlan, read_plan, write_plan
from ..results.draws import Draws
from ..results.mixing import pareto_k
from ..results.plan import Plan, Setup
from ..results.run_directory import RunDirectory
from ..results.storage import jsonable, write_result
from ..results.verdict import Verdict
from ..samplers.confined_hmc import ConfinedHMC
from ..samplers.gradients.control_variates import ControlVariates
from ..samplers.gradients.full import Full
from ..samplers.schedules import as_schedule, check_values
from . import loop
from .chunk import Kernel, make_probe
from .function_space import draws_suffice, judged_by_predictions
from .judge import judge_kept, judge_parameters
from .kept import Keep
from .outcome import (
    LEFT_SUPPORT,
    as_thin,
    kept_draws,
    laplace_facts,
    modes_facts,
    regions_of_chains,
    reported_draws,
    where_held,
)
from .record import Given, own_digests
from .tuning.cost import check_planned, predicted, with_lengths
from .tuning.exact_chains import from_chains
from .tuning.network_rules import held, most_at_once, most_draws, network_lengths
from .tuning.parts import prepared, settled
from .tuning.plan import make_plan

# -- attempts ------------------------------------------------------------------------------


MAX_ATTEMPTS = 3
# share of trajectories that diverge, up to which halving the step helps: it removed 3 of 51,200, and 17 (a banana),
# but left 109 of 375 in 409,600 (a funnel) and 30 of 53 in 70,000 (centred eight schools), without another verdict
RARE_SHARE = 5e-4
# the same share if energies change as fast as on a banana (E-BFMI .98; horseshoes .8, a funnel .46, centred eight
# schools .15): then chains can enter all regions, and the step is only too long for some: 85 of 155,136 became 0
SEVERAL_SHARE, MIN_SWIFT_ENERGY = 2e-3, 0.6


def next_attempts(
    plan: Plan, ask: Request, verdict: Verdict, attempts: list[dict[str, str]]
) -> list[str]:
    """Return what to try next, in order: "exact", "finer", "halve" or "quarter"; or nothing."""
    if any(LEFT_SUPPORT in reason for reason in verdict.reasons):  # no step is small enough
        return []
    left_open = is_auto(ask.step_size) and is_auto(ask.num_draws) and is_auto(ask.burn_in)
    if verdict.word == "trusted" or not left_open or len(attempts) >= MAX_ATTEMPTS:
        return []
    if plan.setup.predictions:
        found = verdict.extra.get("predictions", {})
        return ["quarter"] if found.get("failed") else ["halve"] if found.get("too_warm") else []
    halve = ["halve"] if verdict.word == "biased" and plan.known.gaussian is not None else []
    if plan.setup.exact:
        diverged, of, energy = (
            verdict.extra.get(name, 0) for name in ("divergences", "trajectories", "e_bfmi")
        )
        rare = 0 < diverged <= (SEVERAL_SHARE if energy >= MIN_SWIFT_ENERGY else RARE_SHARE) * of
        return ["finer"] if rare and not any(a["what"] == "finer" for a in attempts) else []
    if plan.setup.starts is None and not any(a["what"] == "exact" for a in attempts):
        return ["exact", *halve]
    return halve


def revise_plan(plan: Plan, attempt: dict[str, str], problem: Problem, ask: Request) -> Plan | None:
    """Return the plan of an attempt, made from the plan before it; None if that is impossible."""
    setup = plan.setup
    if attempt["what"] == "exact":
        T = float(setup.temperature(0))
        found = from_chains(problem, ask, plan.known, T, first=False)
        if found is None:
            return None
        change = "this run samples the posterior exactly"
        setup = replace(found.setup, temperature=setup.temperature)
        plan = replace(found, setup=setup, notes=found.notes + plan.notes)
    elif attempt["what"] == "finer":
        sampler = replace(setup.sampler, leapfrogs=2 * setup.sampler.leapfrogs)
        h = float(setup.step_size(0)) / 4
        change = "the steps of trajectories were halved"
        setup = replace(setup, sampler=sampler, step_size=as_schedule(h, "step_size"))
        plan = replace(plan, setup=setup)
    else:
        parts = 4 if attempt["what"] == "quarter" else 2  # chains fail where curvature grows
        h = float(setup.step_size(0)) / parts
        change = f"the step size was {'quartered' if parts == 4 else 'halved'} to {h:.3g}"
        rate = None if plan.rate is None else plan.rate / parts
        plan = replace(plan, setup=replace(setup, step_size=as_schedule(h, "step_size")), rate=rate)
    # the remedy of the first verdict is applied here, and the verdict of this run has its own
    why = attempt["why"].split("; ")[0].rstrip(".")
    note = f"a first run was not enough ({why}), so {change}."
    if plan.setup.predictions:
        return network_lengths(plan.with_notes(note), problem, ask)
    return with_lengths(plan.with_notes(note), ask)


# -- extend --------------------------------------------------------------------------------


MAX_ESS_GROWTH = 50  # multiple of the planned draws that `ess=` continues to
# multiple of the planned draws that a run continues to without `ess=`, and its steps
MAX_UNASKED_GROWTH, MAX_UNASKED_STEPS = 8, 10**6
MAX_GROWTH_FOR_R_HAT = 4  # the same multiple for chains that may disagree,
MAX_CHANCE = 0.1  # share of runs whose chains seem to disagree by chance
MAX_GROWTH_FOR_TAILS = 4  # the same multiple if tails may only seem too heavy
# E-BFMI below which more draws do not help: a model of 300 volatilities in time had .01, and the same verdict
# after 78 seconds as after 22
MIN_USEFUL_ENERGY = exact_rule.MIN_ENERGY / 2


def target_num_draws(
    problem: Problem, plan: Plan, ask: Request, ess: float | None, keep: Keep | None, raw: loop.Raw
) -> int:
    """Return the number of draws per chain to continue to; the present one if the run should end.

    With `ess`, the run continues until the smallest bulk ESS reaches it. If lengths were left to
    the library, it continues until ESS and R-hat of every parameter suffice for the verdict.
    """
    plan = as_thin(plan, raw)
    done, setup = raw.num_draws, plan.setup
    if keep is not None and keep.moments:  # batches need the planned number of draws
        return done
    if setup.predictions and ess is None and raw.predicted is not None:
        return _until_predictions_mix(problem, plan, ask, raw)
    by_itself = is_auto(ask.num_draws) and is_auto(ask.step_size)
    if ess is None and not by_itself:
        return done
    if ess is None and raw.trajectories is not None and raw.trajectories.energy < MIN_USEFUL_ENERGY:
        return (
            done  # a property of the posterior decides the verdict, and more draws do not change it
        )
    seen = [] if raw.z is None else [reported_draws(problem, plan, where_held(raw)[0], ask.seed)]
    if raw.value and keep is not None:
        seen.append(kept_draws(problem, plan, raw, ask.seed, keep))
    if not seen or seen[0].healthy.size == 0:
        return done
    found = [own for draws in seen for own in _by_region(problem, plan, draws, raw)]
    if ess is not None:
        share = min(float(np.nanmin(own.ess)) for own in found) / ess
        wanted = _grown(share, done, max(done, MAX_ESS_GROWTH * setup.num_draws // raw.every))
    else:
        wanted = max(draws_needed(own, ask.tolerance, setup.num_draws) for own in found)
        if wanted <= done and setup.exact:
            wanted = max(draws_for_tails(own, setup.num_draws) for own in found)
        wanted = min(wanted, MAX_UNASKED_STEPS // setup.thin)
    if ask.max_steps is not None:
        wanted = min(wanted, 1 + (ask.max_steps - setup.burn_in - 1) // setup.thin)
    return max(done, wanted)


def _until_predictions_mix(problem: Problem, plan: Plan, ask: Request, raw: loop.Raw) -> int:
    """Return twice the draws while predictions have not mixed and the library chooses lengths.

    With a limit on time the run continues until the limit.
    """
    done, setup = raw.num_draws, plan.setup
    if not (is_auto(ask.num_draws) and is_auto(ask.step_size)) or draws_suffice(
        problem, plan, ask, raw
    ):
        return done
    wanted = 2 * done
    if ask.max_seconds is None:
        wanted = min(wanted, max(done, most_draws(plan, problem) // raw.every))
    if ask.max_steps is not None:
        wanted = min(wanted, 1 + (ask.max_steps - setup.burn_in - 1) // setup.thin)
    return max(done, wanted)


def _by_region(
    problem: Problem, plan: Plan, draws: Draws, raw: loop.Raw
) -> list[statistics.Estimates]:
    """Return the estimates of every region by itself, if chains are confined to modes."""
    values, weights = draws.flat()[0], draws.weights
    region = None if raw.z is None else regions_of_chains(problem, plan, np.moveaxis(raw.z, 0, 1))
    if region is None:
        return [statistics.Estimates(values, weights)]
    region = region[draws.healthy]
    return [
        statistics.Estimates(values[region == g], weights[region == g]) for g in np.unique(region)
    ]


def draws_needed(found: statistics.Estimates, tolerance: float, planned: int) -> int:
    """Return the draws per chain to continue to, by the worst parameter; `done` if they suffice.

    The effective draws needed are the verdict's minimum, and for squares (kurtosis - 1) /
    tolerance^2: then the Monte Carlo error of every sd is tolerance / 2 of it. If R-hat is
    suspicious, the run is prolonged in proportion to R-hat^2 - 1, which falls as draws are added;
    the verdict's limit assumes draws that had this chance. Chains that stay apart are ignored: each
    has seen enough of its mode.
    """
    m, (chains, done, count) = found.mixing, found.values.shape
    limit = statistics.max_r_hat(m.ess_alone, chains, count, MAX_CHANCE)
    least = 1.1 * least_ess(chains)
    needed = np.fmax(least, (found.kurtosis - 1) / tolerance**2)
    effective = np.fmin(m.ess / least, np.fmin(m.ess_square / least, found.ess_sd / needed))
    with np.errstate(divide="ignore", invalid="ignore"):
        agreeing = np.where(m.r_hat > limit, (limit**2 - 1) / (m.r_hat**2 - 1), 1.0)
    free = ~separate(m.r_hat, limit, m.ess_alone, m.gap, chains)
    return max(
        _grown(np.min(share, initial=1.0, where=free & np.isfinite(share)), done, most * planned)
        for share, most in ((effective, MAX_UNASKED_GROWTH), (agreeing, MAX_GROWTH_FOR_R_HAT))
    )


def draws_for_tails(found: statistics.Estimates, planned: int) -> int:
    """Return the draws per chain to continue to, by the heaviest tail; `done` if more do not help.

    From a Pareto k of .25 on the error of an sd is infinite, and more draws do not help. Below it,
    and above the limit of exact chains, k may be so by chance: the estimate uses some hundred
    draws, and fewer effective ones. A tail with no fourth moment (Student's t with 3 degrees of
    freedom) seems heavier the more draws there are, not lighter.
    """
    done = found.values.shape[1]
    k = float(np.max(np.nan_to_num(pareto_k(found.values))))
    uncertain = exact_rule.MAX_EXACT_PARETO_K <= k < tails.MIN_HEAVY_PARETO_K
    return max(done, MAX_GROWTH_FOR_TAILS * planned) if uncertain else done


def _grown(share: float, done: int, most: int) -> int:
    """Return the draws for 1.1 times the need, at most `most` and 4 times the present ones."""
    if not share < 1:
        return done
    return max(done, min(most, math.ceil(done * min(4.0, max(1.1, 1.1 / max(share, 0.01))))))


# -- execute -------------------------------------------------------------------------------


STARTS_STREAM = 3  # the stream of the host's generator that the chains' starts use


@dataclass(frozen=True)
class Host:
    """Settings of the host around the chunks: where draws go, how often, and hooks."""

    directory: RunDirectory | None = None
    checkpoint_every: float = 10.0
    on_plan: Callable[[Plan], None] | None = None  # called before the first step
    given: Mapping[str, Any] = field(default_factory=dict)  # user-supplied parts, given again
    moved: str | None = None  # a sentence, if a run continues on another machine or version
    keep: Keep | None = None  # what is kept of a draw, if not its position
    facts: Mapping[str, Any] = field(default_factory=dict)  # facts of the data, for the draws' info
    planned: Callable[[Problem, Request], Plan] = make_plan  # makes the plan


def execute(problem: Problem, ask: Request, ess: int | None, host: Host) -> Draws:
    """Tune, run and judge; with a directory, write the result."""
    began, started = time.perf_counter(), time.monotonic()
    directory = host.directory
    attempts = [] if directory is None else list(directory.begun().get("again", []))
    if directory is not None:
        directory.attempt, directory.checkpoint_every = len(attempts), host.checkpoint_every
    allowed = math.inf if ask.max_seconds is None else ask.max_seconds
    until = sampled_until(started, allowed, predictions=False)
    with deadline(ask.max_seconds, until):
        plan, starts = _begun(problem, ask, host, attempts)
    while True:
        setup = plan.setup
        check_chains(problem.mesh, setup.num_chains)
        check_values(setup.step_size, setup.thin * setup.num_draws, "step_size")
        kept, count = _numbers_kept(host.keep, setup, problem, ask)
        check_planned(setup.num_chains, count, problem.dimension, kept)
        running = _in_batches(problem, plan, ask.seed)
        if starts is None:
            each = -(-kept * count // setup.num_draws)
            plan = replace(plan, predicted=predicted(running, setup, each))
            with deadline(ask.max_seconds, until):
                starts = _starts(running, plan, ask)
            _store(problem, ask, host, StoredPlan(plan, np.asarray(starts), len(attempts)))
        if host.on_plan is not None:
            with aside():
                host.on_plan(plan)
        end = sampled_until(started, allowed, setup.predictions)
        draws = _attempt(running, plan, starts, ask, ess, host, (end, started + allowed))
        found = _next(problem, plan, ask, draws, attempts, host.keep)
        if found is None:
            break
        (plan, attempt), starts = found, None
        attempts.append(attempt)
        if directory is not None:
            with raise_together():
                directory.begin_again(attempts)
    seconds = time.perf_counter() - began
    draws = replace(draws, info={**draws.info, **host.facts, "seconds": seconds})
    if directory is not None:
        with Work("writing") as work:  # Ctrl-C takes effect when all is written
            with raise_together():
                if directory.writes:
                    write_result(directory, draws)
            work.check()
    return draws


def _numbers_kept(
    keep: Keep | None, setup: Setup, problem: Problem, ask: Request
) -> tuple[int, int]:
    """Return the numbers kept per draw, and the planned kept draws per chain."""
    d, chains, draws = problem.dimension, setup.num_chains, setup.num_draws
    if keep is not None:
        return keep.numbers(setup, d), draws
    return d, int(min(draws, held(problem, ask, chains))) if setup.predictions else draws


def _next(
    problem: Problem,
    plan: Plan,
    ask: Request,
    draws: Draws,
    attempts: list[dict[str, str]],
    keep: Keep | None,
) -> tuple[Plan, dict[str, str]] | None:
    """Return another plan and its attempt after a plan that missed; None if the run should end."""
    verdict = draws.verdict
    assert verdict is not None
    # without positions the verdict is never `trusted`, which is not a reason to try again
    blind = keep is not None and not keep.holds_positions(plan.setup, problem.dimension)
    if blind or ask.max_steps is not None or ask.max_seconds is not None:
        return None
    for what in next_attempts(plan, ask, verdict, attempts):
        attempt = {"what": what, "why": verdict.reasons[0]}
        new = revise_plan(plan, attempt, problem, ask)
        if new is not None:
            return new, attempt
    return None


def _begun(
    problem: Problem, ask: Request, host: Host, attempts: list[dict[str, str]]
) -> tuple[Plan, Any]:
    """Return the plan of the present attempt of a run, and its starts if they are stored.

    The plan is read from the run directory. If the run stopped before the next plan was stored,
    that plan is made from the one before. Nothing is tuned twice.
    """
    stored = None
    if host.directory is not None:
        given = Given(host.given, problem, comparable=host.moved is None)
        stored = read_plan(host.directory, given.checked)
    plan, at = (host.planned(problem, ask), 0) if stored is None else (stored.plan, stored.attempt)
    for attempt in attempts[at:]:
        plan = revise_plan(plan, attempt, problem, ask) or plan
    if stored is None:
        return plan, None
    plan = with_prepared_gradient(problem, plan, ask.seed)
    plan = plan if host.moved is None else plan.with_notes(host.moved)
    return plan, problem.array(stored.starts) if at == len(attempts) else None


def _store(problem: Problem, ask: Request, host: Host, stored: StoredPlan) -> None:
    """Store the plan, so that the run can be resumed, and its description in run.json."""
    if host.directory is None:
        return
    own = own_digests(problem, ask)
    with raise_together():
        write_plan(host.directory, stored, own)
        host.directory.add(plan=jsonable(stored.plan.describe()))


def with_prepared_gradient(problem: Problem, plan: Plan, seed: int) -> Plan:
    """Return the plan with what the estimator keeps of the rows, which is not stored."""
    running = _in_batches(problem, plan, seed)
    gradient, gaussian = plan.setup.gradient, plan.known.gaussian
    if isinstance(gradient, Full):  # the stored plan holds everything that it keeps
        return plan
    center = running.start if gaussian is None else gaussian.center
    if isinstance(gradient, ControlVariates):
        gradient, center = ControlVariates(), gradient.center
    gradient = prepared(gradient, running, center)
    return replace(plan, setup=replace(plan.setup, gradient=gradient))


def _in_batches(problem: Problem, plan: Plan, seed: int) -> Problem:
    """Return the problem with its rows in the run's batches."""
    setup = plan.setup
    if setup.order is None or setup.batch_size is None:
        return problem
    batches = problem.with_batches(setup.batch_size, setup.order)
    return batches.with_always(setup.always, seed)


def _attempt(
    problem: Problem,
    plan: Plan,
    starts: Any,
    ask: Request,
    ess: int | None,
    host: Host,
    until: tuple[float, float],
) -> Draws:
    """Run a plan and judge the draws; `problem` holds the rows in the run's batches.

    `until` are the times (of time.monotonic) at which sampling ends, and the call.
    """
    setup = plan.setup
    kernel = make_kernel(problem, plan, ask.seed, host.keep, starts)
    most = most_positions = math.inf
    if setup.predictions and kernel.positions:
        most = most_at_once(plan, problem, on_disk=host.directory is not None)
        most_positions = held(problem, ask, setup.num_chains)
    raw = loop.run(
        kernel,
        starts,
        seed=ask.seed,
        num_draws=setup.num_draws,
        more=partial(target_num_draws, problem, plan, ask, ess, host.keep),
        most=most,
        most_positions=most_positions,
        directory=host.directory,
        checkpoint_every=host.checkpoint_every,
        until=until[0],
        max_seconds=math.inf if ask.max_seconds is None else ask.max_seconds,
    )
    plan = as_thin(plan, raw)
    if raw.out_of_time:
        plan = plan.with_notes(
            f"max_seconds = {ask.max_seconds:g} ended the run at {raw.num_draws} draws per chain."
        )
    elif ask.max_seconds is not None and is_auto(ask.num_draws) and host.directory is not None and raw.num_draws == most:  # fmt: skip
        plan = plan.with_notes(
            f"the run reached the {raw.num_draws} draws per chain that fit in memory before max_seconds = "
            f"{ask.max_seconds:g} passed; thin = {2 * setup.thin} continues for twice the steps."
        )
    return _judged(problem, plan, raw, ask, host.keep, until[1])


@stage("verdict")
def _judged(
    problem: Problem, plan: Plan, raw: loop.Raw, ask: Request, keep: Keep | None, until: float
) -> Draws:
    """Return the draws of a run with their verdict."""
    info = {
        "num_data": problem.num_data or None,
        "num_steps": raw.num_steps,
        "seed": int(ask.seed),
        "plan": plan.describe(),
        "predicted": None if plan.predicted is None else asdict(plan.predicted),
        "log_density_at_mode": plan.known.log_density,
        "laplace": laplace_facts(problem, plan.known),
        "modes": modes_facts(problem, plan.known),
        "phase": None if raw.phase is None else raw.phase.to_dict(),
    }
    if plan.setup.predictions and raw.predicted is not None:
        return judged_by_predictions(problem, plan, raw, ask, info, keep, until)
    if keep is not None:
        return judge_kept(problem, plan, raw, keep, ask, info)
    return judge_parameters(problem, plan, raw, ask, info)


def make_kernel(
    problem: Problem, plan: Plan, seed: int, keep: Keep | None = None, starts: Any = None
) -> Kernel:
    """Return the constant part of the compiled chunk; `problem` holds rows in the run's batches.

    For a run judged by predictions, this finds the stiffest directions at its `starts`; a resumed
    run finds them again.
    """
    setup = plan.setup
    positions = keep is None or keep.holds_positions(setup, problem.dimension)
    exact = not problem.has_rows or isinstance(setup.gradient, Full)
    independent = exact or problem.source.is_independent
    key = stream_key(seed, 0)
    return Kernel(
        problem, setup.gradient, setup.preconditioner, setup.sampler, _callable(setup.step_size),
        _callable(setup.temperature), key, sent(setup.burn_in, np.int32), sent(setup.thin, np.int32),
        independent and not setup.exact and plan.known.gaussian is not None and positions,
        None if keep is None else keep.function, None if keep is None else keep.batches(setup),
        make_probe(problem, setup, starts), positions, setup.noise,
    )  # fmt: skip


def _callable(schedule: Callable) -> Callable:
    if jax.tree_util.all_leaves([schedule]):
        return Partial(schedule)
    return jax.tree.map(jax.device_put, schedule)


def _starts(problem: Problem, plan: Plan, ask: Request) -> Any:
    """Return starts dispersed around the mode by twice the Laplace sd; init for a manual step."""
    z0, known, starts = np.asarray(problem.start), plan.known, plan.setup.starts
    chains = plan.setup.num_chains
    if isinstance(plan.setup.sampler, ConfinedHMC) and starts is None:  # a plan that is run again
        centers = np.asarray(plan.setup.sampler.regions.center)
        return problem.array(centers[np.arange(chains) * len(centers) // chains])
    if not is_auto(ask.step_size):
        return problem.array(np.tile(z0, (chains, 1)))
    if starts is not None:
        few = chains <= len(starts)  # spread over the starts, which are ordered by kind
        chosen = np.linspace(0, len(starts) - 1, chains).round().astype(int)
        return problem.array(starts[chosen if few else np.arange(chains) % len(starts)])
    xi = generator(ask.seed, STARTS_STREAM, 0).standard_normal((chains, z0.size))
    if known.gaussian is not None and known.usable:
        center, offset = known.gaussian.center, known.gaussian.spread(2 * xi)
    else:
        matrix = settled(plan.setup.preconditioner, problem, z0)
        center, offset = z0, np.asarray(jax.vmap(matrix.noise)(problem.array(xi)))
    if known.nu is not None and known.nu < MAX_GAUSSIAN_NU:  # nu was measured at such points
        return problem.array(center[None] + offset)
    for _ in range(20):  # move a start without density towards the mode
        gradients = sums.gradients(problem, center[None] + offset)
        bad = ~np.all(np.isfinite(gradients), axis=1)
        if not bad.any():
            break
        offset = np.where(bad[:, None], offset / 2, offset)
    return problem.array(center[None] + offset)
