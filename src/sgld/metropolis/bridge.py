"""What a density integrates to over a region, from draws there and from a Gaussian: bridge sampling.

With draws of p / Z, n_p effective ones, and n_q of a normal density q,

    Z = average_q[ p h ] / average_p[ q h ],     h = 1 / (s_p p / Z + s_q q),   s = n / (n_p + n_q),

the estimator of least error (Meng & Wong 1996), solved by iteration. q has mean and covariance of the first half of
the chains' draws, and the second half is what it meets: were they the same draws, Z would come out
too large. Both averages are of bounded functions, whatever the tails of p, and p is 0 outside of the region. The relative squared
error is (Fruehwirth-Schnatter 2004)

    Var_q(f) / (n_q E_q(f)^2) + Var_p(g) / (ESS(g) E_p(g)^2),     f = p h, g = q h,

ESS over all chains, the variance between them included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..model import sums
from ..model.problem import Problem
from ..results import mixing
from .energy import around

__all__ = ["Bridge", "bridge", "integral"]

FIRST, MOST = 2**11, 2**14  # draws of p, and as many of q, at which log p is taken
PRECISE = 0.005  # standard error of log Z up to which no more are taken
FEWEST = 100  # draws, by their weights, that an average must rest on
ITERATIONS = 200


class Bridge(NamedTuple):
    """log Z and its standard error; inf where the draws do not meet."""

    log_z: float
    se: float


def bridge(p: Float[np.ndarray, "chain draw"], q: Float[np.ndarray, " other"]) -> Bridge:
    """From log p - log q at draws of p and at draws of q (-inf where p is 0)."""
    if not np.isfinite(p).all() or np.isnan(q).any() or not np.isfinite(q).any():
        return Bridge(float("nan"), float("inf"))
    middle, effective = float(np.median(p)), float(p.size)
    log_z = 0.0
    for _ in range(2):  # the second time with the effective number of draws
        s_p = effective / (effective + q.size)
        for _ in range(ITERATIONS):
            f = _share(q - middle - log_z, s_p)
            g = _share_of_q(p - middle - log_z, s_p)
            with np.errstate(divide="ignore"):
                change = float(np.log(f.mean()) - np.log(g.mean()))
            if not np.isfinite(change):
                return Bridge(float("nan"), float("inf"))
            log_z += change
            if abs(change) < 1e-8:
                break
        ess = _effective(g)
        effective = min(max(ess, 1.0), float(p.size))
    rests_on = min(_counted(f), _counted(g.ravel()))
    if not rests_on >= FEWEST:
        return Bridge(middle + log_z, float("inf"))
    variance = f.var() / (q.size * f.mean() ** 2) + g.var() / (effective * g.mean() ** 2)
    return Bridge(middle + log_z, float(np.sqrt(variance)))


def _share(log_ratio: np.ndarray, s_p: float) -> np.ndarray:
    """p / Z h, of log(p / (Z q))."""
    with np.errstate(over="ignore", divide="ignore"):
        return 1 / (s_p + (1 - s_p) * np.exp(-log_ratio))


def _share_of_q(log_ratio: np.ndarray, s_p: float) -> np.ndarray:
    """q h, of log(p / (Z q))."""
    with np.errstate(over="ignore"):
        return 1 / (s_p * np.exp(log_ratio) + (1 - s_p))


def _effective(g: Float[np.ndarray, "chain draw"]) -> float:
    """Effective draws of the mean of g; all where it does not vary."""
    if g.std() <= 1e-9 * abs(g.mean()):
        return float(g.size)
    return float(np.nan_to_num(mixing.ess(g[..., None], "mean")[0], nan=1.0))


def _counted(weights: np.ndarray) -> float:
    """How many equal ones would average as well."""
    return float(weights.sum() ** 2 / max(float((weights**2).sum()), 1e-300))


def integral(
    problem: Problem,
    inside: Callable[[np.ndarray], np.ndarray],
    z: Float[np.ndarray, "chain draw d"],
    center: Float[np.ndarray, " d"],
    rng: np.random.Generator,
) -> Bridge:
    """log of the integral of p / p(center) over the region that the draws z are of.

    `inside` says of positions [n, d] whether they lie in the region.
    """
    half, d = z.shape[1] // 2, z.shape[-1]
    first, second = z[:, :half].reshape(-1, d).astype(np.float64), z[:, half:]
    mean, local = first.mean(0), around(problem, center)
    at = np.asarray(local.target.center, np.float64)
    try:
        factor = np.linalg.cholesky(np.cov(first, rowvar=False).reshape(d, d))
    except np.linalg.LinAlgError:
        return Bridge(float("nan"), float("inf"))
    constant = -np.sum(np.log(np.diag(factor))) - d / 2 * np.log(2 * np.pi)

    def log_ratio(points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        white = np.linalg.solve(factor, (points - mean).T)
        q = constant - 0.5 * np.sum(white**2, axis=0)
        return sums.log_densities(local, points - at) - q

    count = FIRST
    while True:
        each = np.unique(
            np.linspace(0, second.shape[1] - 1, -(-count // len(z))).round().astype(int)
        )
        p = log_ratio(second[:, each].reshape(-1, d)).reshape(len(z), -1)
        # as the density sees them: numbers of its own precision
        points = mean + rng.standard_normal((count, d)) @ factor.T
        points = np.asarray(problem.array(points), np.float64)
        q = np.where(inside(points), log_ratio(points), -np.inf)
        found = bridge(p, np.where(np.isnan(q), -np.inf, q))
        if found.se <= PRECISE or count >= MOST or len(each) == second.shape[1]:
            return found
        count *= 2
