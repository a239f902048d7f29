"""What a user gave, checked before anything is computed: every mistake is answered here."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np

from ..bridge.numpyro_model import opened
from ..core.devices import check_device, together
from ..core.pytrees import Layout, check_compiled, count_posterior, tell_apart
from ..core.user_code import check_repeatable, of_the_user
from ..core.validation import (
    MAX_STEP,
    check_seed,
    check_tolerance,
    is_number,
    positive_number,
    unmasked,
    whole_number,
)
from ..core.versions import warn_of_slow_versions
from ..data.source import ORDERS
from ..data.validate import as_source
from ..errors import SGLDWarning, UsageError, did_you_mean
from ..module import for_modules, refuse_statistics, seal
from ..posterior import Posterior
from ..schedule import as_schedule, check_values
from . import sums
from .cholesky import without_a_factor
from .contract import check_contract
from .functions import check_scalar
from .probe_rows import with_probe_rows
from .problem import Problem
from .request import Request, is_auto
from .target import Target

__all__ = ["check_always", "check_batch", "check_request", "prepare"]

HOTTEST = 1e9  # temperature
FINEST = 1e-6  # tolerance
MIN_STEPS = 100  # of a chain that is to say anything
# entries from which on the gradient at the start is that of the first rows, SHOWN of them: of all it took a tenth of
# a run of 2,000 steps with 478,410 weights, and their density a twentieth
LARGE, SHOWN = 2**16, 4096


def prepare(
    posterior: Posterior, data: Any, init: Any, *, seed: int = 0, mesh: Any = None
) -> Problem:
    """The problem of a call, all rows in one batch. Raises UsageError and DataError."""
    with together():  # of several processes none waits for the rows of one that is refused here
        posterior, data, layout, free = _given(posterior, data, init, seed)
    source = None if data is None else as_source(data, seed, mesh)
    posterior = with_probe_rows(posterior, None if source is None else source.take(0))
    problem = Problem(
        Target(posterior, layout, layout.array(1.0)), source, layout.ravel(free), mesh
    )
    count_posterior(problem)
    _check_model(problem)
    return problem


def _given(posterior: Any, data: Any, init: Any, seed: int) -> tuple[Posterior, Any, Layout, Any]:
    """Posterior, data, and the free position that a search begins with."""
    check_seed(seed)
    check_device()
    warn_of_slow_versions()
    posterior, data, init = opened(posterior, data, init)
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
    refuse_statistics(init)
    init = seal(init)
    posterior = for_modules(posterior, init)
    free = posterior.unconstrain(jax.tree_util.tree_map_with_path(_inexact, _in_single(init)))
    layout = Layout.of(free)
    return posterior, data, layout, free


def _inexact(path: Any, leaf: Any) -> Any:
    if isinstance(leaf, np.ma.MaskedArray):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "x"
        leaf = np.asarray(unmasked(f"init leaf {name!r}", leaf))
    if (
        isinstance(leaf, np.ndarray)
        and leaf.dtype == np.float64
        and not jax.config.read("jax_enable_x64")
    ):
        return leaf.astype(np.float32)
    return leaf


def _in_single(init: Any) -> Any:
    """Parameters in half precision as copies in float32, and a warning that says so: steps are smaller than their digits."""
    narrow = lambda leaf: str(getattr(leaf, "dtype", "")) in ("float16", "bfloat16")  # noqa: E731
    found = [leaf for leaf in jax.tree.leaves(init) if narrow(leaf)]
    if not found:
        return init
    said = f"{len(found)} arrays of init are {found[0].dtype}: copies of them in float32 are sampled, and what is kept of them is float32."
    warnings.warn(said, SGLDWarning, stacklevel=2)
    return jax.tree.map(lambda leaf: leaf.astype(np.float32) if narrow(leaf) else leaf, init)


def check_request(ask: Request, ess: Any) -> None:
    """UsageError for the first argument that cannot be meant."""
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
        whole_number("max_steps", ask.max_steps, max(MIN_STEPS, burn_in + 1), ", burn-in included")
    for name, value in (("max_seconds", ask.max_seconds), ("ess", ess)):
        if value is not None:
            positive_number(name, value)
    check_seed(ask.seed)
    check_tolerance(ask.tolerance)
    if ask.tolerance < FINEST:
        raise UsageError(
            f"tolerance must be at least {FINEST:g}, which {2 / FINEST**2:.0e} effective draws would take. "
            f"Got {ask.tolerance!r}."
        )
    if ask.order not in (*ORDERS, "auto"):
        raise UsageError(
            f"order must be 'auto' or one of {', '.join(ORDERS)}. Got {ask.order!r}."
            + did_you_mean(ask.order, ORDERS)
        )
    tell_apart(ask.sampler, ask.gradient, ask.preconditioner, ask.step_size, ask.temperature)
    contracts = {"sampler": "step", "gradient": "at", "preconditioner": "prepare"}
    for name, method in contracts.items():
        value = getattr(ask, name)
        if is_auto(value):
            continue
        if isinstance(value, type) or not hasattr(value, method):
            called = f"; call it: {value.__name__}()" if isinstance(value, type) else ""
            raise UsageError(f"{name} must be 'auto' or a {name} object. Got {value!r}{called}.")
    sampler: Any = ask.sampler  # of the other parts, what they prepare is compiled
    if is_auto(getattr(sampler, "noise_correction", None)) and hasattr(
        sampler, "__dataclass_fields__"
    ):
        sampler = dataclasses.replace(sampler, noise_correction=None)  # the tuner's choice
    if not is_auto(sampler):
        check_compiled(f"the sampler {type(sampler).__name__}", sampler)
    for name, zero in (("step_size", False), ("temperature", True)):
        value = getattr(ask, name)
        schedule = None if is_auto(value) else as_schedule(value, name, zero=zero)
        if schedule is not None and not is_number(value):
            with of_the_user(name):
                check_values(schedule, 0, name)
    if is_number(ask.temperature) and ask.temperature > HOTTEST:
        raise UsageError(
            f"temperature must be at most {HOTTEST:g}: of posterior^(1/T) nothing is left. Got {ask.temperature:g}."
        )
    if is_auto(ask.step_size) and is_number(ask.temperature) and ask.temperature == 0:
        raise UsageError(
            "temperature is 0 at every step, where there is no noise and so no draws to choose a step for; use "
            "sgld.find_map for the mode, or give step_size."
        )


def check_batch(problem: Problem, batch_size: int | str) -> None:
    """UsageError for a batch of more rows than there are."""
    if problem.has_rows and not isinstance(batch_size, str) and batch_size > problem.num_data:
        raise UsageError(
            f"batch_size must be at most the number of rows, {problem.num_data}. Got {batch_size}."
        )


def check_always(problem: Problem, ask: Request) -> None:
    """UsageError for numbers of rows that cannot be in every batch."""
    if is_auto(ask.always_in):
        return
    if is_auto(ask.step_size):
        raise UsageError(
            "always_in must be 'auto' where step_size is: both are chosen together; give step_size too."
        )
    rows = np.asarray(ask.always_in)
    whole = rows.ndim == 1 and (rows.size == 0 or np.issubdtype(rows.dtype, np.integer))
    if not whole or len(np.unique(rows)) != len(rows):
        raise UsageError(
            f"always_in must be numbers of rows, no two the same. Got {ask.always_in!r}."
        )
    outside = rows[(rows < 0) | (rows >= problem.num_data)]
    if outside.size:
        raise UsageError(
            f"always_in must hold numbers from 0 to {problem.num_data - 1}. Got {outside[0]}."
        )


def _check_model(problem: Problem) -> None:
    """The functions return scalars, and density and gradient are finite at the start."""
    posterior, z = problem.posterior, problem.start
    position, own = problem.target.position(z), posterior.names is None  # formula models are ours
    check_scalar("log_prior", posterior.log_prior, position)
    if own:
        check_repeatable("log_prior", posterior.log_prior, position)
    if problem.has_rows:
        row, likelihood = problem.source.take(0), posterior.log_likelihood
        assert likelihood is not None
        check_scalar("log_likelihood", likelihood, position, row)
        if own:
            check_repeatable("log_likelihood", likelihood, position, row)
            check_contract(posterior, position, row, problem.num_data)
    with of_the_user("the gradient of the log density"):
        if problem.has_rows and problem.dimension >= LARGE and problem.num_data > SHOWN:
            value = sums.value(problem, z)
            gradient = sums.value_and_gradient(problem.first(SHOWN), z)[1]
        else:
            value, gradient = sums.value_and_gradient(problem, z)
    if not np.isfinite(float(value)):
        factor = without_a_factor(problem, np.asarray(z), np.ones(z.size), "")
        raise UsageError(
            f"the log density at init is {float(value)}{factor and ': ' + factor}; choose a start of "
            "finite density."
        )
    bad = ~np.isfinite(np.asarray(gradient))
    if bad.any():
        leaf = problem.layout.locate(int(np.argmax(bad)))
        raise UsageError(
            f"the gradient of the log density at init is not finite in leaf {leaf!r}; choose another "
            "start, or make the log density differentiable there."
        )
