"""Metropolis's view of a step size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..core.validation import positive, whole_number
from ..errors import UsageError
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..results.draws import Draws
from ..samplers.preconditioners.fixed import Scalar, given
from ..typing import Preconditioner
from .energy import around, log_acceptance

__all__ = ["rejection_rate"]

PyTree = Any


@overload
def rejection_rate(
    posterior: Posterior, data: Any, position: Draws | PyTree, step_size: float | None = None, *,
    preconditioner: Preconditioner | None = None, num_proposals: int = 1000, seed: int = 0,
) -> float: ...  # fmt: skip


@overload
def rejection_rate(
    posterior: Posterior, data: Any, position: Draws | PyTree,
    step_size: Sequence[Any] | np.ndarray | Array, *,
    preconditioner: Preconditioner | None = None, num_proposals: int = 1000, seed: int = 0,
) -> np.ndarray: ...  # fmt: skip


def rejection_rate(
    posterior: Posterior,
    data: Any,
    position: Draws | PyTree,
    step_size: float | Sequence[Any] | np.ndarray | Array | None = None,
    *,
    preconditioner: Preconditioner | None = None,
    num_proposals: int = 1000,
    seed: int = 0,
) -> float | np.ndarray:
    """How often Metropolis would reject SGLD's move with full gradients (MALA) at `step_size`.

        theta' = theta + h D grad + sqrt(2h) D^{1/2} xi

    It goes to 0 with h, as h^{3/2} on smooth posteriors; a step that is rejected often is too
    large for the unadjusted sampler too (Welling & Teh 2011, fig. 2).

    Args:
      posterior, data: as for `sgld.sample`.
      position: where to propose from: Draws of this posterior, or one position.
      step_size: h, a number or an array of them, tried with the same xi (None: with draws, the
        last step of their run).
      preconditioner: D, in free coordinates (None: with draws and no step_size that of their run,
        else the identity).
      num_proposals: proposals, spread over the draws.
      seed: of the proposals.

    Returns: the mean rejection probability, a float, or an array of step_size's shape.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> gaussian = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
      >>> small, large = sgld.rejection_rate(gaussian, None, jnp.zeros(2), [0.001, 1.0])
      >>> bool(small < 0.001 < 0.1 < large)
      True
    """
    if step_size is None:
        step_size, preconditioner = _of_run(position, preconditioner)
    positive("step_size", step_size)
    steps = np.asarray(step_size, float)
    whole_number("num_proposals", num_proposals)
    draws = position if isinstance(position, Draws) else None
    if draws is not None:
        if posterior.output is not None:
            raise UsageError(
                "the draws of this posterior are reported on another scale than it is sampled on "
                "(posterior.output); give one position, such as posterior.init."
            )
        flat = jax.tree.map(
            lambda leaf: leaf[draws.healthy].reshape(-1, *leaf.shape[2:]), draws.position
        )
        count = len(jax.tree.leaves(flat)[0])
        at = np.linspace(0, count - 1, min(num_proposals, count)).round().astype(int)
        flat = jax.tree.map(lambda leaf: jnp.asarray(leaf[at]), flat)
        position = jax.tree.map(lambda leaf: leaf[len(at) // 2], flat)
    problem = prepare(posterior, data, position, seed=seed)
    zs = problem.start[None]
    if draws is not None:
        zs = jax.vmap(lambda p: problem.layout.ravel(posterior.unconstrain(p)))(flat)
    D = Scalar(1.0) if preconditioner is None else preconditioner
    if getattr(D, "adapts", True) or not hasattr(D, "pullback"):
        raise UsageError(
            f"preconditioner must be Scalar, Diagonal, Dense or LowRank: a fixed D. Got {D!r}."
        )
    D = given(D, problem.layout)
    local = around(problem, problem.start)
    key = jax.random.fold_in(jax.random.key(seed), 6)
    xi = jax.random.normal(key, (num_proposals, zs.shape[1]), zs.dtype)
    us = zs[np.arange(num_proposals) % len(zs)] - local.target.center[None]
    one = jax.jit(jax.vmap(partial(log_acceptance, local, D), (0, 0, None)))
    rates = [
        float(np.mean(-np.expm1(np.minimum(np.asarray(one(us, xi, zs.dtype.type(h))), 0.0))))
        for h in steps.reshape(-1)
    ]
    return np.array(rates).reshape(steps.shape) if steps.ndim else rates[0]


def _of_run(draws: Any, preconditioner: Any) -> tuple[float, Any]:
    """The run's step size at its end, and its D."""
    if not isinstance(draws, Draws):
        raise UsageError("step_size is missing; give one, or the draws of a run.")
    if preconditioner is None:
        if draws.plan is None or draws.plan.setup.preconditioner.adapts:
            raise UsageError(
                "the draws do not hold a fixed preconditioner of their run (an adapted one "
                "has none); pass step_size= and preconditioner=."
            )
        preconditioner = draws.plan.setup.preconditioner
    return float(draws.step_size[draws.healthy[0], -1]), preconditioner
