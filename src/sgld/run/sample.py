"""`sgld.sample`: from a posterior and data to judged draws. All of a user's mistakes are answered
here, before step 1."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from ..data.source import generator
from ..diagnose.assess import assess
from ..diagnose.verdict import MIN_ESS
from ..draws import weighted
from ..draws.draws import Draws
from ..draws.storage import RunDirectory, load, write_result
from ..errors import RunError
from ..gradient import sums
from ..gradient.full import Full
from ..posterior import Posterior, Target
from ..schedule import check_schedule
from ..tune.plan import NEAR, make_plan
from ..tune.request import Plan, Request, is_auto
from ..tune.rough import settled
from . import loop
from .again import another, revised
from .arguments import Prepared, prepare
from .chunk import Kernel
from .judge_kept import judged
from .kept import Keep, as_keep, check_moments
from .outcome import kept_draws, laplace_facts, reported_draws, sampling_only, within_support
from .record import asked_again, check_unchanged, keep_again, record

__all__ = ["resume", "sample"]

STARTS = 3  # the stream of the host's generator that the chains' starts use
MAX_GROWTH = 50  # `ess=` goes on to at most this many times the planned draws
GROWTH_BY_ITSELF, MOST_STEPS = 8, 10**6  # and the library by itself to this many, and steps


def sample(
    posterior: Posterior,
    data: Any,
    init: Any = None,
    *,
    sampler: Any = "auto",
    step_size: Any = "auto",
    tolerance: float = 0.05,
    temperature: Any = 1.0,
    gradient: Any = "auto",
    preconditioner: Any = "auto",
    order: str = "auto",
    batch_size: int | str = "auto",
    num_chains: int = 4,
    num_draws: int | str = "auto",
    ess: int | None = None,
    burn_in: int | str = "auto",
    thin: int | str = "auto",
    seed: int = 0,
    path: str | Path | None = None,
    progress: bool = True,
    overwrite: bool = False,
    checkpoint_every: float = 10.0,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    keep: Any = None,
) -> Draws:
    """Draw from the posterior, and say how far to trust the draws.

        theta' = theta + h D grad log p(theta | data) + sqrt(2 h T) D^{1/2} xi

    Nothing but posterior, data and init is required: mode, curvature and gradient noise are
    measured, and step size h, preconditioner D, gradient estimator, batch, burn-in and
    lengths follow from `tolerance`. Values given by hand are never changed, only judged.
    A step size given by hand means the textbook algorithm in all that is left open: D = I,
    plain minibatches of 100 rows, every chain starting at `init`, no thinning.

    Args:
      posterior: a Posterior.
      data: pytree of arrays whose leading axis is the row, or None for a log density alone.
      init: a position to start the search for the mode from (and the chains, where the step
        size is given by hand). May be left out where the posterior carries one.
      sampler: "auto" or a sampler: SGLD(), BAOA(), UBU(), SGHMC(), SGNHT(), ReplicaExchange().
      step_size: h, "auto", a number or any schedule `step -> h`. A schedule starts after
        burn-in, which uses schedule(0). h multiplies the gradient of the FULL-data log
        posterior.
      tolerance: acceptable relative error of the posterior sd, in (0, .5]; half of it for
        bias, half for Monte Carlo error.
      temperature: T, a number or a schedule; the law is p(theta | data)^(1/T). Steps at T = 0
        among others explore and give no draws: `step_size=cycles, temperature=cycles.temperature()`
        with `cycles = cosine_cycles(...)` is cyclical sampling (Zhang et al. 2020), which finds
        several modes, but how many draws fall into each is where cycles end, not posterior weight.
      gradient: "auto", Full(), Minibatch() or ControlVariates().
      preconditioner: "auto", Scalar, Diagonal or Dense: D itself.
      order: "auto", "reshuffle", "symmetric", "independent", "replacement" or "subset". "auto"
        is "reshuffle", but "independent" with control variates.
      batch_size: rows per step.
      num_chains: independent chains, each with its own data order.
      num_draws: kept draws per chain ("auto": 1000, more for a small tolerance).
      ess: go on until every parameter has this many effective draws.
      burn_in: steps before the first draw.
      thin: steps per kept draw.
      seed: of everything random.
      path: a run directory to write to; a killed run goes on with `sgld.resume(path)`.
      progress: show a progress bar on a terminal.
      overwrite: replace a run directory that exists.
      checkpoint_every: seconds between checkpoints, with `path`.
      max_steps: of one chain, burn-in included, whatever the precision reached; one attempt is made.
      max_seconds: after which no more draws are taken, once there are 20 a chain (tuning, burn-in and
        verdict are not cut short, and one attempt is made). A resumed run has the time anew.
      keep: a function of the position (as draws report it) that is kept INSTEAD of it, such as
        predictions at some rows, a part of a network's weights or a loss: a pytree of floating-point
        arrays of fixed shape, which is then `draws.position`. Or "moments": mean, variance and
        Monte Carlo error of every parameter, in memory that no draw adds to. The verdict judges
        the parameters where their positions are few numbers (up to 2^22 in all); else no more than mixing
        is known, and it is never `trusted`. docs/keep.md.

    Returns: Draws, with `.verdict`.

    Raises: UsageError for a wrong argument, DataError for wrong data, RunError for `path`.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(
      ...     lambda t: -0.5 * (t / 10) ** 2, lambda t, x: -0.5 * (x - t) ** 2)
      >>> draws = sgld.sample(posterior, jnp.linspace(-1.0, 3.0, 400), 0.0, progress=False)
      >>> print(draws.verdict.word)
      trusted
    """
    ask = Request(
        sampler, step_size, tolerance, temperature, gradient, preconditioner, order, batch_size,
        num_chains, num_draws, burn_in, thin, seed, max_steps, max_seconds,
    )  # fmt: skip
    return begin(
        posterior, data, init, ask, ess, {"kind": "sample"}, path=path, overwrite=overwrite,
        progress=progress, checkpoint_every=checkpoint_every, keep=keep,
    )  # fmt: skip


def begin(
    posterior: Posterior, data: Any, init: Any, ask: Request, ess: int | None,
    asked: dict[str, Any], *, path: str | Path | None, overwrite: bool, progress: bool,
    checkpoint_every: float, on_start: Callable[[], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None, keep: Any = None,
) -> Draws:  # fmt: skip
    """Check everything, write run.json with `asked` in it, and run.

    `on_start` is called once the arguments have passed, `on_plan` before the first step.
    """
    threading.Thread(target=weighted.load, daemon=True).start()
    prepared = prepare(posterior, data, init, ask, ess)
    kept = as_keep(keep, prepared.target, prepared.z0)
    check_moments(kept, ask, ess)
    directory = None
    if path is not None:
        directory = RunDirectory(path)
        directory.create(overwrite)
        directory.lock()
        directory.write(
            "run.json",
            {**asked, **record(prepared.target, prepared.source, prepared.z0, ask, ess, kept)},
        )
    if on_start is not None:
        on_start()
    return execute(prepared, ask, ess, directory, progress, checkpoint_every, on_plan, kept)


def resume(
    path: str | Path,
    posterior: Posterior | None = None,
    data: Any = None,
    init: Any = None,
    *,
    progress: bool = True,
    checkpoint_every: float = 10.0,
    keep: Any = None,
) -> Draws:
    """Go on with a killed or interrupted run, to the same bits as an uninterrupted one.

    Args:
      path: a run directory. A finished one is loaded.
      posterior, data, init: those the run was begun with; not needed for runs of `sgld fit`.
      keep: the function the run was begun with, where it was begun with one.

    Raises: RunError where the directory is none, is in use, or was begun with another
    model, data, keep or number of chains.
    """
    directory = RunDirectory(path)
    if not directory.path.is_dir():
        raise RunError(f"{path} is not a directory.")
    asked = directory.read("run.json")
    if directory.finished():
        return load(path)
    if asked.get("kind") == "formula" and posterior is None:
        from ..models.fit import model_of_run

        model = model_of_run(asked)
        posterior, data = model.posterior, model.data
    if posterior is None:
        raise RunError(
            f"{path} was begun from Python functions, which are not stored; call "
            "sgld.resume(path, posterior, data, init) with the same ones."
        )
    ask = asked_again(directory, asked)
    ess = asked.get("ess")
    prepared = prepare(posterior, data, init, ask, ess)
    kept = as_keep(keep_again(directory, asked, keep), prepared.target, prepared.z0)
    now = record(prepared.target, prepared.source, prepared.z0, ask, ess, kept)
    check_unchanged(directory, asked, now)
    directory.lock()
    return execute(prepared, ask, ess, directory, progress, checkpoint_every, kept=kept)


def execute(
    prepared: Prepared,
    ask: Request,
    ess: int | None,
    directory: RunDirectory | None,
    progress: bool,
    checkpoint_every: float,
    on_plan: Callable[[Plan], None] | None = None,
    kept: Keep | None = None,
) -> Draws:
    """Tune, run, judge; with a directory, write the result."""
    began, started = time.perf_counter(), time.monotonic()
    try:
        target, source, z0 = prepared.target, prepared.source, prepared.z0
        attempts = [] if directory is None else list(directory.read("run.json").get("again", []))
        plan = make_plan(target, source, z0, ask)
        for attempt in attempts:  # a resumed run goes on with the attempt it had come to
            plan = revised(plan, attempt, target, source, z0, ask) or plan
        while True:
            check_schedule(plan.step_size, plan.thin * plan.num_draws, "step_size")
            if directory is not None:
                directory.add_plan(plan.describe())
            if on_plan is not None:
                on_plan(plan)
            until = math.inf if ask.max_seconds is None else started + ask.max_seconds
            draws = _attempt(
                prepared, plan, ask, ess, directory, progress, checkpoint_every, until, kept
            )
            assert draws.verdict is not None
            # without positions the verdict never says `trusted`: it is no reason to try again
            blind = kept is not None and not kept.holds_positions(plan, z0.size)
            limited = blind or ask.max_steps is not None or ask.max_seconds is not None
            new = None
            for what in () if limited else another(plan, ask, draws.verdict, attempts):
                attempt = {"what": what, "why": draws.verdict.reasons[0]}
                new = revised(plan, attempt, target, source, z0, ask)
                if new is not None:
                    break
            if new is None:
                break
            plan = new
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


def _attempt(
    prepared: Prepared, plan: Plan, ask: Request, ess: int | None,
    directory: RunDirectory | None, progress: bool, checkpoint_every: float, until: float,
    kept: Keep | None,
) -> Draws:  # fmt: skip
    """Run a plan and judge what comes out."""
    target = prepared.target
    kernel = make_kernel(target, plan, ask, kept)
    raw = loop.run(
        kernel,
        _starts(prepared, plan, ask, kernel),
        seed=ask.seed,
        num_draws=plan.num_draws,
        more=partial(_more, target, plan, ask, ess, kept),
        directory=directory,
        checkpoint_every=checkpoint_every,
        progress=progress,
        until=until,
    )
    if raw.out_of_time:
        note = f"the time of max_seconds = {ask.max_seconds:g} was up at {raw.num_draws} draws per chain."
        plan = replace(plan, notes=(*plan.notes, note))
    info = {
        "num_data": None if prepared.source is None else prepared.source.num_data,
        "num_steps": raw.num_steps,
        "seed": int(ask.seed),
        "plan": plan.describe(),
        "log_density_at_mode": plan.log_density,
        "laplace": laplace_facts(target, plan),
        "phase": None if raw.phase is None else raw.phase.to_dict(),
    }
    if kept is not None:
        return judged(target, plan, raw, kept, ask, info)
    draws = reported_draws(target, plan, raw, ask.seed)
    raw, _ = sampling_only(raw)
    assert raw.z is not None
    z = np.moveaxis(raw.z, 0, 1)
    draws = within_support(target, plan, replace(draws, info=info, plan=plan), z)
    gradient = None if raw.gradient is None else np.moveaxis(raw.gradient, 0, 1)
    return draws.with_verdict(assess(target, plan, draws, z, gradient, ask.tolerance, ask.seed))


def make_kernel(target: Target, plan: Plan, ask: Request, kept: Keep | None = None) -> Kernel:
    """The compiled chunk's constant part."""
    positions = kept is None or kept.holds_positions(plan, target.layout.dimension)
    independent = (
        plan.source is None or plan.source.is_independent or isinstance(plan.gradient, Full)
    )
    key = jax.random.fold_in(jax.random.key(ask.seed), 0)
    return Kernel(
        target, plan.source, plan.gradient, plan.preconditioner, plan.sampler,
        _callable(plan.step_size), _callable(plan.temperature), key, jnp.int32(plan.burn_in),
        jnp.int32(plan.thin), independent and plan.laplace is not None and positions,
        None if kept is None else kept.function, None if kept is None else kept.batches(plan),
        positions,
    )  # fmt: skip


