"""A second opinion where the bias meter is no guide: Metropolis-adjusted chains.

MALA with exact gradients, from the pilot chains' ends and in their metric. It follows the posterior
whatever its step size, so that its means and sds are the truth up to Monte Carlo error, as far as
its chains mix. Only for models of few rows; step-halving would be the same check at twice the
price of the run, blind to what changes slowly with h.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from ..device import stream_key
from ..draws import weighted
from ..draws.setup import Setup
from ..pace import Work
from ..problem.problem import Problem
from .chains import adjusted_steps
from .energy import around

__all__ = ["Confirmation", "confirm"]

WARM_UP = 4  # stretches in which the step size adapts
MOST, BETWEEN = 64, 8  # stretches that are kept, and between looks at their ESS
ENOUGH = 1500  # effective draws of every parameter and its square


@dataclass(frozen=True)
class Confirmation:
    """Means and sds of the reported parameters, by adjusted chains.

    `mean_se` is in sds, `sd_se` relative; `mixed` says whether the chains agree; `tail` is the Pareto k
    of the heavier tail: from 1/4 the fourth moment is infinite, and `sd_se` means nothing.
    """

    mean: Float[np.ndarray, " m"]
    sd: Float[np.ndarray, " m"]
    mean_se: Float[np.ndarray, " m"]
    sd_se: Float[np.ndarray, " m"]
    mixed: bool
    tail: Float[np.ndarray, " m"]


def confirm(problem: Problem, setup: Setup, seed: int) -> Confirmation:
    """Run adjusted chains until they have enough effective draws, or long enough."""
    assert setup.starts is not None
    local = around(problem, setup.starts[0])
    us = problem.array(setup.starts) - local.target.center[None]
    h = problem.array(np.asarray(10 * float(setup.step_size(0))))
    key = stream_key(seed, 8)
    kept: list[np.ndarray] = []
    with Work("exact chains", units="stretches") as work:
        for number, _ in work.pieces(0, WARM_UP + MOST, most=1):
            adapting = 1.0 if number < WARM_UP else 0.0
            us, h, path = adjusted_steps(
                local, setup.preconditioner, us, h, jax.random.fold_in(key, number), adapting
            )
            if number < WARM_UP:
                continue
            kept.append(
                np.asarray(_reported(problem, local.target.center[None, None] + path), np.float64)
            )
            if len(kept) % BETWEEN == 0:
                found = _summarised(np.concatenate(kept).swapaxes(0, 1))
                if (
                    found.mixed
                    and np.max(found.mean_se) ** -2 > ENOUGH
                    and found.sd_se.max() < 0.025
                ):
                    break
    return _summarised(np.concatenate(kept).swapaxes(0, 1))


@jax.jit
def _reported(problem, zs):
    return jax.lax.map(jax.vmap(problem.target.flat_reported), zs)


def _summarised(values: Float[np.ndarray, "chain draw m"]) -> Confirmation:
    found = weighted.Estimates(values, np.full(values.shape[:2], 1 / values[..., 0].size))
    limit = weighted.max_r_hat(found.mixing.ess_alone, *values.shape[::2])
    mixed = bool(np.all(found.r_hat <= limit) and np.all(found.ess > 400))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_se = 1 / np.sqrt(found.ess)
    tail = weighted.pareto_k(values)
    return Confirmation(found.mean, found.sd, mean_se, found.sd_se, mixed, tail)
