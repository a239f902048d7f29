"""A step for unadjusted dynamics from what Metropolis would say of it.

The step h is the one that Metropolis would reject as often as it rejects h = 4b on a Gaussian, whose
sds come out b too wide:

    average(1 - min(1, exp(log ratio(h)))) = r(d),   r(d) that of N(0, I_d) at h = 4b

over the 98% of positions that are rejected least (a funnel's neck is not resolved), with log ratio
as in energy.py. Needs exact gradients.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..model.problem import Problem
from ..samplers.preconditioners.fixed import Dense
from .energy import around, log_acceptance

__all__ = ["matched_step"]

COUNTED = 0.98  # share of positions, the least rejected, that decide: a neck is not resolved
PROPOSALS = 256


def matched_step(
    problem: Problem, zs: Float[np.ndarray, "n d"], D: Dense, bias: float, seed: int
) -> float:
    """The largest step that is rejected at zs no more often than h = 4 bias is on a Gaussian."""
    local = around(problem, zs[0])
    us = problem.array(zs[np.arange(PROPOSALS) % len(zs)]) - local.target.center[None]
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 7), 2**20)
    xi = jax.random.normal(key, us.shape, us.dtype)
    limit = _gaussian_rejection(us.shape[1], 4 * bias)
    low, high = 1e-3 * bias, 4 * bias
    if float(_rejection(local, D, us, xi, us.dtype.type(high))) <= limit:
        return high
    for _ in range(20):
        middle = float(np.sqrt(low * high))
        if float(_rejection(local, D, us, xi, us.dtype.type(middle))) <= limit:
            low = middle
        else:
            high = middle
    return low


@jax.jit
def _rejection(local, D, us, xi, h):
    one = lambda u, x: log_acceptance(local, D, u, x, h)  # noqa: E731
    rejected = jnp.sort(-jnp.expm1(jnp.minimum(jax.vmap(one)(us, xi), 0.0)))
    return jnp.mean(rejected[: int(COUNTED * len(rejected))])


def _gaussian_rejection(d: int, h: float) -> float:
    """r(d): how often MALA rejects the step h on N(0, I_d)."""
    rng = np.random.default_rng(0)
    u, xi = rng.standard_normal((2, 4096, d))
    new = (1 - h) * u + np.sqrt(2 * h) * xi
    ratio = -h / 4 * np.sum(new**2 - u**2, axis=1)
    rejected = np.sort(-np.expm1(np.minimum(ratio, 0.0)))
    return float(np.mean(rejected[: int(COUNTED * len(rejected))]))
