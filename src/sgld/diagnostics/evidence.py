"""Collect the evidence of a finished run, compute the gradients it needs, and judge it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..approximation.gradient_noise import estimates, rows_in_every_batch
from ..approximation.known import Known
from ..approximation.laplace import Laplace
from ..approximation.low_rank import LowRankLaplace
from ..approximation.propriety import rounded, unresolved
from ..model import sums
from ..model.problem import Problem
from ..results import statistics
from ..results.draws import Draws
from ..results.mixing import pareto_k
from ..results.plan import Plan
from ..results.statistics import strata_of
from ..results.verdict import Verdict
from ..samplers.gradients.control_variates import ControlVariates, is_centred
from ..samplers.gradients.full import Full
from ..samplers.replica_exchange import ReplicaExchange
from ..samplers.stationary import AffineLaw
from . import exact_rule, stein, tails
from .escapes import left_standing
from .exact_rule import Trajectories, judge_exact, judge_several
from .hidden_mass import remaining_doubts, unsettled
from .rule import MAX_SE_ALONE, MIN_PRINTED_R2, Evidence, judge
from .stein import may_be_nonlinear, on_the_reported_scale
from .tails import heavy_tails, known_tails, rare_error

MAX_METER_DRAWS = 256  # draws with full gradients, if the run's own do not suffice
METER_BATCH_ROWS = 256  # rows of a batch, if full gradients cost too much
MAX_R2_DRAWS = 4096  # draws for r2 from pairs of noisy gradients
MAX_R2_GRADIENTS = 2**24  # row gradients that exact gradients for r2 may cost
MAX_METER_SE = 0.015


def assess(
    problem: Problem,
    plan: Plan,
    draws: Draws,
    z: Float[np.ndarray, "chain draw d"],
    gradient: Float[np.ndarray, "chain draw d"] | None,
    tolerance: float,
    seed: int,
    trajectories: Trajectories | None = None,
) -> Verdict:
    """Judge `draws`; `z` are the same draws in free coordinates, `gradient` the run's own there.

    `problem` holds the rows in the run's batches; `trajectories` are those of an exact sampler.
    """
    failures = draws.failures
    if draws.healthy.size == 0:
        return Verdict("biased", failures)
    weights, values, healthy = draws.weights, draws.flat()[0], draws.healthy
    left = z if healthy.size == len(z) else z[healthy]  # no copy if all are healthy
    strata = strata_of(draws, values)
    if strata is not None and trajectories is not None:
        doubts = remaining_doubts(plan.known, left, exact=True, weights=weights)
        common = {
            "names": draws.names, "failures": failures, "nu": plan.known.nu, "tolerance": tolerance,
            "doubts": doubts,
        }  # fmt: skip
        return judge_several(problem, draws, strata, z, trajectories, common)
    found = statistics.Estimates(values, weights)
    evidence: dict[str, Any] = dict(
        names=draws.names,
        mean=found.mean,
        sd=found.sd,
        **found.mixing._asdict(),
        num_chains=len(draws.healthy),
        failures=failures,
        nu=plan.known.nu,
        other_modes=plan.known.other_modes,
        tolerance=tolerance,
        doubts=_doubts(problem, plan, left, seed),
        by_hand=plan.by_hand,
    )
    ess = np.nan_to_num(np.fmin(found.mixing.ess, found.mixing.ess_square))
    T = float(draws.temperature.flat[0])
    sd_se = np.fmax(found.sd_se, rare_error(problem, left, ess, T))
    if trajectories is not None and plan.setup.exact:
        tail = np.nan_to_num(pareto_k(found.values))
        doubtful = (tail >= exact_rule.MAX_EXACT_PARETO_K) & (tail < tails.MIN_HEAVY_PARETO_K)
        tail[known_tails(problem, plan.known, left, doubtful, T)] = 0.0
        coarse = unresolved(problem, left)
        return judge_exact(Evidence(**evidence), trajectories, sd_se, tail, coarse)
    why_not = _no_meter(plan.known, draws) or rounded(problem, left)
    if why_not is None:
        z = np.asarray(left, np.float64)
        # with a schedule, the temperature at the draws, not that at its start
        problem = problem.at_temperature(problem.array(draws.temperature[healthy][0, 0]))
        own = None if gradient is None else np.asarray(gradient, np.float64)[healthy]
        evidence |= _meter(problem, plan, z, own, weights, T, seed)
        evidence |= _phase(problem, plan, draws, own)
    rough = isinstance(plan.known.gaussian, LowRankLaplace)
    if (
        plan.setup.corrected or plan.law is None or rough
    ):  # no excess is available to detect what a noisy meter misses
        evidence["max_se"] = MAX_SE_ALONE
    evidence |= {"sd_se": sd_se, "tail": heavy_tails(found)}
    if rough:  # a covariance that is too small hides bias, and only r2 shows it
        evidence["min_r2"] = MIN_PRINTED_R2
    return judge(Evidence(**evidence, why_not=why_not))


def _doubts(
    problem: Problem, plan: Plan, z: Float[np.ndarray, "chain draw d"], seed: int
) -> tuple[str, ...]:
    """Return sentences on the suspected mass that neither the draws nor chains from there settle."""
    setup, began_there = plan.setup, plan.setup.starts is not None
    left = unsettled(plan.known, z, exact=setup.exact, began_there=began_there)
    if setup.exact and began_there and left:
        left = left_standing(problem, setup, plan.known, left, z, seed)
    return tuple(doubt.sentence for doubt in left)


def _no_meter(known: Known, draws: Draws) -> str | None:
    if not known.usable:
        return (
            "the curvature at the mode is not positive definite, so the bias cannot be measured (see the plan's "
            "notes); "
            "confirm by sgld.step_halving, or with NUTS: sgld.reference."
        )
    sampler = None if draws.plan is None else draws.plan.setup.sampler
    if isinstance(sampler, ReplicaExchange) and float(sampler.energy_noise) > 0:
        return (
            "exchanges used noisy energies, which is correct only if their noise is Gaussian with variance "
            f"{float(sampler.energy_noise):.2g} everywhere; use gradient=sgld.Full()."
        )
    temperature = draws.temperature[draws.healthy]
    if np.ptp(temperature) > 0 or temperature.flat[0] <= 0:
        return "the kept draws have no single positive temperature, so they have no common target."
    return None


def _meter(
    problem: Problem, plan: Plan, z: np.ndarray, own: np.ndarray | None,
    weights: np.ndarray, temperature: float, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Return Stein-corrected moments, their standard error and their r2."""
    assert plan.known.gaussian is not None
    of, estimator = plan.known.gaussian.marginals(problem), plan.setup.gradient
    phi, d = of.phi(z), z.shape[-1]
    run = (statistics.mean(phi, weights), statistics.var(phi, weights))

    def corrected(at: np.ndarray, gradient: np.ndarray) -> stein.Corrected:
        return stein.corrected_moments(
            phi[:, at], of.gamma(gradient), of.variance, weights[:, at], temperature, run
        )

    everything = np.arange(z.shape[1])
    if own is not None and isinstance(estimator, Full):
        used, at, gradient = everything, everything, own
        first = second = own.reshape(-1, d)
    elif own is not None and _covers(problem, plan):
        used, at, gradient = everything, _thinned(z.shape, MAX_R2_DRAWS), own
        first = own[:, at].reshape(-1, d)
        second = _fresh_gradients(problem, estimator, z[:, at].reshape(-1, d), seed)
    else:
        gradients, count = _gradients_at_draws(problem, plan, temperature, seed)
        most = 4 * count
        while True:
            used = at = _thinned(z.shape, count)
            first, second = gradients(z[:, at].reshape(-1, d))
            gradient = ((first + second) / 2).reshape(z[:, at].shape)
            se = np.nan_to_num(corrected(at, gradient).ratio_se, nan=np.inf)
            if se.max() <= MAX_METER_SE or len(at) == len(everything) or count >= most:
                break
            count *= 2
    moments = corrected(used, gradient)
    if may_be_nonlinear(problem):
        free = _free_moments(plan.known.gaussian, z, gradient, used, weights, temperature)
        moments = on_the_reported_scale(problem, z, phi, weights, free, moments)
    r2 = stein.explained(phi[:, at].reshape(-1, phi.shape[-1]), of.gamma(first), of.gamma(second))
    return {
        "sd_ratio": moments.ratio,
        "sd_ratio_se": moments.ratio_se,
        "mean_shift": moments.mean_shift,
        "r2": r2,
    }


