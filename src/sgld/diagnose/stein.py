"""Stein-corrected moments: the true mean and covariance from draws of a wrong law.

With z = F^{-1}(theta - mode), F F^T = J^{-1} the Gaussian at the mode, and g the whitened
gradient of U = -log posterior at the same draw, unbiased given z,

    mean = average(z - g),   second = average(z z' + T I - (z g' + g z') / 2)

are constant for a Gaussian posterior at temperature T whatever law the draws follow, so
they estimate the TRUE moments, with almost no Monte Carlo noise. Kin to zero-variance
control variates (Assaraf & Caffarel 1999; Mira et al. 2013; Baker et al. 2019), with
coefficients fixed by the curvature instead of regressed, and used to measure bias.

How far the posterior is from a Gaussian shows in r2 = 1 - Var(t) / Var(phi^2) with
t = phi^2 - phi gamma, phi and gamma the reported parameter's parts of z and g; with noisy
gradients Var(t) is the covariance of t from two independent batches at the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..tune.curvature import Laplace

__all__ = ["Corrected", "corrected_moments", "explained"]

SEGMENTS = 5  # of each chain, for the jackknife

Flat = Float[np.ndarray, "chain draw d"]


@dataclass(frozen=True)
class Corrected:
    """Per reported parameter, in the linear approximation at the mode.

    ratio: sd of the draws / true sd; ratio_se its standard error (of the true sd);
    mean_shift: true mean - mean of the draws; sd: the true sd.
    """

    ratio: Float[np.ndarray, " m"]
    ratio_se: Float[np.ndarray, " m"]
    mean_shift: Float[np.ndarray, " m"]
    sd: Float[np.ndarray, " m"]


def corrected_moments(
    laplace: Laplace,
    out: Float[np.ndarray, "m d"],
    z: Flat,
    gradient: Flat,
    weights: Float[np.ndarray, "chain draw"],
    temperature: float,
    run: tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]],
) -> Corrected:
    """Predicted truth against the run's own whitened mean and covariance, `run`.

    `out` maps whitened coordinates to reported parameters; `gradient` is of the log
    posterior in free coordinates; z is already whitened.
    """
    g = -gradient @ laplace.factor
    d = z.shape[-1]
    segments = SEGMENTS if d <= 200 else 1
    parts = [
        (zs, gs, ws)
        for chain in zip(z, g, weights, strict=True)
        for zs, gs, ws in zip(*(np.array_split(a, segments) for a in chain), strict=True)
        if len(zs)
    ]
    sums = [_sums(*part) for part in parts]
    total = tuple(sum(s[i] for s in sums) for i in range(3))
    mean, cov = _moments(total, temperature, d)
    variance = np.einsum("mi,ij,mj->m", out, cov, out)
    left_out = []
    for s in sums:
        without = tuple(t - part for t, part in zip(total, s, strict=True))
        _, cov_without = _moments(without, temperature, d)
        left_out.append(np.einsum("mi,ij,mj->m", out, cov_without, out))
    count = len(sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        sd = np.sqrt(variance)
        jackknife = np.sqrt(np.stack(left_out))
        centred = jackknife - jackknife.mean(0)
        sd_se = np.sqrt((count - 1) / count * np.sum(centred**2, axis=0))
        run_sd = np.sqrt(np.einsum("mi,ij,mj->m", out, run[1], out))
        ratio = run_sd / sd
        return Corrected(ratio, ratio * sd_se / sd, out @ (mean - run[0]), sd)


def _sums(z: np.ndarray, g: np.ndarray, w: np.ndarray) -> tuple:
    zg = z.T @ (w[:, None] * g)
    return w.sum(), w @ (z - g), z.T @ (w[:, None] * z) - (zg + zg.T) / 2


def _moments(sums: tuple, temperature: float, d: int) -> tuple[np.ndarray, np.ndarray]:
    weight, first, second = sums
    mean = first / weight
    return mean, second / weight + temperature * np.eye(d) - np.outer(mean, mean)


def explained(
    laplace: Laplace,
    out: Float[np.ndarray, "m d"],
    z: Float[np.ndarray, "n d"],
    first: Float[np.ndarray, "n d"],
    second: Float[np.ndarray, "n d"],
) -> Float[np.ndarray, " m"]:
    """r2 from two independent gradients (the same one twice, where exact) at n whitened draws."""
    phi = z @ out.T
    t, u = (phi**2 - phi * (-g @ laplace.factor @ out.T) for g in (first, second))
    covariance = np.mean((t - t.mean(0)) * (u - u.mean(0)), axis=0)
    # at r2 = 1 the estimate from noisy gradients scatters about 1
    return np.minimum(1.0, 1 - covariance / np.var(phi**2, axis=0))
