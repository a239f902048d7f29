"""`sgld.sample`: from a posterior and data to draws with a verdict.

The module checks all arguments of the user before the first step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

from ..core.devices import (
    as_mesh,
    check_chains,
    first_differing_process,
    in_step,
    is_first,
    raise_together,
)
from ..core.files import reading
from ..core.progress import SAMPLING_STAGES, aside, progress_shown, stage
from ..core.pytrees import check_compiled, release_mistakable
from ..core.user_code import FOREIGN_ARGUMENTS, check_argument_names, user_errors
from ..core.validation import (
    MAX_STEP,
    check_interval,
    check_seed,
    check_tolerance,
    is_number,
    positive_number,
    whole_number,
)
from ..data.source import ORDERS
from ..errors import DataError, RunError, UsageError, did_you_mean
from ..model.numpyro import resolve_model
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Problem, Request, is_auto
from ..results.draws import Draws
from ..results.plan import Origin, Plan
from ..results.run_directory import RunDirectory, no_run, noting_stored_part
from ..results.storage import HELD_DIGEST_KEY, check_kind, load, restore
from ..samplers.schedules import as_schedule, check_values
from ..typing import Estimator, Noise, Number, Order, Preconditioner, Sampler, Schedule
from .execute import Host, execute
from .kept import as_keep, check_moments
from .record import (
    Given,
    check_given,
    check_unchanged,
    elsewhere,
    record,
    saved_keep,
    stored_request,
)
from .tuning.cost import check_asked
from .tuning.noise import check_noise
from .tuning.plan import make_plan

# -- check request -------------------------------------------------------------------------


MAX_TEMPERATURE = 1e9
METHODS = {"sampler": "step", "gradient": "at", "preconditioner": "prepare"}
EXAMPLES = {
    "sampler": ("SGLD", "SGHMC", "BAOA", "UBU", "SGNHT", "ReplicaExchange"),
    "gradient": ("Minibatch", "Full", "ControlVariates", "SVRG", "SAGA"),
    "preconditioner": ("RMSprop", "AdaGrad"),
}


MIN_TOLERANCE = 1e-6


MIN_CHAIN_STEPS = 100  # fewer steps of a chain do not support a verdict


def check_request(ask: Request, ess: Any) -> None:
    """Raise UsageError for the first argument whose value is invalid."""
    for name in ("num_chains", "num_draws", "batch_size", "thin", "burn_in"):
        value = getattr(ask, name)
        least = 0 if name == "burn_in" else 1
        if is_auto(value):
            continue
        whole_number(name, value, least)
        if name == "burn_in" and value > MAX_STEP:
            raise UsageError(f"burn_in must be at most {MAX_STEP:,}. Got {value:.3g}.")
    if ask.max_steps is not None:
        burn_in = 0 if isinstance(ask.burn_in, str) else ask.burn_in
        whole_number(
            "max_steps", ask.max_steps, max(MIN_CHAIN_STEPS, burn_in + 1), ", burn-in included"
        )
    for name, value in (("max_seconds", ask.max_seconds), ("ess", ess)):
        if value is not None:
            positive_number(name, value)
    check_seed(ask.seed)
    check_tolerance(ask.tolerance)
    if ask.tolerance < MIN_TOLERANCE:
        raise UsageError(
            f"tolerance must be at least {MIN_TOLERANCE:g}, which takes {2 / MIN_TOLERANCE**2:.0e} effective draws. "
            f"Got {ask.tolerance!r}."
        )
    if ask.order not in (*ORDERS, "auto"):
        raise UsageError(
            f"order must be 'auto' or one of {', '.join(ORDERS)}. Got {ask.order!r}."
            + did_you_mean(ask.order, ORDERS)
        )
    release_mistakable(
        ask.sampler, ask.gradient, ask.preconditioner, ask.step_size, ask.temperature
    )
    for name, method in METHODS.items():
        value = getattr(ask, name)
        if is_auto(value):
            continue
        if isinstance(value, type) or not hasattr(value, method):
            example = value.__name__ if isinstance(value, type) else EXAMPLES[name][0]
            other = (
                " sgld.reference runs NUTS and HMC."
                if str(value).lower() in ("nuts", "hmc")
                else ""
            )
            raise UsageError(
                f"{name} must be 'auto' or a {name} object, such as sgld.{example}(). Got {value!r}.{other}"
                + did_you_mean(str(value), EXAMPLES[name])
            )
    sampler: Any = ask.sampler  # the other parts are compiled from what they prepare
    if is_auto(getattr(sampler, "noise_correction", None)) and hasattr(
        sampler, "__dataclass_fields__"
    ):
        sampler = dataclasses.replace(sampler, noise_correction=None)  # tuning chooses it
    if not is_auto(sampler):
        check_compiled(f"the sampler {type(sampler).__name__}", sampler)
    for name, zero in (("step_size", False), ("temperature", True)):
        value = getattr(ask, name)
        schedule = None if is_auto(value) else as_schedule(value, name, zero=zero)
        if schedule is not None and not is_number(value):
            with user_errors(name):
                check_values(schedule, 0, name)
    if is_number(ask.temperature) and ask.temperature > MAX_TEMPERATURE:
        raise UsageError(
            f"temperature must be at most {MAX_TEMPERATURE:g}: beyond it posterior^(1/T) is flat. Got {ask.temperature:g}."
        )
    if is_auto(ask.step_size) and is_number(ask.temperature) and ask.temperature == 0:
        raise UsageError(
            "temperature is 0 at every step, so that there is no noise and no draw to choose a step size for; use "
            "sgld.find_map for the mode, or give step_size."
        )


def check_batch(problem: Problem, batch_size: int | str) -> None:
    """Raise UsageError if a batch has more rows than the data."""
    if problem.has_rows and not isinstance(batch_size, str) and batch_size > problem.num_data:
        raise UsageError(
            f"batch_size must be at most the number of rows, {problem.num_data}. Got {batch_size}."
        )


def check_always(problem: Problem, ask: Request) -> None:
    """Raise UsageError for row numbers that cannot be in every batch."""
    if is_auto(ask.always_in):
        return
    if is_auto(ask.step_size):
        raise UsageError(
            "always_in must be 'auto' if step_size is 'auto', as both are chosen together; give step_size too."
        )
    rows = np.asarray(ask.always_in)
    whole = rows.ndim == 1 and (rows.size == 0 or np.issubdtype(rows.dtype, np.integer))
    if not whole or len(np.unique(rows)) != len(rows):
        raise UsageError(f"always_in must hold distinct row numbers. Got {ask.always_in!r}.")
    outside = rows[(rows < 0) | (rows >= problem.num_data)]
    if outside.size:
        raise UsageError(
            f"always_in must hold numbers from 0 to {problem.num_data - 1}. Got {outside[0]}."
        )


# -- sample --------------------------------------------------------------------------------


@check_argument_names(FOREIGN_ARGUMENTS)
def sample(
    posterior: Posterior | Callable[..., Any],
    data: Any = None,
    init: Any = None,
    *,
    sampler: Sampler | Literal["auto"] = "auto",
    step_size: Number | Schedule | Literal["auto"] = "auto",
    tolerance: float = 0.05,
    temperature: Number | Schedule = 1.0,
    gradient: Estimator | Literal["auto"] = "auto",
    preconditioner: Preconditioner | Literal["auto"] = "auto",
    order: Order | Literal["auto"] = "auto",
    batch_size: int | Literal["auto"] = "auto",
    num_chains: int | Literal["auto"] = "auto",
    num_draws: int | Literal["auto"] = "auto",
    ess: int | None = None,
    burn_in: int | Literal["auto"] = "auto",
    thin: int | Literal["auto"] = "auto",
    seed: int = 0,
    path: str | Path | None = None,
    progress: bool = True,
    overwrite: bool = False,
    checkpoint_every: float = 10.0,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    keep: Callable[[Any], Any] | Literal["moments"] | None = None,
    always_in: Sequence[int] | Int[Any, " m"] | Literal["auto"] = "auto",
    where: Any = None,
    mesh: Mesh | None = None,
    noise: Noise | Literal["auto"] = "auto",
) -> Draws:
    """Draw from the posterior, and report how far to trust the draws.

        theta' = theta + h D grad log p(theta | data) + sqrt(2 h T) D^{1/2} xi

    Only posterior, data and init are required. The library measures mode, curvature and gradient
    noise. Step size h, preconditioner D, gradient estimator, batch, burn-in and lengths follow from
    `tolerance`. Values that you set manually are never changed, only judged. With a step size set
    manually, everything left open follows the textbook algorithm: D = I, plain minibatches of 100
    rows, every chain starting at `init`, no thinning.

    Args:
      posterior: a Posterior, or a NumPyro model (`sgld.from_numpyro`).
      data: pytree of arrays whose leading axis is the row, a user-supplied source
        (`sgld.testing.check_source`), or None for a log density alone and for a posterior that
        holds its data. For a NumPyro model, its arguments: a tuple, or a dict by their names.
      init: a position from which the search for the mode starts (and the chains, if the step size
        is set manually). May be left out if the posterior carries one.
      sampler: "auto" or a sampler: SGLD(), BAOA(), UBU(), SGHMC(), SGNHT(), ReplicaExchange().
      step_size: h, "auto", a number or any schedule `step -> h`. A schedule starts after
        burn-in, which uses schedule(0). h multiplies the gradient of the FULL-data log
        posterior.
      tolerance: acceptable relative error of the posterior sd, in (0, .5]: half for bias, half for
        Monte Carlo error.
      temperature: T, a number or a schedule. The stationary distribution is p(theta | data)^(1/T)
        of the position itself: with constraints the Jacobian of the free coordinates is not
        tempered. In a schedule, steps at T = 0 explore and give no draws. With
        `cycles = cosine_cycles(...)`, `step_size=cycles` and `temperature=cycles.temperature()`
        it is cyclical sampling
        (Zhang et al. 2020). It finds several modes, but the share of draws in each mode depends on
        where cycles end, not on posterior weight.
      gradient: "auto", Full(), Minibatch() or ControlVariates().
      preconditioner: "auto", Scalar, Diagonal, Dense, LowRank or Kronecker: D itself.
      order: "auto", "reshuffle", "symmetric", "independent", "replacement" or "subset". "auto"
        is "reshuffle", but "independent" with control variates.
      batch_size: rows per step.
      num_chains: independent chains, each with its own data order. "auto" is 4, or 64 in two cases:
        the posterior is far from Gaussian, full gradients are cheap and the library samples
        exactly; or every step takes all rows of a large table, which the chains read together.
      num_draws: kept draws per chain ("auto": 1000 for 4 chains, the same total for 64, more for a
        small tolerance; 200 to 800 for 64 exact chains).
      ess: continue until every parameter has this many effective draws.
      burn_in: steps before the first draw.
      thin: steps per kept draw.
      seed: seed of all random numbers.
      path: a run directory to write to; `sgld.resume(path)` continues a killed run.
      progress: show the stages and the estimated time left on standard error: one line on a
        terminal and in a notebook, a line every ten seconds elsewhere.
      overwrite: replace an existing run directory.
      checkpoint_every: seconds between checkpoints, with `path`.
      max_steps: limit of the steps of one chain, burn-in included, whatever the precision reached;
        the run makes one attempt.
      max_seconds: limit of tuning, sampling and verdict together, with a fifth reserved for the
        verdict (for a network at most a twentieth and 6 s); the run makes one attempt. Sampling
        ends with the draws made so far, and the plan reports it; RunError if a chain has fewer than
        4 draws by then. If the search for other modes takes 40% of the time, it ends and the
        verdict is `unknown`. The limit changes nothing else: the draws are the same without it. For
        a network, optimisers and stages are predicted to take at most a sixth and a twentieth of
        it, and stop early past half. A resumed run has the full time again.
      keep: a function of the position (as draws report it) whose value is kept INSTEAD of it, such
        as predictions at some rows, a part of a network's weights or a loss. It returns a pytree of
        floating-point arrays of fixed shape, which becomes `draws.position`. Or "moments": mean,
        variance, Monte Carlo error and (up to 16,384 parameters) quantiles of each, in constant
        memory. The verdict judges the parameters if their positions are small (up to 2^22 numbers
        in all). Otherwise it judges mixing alone and is never `trusted`. docs/keep.md.
      always_in: the numbers of the rows that are in every batch, in addition to its batch_size
        others, and count once in the sum. Use it for rows that a random batch would miss, or that
        make a batch unstable. "auto" chooses them with the batch if step_size is "auto" too; with a
        step size set manually, none.
      where: which parameters of init are sampled, while the others stay fixed: a pattern of names,
        several, "last_layer", or True and False in the structure of init (`sgld.networks.part`).
      mesh: `jax.make_mesh((c, d), ("chain", "data"))`: chains over c devices, rows over d, each of
        which holds its own. The draws equal those of one device up to the order of sums.
        docs/cluster.md.
      noise: the distribution of xi: "normal", or "binomial", counts of 4 random bits less 2, which
        have the same mean and variance and are several times as fast to draw. "auto" uses counts
        from 65,536 parameters on if normals would be much of a step's cost and the stiffest
        direction stays nearly normal, and the plan reports it.

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
    asked: dict[str, Any] = {"kind": "sample"}
    if where is not None:
        init, asked["part"] = _init_of_part(posterior, init, where), True
    ask = Request(
        sampler, step_size, tolerance, temperature, gradient, preconditioner, order, batch_size,
        num_chains, num_draws, burn_in, thin, seed, max_steps, max_seconds, always_in, noise,
    )  # fmt: skip
    return begin(
        posterior, data, init, ask, ess, asked, path=path, overwrite=overwrite,
        progress=progress, checkpoint_every=checkpoint_every, keep=keep, mesh=mesh,
    )  # fmt: skip


