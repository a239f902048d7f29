"""`sgld.sample`: from a posterior and data to judged draws. All of a user's mistakes are answered
here, before step 1."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from ..data.source import ORDERS, Source, check_data, generator
from ..diagnose.assess import assess
from ..draws import weighted
from ..draws.draws import Draws
from ..draws.storage import RunDirectory, load, write_result
from ..errors import RunError, UsageError, did_you_mean
from ..gradient import sums
from ..gradient.full import Full
from ..layout import Layout
from ..posterior import Posterior, Target
from ..schedule import as_schedule, check_schedule
from ..tune.plan import Plan, Request, make_plan, settled
from . import loop
from .chunk import Kernel
from .record import asked_again, check_unchanged, record

__all__ = ["resume", "sample"]

STARTS = 3  # the stream of the host's generator that the chains' starts use
MAX_GROWTH = 50  # `ess=` goes on to at most this many times the planned draws


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
        num_chains, num_draws, burn_in, thin, seed,
    )  # fmt: skip
    return begin(
        posterior, data, init, ask, ess, {"kind": "sample"}, path=path, overwrite=overwrite,
        progress=progress, checkpoint_every=checkpoint_every,
    )  # fmt: skip


def begin(
    posterior: Posterior, data: Any, init: Any, ask: Request, ess: int | None,
    asked: dict[str, Any], *, path: str | Path | None, overwrite: bool, progress: bool,
    checkpoint_every: float, on_start: Callable[[], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Draws:  # fmt: skip
    """Check everything, write run.json with `asked` in it, and run.

    `on_start` is called once the arguments have passed, `on_plan` before the first step.
    """
    prepared = _prepare(posterior, data, init, ask, ess)
    directory = None
    if path is not None:
        directory = RunDirectory(path)
        directory.create(overwrite)
        directory.lock()
        directory.write(
            "run.json", {**asked, **record(prepared.target, prepared.source, prepared.z0, ask, ess)}
        )
    if on_start is not None:
        on_start()
    return execute(prepared, ask, ess, directory, progress, checkpoint_every, on_plan)


def resume(
    path: str | Path,
    posterior: Posterior | None = None,
    data: Any = None,
    init: Any = None,
    *,
    progress: bool = True,
    checkpoint_every: float = 10.0,
) -> Draws:
    """Go on with a killed or interrupted run, to the same bits as an uninterrupted one.

    Args:
      path: a run directory. A finished one is loaded.
      posterior, data, init: those the run was begun with; not needed for runs of `sgld fit`.

    Raises: RunError where the directory is none, is in use, or was begun with another
    model, data or number of chains.
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
    directory.lock()
    prepared = _prepare(posterior, data, init, ask, asked.get("ess"))
    check_unchanged(
        directory,
        asked,
        record(prepared.target, prepared.source, prepared.z0, ask, asked.get("ess")),
    )
    return execute(prepared, ask, asked.get("ess"), directory, progress, checkpoint_every)


@dataclass(frozen=True)
class Prepared:
    """Checked arguments: what can be computed with."""

    target: Target
    source: Source | None
    z0: np.ndarray


def _prepare(posterior: Posterior, data: Any, init: Any, ask: Request, ess: Any) -> Prepared:
    _check_request(ask, ess)
    if not isinstance(posterior, Posterior):
        raise UsageError(f"posterior must be an sgld.Posterior. Got {type(posterior).__name__}.")
    if (data is None) != (posterior.log_likelihood is None):
        raise UsageError(
            "data is None, but the posterior has a log_likelihood; pass the data."
            if data is None
            else "data was given, but the posterior has no log_likelihood; pass data=None, or give one."
        )
    init = posterior.init if init is None else init
    if init is None:
        raise UsageError("init is missing: give a position (a pytree of arrays) to start from.")
    free = posterior.unconstrain(jax.tree.map(_inexact, init))
    layout = Layout.of(free)
    target = Target(posterior, layout)
    source = None
    if data is not None:
        source = _source(data, ask)
    z0 = layout.ravel(free)
    _check_model(target, source, z0)
    return Prepared(target, source, np.asarray(z0))