def _callable(schedule: Callable) -> Callable:
    if jax.tree_util.all_leaves([schedule]):
        return Partial(schedule)
    return jax.tree.map(jnp.asarray, schedule)


def _starts(prepared: Prepared, plan: Plan, ask: Request, kernel: Kernel) -> Any:
    """Dispersed around the mode (twice the Laplace sd); at init where the step is by hand."""
    layout, d = prepared.target.layout, prepared.z0.size
    if not is_auto(ask.step_size):
        return layout.array(np.tile(prepared.z0, (ask.num_chains, 1)))
    xi = generator(ask.seed, STARTS, 0).standard_normal((ask.num_chains, d))
    if plan.starts is not None:
        return layout.array(plan.starts[np.arange(ask.num_chains) % len(plan.starts)])
    if plan.laplace is not None and plan.laplace.positive_definite:
        center, offset = plan.laplace.mode, plan.laplace.spread(2 * xi)
    else:
        matrix = settled(plan.preconditioner, prepared.target, plan.source, prepared.z0)
        center, offset = prepared.z0, np.asarray(jax.vmap(matrix.noise)(layout.array(xi)))
    if plan.nu is not None and plan.nu < NEAR:  # measured at such places
        return layout.array(center[None] + offset)
    for _ in range(20):  # a start of no density is drawn in towards the mode
        gradients = sums.gradients(prepared.target, prepared.source, center[None] + offset)
        bad = ~np.all(np.isfinite(gradients), axis=1)
        if not bad.any():
            break
        offset = np.where(bad[:, None], offset / 2, offset)
    return layout.array(center[None] + offset)


