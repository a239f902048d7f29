"""Choice of the injected noise: normals, or counts of bits if drawing normals is costly.

Counts have the normals' mean and variance, but tails that are too thin if a step is long. So they
are chosen only for large positions, and only if the stiffest direction at the starts keeps an
excess kurtosis of at most MAX_STIFF_EXCESS. They are never used for moves that are accepted or
rejected.

The module also checks whether energies are exact enough to decide exchanges between replicas.

An exchange is accepted by b (U_1 - U_2) - b^2 s^2 / 2, b = (1 - 1 / t_2) / T for the cold chain and
its neighbour, with s^2 given as `energy_noise`. If the noise of the difference has the variance v,
the odds of an exchange are wrong by about exp(b^2 (v - s^2) / 2): the cold chain visits high
energies too often, or too seldom. v is measured at pairs of positions of the two chains'
distributions, before the first step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...approximation.gradient_noise import TUNING_STREAM
from ...core.devices import sent
from ...data.source import generator
from ...diagnostics.function_space.temperature import stiffest
from ...errors import UsageError, did_you_mean
from ...model.problem import Problem, Request, is_auto
from ...results.plan import Plan
from ...samplers.baoa import BAOA
from ...samplers.confined_hmc import ConfinedHMC
from ...samplers.gradients.full import Full
from ...samplers.hmc import HMC
from ...samplers.noise import NOISE_BITS, NOISE_DISTRIBUTIONS, excess_kurtosis
from ...samplers.replica_exchange import ReplicaExchange
from ...samplers.sgld import SGLD
from .cost import NORMAL_SECONDS
from .network_rules import batch_cost, curvature_rows
from .parts import settled

MIN_LARGE_DIM = 2**16  # numbers of a position: fewer are drawn many steps at once, and cost little
MIN_NORMALS_SHARE = 0.25  # share of a gradient's cost that normals must reach
# excess kurtosis in the stiffest direction: SGLD has it at h l = .13, BAOA at .1, with .99, .83 and .46 times the
# mass of normals beyond 2, 3 and 4 sds
MAX_STIFF_EXCESS = 0.07
BINOMIAL_NOISE_NOTE = (
    f"each injected number is a count of {NOISE_BITS} random bits, which has a normal's mean and variance and is faster; "
    'tails beyond 2 sds are thinner, more so for longer steps (noise="normal" draws normals).'
)


def check_noise(ask: Request) -> None:
    """Raise UsageError for an unknown distribution, and for counts if a sampler needs normals."""
    if ask.noise not in ("auto", *NOISE_DISTRIBUTIONS):
        raise UsageError(
            f"noise must be 'auto' or one of {', '.join(NOISE_DISTRIBUTIONS)}. Got {ask.noise!r}."
            + did_you_mean(ask.noise, NOISE_DISTRIBUTIONS)
        )
    if ask.noise == "binomial" and isinstance(ask.sampler, (HMC, ConfinedHMC, ReplicaExchange)):
        raise UsageError(
            f"noise must be 'normal' with {type(ask.sampler).__name__}, which accepts or rejects moves by it. "
            "Got 'binomial'."
        )


def with_noise(plan: Plan, problem: Problem, ask: Request) -> Plan:
    """Return the plan with the requested noise, or with counts of bits if they pay.

    `problem` holds all rows.
    """
    if ask.noise == "normal":
        return plan
    if is_auto(ask.noise):
        large = problem.dimension >= MIN_LARGE_DIM
        if not (large and _normals_are_costly(plan, problem) and _counts_are_close(plan, problem)):
            return plan
    return replace(plan, setup=replace(plan.setup, noise="binomial")).with_notes(
        BINOMIAL_NOISE_NOTE
    )


def _normals_are_costly(plan: Plan, problem: Problem) -> bool:
    """Return whether normals cost a large part of a step."""
    price = batch_cost(problem, plan.setup.gradient, plan.setup.batch_size)
    return NORMAL_SECONDS * problem.dimension >= MIN_NORMALS_SHARE * price


def _counts_are_close(plan: Plan, problem: Problem) -> bool:
    """Return whether counts leave the stiffest direction nearly normal, for a linear sampler."""
    setup = plan.setup
    if type(setup.sampler) not in (BAOA, SGLD) or setup.corrected:
        return False
    starts = problem.start[None] if setup.starts is None else problem.array(setup.starts)
    D = settled(setup.preconditioner, problem, starts[0])
    if (
        setup.batch_size is not None and setup.order is not None
    ):  # the batches with which the step was found, to compile nothing again
        problem = problem.with_batches(setup.batch_size, setup.order)
    rows = curvature_rows(problem.num_data, problem.dimension)
    _, stiff = stiffest(problem, D, starts, count=2, rows=rows)
    curvature, h = jnp.max(stiff), problem.array(setup.step_size(0))
    found = float(excess_kurtosis(setup.sampler, h, curvature))
    return bool(np.isfinite(found)) and -found <= MAX_STIFF_EXCESS


# -- exchange ------------------------------------------------------------------------------


EXCHANGE_DRAWS, EXCHANGE_BATCHES = 16, 32
MAX_EXCHANGE_ERROR = 0.02  # largest error of the log odds of an exchange
# largest relative error of a given variance: such a run is never trusted
MAX_VARIANCE_ERROR = 0.25


def exact_energies(problem: Problem, gradient: Any) -> bool:
    """Return whether every batch holds all rows."""
    if not problem.has_rows or isinstance(gradient, Full):
        return True
    return problem.num_blocks == 1 and problem.source.uses_blocks


def check_exchange(problem: Problem, plan: Plan, ask: Request) -> None:
    """Raise UsageError if energies with unaccounted noise would decide exchanges."""
    setup = plan.setup
    sampler = setup.sampler
    if not isinstance(sampler, ReplicaExchange) or setup.batch_size is None or setup.order is None:
        return
    problem = problem.with_batches(setup.batch_size, setup.order)
    problem = problem.with_always(setup.always, ask.seed)
    if exact_energies(problem, setup.gradient):
        return
    given, name = float(sampler.energy_noise), type(setup.gradient).__name__
    if setup.gradient.remembers or not plan.known.usable:
        if given > 0:
            return
        energies = f"by {name}'s energies of {setup.batch_size} rows, whose noise is not known here"
    else:
        found = _variance(problem, plan, sampler, ask.seed)
        b = (1 - 1 / sampler.temperatures[1]) / (float(setup.temperature(0)) or 1.0)
        if abs(found - given) <= 2 * MAX_EXCHANGE_ERROR / b**2 + MAX_VARIANCE_ERROR * given:
            return
        energies = (
            f"by {name}'s energies of {setup.batch_size} rows: the noise of U_1 - U_2 has a variance of about "
            f"{found:.2g}, and energy_noise is {given:.2g}"
        )
    raise UsageError(
        f"ReplicaExchange's exchanges would be decided {energies}; use gradient=sgld.Full(), whose energies "
        "are exact, or larger batches with energy_noise= that variance."
    )


def _variance(problem: Problem, plan: Plan, sampler: ReplicaExchange, seed: int) -> float:
    """Return v, the mean over pairs of the variance over batches."""
    gaussian, T = plan.known.gaussian, float(plan.setup.temperature(0)) or 1.0
    assert gaussian is not None
    rng = generator(seed, TUNING_STREAM, 12)
    cold, hot = (
        gaussian.tempered(T * t).draw(rng, EXCHANGE_DRAWS)
        for t in (1.0, float(sampler.temperatures[1]))
    )
    if not problem.source.is_independent:
        problem = problem.with_batches(problem.source.batch_size, "independent")
    entries = problem.source.chunk((seed, 2**31 - 3), 0, EXCHANGE_BATCHES)
    pairs = (problem.array(cold), problem.array(hot))
    found = np.asarray(_differences(problem, plan.setup.gradient, pairs, sent(entries)), np.float64)
    return float(np.mean(np.var(found, axis=0, ddof=1)))


@jax.jit
def _differences(
    problem: Problem, gradient: Any, pairs: tuple[Array, Array], entries: Array
) -> Float[Array, "batch pair"]:
    def one(entry: Array) -> Array:
        energy = gradient.at(problem, entry).log_density
        return jax.vmap(energy)(pairs[0]) - jax.vmap(energy)(pairs[1])

    return jax.lax.map(one, entries)
