"""What a user gave, checked before anything is computed: every mistake is answered here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..data.source import ORDERS, Source, check_data
from ..errors import UsageError, did_you_mean
from ..layout import Layout
from ..module import for_modules, refuse_statistics, seal
from ..posterior import Posterior
from ..schedule import as_schedule
from . import sums
from .contract import check_contract
from .request import Request, is_auto
from .target import Target

__all__ = ["Prepared", "prepare"]

MIN_STEPS = 100  # of a chain that is to say anything


@dataclass(frozen=True)
class Prepared:
    """Checked arguments: what can be computed with."""

    target: Target
    source: Source | None
    z0: np.ndarray


def prepare(posterior: Posterior, data: Any, init: Any, ask: Request, ess: Any) -> Prepared:
    """Target, source and start of a call. Raises UsageError and DataError."""
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
    refuse_statistics(init)
    init = seal(init)
    posterior = for_modules(posterior, init)
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
    if ask.max_steps is not None:
        burn_in = 0 if isinstance(ask.burn_in, str) else ask.burn_in
        whole = isinstance(ask.max_steps, (int, np.integer)) and not isinstance(ask.max_steps, bool)
        if not whole or ask.max_steps < max(MIN_STEPS, burn_in + 1):
            raise UsageError(
                f"max_steps must be a whole number, at least {max(MIN_STEPS, burn_in + 1)}, burn-in "
                f"included. Got {ask.max_steps!r}."
            )
    seconds = ask.max_seconds
    if seconds is not None and not (_is_number(seconds) and seconds > 0):
        raise UsageError(f"max_seconds must be a positive number. Got {seconds!r}.")
    if ess is not None and not (_is_number(ess) and ess > 0):
        raise UsageError(f"ess must be a positive number. Got {ess!r}.")
    whole = isinstance(ask.seed, (int, np.integer)) and not isinstance(ask.seed, bool)
    if not whole or not 0 <= ask.seed < 2**32:
        raise UsageError(f"seed must be a whole number from 0 to 2^32 - 1. Got {ask.seed!r}.")
    if not _is_number(ask.tolerance) or not 0 < ask.tolerance <= 0.5:
        raise UsageError(f"tolerance must lie in (0, 0.5]. Got {ask.tolerance!r}.")
    if ask.order not in (*ORDERS, "auto"):
        raise UsageError(
            f"order must be 'auto' or one of {', '.join(ORDERS)}. Got {ask.order!r}."
            + did_you_mean(ask.order, ORDERS)
        )
    contracts = {"sampler": "step", "gradient": "at", "preconditioner": "prepare"}
    for name, method in contracts.items():
        value = getattr(ask, name)
        if is_auto(value):
            continue
        if isinstance(value, type) or not hasattr(value, method):
            called = f"; call it: {value.__name__}()" if isinstance(value, type) else ""
            raise UsageError(f"{name} must be 'auto' or a {name} object. Got {value!r}{called}.")
    if not is_auto(ask.step_size):
        as_schedule(ask.step_size, "step_size")
    as_schedule(ask.temperature, "temperature", zero=True)
    if is_auto(ask.step_size) and _is_number(ask.temperature) and ask.temperature == 0:
        raise UsageError(
            "temperature is 0 at every step, where there is no noise and so no draws to choose a step for; use "
            "sgld.find_map for the mode, or give step_size."
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


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
    if source is not None and target.posterior.names is None:  # formula models are ours
        check_contract(target.posterior, target.position(z0), row, source.num_data)
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
