"""The referee: exact samplers on the same Posterior, through BlackJAX, to check a run against.

Every method leaves the posterior itself invariant, so only mixing is left to judge. All work in
coordinates u around a centre, z = center + F u: where the posterior has a mode with a positive
definite curvature J, the centre is the mode and F F^T = J^{-1} (all scales are then 1); elsewhere
the centre is init, F = I, and the warm-up finds the scales (NUTS and HMC) or a step (the others).

In units of F, with full gradients and step size h where there is one:

    nuts        Hoffman & Gelman (2014), with multinomial proposals (Betancourt 2017)
    hmc         leapfrog, 1 to `max_leapfrogs` steps at random (Neal 2011, sec. 5.4.2.2)
    mala        u' = u + h grad log p + sqrt(2h) xi, accepted or rejected (Roberts & Tweedie 1996)
    metropolis  u' = u + h xi, accepted or rejected
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..data.source import Source
from ..diagnose.rule import Evidence, unmixed
from ..draws import weighted
from ..draws.draws import Draws
from ..draws.verdict import Verdict
from ..errors import UsageError, did_you_mean, need
from ..gaussian.dense import laplace_at
from ..gaussian.mode import NEWTON_LIMIT, newton_mode
from ..layout import Layout
from ..metropolis.energy import Around, around
from ..posterior import Posterior
from ..problem.prepare import Prepared
from ..run.outcome import reported
from .around import prepare
from .chains import run

__all__ = ["METHODS", "reference"]

METHODS = {"nuts": 0.8, "hmc": 0.8, "mala": 0.57, "metropolis": 0.3}  # acceptance aimed at
TITLES = {"nuts": "NUTS", "hmc": "HMC", "mala": "MALA", "metropolis": "Metropolis"}


def reference(
    posterior: Posterior,
    data: Any,
    init: Any = None,
    *,
    method: str = "nuts",
    num_chains: int = 4,
    num_draws: int = 1000,
    num_warmup: int = 1000,
    thin: int = 1,
    target_acceptance: float | None = None,
    max_doublings: int = 10,
    max_leapfrogs: int = 8,
    seed: int = 0,
    progress: bool = True,
) -> Draws:
    """Draws of the posterior by an exact method on all rows: slow, and the truth to compare with.

    Chains start dispersed, twice the Laplace sd around the mode where there is one.

    Args:
      posterior, data, init: as for `sgld.sample`.
      method: "nuts", "hmc", "mala" or "metropolis".
      num_warmup: transitions per chain that adapt the step size (and, in NUTS and HMC, the
        scales) and are thrown away.
      thin: transitions per kept draw.
      target_acceptance: mean acceptance that the step size is adapted to (None: .8 for NUTS and
        HMC, .57 for MALA, .3 for Metropolis).
      max_doublings: of a NUTS trajectory.
      max_leapfrogs: of an HMC trajectory, whose length is drawn anew each time.
      seed: of everything random.
      progress: show a progress bar on a terminal.

    Returns: Draws of equal weight. `.info` has method, acceptance_rate, divergences,
    num_gradients, step_size per chain, seconds. The verdict is `trusted` where the chains have
    mixed without a divergence, else `not mixed`.

    Raises: UsageError and DataError for wrong arguments, MissingExtra without BlackJAX.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
      >>> draws = sgld.reference(posterior, jnp.array([1.0, 2.0, 3.0]), 0.0, progress=False)
      >>> round(float(draws.mean()), 1), round(float(draws.sd()), 1)
      (1.5, 0.5)
    """
    if method not in METHODS:
        raise UsageError(
            f"method must be one of {', '.join(METHODS)}. Got {method!r}."
            + did_you_mean(method, METHODS)
        )
    counts = {"num_warmup": num_warmup, "max_doublings": max_doublings}
    for name, value in {**counts, "max_leapfrogs": max_leapfrogs}.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise UsageError(f"{name} must be a whole number, at least 1. Got {value!r}.")
    aim = METHODS[method] if target_acceptance is None else target_acceptance
    if not 0 < aim < 1:
        raise UsageError(f"target_acceptance must lie between 0 and 1. Got {aim}.")
    need("blackjax", "reference")
    began = time.perf_counter()
    prepared = prepare(
        posterior, data, init, num_chains=num_chains, num_draws=num_draws, thin=thin, seed=seed
    )
    target = prepared.target
    density, source = _center(prepared)
    limit = max_leapfrogs if method == "hmc" else max_doublings
    lengths = (num_chains, num_warmup, num_draws, thin)
    # BlackJAX mixes dtypes and ranks, and the branches of its trees look like reuse of a key
    lax = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
    with lax[0], lax[1], jax.debug_key_reuse(False):
        trace = run(method, limit, aim, density, source, lengths, seed, progress)
    position = jax.tree.map(np.asarray, reported(target, _free(density, trace.u)))
    one = jax.tree.map(lambda leaf: leaf[0, 0].astype(np.float32), position)
    draws = Draws.of(
        position,
        names=posterior.names or tuple(Layout.of(one).element_names()),
        step=num_warmup + thin * np.arange(1, num_draws + 1),
        step_size=np.repeat(trace.step_size[:, None], num_draws, 1),
    )
    info = {
        "method": method,
        "num_data": None if prepared.source is None else prepared.source.num_data,
        "num_steps": num_warmup + thin * num_draws,
        "num_gradients": int(trace.gradients.sum()),
        "acceptance_rate": float(trace.acceptance.mean()),
        "divergences": int(trace.divergences.sum()),
        "step_size": trace.step_size.tolist(),
        "whitened": density.factor is not None,
        "seed": int(seed),
    }
    verdict = _verdict(draws, method, info["divergences"], num_chains * num_draws * thin)
    info["seconds"] = time.perf_counter() - began
    return replace(draws, verdict=verdict, info=info)


def _center(prepared: Prepared) -> tuple[Around, Source | None]:
    """The density around the mode, whitened, where that exists; around init elsewhere."""
    target, source, center, factor = prepared.target, prepared.source, prepared.z0, None
    if target.layout.dimension <= NEWTON_LIMIT:
        mode, _, _, converged = newton_mode(target, source, jnp.asarray(center))
        laplace = laplace_at(target, source, mode)
        if converged and laplace.positive_definite:
            center, factor = mode, laplace.factor
    return around(target, source, center, factor)


@jax.jit
def _free(density: Around, u: Array) -> Array:
    return jax.vmap(jax.vmap(density.z))(u)


def _verdict(draws: Draws, method: str, divergences: int, transitions: int) -> Verdict:
    """Mixing only: the method is exact."""
    values, _ = draws.flat()
    weights = draws.weights
    mean = weighted.mean(values, weights)
    # trajectories that alternate make ESS of theta exceed the number of draws; theta^2 mixes
    # slower, and R-hat, which looks at both, varies as the smaller of the two says
    square = weighted.ess((values - mean) ** 2, weights)
    ess = np.fmin(weighted.ess(values, weights), square)
    e = Evidence(
        names=draws.names, mean=mean, sd=np.sqrt(weighted.var(values, weights)), ess=ess,
        ess_square=square, r_hat=weighted.r_hat(values), num_chains=draws.num_chains,
    )  # fmt: skip
    reasons = unmixed(e)
    if divergences:
        share = f"{divergences} of {transitions} transitions diverged"
        reasons.append(
            f"{share}: there are regions that {TITLES[method]} cannot enter; use a target_acceptance "
            "nearer 1, or other coordinates."
        )
    extra = {"method": method, "divergences": divergences}
    if reasons:
        return Verdict("not mixed", tuple(reasons), extra=extra)
    none = ", no divergences" if method in ("nuts", "hmc") else ""
    reason = (
        f"{TITLES[method]} is exact and its chains have mixed: ESS at least {np.nanmin(ess):.0f}, R-hat at most "
        f"{np.nanmax(e.r_hat):.3f}{none}."
    )
    return Verdict("trusted", (reason,), extra=extra)
