"""Detect tails that are too heavy to estimate an sd from draws, by Pareto k and rare values.

Some heavy tails are still well known, because the density describes what the draws have not
visited.

The error of an sd depends on the fourth moment, and draws of a heavy tail miss the part they have
not visited. Pareto k is estimated from some hundred draws, with an error of at least .03, so it is
not trusted where it may be .25, the value of an infinite fourth moment. If the ray of a parameter
(approximation/rays.py) holds as much of the second moment far out as the draws do, the density
along it represents the marginal, and

    unseen = int_{|t| > farthest draw} t^4 p(t) dt / int t^4 p(t) dt

is .1 for a Student-t with 5 degrees of freedom, .7 with 4, and nearly 1 with 3, for any run length.

The second check is for rare values: the error of an sd that values of f(z) make which occur once in
thousands of draws and hold half of its variance. A run that met none of them has no information on
them: its own kurtosis, and with it the error of the sd, are those of the rest. So f is evaluated at
more points than there are draws, from a wider Gaussian with the mean m and the covariance F F^T of
the draws,

    z = m + s F xi,  weights  w ~ exp(-(s^2 - 1) |xi|^2 / 2),  s = 1 + min(1/2, d^(-1/2)).

If fewer than `MIN_DECISIVE_DRAWS` effective draws are expected beyond the distance from the mean
that halves sum w (f - mean)^2,

    error of the sd, as a share = ((kurtosis - 1) / (4 ESS))^(1/2)

with the kurtosis of these points. If the error is too large, the density is evaluated, to see
whether it has the mass that the Gaussian has there. The points are those that make the variance,
and as many of the others, with w ~ p(z) / q(z) for the density p and the density q that they were
drawn from. (Example: let z be the logarithm of an overdispersion near 0. Its density falls as
exp(z) to the left. The Gaussian of such draws has mass on the right, which exp(z) stretches to
hundreds of sds, but the posterior has none.)
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtri

from ..approximation.known import Known
from ..approximation.laplace import Laplace
from ..approximation.rays import GAUSSIAN_SDS, rays
from ..model import sums
from ..model.problem import Problem
from ..results.mixing import pareto_k
from ..results.statistics import Estimates
from .stein import may_be_nonlinear, reported_values

MIN_HEAVY_PARETO_K = 0.25  # Pareto k from which the error of an sd is infinite
MAX_TAIL_ALARM = 0.005  # probability of an alarm for a Gaussian among the parameters


def heavy_tails(found: Estimates) -> Float[np.ndarray, " m"]:
    """Return Pareto k of the parameters whose tails are too heavy, and 0 for all others.

    A tail is too heavy if k is at least .25, and larger than chance explains for the largest of m
    values. k is estimated from the M = 3 n^(1/2) outermost of n draws of a tail. Its standard error
    is (1 + k) / M^(1/2), with M reduced in proportion to the ESS.
    """
    k = np.nan_to_num(pareto_k(found.values), nan=0.0)
    count = found.values.shape[0] * found.values.shape[1]
    tail = min(3 * np.sqrt(count), count / 5) * np.clip(found.ess / count, 1e-3, 1.0)
    chance = -ndtri(MAX_TAIL_ALARM / len(k)) / np.sqrt(tail)
    return np.where(k >= np.fmax(MIN_HEAVY_PARETO_K, chance), k, 0.0)


# -- known tails ---------------------------------------------------------------------------


MAX_TAIL_RATIO = 2.0  # ratio of the far shares of draws and ray, either way, for the same tail
MIN_UNSEEN_SHARE = 0.5  # share of the fourth moment; the error of an sd is then 1.4 times larger
MAX_TAIL_PARAMETERS = 32  # parameters that are examined


def known_tails(
    problem: Problem,
    known: Known,
    z: Float[np.ndarray, "chain draw d"],
    suspect: Bool[np.ndarray, " d"],
    temperature: float,
) -> Bool[np.ndarray, " d"]:
    """Return which suspect tails the density explains, with most of the fourth moment seen.

    No tail counts as explained if the reported values are another
    function of z than z itself, or if no Gaussian defines the directions of the rays.
    """
    found, gaussian = np.zeros(len(suspect), bool), known.gaussian
    numbers = np.flatnonzero(suspect)
    if (
        not isinstance(gaussian, Laplace)
        or not gaussian.positive_definite
        or may_be_nonlinear(problem)
    ):
        return found
    if not 0 < len(numbers) <= MAX_TAIL_PARAMETERS:
        return found
    for ray in rays(problem, gaussian, np.random.default_rng(0), temperature, numbers.tolist()):
        i = ray.parameter
        t = np.abs(z[..., i] - gaussian.center[i]) / ray.direction[i]
        far = float(np.sum(t**2, where=t > GAUSSIAN_SDS) / np.sum(t**2))
        alike = far <= MAX_TAIL_RATIO * ray.share and ray.share <= MAX_TAIL_RATIO * far
        found[i] = alike and ray.beyond(float(t.max()), order=4) < MIN_UNSEEN_SHARE
    return found


# -- rare ----------------------------------------------------------------------------------


MAX_TAIL_POINTS, MAX_TAIL_NUMBERS = 2**14, 2**24  # points; points x reported values
MAX_RARE_DIM = 50  # dimensions; with more, the weights are too uneven
MIN_DECISIVE_DRAWS = 25.0  # effective draws that make half of the variance: an sd within 5%
# points at which the density is evaluated; points x rows
MAX_DENSITY_POINTS, MAX_ROW_POINTS = 512, 2**27
MIN_WEIGHTED_POINTS = 20.0  # effective number of weighted points


def rare_error(
    problem: Problem,
    z: Float[np.ndarray, "chain draw d"],
    ess: Float[np.ndarray, " m"],
    temperature: float = 1.0,
) -> Float[np.ndarray, " m"]:
    """Return the error of each reported sd, as a share of it, from rare values; 0 elsewhere."""
    none, d = np.zeros(len(ess)), z.shape[-1]
    count = 2 ** int(np.log2(min(MAX_TAIL_POINTS, max(1, MAX_TAIL_NUMBERS // len(ess)))))
    if not may_be_nonlinear(problem) or d > MAX_RARE_DIM or z.size < 2 * d**2 or count < 2**10:
        return none
    from scipy.stats import qmc  # half a second to import

    flat = z.reshape(-1, d).astype(np.float64)
    mean, covariance = flat.mean(axis=0), np.atleast_2d(np.cov(flat.T))
    try:
        F = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return none
    wide = 1 + min(0.5, d**-0.5)
    xi = ndtri(qmc.Sobol(d, rng=0).random(count))
    points = mean + wide * xi @ F.T
    log_w = -(wide**2 - 1) * np.sum(xi**2, axis=1) / 2
    values = reported_values(problem, points[None])[0]
    known = np.isfinite(values).all(axis=0)
    values, w = np.where(known, values, 0.0), _shares(log_w)
    found = _error(values, w, ess)
    asked = _decisive(
        values[:, found > 0], w, min(MAX_DENSITY_POINTS, MAX_ROW_POINTS // max(1, problem.num_data))
    )
    if not asked.any():
        return np.where(known, found, 0.0)
    numbers, times = np.flatnonzero(asked), asked[asked > 0]
    problem = problem.at_temperature(problem.array(temperature))
    higher = sums.differences(problem, points[numbers], mean) / temperature
    own = times * _shares(np.nan_to_num(higher, nan=-np.inf) + np.sum(xi[numbers] ** 2, axis=1) / 2)
    if not np.sum(own) ** 2 >= MIN_WEIGHTED_POINTS * np.sum(own**2):
        return np.where(known, found, 0.0)
    again = _error(values[numbers], own / own.sum(), ess)
    return np.where(known, np.fmin(found, again), 0.0)


def _shares(log_w: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    w = np.exp(log_w - log_w.max())
    return w / w.sum()


def _decisive(
    values: Float[np.ndarray, "n m"], w: Float[np.ndarray, " n"], count: int
) -> Float[np.ndarray, " n"]:
    """Return how many points each point represents: 1 for those that make most of a variance.

    The others are represented by an evenly spaced subset, and points outside it by 0.
    """
    asked, half = np.zeros(len(w)), count // 2
    if not values.shape[1] or half < MIN_WEIGHTED_POINTS:
        return asked
    square = w[:, None] * (values - w @ values) ** 2
    order = np.argsort(-np.max(square / np.maximum(square.sum(axis=0), 1e-300), axis=1))
    rest = np.sort(order[half:])[:: -(-(len(w) - half) // half)]
    asked[rest] = (len(w) - half) / len(rest)
    asked[order[:half]] = 1.0
    return asked


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
    return np.where(ess * chance < MIN_DECISIVE_DRAWS, error, 0.0)
