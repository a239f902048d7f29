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
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ..approximation.known import Known
from ..approximation.mode import dense_pays, gaussian_at_mode
from ..core.devices import check_memory
from ..core.progress import stage, told
from ..core.validation import fraction, whole_number
from ..diagnostics.hidden_mass import standing
from ..diagnostics.rule import Evidence, unmixed
from ..errors import UsageError, did_you_mean
from ..gaussian.known import surroundings
from ..metropolis.energy import Around, around
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Problem
from ..results import statistics
from ..results.draws import Draws
from ..results.plan import Origin
from ..results.verdict import Verdict
from ..typing import Method
from .asked import asked_about
from .chains import run

if TYPE_CHECKING:
    from ..models.fitted import Fit

__all__ = ["METHODS", "reference"]

METHODS: dict[Method, float] = {
    "nuts": 0.8,
    "hmc": 0.8,
    "mala": 0.57,
    "metropolis": 0.3,
}  # acceptance aimed at
NEARER_1 = (0.95, 0.99)  # tried in turn where a first run of NUTS or HMC diverges
NUMBER_BYTES = 16.0  # of a draw of a chain: position, gradient and what the chain itself says
TITLES = {"nuts": "NUTS", "hmc": "HMC", "mala": "MALA", "metropolis": "Metropolis"}


