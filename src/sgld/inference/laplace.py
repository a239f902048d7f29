"""Draws of the Gaussian with the curvature at the mode, around the mode or the mean.

Misspecified models: noticed by the spread of the rows' scores, and intervals calibrated to it.

In a well-specified model the covariance of the rows' scores at the mode is the curvature they
bring: B = N V_S is about J (the information equality). Where the data vary more than the model
says, B is larger, and the posterior's sds are too small as statements about other samples of the
same size. The sandwich covariance J^{-1} B J^{-1} is right for those (Huber 1967; Müller 2013).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..approximation.gradient_noise import TUNING_STREAM
from ..approximation.laplace import Laplace, laplace_at
from ..approximation.low_rank import at_the_mean, departure
from ..approximation.mode import MAX_NEWTON_DIM, Mode, gaussian_at_mode
from ..approximation.propriety import named_direction
from ..core.validation import whole_number
from ..data.source import generator
from ..errors import UsageError
from ..model import sums
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Problem
from ..model.sums import scores
from ..results import statistics
from ..results.draws import Draws
from ..results.verdict import Verdict
from ..typing import Centre

PyTree = Any

MAX_TRUSTED_NU = 0.01
MIN_CENTRE_SHIFT_SDS = 0.1  # sds


def laplace(
    posterior: Posterior,
    data: Any,
    mode: Mode | PyTree | None = None,
    *,
    centre: Centre = "mode",
    num_chains: int = 4,
    num_draws: int = 1000,
    seed: int = 0,
) -> Draws:
    """Independent draws of the Laplace approximation, N(centre, J^{-1}) in free coordinates.

    J is the curvature of U = -log posterior at the mode. `centre="mean"` moves the Gaussian by
    -J^{-1} average(grad U) over its own draws, one natural-gradient step of a Gaussian variational
    fit, and is the better approximation wherever the posterior is skewed. Constrained parameters are mapped back, so
    that a positive one stays positive. The verdict is always `unknown`: this is an
    approximation; nu, its distance from Gaussian, is measured and told.

    Args:
      posterior, data: as for `sgld.sample`.
      mode: what `sgld.find_map` returned, or a position to search from (None: posterior.init).
      centre: "mode", or "mean", which costs some hundred gradients over all rows.
      num_chains, num_draws, seed: as for `sgld.sample`; chains are only a shape here.

    Raises UsageError where there is no mode or J is not positive definite there.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
      >>> draws = sgld.laplace(posterior, jnp.array([1.0, 2.0, 3.0]), 0.0)
      >>> round(float(draws.mean()), 1), draws.verdict.word
      (1.5, 'unknown')
    """
    began = time.perf_counter()
    init = mode
    if isinstance(mode, Mode):
        # the mode's position is on the reported scale, its z on the free one
        init = mode.position if posterior.output is None else posterior.init
    for name, value in (("num_chains", num_chains), ("num_draws", num_draws)):
        whole_number(name, value)
    if centre not in get_args(Centre):
        raise UsageError(f'centre must be "mode" or "mean". Got {centre!r}.')
    problem = prepare(posterior, data, init, seed=seed)
    d = problem.dimension
    if d > MAX_NEWTON_DIM:
        raise UsageError(
            f"{d} parameters are more than {MAX_NEWTON_DIM}, for which a dense curvature is formed; use "
            "sgld.sample or sgld.reference."
        )
    if isinstance(mode, Mode) and mode.z is not None:
        if mode.z.shape != (d,):
            raise UsageError(f"mode has {mode.z.size} free parameters; the posterior has {d}.")
        gaussian, converged = laplace_at(problem, mode.z), True
    else:
        gaussian, _, converged = gaussian_at_mode(problem)
    if not gaussian.positive_definite:
        raise UsageError(_not_definite(problem, gaussian))
    if not converged:
        raise UsageError(
            "the search for the mode did not converge, so there is no Gaussian at it; start closer "
            "(mode=position), or use sgld.reference."
        )
    assert gaussian.factor is not None
    at = problem.array(gaussian.center)
    slope = np.asarray(sums.value_and_gradient(problem, at)[1], np.float64)
    away = float(np.linalg.norm(slope @ gaussian.factor))
    if centre == "mean":
        around, nu, _ = at_the_mean(problem, gaussian, generator(seed, TUNING_STREAM, 2), 1.0)
        moved = around is not gaussian
        gaussian = around
    else:
        nu, moved = departure(problem, gaussian, generator(seed, TUNING_STREAM, 2)).nu, None
    flat = gaussian.draw(generator(seed, TUNING_STREAM, 3), num_chains * num_draws)
    zs = jnp.asarray(flat.reshape(num_chains, num_draws, d), problem.layout.dtype)
    info = {
        "method": "laplace",
        "centre": centre,
        "num_data": problem.num_data or None,
        "num_steps": 0,
        "nu": nu,
        "seed": int(seed),
        "seconds": time.perf_counter() - began,
    }
    return Draws.at(problem, zs, verdict=_verdict(nu, away, moved), info=info)


def _verdict(nu: float, away: float, moved: bool | None) -> Verdict:
    """`moved`: whether the centre could be moved to the mean; None where that was not asked for."""
    place = "mean" if moved else "mode"
    reasons = [
        f"these are draws of the Gaussian at the {place}, an approximation; confirm with sgld.sample or "
        "sgld.reference."
    ]
    if moved is False:
        reasons.append(
            "no step towards the mean made the Gaussian a better one, so it stayed at the mode."
        )
    if away > MIN_CENTRE_SHIFT_SDS:
        reasons.append(
            f"the mode given is about {away:.2g} sd from where the gradient vanishes; let "
            "sgld.find_map converge."
        )
    if nu < MAX_TRUSTED_NU:
        reasons.append(
            f"the posterior is nearly Gaussian in free coordinates (nu = {nu:.2g}; 0 is exactly so), "
            "which makes it a good one around this mode."
        )
    else:
        told = f"nu = {nu:.2g}" if np.isfinite(nu) else "nu beyond all numbers"
        reasons.append(
            f"the posterior is not nearly Gaussian in free coordinates ({told}, where less "
            f"than {MAX_TRUSTED_NU} is)."
        )
    return Verdict("unknown", tuple(reasons), extra={"nu": nu if np.isfinite(nu) else None})


def _not_definite(problem: Problem, gaussian: Laplace) -> str:
    """The direction in which the density does not fall, as a sentence."""
    at = named_direction(problem, gaussian.flattest)
    if not np.isfinite(gaussian.curvature).all():
        return f"the curvature at the mode is not finite for {at}; use sgld.reference."
    return (
        f"the curvature at the mode is not positive definite (smallest relative eigenvalue "
        f"{gaussian.smallest:.2g}), along {at}: the density does not fall there. Give it a "
        "proper prior, drop it, or use sgld.reference."
    )


# -- sandwich ------------------------------------------------------------------------------


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
            "(posterior.output); for a run of sgld.fit use sgld.regression.fit.sandwich_of_run(path), else "
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
    if problem.dimension > MAX_NEWTON_DIM:
        raise UsageError(
            f"{problem.dimension} parameters are more than {MAX_NEWTON_DIM}, for which a dense "
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