def _inexact(leaf: Any) -> Any:
    if (
        isinstance(leaf, np.ndarray)
        and leaf.dtype == np.float64
        and not jax.config.read("jax_enable_x64")
    ):
        return leaf.astype(np.float32)
    return leaf


def _source(data: Any, ask: Request) -> Source:
    checked = check_data(data)
    rows = int(np.shape(jax.tree.leaves(checked)[0])[0])
    if not isinstance(ask.batch_size, str) and ask.batch_size > rows:
        raise UsageError(
            f"batch_size must be at most the number of rows, {rows}. Got {ask.batch_size}."
        )
    return Source.build(checked, rows, "reshuffle", ask.seed)


def _check_request(ask: Request, ess: Any) -> None:
    for name in ("num_chains", "num_draws", "batch_size", "thin", "burn_in"):
        value = getattr(ask, name)
        least = 0 if name == "burn_in" else 1
        if value == "auto" and name != "num_chains":
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise UsageError(f"{name} must be a whole number, at least {least}. Got {value!r}.")
    if ess is not None and not (isinstance(ess, (int, float)) and ess > 0):
        raise UsageError(f"ess must be a positive number. Got {ess!r}.")
    if not isinstance(ask.seed, (int, np.integer)) or not 0 <= ask.seed < 2**32:
        raise UsageError(f"seed must be a whole number from 0 to 2^32 - 1. Got {ask.seed!r}.")
    if not isinstance(ask.tolerance, (int, float)) or not 0 < ask.tolerance <= 0.5:
        raise UsageError(f"tolerance must lie in (0, 0.5]. Got {ask.tolerance!r}.")
    if ask.order not in (*ORDERS, "auto"):
        raise UsageError(
            f"order must be 'auto' or one of {', '.join(ORDERS)}. Got {ask.order!r}."
            + did_you_mean(ask.order, ORDERS)
        )
    contracts = {"sampler": "step", "gradient": "at", "preconditioner": "prepare"}
    for name, method in contracts.items():
        value = getattr(ask, name)
        if isinstance(value, str) and value == "auto":
            continue
        if isinstance(value, type) or not hasattr(value, method):
            called = f"; call it: {value.__name__}()" if isinstance(value, type) else ""
            raise UsageError(f"{name} must be 'auto' or a {name} object. Got {value!r}{called}.")
    if not (isinstance(ask.step_size, str) and ask.step_size == "auto"):
        as_schedule(ask.step_size, "step_size")
    as_schedule(ask.temperature, "temperature", zero=True)


def _check_model(target: Target, source: Source | None, z0: Any) -> None:
    """The functions return scalars, and density and gradient are finite at the start."""
    if source is not None:
        row = jax.tree.map(lambda leaf: leaf[0], source.rows)
        likelihood = target.posterior.log_likelihood
        assert likelihood is not None
        shape = jax.eval_shape(likelihood, target.position(z0), row)
        if getattr(shape, "shape", None) != ():
            raise UsageError(
                "log_likelihood must return one number for ONE datum. Got "
                f"{jax.tree.map(jnp.shape, shape)}; the library sums over rows."
            )
    shape = jax.eval_shape(target.posterior.log_prior, target.position(z0))
    if getattr(shape, "shape", None) != ():
        raise UsageError(
            f"log_prior must return one number. Got shape {jax.tree.map(jnp.shape, shape)}; sum it."
        )
    value, gradient = sums.value_and_gradient(target, source, z0)
    if not bool(jnp.isfinite(value)):
        raise UsageError(
            f"the log density at init is {float(value)}; choose a start of finite density."
        )
    bad = ~np.isfinite(np.asarray(gradient))
    if bad.any():
        leaf = target.layout.locate(int(np.argmax(bad)))
        raise UsageError(
            f"the gradient of the log density at init is not finite in leaf {leaf!r}; choose another "
            "start, or make the log density differentiable there."
        )


