"""Starts for chains that are to find what a run's own have missed: from the prior, as well as near `init`.

An optimiser that begins near `init` comes to what is near. So of every three starts one is near `init`, one is
where dynamics of the prior alone comes to from there, and one where it comes to from -init: a prior is often the same
at both, and what lies between may be a wall of the prior's own.

    theta' = BAOA in D = 1 / curvature of the prior, delta = .2, 500 steps; no row is looked at
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..approximation.gradient_noise import TUNING
from ..core.devices import stream_key
from ..model.problem import Problem
from ..samplers.baoa import BAOA
from ..samplers.preconditioners.fixed import Diagonal
from .network_rule import FROM_PRIOR

__all__ = ["as_normal", "from_prior", "narrowness", "prior_curvature"]

STEPS, DELTA = 500, 0.2
STREAM = 18
MOST = (
    2**14
)  # parameters: of more a prior is that of a network's weights, and init as good a draw of it as any
FLAT = 1e-5  # curvature of a prior that says nothing of a parameter's scale; 1 is taken


@jax.jit
def prior_curvature(problem: Problem, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """Its diagonal, where a prior's Hessian has no other entries."""
    slope, change = jax.jvp(jax.grad(problem.log_prior), (z,), (jnp.ones_like(z),))
    # where a prior is not convex, as in heavy tails, or has a kink, its slope says how wide it is
    found = jnp.where(-change > 1e-6, -change, slope**2)
    return jnp.where(jnp.isfinite(found), jnp.maximum(found, 1e-6), 1.0)


def narrowness(problem: Problem, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """The prior's curvature that a metric goes by: in a heavy tail, no less than a normal prior of its scales has.

    A tail is wider the further out chains are, and steps of its own width there take them further still.
    """
    found, normal = prior_curvature(problem, z), as_normal(problem, tails=True)
    if normal is problem:
        return found
    return jnp.maximum(found, prior_curvature(normal, problem.start))


def as_normal(problem: Problem, tails: bool = False) -> Problem:
    """With sds that a prior learns at what they are held to be; `tails`: Student's t as normal, too.

    An sd that is integrated out makes a peak at 0, where a network predicts the same of all rows.
    """
    from ..model.network_priors import LearntPrior, NormalPrior, StudentTPrior

    # bound to a function, as a module's is, a prior is a part of a pytree
    log_prior, heavy = problem.posterior.log_prior, lambda part: isinstance(part, kinds)
    kinds = (LearntPrior, StudentTPrior) if tails else (LearntPrior,)
    if not any(map(heavy, jax.tree.leaves(log_prior, is_leaf=heavy))):
        return problem

    def normal(part: Any) -> Any:
        return NormalPrior(part.scales, part.patterns, part.fan_in) if heavy(part) else part

    posterior = replace(problem.posterior, log_prior=jax.tree.map(normal, log_prior, is_leaf=heavy))
    return replace(problem, target=replace(problem.target, posterior=posterior))


def from_prior(problem: Problem, near: Float[np.ndarray, "m d"], seed: int) -> np.ndarray:
    """`near`, two of every three of them moved by the prior; those that do not stay finite are as they were."""
    moved, kind = near.copy(), np.arange(len(near)) % 3
    if problem.dimension > FROM_PRIOR:
        return moved
    key = jax.random.fold_in(stream_key(seed, TUNING), STREAM)
    for k in np.flatnonzero(kind):
        begin = problem.array(near[k] if kind[k] == 1 else -near[k])
        found, log_p = _moved(problem, begin, jax.random.fold_in(key, k))
        if np.isfinite(log_p):
            moved[k] = found
    return moved


@jax.jit
def _moved(problem: Problem, z: Float[Array, " d"], key: Array) -> tuple[Array, Array]:
    """Where the prior's dynamics is after so many steps, and the log prior there."""
    curvature = prior_curvature(problem, z)
    D = Diagonal(1 / jnp.where(curvature > FLAT, curvature, 1.0))
    sampler, gradient = BAOA(), jax.grad(problem.log_prior)

    def one(state, key):
        xi = jax.random.normal(key, z.shape, z.dtype)
        return sampler.step(state, gradient, DELTA**2, xi, preconditioner=D), None

    state, _ = jax.lax.scan(one, sampler.init(z), jax.random.split(key, STEPS))
    return state.position, problem.log_prior(state.position)
