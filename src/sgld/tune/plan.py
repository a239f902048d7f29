"""The plan of a run: everything that was left to the library, chosen and explained.

A plan is a function of data, model, seed and versions, never of the clock. Values given
by hand are never changed. A step size given by hand means the textbook algorithm in
whatever else is left open (D = I, plain minibatches, reshuffled, no noise correction),
because a step size has a meaning only together with its preconditioner.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.source import Source, generator
from ..gaussian.dense import Laplace, laplace_at, nonlinearity
from ..gaussian.lowrank import (
    LowRankLaplace,
    affordable,
    lowrank_laplace,
    lowrank_mode,
    lowrank_modes,
)
from ..gaussian.mode import NEWTON_LIMIT, newton_mode, other_modes
from ..gaussian.noise import TUNING
from ..gaussian.proper import check_proper, check_resolved, named_direction
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..preconditioner.fixed import Scalar
from ..problem.request import Request, is_auto
from ..problem.target import Target
from ..schedule import as_schedule
from . import parts
from .optimised import settled, squared_gradients, without_curvature
from .piloted import from_pilot
from .price import from_curvature, from_lowrank
from .request import Plan, draft

__all__ = ["make_plan", "with_lengths"]

MISFIT = 2.0  # scores that vary so much more, or less, than the model implies are told
NEAR = 0.1  # nu below which the Gaussian at the mode says all
PILOT_ROWS, FEW_ROWS = (
    10_000,
    10,
)  # rows of the first search for the mode; with more than 10 times as many
HOPELESS = 1.0  # nu from which nothing is promised
DEFAULT_DRAWS = 1000
SHORT, LONG = 10**5, 10**8  # most steps of a chain that the library takes by itself
LEAST, MOST_ROW_STEPS = 2000, 2**26  # steps, and rows x steps, where an optimiser chose the starts
MOST_DRAWS, FEWEST = 10**5, 50  # most draws, and those that max_steps leaves by less thinning
ADAPTING = 1000  # least burn-in of an adaptive preconditioner


class _Seen(NamedTuple):
    """What was found out about the posterior before choosing."""

    laplace: Laplace | LowRankLaplace | None = None
    log_density: float = float("nan")
    nu: float | None = None
    modes: Float[np.ndarray, "k d"] | None = None  # others than laplace's
    notes: tuple[str, ...] = ()


def make_plan(
    target: Target, source: Source | None, z0: Float[np.ndarray, " d"], ask: Request
) -> Plan:
    """Mode, curvature, noise, then step size and lengths. `source` holds all rows as one batch."""
    temperature = as_schedule(ask.temperature, "temperature", zero=True)
    T = float(temperature(0))
    by_hand = not is_auto(ask.step_size)
    if target.layout.dimension <= NEWTON_LIMIT:
        seen = _look(target, source, z0, ask, T)
    elif not by_hand and affordable(target, source):
        seen = _look_at_many(target, source, z0, ask, T)
    else:
        given = " and a step size given by hand" if by_hand else ""
        note = f"no curvature is made for {target.layout.dimension} parameters{given}, so no promise about the sd."
        seen = _Seen(notes=(note,))
    laplace, nu = seen.laplace, seen.nu
    if isinstance(laplace, Laplace):
        check_resolved(target, source, z0, laplace, T)
    plan = None
    if by_hand:
        plan = _by_hand(target, source, ask, laplace, T)
    elif isinstance(laplace, Laplace) and (nu is None or nu > NEAR or seen.modes is not None):
        many = nu is None or not nu <= HOPELESS
        plan = from_pilot(target, source, ask, laplace, z0, T, many_rows=many)
    if plan is not None:
        pass
    elif isinstance(laplace, Laplace) and nu is not None and T > 0:
        plan = from_curvature(target, source, ask, laplace, nu, T)
    elif (
        isinstance(laplace, LowRankLaplace) and nu is not None and nu <= HOPELESS and T > 0
        and is_auto(ask.preconditioner)
    ):  # fmt: skip
        plan = from_lowrank(target, source, ask, laplace, nu, T)
    else:
        plan = without_curvature(target, source, ask, z0, laplace)
    notes = plan.notes + seen.notes
    if plan.misfit is not None and not 1 / MISFIT < plan.misfit < MISFIT:
        assert source is not None
        notes += (_misfit_note(plan.misfit, source.num_data),)
    plan = replace(
        plan, temperature=temperature, laplace=laplace, log_density=seen.log_density, nu=nu,
        notes=notes, other_modes=0 if seen.modes is None else len(seen.modes), modes=seen.modes,
    )  # fmt: skip
    return with_lengths(plan, ask)


def _look(target: Target, source: Source | None, z0: Any, ask: Request, T: float) -> _Seen:
    """Mode, dense curvature, distance from a Gaussian, other modes."""
    notes, nu, modes = [], None, None
    start = jnp.asarray(z0)
    if source is not None and source.num_data > FEW_ROWS * PILOT_ROWS:
        # a mode of some rows is near that of all, so that all are passed over once or twice
        pilot, _, _, found = newton_mode(target, source.first(PILOT_ROWS), start)
        start = jnp.asarray(pilot) if found else start
    mode, value, _, converged = newton_mode(target, source, start)
    laplace = laplace_at(target, source, mode)
    if not laplace.positive_definite:
        laplace, value, converged = _off_the_saddle(target, source, laplace, value, converged)
    if not converged:
        notes.append("the search for the mode did not converge; start closer, or rescale.")
    if laplace.positive_definite:
        nu = nonlinearity(target, source, laplace, generator(ask.seed, TUNING, 2), T or 1.0)
        # a mode e^-10 times less dense than another matters to nobody
        found = other_modes(target, source, laplace, generator(ask.seed, TUNING, 3))
        dense = [z for z, density in found if density > value - 10 * (T or 1.0)]
        modes = np.array(dense) if dense else None
    else:
        notes.append(_saddle_note(target, laplace))
    if is_auto(ask.step_size) and (nu is None or not nu <= HOPELESS):
        check_proper(target, source, np.asarray(z0), laplace)
    return _Seen(laplace, value, nu, modes, (*notes, *_modes_note(modes), *_nonlinear_note(nu)))


def _look_at_many(target: Target, source: Source | None, z0: Any, ask: Request, T: float) -> _Seen:
    """The same for more parameters than a dense curvature is made for."""
    mode, value, converged = lowrank_mode(target, source, np.asarray(z0, np.float64))
    notes, nu, modes = [], None, None
    if not converged:
        notes.append("the search for the mode did not converge; start closer, or rescale.")
    squares = squared_gradients(target, source, target.layout.array(mode))
    laplace = lowrank_laplace(target, source, mode, squares, generator(ask.seed, TUNING, 6))
    if laplace.positive_definite:
        nu = nonlinearity(target, source, laplace, generator(ask.seed, TUNING, 2), T or 1.0)
        notes.append(
            f"the curvature of {mode.size} parameters is known as diagonal plus rank {laplace.c.size}: the "
            "meter may exaggerate bias."
        )
        rng = generator(ask.seed, TUNING, 9)
        found = lowrank_modes(target, source, laplace, value - 10 * (T or 1.0), rng)
        modes = np.array(found) if found else None
    else:
        notes.append(_saddle_note(target, laplace))
    return _Seen(laplace, value, nu, modes, (*notes, *_modes_note(modes), *_nonlinear_note(nu)))


def _saddle_note(target: Target, laplace: Laplace | LowRankLaplace) -> str:
    return (
        "the curvature at the mode is not positive definite (smallest relative eigenvalue "
        f"{laplace.smallest:.2g}) along {named_direction(target, laplace.flattest)}; NUTS is the "
        "better tool here: sgld.reference, or sgld reference RUN."
    )


def _modes_note(modes: np.ndarray | None) -> tuple[str, ...]:
    if modes is None:
        return ()
    return (
        f"the posterior has at least {len(modes) + 1} modes; how often the chains visit each need not "
        "be its weight: compare with sgld.reference, or use sgld.ReplicaExchange().",
    )


def _nonlinear_note(nu: float | None) -> tuple[str, ...]:
    if nu is None or nu <= HOPELESS:
        return ()
    return (
        f"the posterior is far from Gaussian (nu = {nu:.2g}); NUTS is the better tool where "
        "it is affordable: sgld.reference, or sgld reference RUN.",
    )


def _misfit_note(misfit: float, num_data: int) -> str:
    told = f"the rows' scores vary {misfit:.2g} times as much as it implies"
    if 1 / MISFIT < misfit * num_data < MISFIT:
        return (
            f"log_likelihood seems to be divided by the number of rows, {num_data}: {told}; return the log "
            "likelihood of one datum as it is, the library sums over rows."
        )
    if misfit > 1:
        return (
            f"the model looks misspecified: {told}, so its sds may be about {np.sqrt(misfit):.2g} times too "
            "small for other samples; try a likelihood with more variance (negative binomial for counts, "
            "Student-t for measurements), or sgld.sandwich (sgld summary RUN --sandwich)."
        )
    return f"the model looks misspecified: {told}; try a likelihood with less variance, or sgld.sandwich."


def _off_the_saddle(
    target: Target, source: Source | None, laplace: Laplace, value: float, converged: bool
) -> tuple[Laplace, float, bool]:
    """The mode that lies down the flattest direction from a saddle, where there is one."""
    for move in (0.1, -0.1, 1.0, -1.0, 10.0, -10.0):
        start = laplace.mode + move * laplace.flattest
        mode, density, _, done = newton_mode(target, source, start)
        found = laplace_at(target, source, mode)
        if done and found.positive_definite and density > value:
            return found, density, done
    return laplace, value, converged


def _by_hand(target: Target, source: Source | None, ask: Request, laplace: Any, T: float) -> Plan:
    """The textbook algorithm around a step size given by hand."""
    D = Scalar(1.0) if is_auto(ask.preconditioner) else ask.preconditioner
    D = D.prepare(target.layout)
    gradient: Any = ask.gradient
    if is_auto(gradient):
        gradient = Full() if source is None else Minibatch()
    if source is not None:
        size = (
            min(parts.DEFAULT_BATCH, source.num_data) if is_auto(ask.batch_size) else ask.batch_size
        )
        order = "reshuffle" if is_auto(ask.order) else ask.order
        source = parts.batches(source, size, order, gradient)
    center = None if laplace is None else laplace.mode
    gradient = parts.prepared(gradient, target, source, center)
    measured, law = None, None
    if isinstance(laplace, Laplace) and laplace.positive_definite:
        measured = parts.measure(target, source, gradient, laplace, T, ask.seed)
        matrix = settled(D, target, source, laplace.mode)
        law = parts.law(
            target, source, laplace, parts.matrix(matrix, target), measured, parts.sampler(ask)
        )
    return draft(
        sampler=parts.sampler(ask), gradient=gradient, preconditioner=D, source=source,
        step_size=as_schedule(ask.step_size, "step_size"), noise=measured, law=law,
    )  # fmt: skip


def with_lengths(plan: Plan, ask: Request) -> Plan:
    """Burn-in, thinning and number of draws."""
    h = float(plan.step_size(0))
    # without a law the step is `tolerance` of the stiffest direction's time scale
    rate = ask.tolerance / 10 if plan.rate is None else plan.rate
    rate = rate if plan.law is None else max(plan.law.rate(h), 1e-12)
    # where nothing is promised anyway, nobody waits for billions of steps
    longest = SHORT if plan.nu is None or plan.nu > HOPELESS or plan.starts is not None else LONG
    if plan.starts is not None and not plan.adjustable and plan.source is not None:
        longest = max(LEAST, min(longest, MOST_ROW_STEPS // plan.source.batch_size))
    burn_in = min(longest, int(np.ceil(6 / rate))) if is_auto(ask.burn_in) else int(ask.burn_in)
    if is_auto(ask.burn_in) and plan.preconditioner.adapts:
        burn_in = max(burn_in, ADAPTING)
    if not is_auto(ask.thin):
        thin = int(ask.thin)
    elif is_auto(ask.step_size):
        thin = max(1, min(longest // DEFAULT_DRAWS, math.ceil(1 / rate)))
    else:
        thin = 1
    num_draws = ask.num_draws
    if is_auto(num_draws):
        decay = (1 - min(rate, 1.0)) ** (2 * thin)
        needed = 2 / ask.tolerance**2 * (1 + decay) / (1 - decay) / ask.num_chains
        num_draws = max(DEFAULT_DRAWS, math.ceil(min(1.25 * needed, MOST_DRAWS)))
        if plan.law is None or not is_auto(ask.step_size):
            num_draws = DEFAULT_DRAWS
    if ask.max_steps is not None:
        if is_auto(ask.burn_in):
            burn_in = min(burn_in, ask.max_steps // 4)
        if is_auto(ask.thin):
            thin = max(1, min(thin, (ask.max_steps - burn_in) // FEWEST))
        room = 1 + (ask.max_steps - burn_in - 1) // thin
        if not isinstance(ask.num_draws, str) and room < ask.num_draws:
            note = f"max_steps = {ask.max_steps} leaves {room} of {num_draws} draws per chain."
            plan = replace(plan, notes=(*plan.notes, note))
        num_draws = min(num_draws, room)
    return replace(
        plan, burn_in=burn_in, thin=thin, num_draws=int(num_draws), num_chains=ask.num_chains
    )