def _free_moments(
    gaussian: Laplace | LowRankLaplace, z: np.ndarray, gradient: np.ndarray, at: np.ndarray,
    weights: np.ndarray, temperature: float,
) -> stein.Corrected:  # fmt: skip
    """Return the corrected moments of the coordinates of z, from gradients at some of the draws."""
    away = z - gaussian.center
    run = (statistics.mean(away, weights), statistics.var(away, weights))
    gamma = -gaussian.spread(gaussian.pull(gradient))
    return stein.corrected_moments(
        away[:, at], gamma, gaussian.variance, weights[:, at], temperature, run
    )


def _thinned(shape: tuple[int, ...], count: int) -> np.ndarray:
    """Return evenly spaced draws, about `count` over all chains."""
    per_chain = min(shape[1], -(-count // shape[0]))
    return np.unique(np.linspace(0, shape[1] - 1, per_chain).round().astype(int))


def _covers(problem: Problem, plan: Plan) -> bool:
    """Return whether the run's own gradients cover every row, and exact ones are too expensive.

    They cover every row if the rows were surveyed, so that influential rows are in every batch, and
    if the estimator keeps no memory of earlier positions. A row that no batch holds affects none of
    its gradients.
    """
    exact = problem.num_data * MAX_METER_DRAWS <= MAX_R2_GRADIENTS
    return not exact and plan.surveyed and not plan.setup.gradient.remembers


def _gradients_at_draws(problem: Problem, plan: Plan, T: float, seed: int) -> tuple[Callable, int]:
    """Return a function from z [n, d] to two gradients there, and the first number of draws.

    The gradients are unbiased given z. They are exact if that is affordable, twice the same. With
    many rows they are two independent batches of control variates at the centre. These cost a few
    passes over the rows, to find those that must be in every batch, and a few thousand rows.
    """
    if problem.num_data * MAX_METER_DRAWS <= MAX_R2_GRADIENTS:

        def exact(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            found = _exact_gradients(problem, z)
            return found, found

        return exact, MAX_METER_DRAWS
    gaussian, batches = plan.known.gaussian, problem.with_batches(METER_BATCH_ROWS, "replacement")
    assert gaussian is not None
    if not (plan.surveyed and is_centred(plan.setup.gradient)):
        # the influential rows of a plain gradient have large gradients, not large differences
        batches = batches.with_always(
            rows_in_every_batch(problem, gaussian, METER_BATCH_ROWS, T, seed), seed
        )
    centred = ControlVariates().prepare(batches, problem.array(gaussian.center))

    def estimated(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        entries = batches.source.chunk((seed, 2**31 - 2), 0, 2 * len(z))
        pairs = estimates(batches, centred, np.repeat(z, 2, axis=0)[:, None], entries)[:, 0]
        return pairs[::2], pairs[1::2]

    return estimated, 4 * MAX_METER_DRAWS


def _exact_gradients(problem: Problem, z: np.ndarray) -> np.ndarray:
    return sums.gradients(problem, z.reshape(-1, z.shape[-1])).reshape(z.shape)


def _fresh_gradients(problem: Problem, estimator: Any, z: np.ndarray, seed: int) -> np.ndarray:
    """Evaluate the run's estimator on new independent batches at the draws z [n, d]."""
    entries = problem.source.chunk((seed, 2**31 - 2), 0, len(z))
    return estimates(problem, estimator, z[:, None], entries)[:, 0]


def _phase(problem: Problem, plan: Plan, draws: Draws, own: np.ndarray | None) -> dict[str, Any]:
    """Return the stationary excess, and the gradient noise over the injected noise."""
    law = plan.law
    if law is None:
        return {}
    temperature = float(draws.temperature.flat[0])
    h = float(np.average(draws.step_size[draws.healthy]))
    noise_ratio = law.noise_ratio(h, temperature)
    if isinstance(plan.known.gaussian, LowRankLaplace):
        return {"noise_ratio": noise_ratio}  # the tuner's law describes only one parameter
    if problem.batches[0] == "symmetric" and own is None:
        return {"noise_ratio": noise_ratio}  # its stationary distribution has no closed form here
    if plan.setup.corrected:
        return {"excess": np.zeros(law.out.shape[0]), "noise_ratio": noise_ratio}
    if own is None or isinstance(law, AffineLaw):
        return {"excess": law.ratio(h, temperature) - 1, "noise_ratio": noise_ratio}
    g = own.reshape(-1, own.shape[-1]) @ law.basis
    step = np.repeat(draws.step_size[draws.healthy].reshape(-1, 1), 1, axis=1)
    second = g.T @ (step * g) / len(g)
    error = second / (law.a[:, None] + law.a[None, :])
    wrong = np.sum((law.out @ error) * law.out, axis=1)
    true = temperature * np.einsum("mi,i,mi->m", law.out, 1 / law.a, law.out)
    return {"excess": np.sqrt(1 + wrong / true) - 1, "noise_ratio": noise_ratio}