def _init_of_part(posterior: Any, init: Any, where: Any) -> Any:
    """Return the position in which only the parameters that `where` selects are sampled."""
    from ..model.modules import part

    init = getattr(posterior, "init", None) if init is None else init
    if init is None:
        raise UsageError("init is missing: give a position (a pytree of arrays) to start from.")
    if getattr(posterior, "transform", None) is not None:
        raise UsageError(
            "where cannot be used with a posterior that has constraints; write a scale as the exponential of a free "
            "parameter, or leave where out."
        )
    return part(init, where)


def begin(
    posterior: Any, data: Any, init: Any, ask: Request, ess: int | None,
    asked: dict[str, Any], *, path: str | Path | None, overwrite: bool, progress: bool,
    checkpoint_every: float, on_start: Callable[[], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None, keep: Any = None, mesh: Any = None,
    planned: Callable[[Problem, Request], Plan] = make_plan, argument: str = "path",
) -> Draws:  # fmt: skip
    """Check all arguments, write run.json with `asked` in it, and run.

    `planned` makes the plan, and `argument` is the user's name for `path`. `on_start` is called
    once the arguments have passed, `on_plan` before the first step. The "facts" of `asked` go into
    the draws' info.
    """
    mesh = None if mesh is None else as_mesh(mesh)
    with (
        in_step(mesh),
        progress_shown(progress and is_first(), SAMPLING_STAGES),
        ExitStack() as held,
    ):
        with stage("data"), raise_together():
            check_interval(checkpoint_every)
            posterior, data, init = resolve_model(posterior, data, init)
        problem = _checked(posterior, data, init, ask, ess, mesh)
        kept = as_keep(keep, problem)
        check_moments(kept, ask, ess)
        check_asked(problem, ask, None if kept is None else kept.width)
        directory = None
        _check_path(path)
        if path is not None:
            asked = {**asked, **record(problem, ask, ess, kept)}
            directory = RunDirectory(path, writes=is_first())
            with raise_together():  # the other processes read what the first has written
                directory.create(overwrite)
                held.enter_context(directory)
                directory.begin(asked)
                if mesh is not None:
                    directory.settle()
        if on_start is not None:
            with aside():
                on_start()
        facts = asked.get("facts") or {}
        host = Host(directory, checkpoint_every, on_plan, keep=kept, facts=facts, planned=planned)
        with _discard_on_failure(directory), noting_stored_part(directory, argument):
            draws = execute(problem, ask, ess, host)
        return replace(draws, origin=Origin(posterior, data, kept=kept is not None))


def _check_path(path: Any) -> None:
    """Raise UsageError if only some processes got a `path`."""
    other = first_differing_process(str(path is None))
    if other is not None:
        raise UsageError(
            f"only one of the processes 0 and {other} got a path; give it to all processes: the first writes, and the "
            "others read."
        )


@contextmanager
def _discard_on_failure(directory: RunDirectory | None) -> Iterator[None]:
    """Remove the run directory if a call is refused, or fails before there is a plan to resume."""
    try:
        yield
    except Exception as error:
        if directory is not None:
            there = lambda name: not directory.replacing and (directory.path / name).exists()  # noqa: E731
            refused = isinstance(error, (UsageError, DataError)) and not there("draws.npz")
            if refused or not there("setup.npz"):
                directory.discard()
        raise


@stage("data")
def _checked(
    posterior: Any, data: Any, init: Any, ask: Request, ess: int | None, mesh: Any
) -> Problem:
    with raise_together():
        check_request(ask, ess)
        check_noise(ask)
        if mesh is not None:
            check_chains(mesh, ask.chains())
    problem = prepare(posterior, data, init, seed=ask.seed, mesh=mesh)
    with raise_together():
        check_batch(problem, ask.batch_size)
        check_always(problem, ask)
    first = as_schedule(ask.temperature, "temperature", zero=True)(0)
    return problem.at_temperature(problem.array(float(first)))


def continue_run(
    path: str | Path,
    posterior: Posterior | None = None,
    data: Any = None,
    init: Any = None,
    *,
    sampler: Sampler | None = None,
    schedule: Schedule | None = None,
    temperature: Schedule | None = None,
    gradient: Estimator | None = None,
    preconditioner: Preconditioner | None = None,
    progress: bool = True,
    checkpoint_every: float = 10.0,
    keep: Callable[[Any], Any] | Literal["moments"] | None = None,
    mesh: Mesh | None = None,
) -> Draws:
    """Continue a killed or interrupted run; `sgld.regression.fit.resume` takes formula runs."""
    mesh = None if mesh is None else as_mesh(mesh)
    with in_step(mesh):
        with raise_together():
            check_interval(checkpoint_every)
        directory, asked = _found(path, mesh)
    check_kind(directory)
    if directory.finished():
        return _in_form_of(init, load(path))
    if posterior is None:
        raise RunError(
            f"{path} was begun from Python functions, which are not stored; call "
            "sgld.resume(path, posterior, data, init) with the same functions."
        )
    given = {
        "sampler": sampler, "step_size": schedule, "temperature": temperature, "gradient": gradient,
        "preconditioner": preconditioner,
    }  # fmt: skip
    ask, ess = stored_request(directory, asked, Given(given)), asked.get("ess")
    with (
        in_step(mesh),
        progress_shown(progress and is_first(), SAMPLING_STAGES),
        reading(path),
        ExitStack() as held,
    ):
        with stage("data"), raise_together():
            posterior, data, init = resolve_model(posterior, data, init)
        problem = _checked(posterior, data, init, ask, ess, mesh)
        with raise_together():
            check_given(problem, asked, ask, given)
        kept = as_keep(saved_keep(directory, asked, keep), problem)
        now = record(problem, ask, ess, kept)
        moved = elsewhere(asked, now)
        directory.elsewhere = moved is not None
        facts = asked.get("facts") or {}
        host = Host(directory, checkpoint_every, given=given, moved=moved, keep=kept, facts=facts)
        with raise_together():
            check_unchanged(directory, asked, now)
            held.enter_context(directory)
        with noting_stored_part(directory):
            draws = execute(problem, ask, ess, host)
        return replace(draws, origin=Origin(posterior, data, kept=kept is not None))


def _in_form_of(init: Any, draws: Draws) -> Draws:
    """Return a finished run's draws in the form of `init`, such as a module, as after a resume.

    Draws whose names or shapes do not match, such as those of `keep`, stay as they were stored.

    Raises UsageError for draws of another part of a network.
    """
    try:
        return draws if init is None else restore(draws, init)
    except UsageError:
        if HELD_DIGEST_KEY in draws.info:
            raise
        return draws


def _found(path: str | Path, mesh: Mesh | None) -> tuple[RunDirectory, dict[str, Any]]:
    """Return the directory of an existing run, and its run.json.

    Raises RunError if there is no such run, or if processes found different runs.
    """
    directory = RunDirectory(path, writes=is_first())
    with raise_together():
        if not directory.path.is_dir():
            raise no_run(path)
        directory.take_up()
        if mesh is not None:  # the other processes read what the first has written
            with directory:
                directory.settle()
    with raise_together():
        asked, finished = directory.begun(), directory.finished()
    other = first_differing_process(f"{asked.get('id')} {finished}")
    if other is not None:
        raise RunError(
            f"processes 0 and {other} found different runs at {path}; give all processes the same directory on a "
            "shared file system."
        )
    return directory, asked
