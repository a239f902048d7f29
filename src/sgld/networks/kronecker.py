"""A Kronecker preconditioner from a posterior and a position."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.validation import whole_number
from ..errors import UsageError
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..samplers.preconditioners.kronecker import Kronecker
from ..tune.kronecker import learnt_factors
from ..tune.network_rule import FISHER_ROWS
from ..tune.prior_starts import prior_curvature

__all__ = ["kronecker"]

PyTree = Any


def kronecker(
    posterior: Posterior,
    data: PyTree,
    position: PyTree,
    *,
    num_rows: int = FISHER_ROWS,
    seed: int = 0,
) -> Kronecker:
    """D for a step by hand: the inverse of the rows' Fisher information and the prior's curvature at a position.

    For every leaf W [m, n] with a row's gradient G, U and V are the eigenvectors of E G G^T and E G^T G, and

        D W = U ((U^T W V) * s) V^T,    s = 1 / (N E (U^T G V)^2 + prior's curvature)

    A leaf of one axis, or with a side over 2,048, has a diagonal.

    Args:
      posterior, data: as for `sgld.sample`.
      position: where: a pytree or a network, as one that was trained.
      num_rows: rows whose gradients are looked at, drawn at random.
      seed: of that choice.

    Raises: UsageError for a wrong argument, DataError for wrong data.

    Source: Martens & Grosse 2015; George et al. 2018.

    Example:
      >>> import jax.numpy as jnp, numpy as np, sgld
      >>> x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
      >>> posterior = sgld.Posterior(
      ...     lambda W: -0.5 * jnp.sum(W**2), lambda W, x: -0.5 * jnp.sum((W @ x) ** 2))
      >>> D = sgld.networks.kronecker(posterior, x, jnp.ones((2, 3)))
      >>> [part[0].shape for part in (D.left, D.right, D.scale)]
      [(2, 2), (3, 3), (2, 3)]
    """
    whole_number("num_rows", num_rows, 1)
    problem = prepare(posterior, data, position, seed=seed)
    if not problem.has_rows:
        raise UsageError("kronecker needs data; a log density alone has no rows.")
    prior = np.asarray(prior_curvature(problem, problem.start), np.float64)
    return learnt_factors(problem, problem.start[None], prior, num_rows)