def reference(
    posterior: Posterior | Draws | Fit | Any,
    data: Any = None,
    init: Any = None,
    *,
    method: Method = "nuts",
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

    Chains start dispersed, twice the Laplace sd around the mode where there is one; where more are found
    they take turns, so that chains which stay in theirs are told: `not mixed`.

    Args:
      posterior, data, init: as for `sgld.sample`; or, alone, the draws or the fit that are to be
        compared, which know theirs (not when they were loaded, but for those of `sgld.fit`).
      method: "nuts", "hmc", "mala" or "metropolis".
      num_chains, num_draws: kept, [num_chains, num_draws].
      num_warmup: transitions per chain that adapt the step size (and, in NUTS and HMC, the
        scales) and are thrown away.
      thin: transitions per kept draw.
      target_acceptance: mean acceptance that the step size is adapted to (None: .8 for NUTS and
        HMC, and again with .95 and .99 while transitions diverge; .57 for MALA, .3 for Metropolis).
      max_doublings: of a NUTS trajectory.
      max_leapfrogs: of an HMC trajectory, whose length is drawn anew each time.
      seed: of everything random.
      progress: as for `sgld.sample`.

    Returns: Draws of equal weight. `.info` has method, acceptance_rate, target_acceptance,
    divergences, num_gradients, num_modes, step_size per chain, seconds. The verdict is `trusted` where the chains have
    mixed without a divergence, else `not mixed`.

    Raises: UsageError and DataError for wrong arguments.

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
    counts = {
        "num_chains": num_chains, "num_draws": num_draws, "thin": thin, "num_warmup": num_warmup,
        "max_doublings": max_doublings, "max_leapfrogs": max_leapfrogs,
    }  # fmt: skip
    for name, value in counts.items():
        whole_number(name, value)
    aim = METHODS[method] if target_acceptance is None else target_acceptance
    fraction("target_acceptance", aim)
    began = time.perf_counter()
    limit = max_leapfrogs if method == "hmc" else max_doublings
    lengths = (num_chains, num_warmup, num_draws, thin)
    # BlackJAX mixes dtypes and ranks, and the branches of its trees look like reuse of a key
    lax = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
    with told(progress, ("data", "mode", "curvature", "other modes", "sampling")):
        with stage("data"):
            target, rows, start = asked_about(posterior, data, init, "reference")
            problem = prepare(target, rows, start, seed=seed)
        check_memory(
            NUMBER_BYTES * problem.dimension * num_chains * (num_draws + 100.0),
            f"{num_chains:,} chains of {num_draws:,} draws", "give fewer num_chains or num_draws",
        )  # fmt: skip
        local, known, num_modes, starts = _centers(problem, seed, num_chains)
        with lax[0], lax[1], jax.debug_key_reuse(False):
            trace = run(method, limit, aim, local, starts, lengths, seed)
            for nearer in NEARER_1 if target_acceptance is None else ():
                if not trace.divergences.any():
                    break
                aim = nearer
                trace = run(method, limit, aim, local, starts, lengths, seed)
    z = _free(local.target, trace.u)
    draws = Draws.at(
        problem,
        z,
        step=num_warmup + thin * np.arange(1, num_draws + 1),
        step_size=np.repeat(trace.step_size[:, None], num_draws, 1),
    )
    info = {
        "method": method,
        "num_data": problem.num_data or None,
        "num_steps": num_warmup + thin * num_draws,
        "num_gradients": int(trace.gradients.sum()),
        "acceptance_rate": float(trace.acceptance.mean()),
        "target_acceptance": aim,
        "num_modes": min(num_modes, num_chains),
        "divergences": int(trace.divergences.sum()),
        "step_size": trace.step_size.tolist(),
        "whitened": local.target.factor is not None,
        "seed": int(seed),
    }
    began_there = len(starts) > num_modes
    doubts = standing(known, np.asarray(z, np.float64), exact=True, began_there=began_there)
    verdict = _verdict(draws, method, info, num_chains * num_draws * thin, doubts)
    info["seconds"] = time.perf_counter() - began
    return replace(draws, verdict=verdict, info=info, origin=Origin(target, rows))


def _centers(
    problem: Problem, seed: int, num_chains: int
) -> tuple[Problem, Known, int, Float[np.ndarray, "starts d"]]:
    """The problem around its mode, whitened, what is doubted of it, how many modes there are, and starts.

    These are the modes, then places around which rays promise mass, in the problem's coordinates; for
    half of the chains at most. Around its start where there is no mode.
    """
    start = np.zeros((1, problem.dimension))
    if not dense_pays(problem):
        return around(problem, problem.start), Known(), 1, start
    at = gaussian_at_mode(problem)
    if not (at.converged and at.gaussian.positive_definite):
        return around(problem, problem.start), Known(), 1, start
    at, modes, doubts = surroundings(problem, at, seed, 1.0)
    local = around(problem, at.gaussian.center, at.gaussian.factor)
    if modes is not None:
        start = at.gaussian.whiten(modes.z)
    far = [doubt.start for doubt in doubts if doubt.start is not None][: num_chains // 2]
    starts = np.concatenate([start, *(at.gaussian.whiten(place)[None] for place in far)])
    known = Known(at.gaussian, at.log_density, modes=modes, doubts=doubts)
    return local, known, len(start), starts[: max(len(start), num_chains)]


@jax.jit
def _free(density: Around, u: Array) -> Array:
    return jax.vmap(jax.vmap(density.z))(u)


def _verdict(
    draws: Draws, method: str, info: dict[str, Any], transitions: int, doubts: tuple[str, ...]
) -> Verdict:
    """Mixing, and whether the chains have been where the density says that they must: the method is exact."""
    divergences = info["divergences"]
    found = statistics.Estimates(draws.flat()[0], draws.weights)
    # trajectories that alternate make ESS of theta exceed the number of draws; theta^2 mixes
    # slower, and R-hat, which looks at both, varies as the smaller of the two says
    ess = np.fmin(found.ess, found.ess_square)
    e = Evidence(
        names=draws.names, mean=found.mean, sd=found.sd,
        **found.mixing._replace(ess=ess)._asdict(), num_chains=draws.num_chains,
    )  # fmt: skip
    reasons = unmixed(e)
    if divergences:
        share = f"{divergences} of {transitions} transitions diverged"
        reasons.append(
            f"{share}: there are regions that {TITLES[method]} cannot enter at a target_acceptance of "
            f"{info['target_acceptance']:g}; use one nearer 1, or other coordinates."
        )
    extra = {"method": method, "divergences": divergences}
    if reasons:
        return Verdict("not mixed", tuple(reasons), extra=extra)
    if doubts:
        reason = (
            f"{TITLES[method]} is exact and its chains have mixed, but {doubts[0]}, which they have not seen so; "
            "use more draws, or an init there."
        )
        return Verdict("unknown", (reason,), extra={**extra, "doubts": list(doubts)})
    none = ", no divergences" if method in ("nuts", "hmc") else ""
    reason = (
        f"{TITLES[method]} is exact and its chains have mixed: ESS at least {np.nanmin(ess):.0f}, R-hat at most "
        f"{np.nanmax(e.r_hat):.3f}{none}."
    )
    return Verdict("trusted", (reason,), extra=extra)
