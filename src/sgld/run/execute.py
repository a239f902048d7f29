"""From a plan to judged draws: run it, judge what comes out, and try again where that may help."""

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

from ..approximation.known import NEAR
from ..core.devices import check_chains, sent, stream_key, together
from ..core.progress import aside, deadline, sampled_until, stage
from ..core.work import Work
from ..data.source import generator
from ..model import sums
from ..model.problem import Problem, Request, is_auto
from ..results.codec import StoredPlan, read_plan, write_plan
from ..results.draws import Draws
from ..results.plan import Plan, Setup
from ..results.run_directory import RunDirectory
from ..results.storage import jsonable, write_result
from ..samplers.confined_hmc import ConfinedHMC
from ..samplers.gradients.control_variates import ControlVariates
from ..samplers.gradients.full import Full
from ..samplers.schedules import check_values
from ..tune.estimator import prepared
from ..tune.memory import check_planned
from ..tune.metric import settled
from ..tune.network_lengths import held, most_at_once
from ..tune.plan import make_plan
from ..tune.predict import predicted
from . import loop
from .again import another, revised
from .chunk import Kernel
from .extend import draws_to_go_on_to
from .judge_kept import judged
from .judge_parameters import judged_by_parameters
from .judge_predictions import judged_by_predictions
from .kept import Keep
from .measured import make_probe
from .outcome import (
    as_thin,
    laplace_facts,
    modes_facts,
)
from .record import Given, own_digests

__all__ = ["Host", "execute", "make_kernel", "prepared_again"]

STARTS = 3  # the stream of the host's generator that the chains' starts use


@dataclass(frozen=True)
class Host:
    """What the host does around the chunks: where draws go, how often."""

    directory: RunDirectory | None = None
    checkpoint_every: float = 10.0
    on_plan: Callable[[Plan], None] | None = None  # called before the first step
    given: Mapping[str, Any] = field(default_factory=dict)  # again, of the user's own
    moved: str | None = None  # a sentence, where a run goes on elsewhere
    keep: Keep | None = None  # what is kept of a draw, where not its position
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the data, for the draws' info
    planned: Callable[[Problem, Request], Plan] = make_plan  # what makes the plan


def execute(problem: Problem, ask: Request, ess: int | None, host: Host) -> Draws:
    """Tune, run, judge; with a directory, write the result."""
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
            with together():
                directory.begin_again(attempts)
    seconds = time.perf_counter() - began
    draws = replace(draws, info={**draws.info, **host.facts, "seconds": seconds})
    if directory is not None:
        with Work("writing") as work:  # Ctrl-C is heard when all is written
            with together():
                if directory.writes:
                    write_result(directory, draws)
            work.check()
    return draws


def _numbers_kept(
    keep: Keep | None, setup: Setup, problem: Problem, ask: Request
) -> tuple[int, int]:
    """Of a draw, and of how many draws of a chain as planned."""
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
    """Another plan after one that missed, where there is one and nothing limits the run."""
    verdict = draws.verdict
    assert verdict is not None
    # without positions the verdict never says `trusted`: it is no reason to try again
    blind = keep is not None and not keep.holds_positions(plan.setup, problem.dimension)
    if blind or ask.max_steps is not None or ask.max_seconds is not None:
        return None
    for what in another(plan, ask, verdict, attempts):
        attempt = {"what": what, "why": verdict.reasons[0]}
        new = revised(plan, attempt, problem, ask)
        if new is not None:
            return new, attempt
    return None


def _begun(
    problem: Problem, ask: Request, host: Host, attempts: list[dict[str, str]]
) -> tuple[Plan, Any]:
    """The plan of the attempt that a run has come to, and its starts where they are stored.

    As it was stored; where a run was stopped between the word that a plan missed and the next plan,
    that one is made from the one before. Nothing is tuned twice.
    """
    stored = None
    if host.directory is not None:
        given = Given(host.given, problem, comparable=host.moved is None)
        stored = read_plan(host.directory, given.checked)
    plan, at = (host.planned(problem, ask), 0) if stored is None else (stored.plan, stored.attempt)
    for attempt in attempts[at:]:
        plan = revised(plan, attempt, problem, ask) or plan
    if stored is None:
        return plan, None
    plan = prepared_again(problem, plan, ask.seed)
    plan = plan if host.moved is None else plan.noted(host.moved)
    return plan, problem.array(stored.starts) if at == len(attempts) else None


