"""Misspecified models: noticed by the spread of the rows' scores, and intervals calibrated to it.

In a well-specified model the covariance of the rows' scores at the mode is the curvature they
bring: B = N V_S is about J (the information equality). Where the data vary more than the model
says, B is larger, and the posterior's sds are too small as statements about other samples of the
same size. The sandwich covariance J^{-1} B J^{-1} is right for those (Huber 1967; Müller 2013).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..approximation.mode import NEWTON_LIMIT, gaussian_at_mode
from ..errors import UsageError
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Problem
from ..model.sums import scores
from ..results import statistics
from ..results.draws import Draws
from ..results.verdict import Verdict

__all__ = ["sandwich"]


def sandwich(posterior: Posterior, data: Any, draws: Draws) -> Draws:
    """The draws, spread so that their covariance is the sandwich J^{-1} B J^{-1}.

        theta' = m + F B_w^{1/2} F^{-1} (theta - m),   F F^T = J^{-1},   B_w = F^T (N V_S) F

    with m the draws' mean in free coordinates, J the curvature and V_S the scores' covariance at
    the mode. A calibration of intervals for a model that is wrong, not a posterior: the result
    names itself so, and its verdict is `unknown`.

    Args:
      posterior, data: those the draws were made from.
      draws: what `sgld.sample` returned.

    Raises: UsageError without data, beyond 2000 parameters, where the curvature is not positive
    definite, where the draws are reported on another scale than they are sampled on, or where
    their temperature is not 1.

    Source: Müller (2013), Econometrica 81, sec. 3.

    Example:
      >>> import jax.numpy as jnp, numpy as np, sgld
      >>> x = 3 * np.random.default_rng(0).normal(size=500)          # the model says sd 1
      >>> model = sgld.Posterior(lambda t: 0.0 * t, lambda t, x: -0.5 * (x - t) ** 2)
      >>> draws = sgld.sample(model, x, 0.0, progress=False)
      >>> ratio = sgld.sandwich(model, x, draws).sd() / draws.sd()
      >>> bool(2.7 < ratio < 3.3)
      True
    """
    if posterior.output is not None:
        raise UsageError(
            "the draws of this posterior are reported on another scale than it is sampled on "
            "(posterior.output); for a run of sgld.fit use sgld.models.fit.sandwich_of_run(path), else "
            "write the model as an sgld.Posterior without output."
        )
    if not np.all(draws.temperature[draws.healthy] == 1):
        raise UsageError(
            "the draws are not all of temperature 1, so that their covariance is not J^{-1}; sample with "
            "temperature=1.0 for sandwich intervals."
        )
    start = jax.tree.map(lambda leaf: leaf[draws.healthy[0], 0], draws.position)
    problem = prepare(posterior, data, start)
    if not problem.has_rows:
        raise UsageError("sandwich needs data; a log density alone has no rows.")
    if problem.dimension > NEWTON_LIMIT:
        raise UsageError(
            f"{problem.dimension} parameters are more than {NEWTON_LIMIT}, for which a dense "
            "curvature is formed."
        )
    laplace = gaussian_at_mode(problem).gaussian
    if laplace.factor is None:
        raise UsageError("the curvature at the mode is not positive definite; no sandwich is made.")
    F = laplace.factor
    spread = white_spread(problem, laplace.center, F, problem.num_data)
    values, turn = np.linalg.eigh(spread)
    root = (turn * np.sqrt(np.maximum(values, 0))) @ turn.T
    free = jax.jit(jax.vmap(jax.vmap(lambda p: problem.layout.ravel(posterior.unconstrain(p)))))
    healthy = jax.tree.map(lambda leaf: jnp.asarray(leaf[draws.healthy]), draws.position)
    z = np.asarray(free(healthy), np.float64)
    mean = statistics.mean(z, draws.weights)
    moved = mean + (z - mean) @ np.linalg.solve(F.T, root @ F.T)
    position = problem.reported(problem.array(moved))
    keep = draws.healthy
    reason = "sandwich-calibrated draws: intervals for a misspecified model, not its posterior."
    return replace(
        draws, position=position, log_weight=draws.log_weight[keep], step_size=draws.step_size[keep],
        temperature=draws.temperature[keep], status=tuple(draws.status[i] for i in keep),
        verdict=Verdict("unknown", (reason,)), info={**draws.info, "target": "sandwich"},
    )  # fmt: skip


def white_spread(
    problem: Problem, mode: np.ndarray, factor: np.ndarray, rows: int
) -> Float[np.ndarray, "d d"]:
    """F^T (N V_S) F at the mode from the first `rows` rows: near I in a well-specified model."""
    at = jnp.arange(min(rows, problem.num_data), dtype=jnp.int32)
    found = np.asarray(scores(problem, problem.array(mode), at), np.float64)
    d = found.shape[1]
    return problem.num_data * factor.T @ np.cov(found, rowvar=False).reshape(d, d) @ factor
