"""Whether exchanges between replicas are decided by energies that are exact enough.

An exchange is accepted by b (U_1 - U_2) - b^2 s^2 / 2, b = (1 - 1 / t_2) / T for the cold chain and its
neighbour, with s^2 given as `energy_noise`. If the noise of the difference has the variance v, the odds of
an exchange are wrong by about exp(b^2 (v - s^2) / 2): the cold chain visits high energies too often,
or too seldom. v is measured at pairs of positions of the two chains' laws, before the first step.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ..approximation.gradient_noise import TUNING
from ..core.devices import sent
from ..data.source import generator
from ..errors import UsageError
from ..model.problem import Problem, Request
from ..results.plan import Plan
from ..samplers.gradients.full import Full
from ..samplers.replica_exchange import ReplicaExchange

__all__ = ["check_exchange", "exact_energies"]

PAIRS, BATCHES = 16, 32
WRONG = 0.02  # by which the log odds of an exchange may be off
NEAR = 0.25  # of a variance that is given, by which it may be: such a run is never trusted


def exact_energies(problem: Problem, gradient: Any) -> bool:
    """Whether every batch is all of the rows."""
    if not problem.has_rows or isinstance(gradient, Full):
        return True
    return problem.num_blocks == 1 and problem.source.uses_blocks


def check_exchange(problem: Problem, plan: Plan, ask: Request) -> None:
    """UsageError where exchanges would be decided by energies whose noise is not accounted for."""
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
        said = f"by {name}'s energies of {setup.batch_size} rows, whose noise is not known here"
    else:
        found = _variance(problem, plan, sampler, ask.seed)
        b = (1 - 1 / sampler.temperatures[1]) / (float(setup.temperature(0)) or 1.0)
        if abs(found - given) <= 2 * WRONG / b**2 + NEAR * given:
            return
        said = (
            f"by {name}'s energies of {setup.batch_size} rows: the noise of U_1 - U_2 has a variance of about "
            f"{found:.2g}, and energy_noise is {given:.2g}"
        )
    raise UsageError(
        f"ReplicaExchange's exchanges would be decided {said}; use gradient=sgld.Full(), whose energies "
        "are exact, or larger batches with energy_noise= that variance."
    )


def _variance(problem: Problem, plan: Plan, sampler: ReplicaExchange, seed: int) -> float:
    """v, the mean over pairs of the variance over batches."""
    gaussian, T = plan.known.gaussian, float(plan.setup.temperature(0)) or 1.0
    assert gaussian is not None
    rng = generator(seed, TUNING, 12)
    cold, hot = (
        gaussian.tempered(T * t).draw(rng, PAIRS) for t in (1.0, float(sampler.temperatures[1]))
    )
    if not problem.source.is_independent:
        problem = problem.with_batches(problem.source.batch_size, "independent")
    entries = problem.source.chunk((seed, 2**31 - 3), 0, BATCHES)
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
