"""The error of an sd that rare values make, by more points than there are draws.

Of f(z) with values that come once in thousands of draws and hold half of its variance, a run that met none of them
knows nothing: its own kurtosis, and with it the error of the sd, are those of the rest. So f is taken at points of a
wider Gaussian with the mean m and the covariance F F^T of the draws,

    z = m + s F xi,  weights  w ~ exp(-(s^2 - 1) |xi|^2 / 2),  s = 1 + min(1/2, d^(-1/2)),

and where fewer than `EXPECTED` effective draws are due beyond the distance from the mean that halves sum w (f - mean)^2,

    error of the sd, as a share = ((kurtosis - 1) / (4 ESS))^(1/2)

with the kurtosis of these points. It says nothing where the posterior is far from Gaussian in z.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from ..problem.problem import Problem
from .reported import bends, through

__all__ = ["rare_error"]

POINTS, NUMBERS = 2**14, 2**24  # at most, and times what is reported
MOST = 50  # dimensions: of more, the weights say little
EXPECTED = 25.0  # effective draws that make half of the variance: a sd within 5%


def rare_error(
    problem: Problem, z: Float[np.ndarray, "chain draw d"], ess: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " m"]:
    """The error of each reported sd as a share of it, where rare values make it; 0 elsewhere."""
    from scipy.stats import qmc  # half a second to import

    flat, d = z.reshape(-1, z.shape[-1]).astype(np.float64), z.shape[-1]
    none = np.zeros(len(ess))
    count = 2 ** int(np.log2(min(POINTS, max(1, NUMBERS // len(ess)))))
    if not bends(problem) or d > MOST or len(flat) < 2 * d or count < 2**10:
        return none
    mean, covariance = flat.mean(axis=0), np.atleast_2d(np.cov(flat.T))
    try:
        F = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return none
    wide = 1 + min(0.5, d**-0.5)
    xi = ndtri(qmc.Sobol(d, rng=0).random(count))
    log_w = -(wide**2 - 1) * np.sum(xi**2, axis=1) / 2
    w = np.exp(log_w - log_w.max())
    values = through(problem, (mean + wide * xi @ F.T)[None])[0]
    known = np.isfinite(values).all(axis=0)
    return np.where(known, _error(np.where(known, values, 0.0), w / w.sum(), ess), 0.0)


def _error(
    values: Float[np.ndarray, "n m"], w: Float[np.ndarray, " n"], ess: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " m"]:
    away = np.abs(values - w @ values)
    order = np.argsort(-away, axis=0)
    square = np.take_along_axis(w[:, None] * away**2, order, axis=0).cumsum(axis=0)
    half = np.argmax(square >= square[-1] / 2, axis=0)
    chance = np.take_along_axis(w[order].cumsum(axis=0), half[None], axis=0)[0]
    kurtosis = w @ away**4 / np.maximum((w @ away**2) ** 2, 1e-300)
    error = np.sqrt(np.maximum(kurtosis - 1, 0) / (4 * np.maximum(ess, 1.0)))
    return np.where(ess * chance < EXPECTED, error, 0.0)
