"""Stein-corrected moments: the true mean and sd of each parameter from draws of a wrong law.

With phi the reported parameter's deviation from the Gaussian's centre (linear in theta), Sigma
its covariance, and gamma = phi(Sigma grad U) of the gradient of U = -log posterior at the
same draw, unbiased given the draw,

    mean = average(phi - gamma),   second = average(phi^2 - phi gamma) + T phi(Sigma phi')

are constant for a Gaussian posterior at temperature T whatever law the draws follow, so
they estimate the TRUE moments, with almost no Monte Carlo noise. Kin to zero-variance
control variates (Assaraf & Caffarel 1999; Mira et al. 2013; Baker et al. 2019), with
coefficients fixed by the curvature instead of regressed, and used to measure bias.

How far the posterior is from a Gaussian shows in r2 = 1 - Var(t) / Var(phi^2) with
t = phi^2 - phi gamma; with noisy gradients Var(t) is the covariance of t from two independent
batches at the same draws.

The meter on the scale that is read: constrained parameters and `output=`.

A parameter phi = f(z) that bends over the width of the posterior is not judged by its linearisation: the
sd of exp(z), z of sd s, is off by the factor exp(s^2 (rho^2 - 1)) and more where that of z is off by
rho. So draws are moved to the corrected moments where these hold, in z,

    z' = m + (z - mean of the draws) / ratio,        m the corrected mean, for each coordinate,

and both go through f: ratio of phi = sd f(z) / sd f(z').
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float

from ..model.problem import Problem
from ..results import statistics

SEGMENTS_PER_CHAIN = 5  # of each chain, for the jackknife

Flat = Float[np.ndarray, "chain draw m"]


@dataclass(frozen=True)
class Corrected:
    """Per reported parameter, in the linear approximation at the centre.

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
    """Predicted truth against the mean and variance of the run's own phi, `run`.

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
    phi: Float[np.ndarray, "n m"],
    first: Float[np.ndarray, "n m"],
    second: Float[np.ndarray, "n m"],
) -> Float[np.ndarray, " m"]:
    """r2 from the gammas of two independent gradients (the same one twice, where exact)."""
    t, u = (phi**2 - phi * gamma for gamma in (first, second))
    covariance = np.mean((t - t.mean(0)) * (u - u.mean(0)), axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a parameter whose draws are all the same
        # at r2 = 1 the estimate from noisy gradients scatters about 1
        return np.minimum(1.0, 1 - covariance / np.var(phi**2, axis=0))


# -- reported ------------------------------------------------------------------------------


MAX_BEND_SDS = 0.05  # sds (root mean square) from the linearisation within which it serves

Draws = Float[np.ndarray, "chain draw m"]
Weights = Float[np.ndarray, "chain draw"]


def bends(problem: Problem) -> bool:
    """Whether what is reported may be another function of z than z itself."""
    return problem.posterior.transform is not None or problem.posterior.output is not None


def on_the_reported_scale(
    problem: Problem,
    z: Float[np.ndarray, "chain draw d"],
    phi: Draws,
    weights: Weights,
    free: Corrected,
    linear: Corrected,
) -> Corrected:
    """`linear`, but by `free` through the map for the parameters that bend.

    `phi` are the draws in the linear approximation, `free` the corrected moments of the coordinates of z.
    """
    mean = statistics.mean(z, weights)

    def pushed(ratio: Float[np.ndarray, " d"]) -> Draws:
        return through(problem, mean + free.mean_shift + (z - mean) / ratio)

    values, moved = through(problem, z), pushed(free.ratio)
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


def through(problem: Problem, z: Float[np.ndarray, "chain draw d"]) -> Draws:
    """What is reported at z, in one vector each."""
    with jax.enable_x64(problem.posterior.output is not None):
        position = problem.reported(problem.array(z))
    shape = z.shape[:2]
    leaves = [
        np.asarray(leaf, np.float64).reshape(*shape, -1) for leaf in jax.tree.leaves(position)
    ]
    return np.concatenate(leaves, axis=-1)
