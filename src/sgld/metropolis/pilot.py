"""Pilot chains: metric, step and starts where no Gaussian at a mode is to be trusted.

Metropolis-adjusted chains (MALA) from dispersed starts find where the posterior's mass is; they
follow its law at any step size, so that a bad first metric costs time and not truth. The metric is
their covariance. The run's own step h is then the one that Metropolis would reject as often as
it rejects h = 4b on a Gaussian, whose sds come out b too wide:

    average(1 - min(1, exp(log ratio(h)))) = r(d),   r(d) that of N(0, I_d) at h = 4b

over the 98% of positions that are rejected least (a funnel's neck is not resolved), with log ratio as in energy.py. Needs exact gradients: for models of few rows.

Where no position is too stiff for it, kinetic dynamics at delta^2 = 2 h (one step of which from rest
is that of MALA) has an error of the same order and arrives in about sqrt(h) as many steps.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data.order import generator
from ..device import stream_key
from ..gaussian.diagonal import largest_eigenvalue
from ..gaussian.noise import TUNING
from ..pace import Work
from ..preconditioner.fixed import Dense
from ..problem import sums
from ..problem.problem import Problem
from ..stages import stage
from .chains import adjusted_steps
from .energy import around, log_acceptance

__all__ = ["MOST_DIMENSIONS", "MOST_ROWS", "Pilot", "pilot"]

MOST_ROWS, MOST_DIMENSIONS = 2000, 200
CHAINS = 32
ROUNDS = (1, 2, 4, 8)  # stretches; the metric is learnt anew after each round
COUNTED = 0.98  # share of positions, the least rejected, that decide: a neck is not resolved
STIFF = 1.0  # most h lambda_max(D^{1/2}^T J D^{1/2}) anywhere for kinetic dynamics, stable up to 2


class Pilot(NamedTuple):
    """A factor of the metric, the step size in it, where the chains ended, and whether to be kinetic."""

    factor: Float[np.ndarray, "d d"]
    step_size: float
    zs: Float[np.ndarray, "chain d"]
    kinetic: bool


@stage("pilot chains")
def pilot(
    problem: Problem,
    center: Float[np.ndarray, " d"],
    factor: Float[np.ndarray, "d d"],
    bias: float,
    seed: int,
) -> Pilot | None:
    """Pilot chains from center + 2 factor xi; None where they find no finite density."""
    rng = generator(seed, TUNING, 5)
    d = center.size
    local = around(problem, center)
    us = _starts(local, 2 * rng.standard_normal((CHAINS, d)) @ factor.T)
    h, key, taken = (
        problem.array(np.asarray(0.1)),
        stream_key(seed, 7),
        0,
    )
    positions = np.asarray(us)
    with Work("pilot chains", units="stretches") as work:
        for stretches in ROUNDS:
            D, kept = _dense(factor, local), []
            for _ in work.pieces(0, stretches, most=1):
                us, h, path = adjusted_steps(local, D, us, h, jax.random.fold_in(key, taken), 1.0)
                kept.append(np.asarray(path, np.float64))
                taken += 1
            if not np.isfinite(np.asarray(us)).all():
                return None
            positions = np.concatenate(kept[stretches // 2 :]).reshape(-1, d)
            factor = _factor(positions)
    zs = np.asarray(local.target.center, np.float64) + np.asarray(us, np.float64)
    chosen = rng.choice(len(positions), 256, replace=False)
    us = problem.array(positions[chosen])
    matched = _matched_step(local, factor, us, bias, key)
    # where the scale changes from place to place a step that suits every place would never arrive
    step = max(matched, min(float(h) * 2 * bias / _usual_step(d), 4 * bias))
    stiffest = float(jnp.max(_stiffness(local, _dense(factor, local), us)))
    return Pilot(factor, step, zs, step * stiffest <= STIFF)


def _starts(local: Problem, us: Float[np.ndarray, "chain d"]) -> Array:
    """The starts, each drawn in until it is not far less dense than the centre."""
    us[0] = 0.0
    values = lambda us: np.asarray(_values(local, local.array(us)))  # noqa: E731
    least = values(us[:1])[0] - 4 * us.shape[1] - 10
    for _ in range(20):
        dense = values(us) >= least
        if dense.all():
            break
        us[~dense] /= 2
    return local.array(us)


@jax.jit
def _values(local, us):
    return jax.lax.map(lambda u: sums.log_density(local, u), us)


def _dense(factor: np.ndarray, problem: Problem) -> Dense:
    return Dense(factor @ factor.T, factor).prepare(problem.layout)


def _factor(us: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """A factor of the covariance, drawn towards its diagonal where draws are few."""
    n, d = us.shape
    covariance = np.cov(us, rowvar=False).reshape(d, d)
    diagonal = np.diag(np.maximum(np.diag(covariance), 1e-20))
    few = 10 * d / (n / 10 + 10 * d)  # a tenth of the positions count as independent
    return np.linalg.cholesky((1 - few) * covariance + few * diagonal)


def _matched_step(local: Problem, factor, us, bias: float, key: Array) -> float:
    """The largest step that is rejected no more often than h = 4 bias is on a Gaussian."""
    xi = jax.random.normal(jax.random.fold_in(key, 2**20), us.shape, us.dtype)
    limit, D = _gaussian_rejection(us.shape[1], 4 * bias), _dense(factor, local)
    low, high = 1e-3 * bias, 4 * bias
    if float(_rejection(local, D, us, xi, jnp.float32(high))) <= limit:
        return high
    for _ in range(20):
        middle = float(np.sqrt(low * high))
        if float(_rejection(local, D, us, xi, jnp.float32(middle))) <= limit:
            low = middle
        else:
            high = middle
    return low


@jax.jit
def _rejection(local, D, us, xi, h):
    one = lambda u, x: log_acceptance(local, D, u, x, h)  # noqa: E731
    rejected = jnp.sort(-jnp.expm1(jnp.minimum(jax.vmap(one)(us, xi), 0.0)))
    return jnp.mean(rejected[: int(COUNTED * len(rejected))])


@jax.jit
def _stiffness(local, D, us):
    """|lambda|_max of D^{1/2}^T J D^{1/2} at each of the positions."""

    def at(u):
        gradient = jax.grad(lambda q: sums.log_density(local, q))
        return largest_eigenvalue(
            lambda v: -D.pullback(jax.jvp(gradient, (u,), (D.noise(v),))[1]), u
        )

    return jax.lax.map(at, us)


def _usual_step(d: int) -> float:
    """MALA's adapted step on N(0, I_d): 2 h = 1.65^2 d^{-1/3} (Roberts & Rosenthal 1998)."""
    return 1.36 * d ** (-1 / 3)


def _gaussian_rejection(d: int, h: float) -> float:
    """r(d): how often MALA rejects the step h on N(0, I_d)."""
    rng = np.random.default_rng(0)
    u, xi = rng.standard_normal((2, 4096, d))
    new = (1 - h) * u + np.sqrt(2 * h) * xi
    ratio = -h / 4 * np.sum(new**2 - u**2, axis=1)
    rejected = np.sort(-np.expm1(np.minimum(ratio, 0.0)))
    return float(np.mean(rejected[: int(COUNTED * len(rejected))]))
