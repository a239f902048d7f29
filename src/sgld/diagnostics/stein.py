"""Stein-corrected moments: the true mean and sd of each parameter from draws of a biased sampler.

With phi the reported parameter's deviation from the Gaussian's centre (linear in theta), Sigma
its covariance, and gamma = phi(Sigma grad U) of the gradient of U = -log posterior at the
same draw, unbiased given the draw,

    mean = average(phi - gamma),   second = average(phi^2 - phi gamma) + T phi(Sigma phi')

are constant for a Gaussian posterior at temperature T, whatever distribution the draws follow. They
therefore estimate the TRUE moments, with almost no Monte Carlo noise. The method is related to
zero-variance control variates (Assaraf & Caffarel 1999; Mira et al. 2013; Baker et al. 2019), but
the curvature fixes the coefficients instead of a regression, and the result measures bias.

r2 = 1 - Var(t) / Var(phi^2) with t = phi^2 - phi gamma shows how far the posterior is from a
Gaussian. With noisy gradients, Var(t) is the covariance of t from two independent batches at the
same draws.

The meter also works on the reported scale, for constrained parameters and `output=`. The
linearisation does not suit a parameter phi = f(z) that is curved over the width of the posterior:
if the sd of z, s, is wrong by a factor rho, that of exp(z) is wrong by exp(s^2 (rho^2 - 1)) and
more. So draws are moved to the corrected moments of z, where these hold,

    z' = m + (z - mean of the draws) / ratio,        m the corrected mean, for each coordinate,

and both are mapped through f: ratio of phi = sd f(z) / sd f(z').
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float

from ..model.problem import Problem
from ..results import statistics

SEGMENTS_PER_CHAIN = 5  # segments of each chain, for the jackknife

Flat = Float[np.ndarray, "chain draw m"]


@dataclass(frozen=True)
class Corrected:
    """Corrected moments per reported parameter, in the linear approximation at the centre.

    ratio: sd of the draws / true sd; ratio_se its standard error (of the true sd);
    mean_shift: true mean - mean of the draws; sd: the true sd.
    """

    ratio: Float[np.ndarray, " m"]
    ratio_se: Float[np.ndarray, " m"]
    mean_shift: Float[np.ndarray, " m"]
    sd: Float[np.ndarray, " m"]


def corrected_moments(
    phi: Flat,
    gamma: Flat,
    variance: Float[np.ndarray, " m"],
    weights: Float[np.ndarray, "chain draw"],
    temperature: float,
    run: tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]],
) -> Corrected:
    """Predict the true moments, and compare them with the mean and variance `run` of the run's phi.

    `variance` is phi(Sigma phi'), that of the Gaussian at T = 1.
    """
    parts = [
        _sums(*part)
        for chain in zip(phi, gamma, weights, strict=True)
        for part in zip(*(np.array_split(a, SEGMENTS_PER_CHAIN) for a in chain), strict=True)
        if len(part[0])
    ]
    total = tuple(sum(s[i] for s in parts) for i in range(3))
    mean, second = _moments(total, temperature * variance)
    left_out = np.stack([
        _moments(tuple(t - p for t, p in zip(total, part, strict=True)), temperature * variance)[1]
        for part in parts
    ])  # fmt: skip
    count = len(parts)
    with np.errstate(invalid="ignore", divide="ignore"):
        sd, jackknife = np.sqrt(second), np.sqrt(left_out)
        centred = jackknife - jackknife.mean(0)
        sd_se = np.sqrt((count - 1) / count * np.sum(centred**2, axis=0))
        ratio = np.sqrt(run[1]) / sd
        return Corrected(ratio, ratio * sd_se / sd, mean - run[0], sd)


def _sums(phi: np.ndarray, gamma: np.ndarray, w: np.ndarray) -> tuple:
    return w.sum(), w @ (phi - gamma), w @ (phi**2 - phi * gamma)


def _moments(sums: tuple, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weight, first, second = sums
    mean = first / weight
    return mean, second / weight + variance - mean**2


def explained(
    phi: Float[np.ndarray, "n m"], first: Float[np.ndarray, "n m"], second: Float[np.ndarray, "n m"]
) -> Float[np.ndarray, " m"]:
    """Return r2 from the gammas of two independent gradients (the same gradient twice if exact)."""
    t, u = (phi**2 - phi * gamma for gamma in (first, second))
    covariance = np.mean((t - t.mean(0)) * (u - u.mean(0)), axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a parameter with constant draws
        # at r2 = 1 the estimate from noisy gradients scatters about 1
        return np.minimum(1.0, 1 - covariance / np.var(phi**2, axis=0))


# -- reported ------------------------------------------------------------------------------


MAX_BEND_SDS = 0.05  # sds (root mean square) up to which the linearisation is accurate enough

Draws = Float[np.ndarray, "chain draw m"]
Weights = Float[np.ndarray, "chain draw"]


def may_be_nonlinear(problem: Problem) -> bool:
    """Return whether reported values may be another function of z than z itself."""
    return problem.posterior.transform is not None or problem.posterior.output is not None


def on_the_reported_scale(
    problem: Problem,
    z: Float[np.ndarray, "chain draw d"],
    phi: Draws,
    weights: Weights,
    free: Corrected,
    linear: Corrected,
) -> Corrected:
    """Return `linear`, with the parameters that are curved taken from `free` through the map.

    `phi` are the draws in the linear approximation, `free` the corrected moments of the coordinates
    of z.
    """
    mean = statistics.mean(z, weights)

    def pushed(ratio: Float[np.ndarray, " d"]) -> Draws:
        return reported_values(problem, mean + free.mean_shift + (z - mean) / ratio)

    values, moved = reported_values(problem, z), pushed(free.ratio)
    sd = np.sqrt(statistics.var(values, weights))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        away = values - statistics.mean(values, weights) - (phi - statistics.mean(phi, weights))
        bent = ~(np.sqrt(statistics.mean(away**2, weights)) <= MAX_BEND_SDS * sd)
        true = np.sqrt(statistics.var(moved, weights))
        wider = pushed(free.ratio / (1 + free.ratio_se / free.ratio))
        se = np.abs(np.sqrt(statistics.var(wider, weights)) / true - 1)
        shift = statistics.mean(moved, weights) - statistics.mean(values, weights)
        return replace(
            linear,
            ratio=np.where(bent, sd / true, linear.ratio),
            ratio_se=np.where(bent, se * sd / true, linear.ratio_se),
            mean_shift=np.where(bent, shift, linear.mean_shift),
            sd=np.where(bent, true, linear.sd),
        )


def reported_values(problem: Problem, z: Float[np.ndarray, "chain draw d"]) -> Draws:
    """Return the reported values at z, one vector per draw."""
    with jax.enable_x64(problem.posterior.output is not None):
        position = problem.reported(problem.array(z))
    shape = z.shape[:2]
    leaves = [
        np.asarray(leaf, np.float64).reshape(*shape, -1) for leaf in jax.tree.leaves(position)
    ]
    return np.concatenate(leaves, axis=-1)
