"""`sgld.laplace` and `sgld.sandwich`: draws of a Gaussian at the mode, and calibrated intervals.

`laplace` draws from the Gaussian with the curvature at the mode, centred at the mode or the mean.
`sandwich` calibrates intervals for misspecified models by the spread of the rows' scores.

In a well-specified model the covariance of the rows' scores at the mode is the curvature they
bring: B = N V_S is about J (the information equality). If the data vary more than the model
implies, B is larger, and the posterior's sds are too small as statements about other samples of the
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
MIN_CENTRE_SHIFT_SDS = 0.1


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
    """Draw independently from the Laplace approximation, N(centre, J^{-1}) in free coordinates.

    J is the curvature of U = -log posterior at the mode. `centre="mean"` moves the Gaussian by
    -J^{-1} average(grad U) over its own draws, one natural-gradient step of a Gaussian variational
    fit. It is the better approximation if the posterior is skewed. Constrained parameters are
    mapped back, so that a positive one stays positive. The verdict is always `unknown`, because
    this is an approximation; it reports nu, the measured distance from a Gaussian.

    Args:
      posterior: as for `sgld.sample`.
      data: as for `sgld.sample`.
      mode: the result of `sgld.find_map`, or a position to search from (None: posterior.init).
      centre: "mode", or "mean", which costs some hundred gradients over all rows.
      num_chains: first axis of the draws; the chains are not run.
      num_draws: draws per chain.
      seed: seed of all random numbers.

    Raises UsageError if there is no mode or J is not positive definite there.

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
        # the mode's position is on the reported scale, its z on the free scale
        init = mode.position if posterior.output is None else posterior.init
    for name, value in (("num_chains", num_chains), ("num_draws", num_draws)):
        whole_number(name, value)
    if centre not in get_args(Centre):
        raise UsageError(f'centre must be "mode" or "mean". Got {centre!r}.')
    problem = prepare(posterior, data, init, seed=seed)
    d = problem.dimension
    if d > MAX_NEWTON_DIM:
        raise UsageError(
            f"the model has {d} parameters, and a dense curvature is limited to {MAX_NEWTON_DIM}; use "
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
            "the search for the mode did not converge, so there is no Gaussian at the mode; start closer "
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
    """Return the verdict `unknown` with its reasons.

    `moved` says whether the centre moved to the mean; None if the mean was not requested.
    """
    place = "mean" if moved else "mode"
    reasons = [
        f"these are draws of the Gaussian at the {place}, an approximation; confirm with sgld.sample or "
        "sgld.reference."
    ]
    if moved is False:
        reasons.append("no step towards the mean improved the Gaussian, so it stays at the mode.")
    if away > MIN_CENTRE_SHIFT_SDS:
        reasons.append(
            f"the given mode is about {away:.2g} sd from the point where the gradient vanishes; let "
            "sgld.find_map converge."
        )
    if nu < MAX_TRUSTED_NU:
        reasons.append(
            f"the posterior is nearly Gaussian in free coordinates (nu = {nu:.2g}; 0 is exactly so), "
            "so the approximation is good around this mode."
        )
    else:
        value = f"nu = {nu:.2g}" if np.isfinite(nu) else "nu is not finite"
        reasons.append(
            f"the posterior is not nearly Gaussian in free coordinates ({value}; nearly Gaussian is "
            f"below {MAX_TRUSTED_NU})."
        )
    return Verdict("unknown", tuple(reasons), extra={"nu": nu if np.isfinite(nu) else None})


def _not_definite(problem: Problem, gaussian: Laplace) -> str:
    """Return a sentence that names the direction in which the density does not fall."""
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
    """Return the draws, rescaled so that their covariance is the sandwich J^{-1} B J^{-1}.

        theta' = m + F B_w^{1/2} F^{-1} (theta - m),   F F^T = J^{-1},   B_w = F^T (N V_S) F

    with m the draws' mean in free coordinates, J the curvature and V_S the scores' covariance at
    the mode. This calibrates the intervals of a misspecified model and is not a posterior: the
    result says so in `.info`, and its verdict is `unknown`.

    Args:
      posterior: the posterior of the draws.
      data: the data of the draws.
      draws: the result of `sgld.sample`.

    Raises: UsageError without data, beyond 2000 parameters, if the curvature is not positive
    definite, if the draws are reported on another scale than they are sampled on, or if their
    temperature is not 1.

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
            "the draws of this posterior are reported on another scale than they are sampled on "
            "(posterior.output); for a run of sgld.fit use sgld.regression.fit.sandwich_of_run(path), otherwise "
            "write the model as an sgld.Posterior without output."
        )
    if not np.all(draws.temperature[draws.healthy] == 1):
        raise UsageError(
            "not all draws have temperature 1, so that their covariance is not J^{-1}; sample with "
            "temperature=1.0 for sandwich intervals."
        )
    start = jax.tree.map(lambda leaf: leaf[draws.healthy[0], 0], draws.position)
    problem = prepare(posterior, data, start)
    if not problem.has_rows:
        raise UsageError("sandwich needs data; a log density alone has no rows.")
    if problem.dimension > MAX_NEWTON_DIM:
        raise UsageError(
            f"the model has {problem.dimension} parameters, and a dense curvature is limited to {MAX_NEWTON_DIM}; "
            "sgld.sandwich does not support larger models."
        )
    laplace = gaussian_at_mode(problem).gaussian
    if laplace.factor is None:
        raise UsageError(
            "the curvature at the mode is not positive definite, which the sandwich covariance needs."
        )
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
    """Return F^T (N V_S) F at the mode from the first `rows` rows: near I if well specified."""
    at = jnp.arange(min(rows, problem.num_data), dtype=jnp.int32)
    found = np.asarray(scores(problem, problem.array(mode), at), np.float64)
    d = found.shape[1]
    return problem.num_data * factor.T @ np.cov(found, rowvar=False).reshape(d, d) @ factor
