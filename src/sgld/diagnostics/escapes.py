"""How soon exact chains leave a place of suspected mass, and how much mass that leaves there.

The density along one line says little of the volume around it. In many dimensions a line can stay
dense far out where the posterior has next to no mass, as that of a group's effect does from a mode
at which the groups' scale is small. Chains that start there decide. A stationary chain enters a
region A as often as it leaves it (detailed balance). If chains leave A after tau steps on average,
and n steps found it k times,

    mass(A) <= (tau / n) u(k),

with u(k) the upper 95% limit of a Poisson mean after k events (Garwood 1936). A region that holds
much mass either keeps the chains that start in it, or is entered often.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from ..approximation.known import Doubt, Known
from ..approximation.rays import GAUSSIAN_SDS
from ..core.progress import stage
from ..data.source import generator
from ..model.problem import Problem
from ..results.plan import Setup
from ..samplers.gradients.full import Full
from ..samplers.hmc import HMC
from ..samplers.preconditioners.fixed import Dense
from ..samplers.schedules.decay import constant

ESCAPE_STREAM = 20  # the stream of the host's generator that these chains use
ESCAPING_CHAINS, MAX_ESCAPE_STEPS = 32, 64  # one chain that stays is enough for a doubt
MAX_UNSEEN_SHARE = 0.1  # share of a second moment: an sd that is off by 5%


@stage("verdict")
def left_standing(
    problem: Problem, setup: Setup, known: Known, doubts: tuple[Doubt, ...],
    z: Float[np.ndarray, "chain draw d"], seed: int,
) -> tuple[Doubt, ...]:  # fmt: skip
    """Return the doubts about mass that the run's own sampler does not settle.

    Args:
      problem: that of a run by a sampler that leaves the posterior invariant.
      setup: that of the same run.
      known: its Gaussian is the one that the doubts' distances refer to.
      doubts: only those with a place to start from can be settled.
      z: the draws of chains that have mixed, in free coordinates.
      seed: that of the run.
    """
    assert known.gaussian is not None
    left = []
    for doubt in doubts:
        if doubt.start is None or doubt.toward is None:
            left.append(doubt)
            continue
        away = doubt.toward * np.sign((doubt.start - known.gaussian.center) @ doubt.toward)
        t, place = ((x - known.gaussian.center) @ away for x in (z, doubt.start))
        level = ((doubt.edge or GAUSSIAN_SDS) + place) / 2
        least = float(known.gaussian.center @ away + level)
        there = _steps_there(problem, setup, doubt.start, away, least, seed)
        stay = max(1.0, there.mean() / setup.thin)
        events = np.sum(t > place) / stay
        mass = stay / t.size * special.gammaincinv(events + 1, 0.95)
        small = mass * place**2 <= MAX_UNSEEN_SHARE * np.mean(t**2)
        if not (there.max() < MAX_ESCAPE_STEPS and small):
            left.append(doubt)
    return tuple(left)


def trajectories_like(problem: Problem, z: Float[np.ndarray, "chain draw d"], thin: int) -> Setup:
    """Return quarter-circle trajectories in the metric of the draws, for chains of another library."""
    d = z.shape[-1]
    flat, time_step = z.reshape(-1, d), 0.5 * d**-0.25
    metric = Dense(np.cov(flat, rowvar=False).reshape(d, d)).prepare(problem.layout)
    gradient = Full.around(problem, problem.array(flat.mean(0)))
    sampler = HMC(np.ceil(np.pi / 2 / time_step))
    return Setup(sampler, gradient, metric, constant(time_step**2), thin=thin)


def _steps_there(
    problem: Problem, setup: Setup, start: Float[np.ndarray, " d"], away: Float[np.ndarray, " d"],
    least: float, seed: int,
) -> Float[np.ndarray, " chain"]:  # fmt: skip
    """Return the steps after which chains from `start` are first below `least` along `away`."""
    shape = (MAX_ESCAPE_STEPS, ESCAPING_CHAINS, setup.sampler.num_noises, start.size)
    noise = problem.array(generator(seed, ESCAPE_STREAM, 0).standard_normal(shape))
    found = _first_below(
        problem, setup.sampler, setup.gradient, setup.preconditioner, problem.array(start),
        problem.array(away), setup.step_size(0), noise, least,
    )  # fmt: skip
    return np.asarray(found, np.float64)


@jax.jit
def _first_below(
    problem: Problem, sampler: Any, gradient: Any, preconditioner: Any, start: Array, away: Array,
    step_size: Any, noise: Array, least: Any,
) -> Array:  # fmt: skip
    grad = gradient.at(problem, None)

    def step(carry: tuple[Any, Array, Array], xi: Array) -> tuple[tuple[Any, Array, Array], None]:
        states, there, steps = carry
        moved = jax.vmap(
            lambda state, own: sampler.step(
                state, grad, step_size, own, preconditioner=preconditioner
            )
        )(states, xi)
        steps = steps + there.astype(steps.dtype)
        return (moved, there & (moved.position @ away > least), steps), None

    begun = jax.vmap(sampler.init)(jnp.broadcast_to(start, (noise.shape[1], start.size)))
    there = jnp.ones(noise.shape[1], bool)
    (_, _, steps), _ = jax.lax.scan(
        step, (begun, there, jnp.zeros(noise.shape[1], jnp.int32)), noise
    )
    return steps