def execute(
    prepared: Prepared,
    ask: Request,
    ess: int | None,
    directory: RunDirectory | None,
    progress: bool,
    checkpoint_every: float,
    on_plan: Callable[[Plan], None] | None = None,
) -> Draws:
    """Tune, run, judge; with a directory, write the result."""
    began = time.perf_counter()
    try:
        target = prepared.target
        plan = make_plan(target, prepared.source, prepared.z0, ask)
        check_schedule(plan.step_size, plan.thin * plan.num_draws, "step_size")
        if on_plan is not None:
            on_plan(plan)
        kernel = make_kernel(target, plan, ask)
        starts = _starts(prepared, plan, ask, kernel)
        raw = loop.run(
            kernel,
            starts,
            seed=ask.seed,
            num_draws=plan.num_draws,
            more=None if ess is None else partial(_more, target, plan, ess, ask.seed),
            directory=directory,
            checkpoint_every=checkpoint_every,
            progress=progress,
        )
        draws = _draws(target, plan, raw, ask.seed)
        info = {
            "num_data": None if prepared.source is None else prepared.source.num_data,
            "num_steps": raw.num_steps,
            "seed": int(ask.seed),
            "plan": plan.describe(),
            "log_density_at_mode": plan.log_density,
            "laplace": _laplace_facts(target, plan),
        }
        draws = replace(draws, info=info)
        raw, _ = _sampled(raw)
        z = np.moveaxis(raw.z, 0, 1)
        gradient = None if raw.gradient is None else np.moveaxis(raw.gradient, 0, 1)
        verdict = assess(target, plan, draws, z, gradient, ask.tolerance, ask.seed)
        draws = replace(draws, info={**info, "seconds": time.perf_counter() - began})
        draws = draws.with_verdict(verdict)
        if directory is not None:
            write_result(directory, draws)
        return draws
    finally:
        if directory is not None:
            directory.unlock()


def make_kernel(target: Target, plan: Plan, ask: Request) -> Kernel:
    """The compiled chunk's constant part."""
    independent = (
        plan.source is None or plan.source.is_independent or isinstance(plan.gradient, Full)
    )
    key = jax.random.fold_in(jax.random.key(ask.seed), 0)
    return Kernel(
        target, plan.source, plan.gradient, plan.preconditioner, plan.sampler,
        _callable(plan.step_size), _callable(plan.temperature), key, jnp.int32(plan.burn_in),
        jnp.int32(plan.thin), record_gradient=independent and plan.laplace is not None,
    )  # fmt: skip


def _callable(schedule: Callable) -> Callable:
    if jax.tree_util.all_leaves([schedule]):
        return Partial(schedule)
    return jax.tree.map(jnp.asarray, schedule)


def _starts(prepared: Prepared, plan: Plan, ask: Request, kernel: Kernel) -> Any:
    """Dispersed around the mode (twice the Laplace sd); at init where the step is by hand."""
    layout, d = prepared.target.layout, prepared.z0.size
    if not (isinstance(ask.step_size, str) and ask.step_size == "auto"):
        return layout.array(np.tile(prepared.z0, (ask.num_chains, 1)))
    xi = generator(ask.seed, STARTS, 0).standard_normal((ask.num_chains, d))
    if plan.laplace is not None and plan.laplace.positive_definite:
        assert plan.laplace.factor is not None
        center, offset = plan.laplace.mode, 2 * xi @ plan.laplace.factor.T
    else:
        matrix = settled(plan.preconditioner, prepared.target, plan.source, prepared.z0)
        center, offset = prepared.z0, np.asarray(jax.vmap(matrix.noise)(layout.array(xi)))
    for _ in range(20):  # a start of no density is drawn in towards the mode
        gradients = sums.gradients(prepared.target, prepared.source, center[None] + offset)
        bad = ~np.all(np.isfinite(gradients), axis=1)
        if not bad.any():
            break
        offset = np.where(bad[:, None], offset / 2, offset)
    return layout.array(center[None] + offset)


