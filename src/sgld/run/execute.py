"""From a plan to judged draws: run it, judge what comes out, and try again where that may help."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from ..data.source import generator
from ..diagnose.assess import assess
from ..draws.draws import Draws
from ..draws.plan import Plan
from ..draws.storage import RunDirectory, write_result
from ..gaussian.known import NEAR
from ..gradient.full import Full
from ..problem import sums
from ..problem.problem import Problem
from ..problem.request import Request, is_auto
from ..schedule import check_values
from ..tune.metric import settled
from ..tune.plan import make_plan
from . import loop
from .again import another, revised
from .chunk import Kernel
from .extend import draws_to_go_on_to
from .outcome import laplace_facts, reported_draws, sampling_only, within_support

__all__ = ["Host", "execute", "make_kernel"]

STARTS = 3  # the stream of the host's generator that the chains' starts use


@dataclass(frozen=True)
class Host:
    """What the host does around the chunks: where draws go, how often, what is shown."""

    directory: RunDirectory | None = None
    checkpoint_every: float = 10.0
    progress: bool = False
    on_plan: Callable[[Plan], None] | None = None  # called before the first step


def execute(problem: Problem, ask: Request, ess: int | None, host: Host) -> Draws:
    """Tune, run, judge; with a directory, write the result."""
    began, started = time.perf_counter(), time.monotonic()
    directory = host.directory
    try:
        attempts = [] if directory is None else list(directory.read("run.json").get("again", []))
        plan = make_plan(problem, ask)
        for attempt in attempts:  # a resumed run goes on with the attempt it had come to
            plan = revised(plan, attempt, problem, ask) or plan
        while True:
            check_values(plan.setup.step_size, plan.setup.thin * plan.setup.num_draws, "step_size")
            if directory is not None:
                directory.add_plan(plan.describe())
            if host.on_plan is not None:
                host.on_plan(plan)
            until = math.inf if ask.max_seconds is None else started + ask.max_seconds
            draws = _attempt(problem, plan, ask, ess, host, until)
            found = _next(problem, plan, ask, draws, attempts)
            if found is None:
                break
            plan, attempt = found
            attempts.append(attempt)
            if directory is not None:
                directory.begin_again(attempts)
        draws = replace(draws, info={**draws.info, "seconds": time.perf_counter() - began})
        if directory is not None:
            write_result(directory, draws)
        return draws
    finally:
        if directory is not None:
            directory.unlock()


def _next(
    problem: Problem, plan: Plan, ask: Request, draws: Draws, attempts: list[dict[str, str]]
) -> tuple[Plan, dict[str, str]] | None:
    """Another plan after one that missed, where there is one and nothing limits the run."""
    verdict = draws.verdict
    assert verdict is not None
    if ask.max_steps is not None or ask.max_seconds is not None:
        return None
    for what in another(plan, ask, verdict, attempts):
        attempt = {"what": what, "why": verdict.reasons[0]}
        new = revised(plan, attempt, problem, ask)
        if new is not None:
            return new, attempt
    return None


def _attempt(
    problem: Problem, plan: Plan, ask: Request, ess: int | None, host: Host, until: float
) -> Draws:
    """Run a plan and judge what comes out."""
    setup = plan.setup
    if setup.order is not None and setup.batch_size is not None:
        problem = problem.with_batches(setup.batch_size, setup.order)
    kernel = make_kernel(problem, plan, ask.seed)
    raw = loop.run(
        kernel,
        _starts(problem, plan, ask),
        seed=ask.seed,
        num_draws=setup.num_draws,
        more=partial(draws_to_go_on_to, problem, plan, ask, ess),
        directory=host.directory,
        checkpoint_every=host.checkpoint_every,
        progress=host.progress,
        until=until,
    )
    if raw.out_of_time:
        plan = plan.noted(
            f"the time of max_seconds = {ask.max_seconds:g} was up at {len(raw.z)} draws per chain."
        )
    draws = reported_draws(problem, plan, raw, ask.seed)
    info = {
        "num_data": problem.num_data or None,
        "num_steps": raw.num_steps,
        "seed": int(ask.seed),
        "plan": plan.describe(),
        "log_density_at_mode": plan.known.log_density,
        "laplace": laplace_facts(problem, plan.known),
        "phase": None if raw.phase is None else raw.phase.to_dict(),
    }
    raw, _ = sampling_only(raw)
    z = np.moveaxis(raw.z, 0, 1)
    draws = within_support(problem, replace(draws, info=info, plan=plan), z)
    gradient = None if raw.gradient is None else np.moveaxis(raw.gradient, 0, 1)
    return draws.with_verdict(assess(problem, plan, draws, z, gradient, ask.tolerance, ask.seed))


def make_kernel(problem: Problem, plan: Plan, seed: int) -> Kernel:
    """The compiled chunk's constant part; `problem` holds the rows in the run's batches."""
    setup = plan.setup
    exact = not problem.has_rows or isinstance(setup.gradient, Full)
    independent = exact or problem.source.is_independent
    key = jax.random.fold_in(jax.random.key(seed), 0)
    return Kernel(
        problem, setup.gradient, setup.preconditioner, setup.sampler, _callable(setup.step_size),
        _callable(setup.temperature), key, jnp.int32(setup.burn_in), jnp.int32(setup.thin),
        record_gradient=independent and plan.known.gaussian is not None,
    )  # fmt: skip


def _callable(schedule: Callable) -> Callable:
    if jax.tree_util.all_leaves([schedule]):
        return Partial(schedule)
    return jax.tree.map(jnp.asarray, schedule)


def _starts(problem: Problem, plan: Plan, ask: Request) -> Any:
    """Dispersed around the mode (twice the Laplace sd); at init where the step is by hand."""
    z0, known, starts = np.asarray(problem.start), plan.known, plan.setup.starts
    if not is_auto(ask.step_size):
        return problem.array(np.tile(z0, (ask.num_chains, 1)))
    xi = generator(ask.seed, STARTS, 0).standard_normal((ask.num_chains, z0.size))
    if starts is not None:
        return problem.array(starts[np.arange(ask.num_chains) % len(starts)])
    if known.gaussian is not None and known.usable:
        center, offset = known.gaussian.mode, known.gaussian.spread(2 * xi)
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