def _precision(values: np.ndarray, weights: np.ndarray, tolerance: float) -> float:
    """Effective draws over those needed, in the worst parameter.

    The verdict's least ESS, and for squares (kurtosis - 1) / tolerance^2: then the Monte Carlo
    error of every sd is tolerance / 2 of it.
    """
    centred = values - weighted.mean(values, weights)
    second = weighted.mean(centred**2, weights)
    with np.errstate(divide="ignore", invalid="ignore"):  # a parameter whose draws are all the same
        kurtosis = weighted.mean(centred**4, weights) / second**2
        needed = np.fmax(1.1 * MIN_ESS, (kurtosis - 1) / tolerance**2)
        shares = (
            weighted.ess(values, weights) / (1.1 * MIN_ESS),
            weighted.ess(centred**2, weights) / needed,
        )
    return float(np.min(shares, initial=np.inf, where=np.isfinite(shares)))


def _more(
    target: Target, plan: Plan, ask: Request, ess: float | None, kept: Keep | None, raw: loop.Raw
) -> int:
    """How many draws per chain to go on to.

    Until the smallest bulk ESS reaches `ess`; where lengths were left to the library, until
    those of theta and theta^2 suffice for the verdict.
    """
    done = raw.num_draws
    seen = [] if raw.z is None else [reported_draws(target, plan, raw, ask.seed)]
    if raw.value and kept is not None:
        seen.append(kept_draws(target, plan, raw, ask.seed, kept))
    if not seen or seen[0].healthy.size == 0:
        return done
    known = [(draws.flat()[0], draws.weights) for draws in seen]
    if ess is not None:
        share, longest = (
            min(float(np.nanmin(weighted.ess(*own))) for own in known) / ess,
            MAX_GROWTH,
        )
    elif is_auto(ask.num_draws) and is_auto(ask.step_size):
        share, longest = min(_precision(*own, ask.tolerance) for own in known), GROWTH_BY_ITSELF
    else:
        return done
    if not share < 1:
        return done
    growth = min(4.0, max(1.1, 1.1 / max(share, 0.01)))
    most = longest * plan.num_draws
    if ess is None:
        most = min(most, MOST_STEPS // plan.thin)
    if ask.max_steps is not None:
        most = min(most, 1 + (ask.max_steps - plan.burn_in - 1) // plan.thin)
    return max(done, min(most, math.ceil(done * growth)))