def _store(problem: Problem, ask: Request, host: Host, stored: StoredPlan) -> None:
    """Store the plan, so that the run can go on, and its words in run.json."""
    if host.directory is None:
        return
    own = own_digests(problem, ask)
    with together():
        write_plan(host.directory, stored, own)
        host.directory.add(plan=jsonable(stored.plan.describe()))


def prepared_again(problem: Problem, plan: Plan, seed: int) -> Plan:
    """With what the estimator keeps of the rows, which is not stored."""
    running = _in_batches(problem, plan, seed)
    gradient, gaussian = plan.setup.gradient, plan.known.gaussian
    if isinstance(gradient, Full):  # all that it keeps is stored
        return plan
    center = running.start if gaussian is None else gaussian.center
    if isinstance(gradient, ControlVariates):
        gradient, center = ControlVariates(), gradient.center
    gradient = prepared(gradient, running, center)
    return replace(plan, setup=replace(plan.setup, gradient=gradient))


def _in_batches(problem: Problem, plan: Plan, seed: int) -> Problem:
    """The problem with its rows in the run's batches."""
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
    """Run a plan and judge what comes out; `problem` holds the rows in the run's batches.

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
        more=partial(draws_to_go_on_to, problem, plan, ask, ess, host.keep),
        most=most,
        most_positions=most_positions,
        directory=host.directory,
        checkpoint_every=host.checkpoint_every,
        until=until[0],
        max_seconds=math.inf if ask.max_seconds is None else ask.max_seconds,
    )
    plan = as_thin(plan, raw)
    if raw.out_of_time:
        plan = plan.noted(
            f"the time of max_seconds = {ask.max_seconds:g} was up at {raw.num_draws} draws per chain."
        )
    elif ask.max_seconds is not None and is_auto(ask.num_draws) and host.directory is not None and raw.num_draws == most:  # fmt: skip
        plan = plan.noted(
            f"the {raw.num_draws} draws per chain that there is room for were there before max_seconds = "
            f"{ask.max_seconds:g} was up: thin = {2 * setup.thin} goes on for twice the steps."
        )
    return _judged(problem, plan, raw, ask, host.keep, until[1])


@stage("verdict")
def _judged(
    problem: Problem, plan: Plan, raw: loop.Raw, ask: Request, keep: Keep | None, until: float
) -> Draws:
    """What came out of a run, with its verdict."""
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
        return judged(problem, plan, raw, keep, ask, info)
    return judged_by_parameters(problem, plan, raw, ask, info)


def make_kernel(
    problem: Problem, plan: Plan, seed: int, keep: Keep | None = None, starts: Any = None
) -> Kernel:
    """The compiled chunk's constant part; `problem` holds the rows in the run's batches.

    Of a run that is judged by predictions, the directions that are the stiffest at its `starts` are
    found here, for a resumed one again.
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
    """Dispersed around the mode (twice the Laplace sd); at init where the step is by hand."""
    z0, known, starts = np.asarray(problem.start), plan.known, plan.setup.starts
    chains = plan.setup.num_chains
    if isinstance(plan.setup.sampler, ConfinedHMC) and starts is None:  # a plan that runs again
        centers = np.asarray(plan.setup.sampler.regions.center)
        return problem.array(centers[np.arange(chains) * len(centers) // chains])
    if not is_auto(ask.step_size):
        return problem.array(np.tile(z0, (chains, 1)))
    if starts is not None:
        few = chains <= len(starts)  # some of all kinds, where they are in an order
        chosen = np.linspace(0, len(starts) - 1, chains).round().astype(int)
        return problem.array(starts[chosen if few else np.arange(chains) % len(starts)])
    xi = generator(ask.seed, STARTS, 0).standard_normal((chains, z0.size))
    if known.gaussian is not None and known.usable:
        center, offset = known.gaussian.center, known.gaussian.spread(2 * xi)
    else:
        matrix = settled(plan.setup.preconditioner, problem, z0)
        center, offset = z0, np.asarray(jax.vmap(matrix.noise)(problem.array(xi)))
    if known.nu is not None and known.nu < NEAR:  # measured at such places
        return problem.array(center[None] + offset)
    for _ in range(20):  # a start of no density is drawn in towards the mode
        gradients = sums.gradients(problem, center[None] + offset)
        bad = ~np.all(np.isfinite(gradients), axis=1)
        if not bad.any():
            break
        offset = np.where(bad[:, None], offset / 2, offset)
    return problem.array(center[None] + offset)