def _sampled(raw: loop.Raw) -> tuple[loop.Raw, np.ndarray]:
    """Without the draws of steps at temperature 0, and which are left.

    Where a schedule turns the temperature off (cycles that explore), only the rest are draws.
    """
    rows = np.arange(len(raw.z))
    sampling = raw.temperature > 0
    if sampling.all() or not sampling.any():
        return raw, rows
    rows = rows[sampling]
    gradient = None if raw.gradient is None else raw.gradient[rows]
    return replace(
        raw, z=raw.z[rows], step_size=raw.step_size[rows], temperature=raw.temperature[rows],
        gradient=gradient,
    ), rows  # fmt: skip


def _draws(target: Target, plan: Plan, raw: loop.Raw, seed: int) -> Draws:
    """Reported draws [chain, draw, ...] with their weights."""
    raw, rows = _sampled(raw)
    count, chains = raw.z.shape[:2]
    z = jnp.asarray(np.moveaxis(raw.z, 0, 1))
    with jax.enable_x64(target.posterior.output is not None):
        position = jax.tree.map(np.asarray, _reported(target, z))
    step_size = np.broadcast_to(raw.step_size, (chains, count)).astype(np.float64)
    temperature = np.broadcast_to(raw.temperature, (chains, count)).astype(np.float64)
    one = jax.tree.map(lambda leaf: np.asarray(leaf[0, 0], np.float32), position)
    names = tuple(target.posterior.names or Layout.of(one).element_names())
    status = tuple(_status(target, plan, raw, chain, seed) for chain in range(chains))
    steps = plan.burn_in + plan.thin * rows
    return Draws(
        position=position, log_weight=np.log(np.maximum(step_size, 1e-300)), step_size=step_size,
        temperature=temperature, step=steps, status=status, names=names,
    )  # fmt: skip


@jax.jit
def _reported(target: Target, z: Any) -> Any:
    return jax.lax.map(jax.vmap(target.reported), z)


def _status(target: Target, plan: Plan, raw: loop.Raw, chain: int, seed: int) -> str:
    """ "ok", or at which step, in which leaf and after which rows the chain failed."""
    step = int(raw.failed_at[chain])
    if not 0 <= step < raw.num_steps:  # what happened after the last draw is nobody's concern
        return "ok"
    bad = ~np.isfinite(raw.z[:, chain])
    where = ""
    if bad.any():
        first = int(np.argmax(bad.any(axis=1)))
        where = f" in leaf {target.layout.locate(int(np.argmax(bad[first])))!r}"
    if plan.source is not None and step > 0 and not isinstance(plan.gradient, Full):
        rows = plan.source.original_rows((seed, chain), step - 1)
        listed = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        where += f", after a batch of rows {listed}"
    h = float(plan.step_size(max(0, step - plan.burn_in)))
    return (
        f"chain {chain} became non-finite at step {step}{where}; use a smaller step_size than {h:.3g}, "
        "or look at those rows."
    )


def _more(target: Target, plan: Plan, ess: float, seed: int, raw: loop.Raw) -> int:
    """How many draws per chain to go on to until the smallest bulk ESS reaches `ess`."""
    draws = _draws(target, plan, raw, seed)
    if draws.healthy.size == 0:
        return len(raw.z)
    values, _ = draws.flat()
    reached = float(np.nanmin(weighted.ess(values, draws.weights)))
    if reached >= ess:
        return len(raw.z)
    growth = min(4.0, max(1.1, 1.1 * ess / max(reached, 1.0)))
    return min(MAX_GROWTH * plan.num_draws, math.ceil(len(raw.z) * growth))


def _laplace_facts(target: Target, plan: Plan) -> dict[str, Any] | None:
    """Mean and sd of the Gaussian at the mode, per reported parameter, for the report."""
    laplace = plan.laplace
    if laplace is None or not laplace.positive_definite:
        return None
    sd = np.sqrt(np.sum((target.jacobian(laplace.mode) @ laplace.factor) ** 2, axis=1))
    mode = target.layout.array(laplace.mode)
    return {"mean": np.asarray(target.flat_reported(mode)).tolist(), "sd": sd.tolist()}
