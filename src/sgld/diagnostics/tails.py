"""Tails in which the sd of draws cannot be known from them, by Pareto k.

Tails that are heavy and yet known: where the density says what draws have not seen of them.

The error of a sd rests on the fourth moment, of which draws of a heavy tail miss what they have not visited; Pareto
k is read off some hundred draws, +- .03 at best, and is not believed where it may be the .25 of an infinite fourth
moment. But where the ray of a parameter (approximation/rays.py) holds as much of the second moment far out as
draws do, the density along it stands for the marginal's, and

    unseen = int_{|t| > farthest draw} t^4 p(t) dt / int t^4 p(t) dt

is .1 for a Student-t with 5 degrees of freedom, .7 with 4, and nearly 1 with 3, however long it is watched.

The error of an sd that rare values make, by more points than there are draws.

Of f(z) with values that come once in thousands of draws and hold half of its variance, a run that met none of them
knows nothing: its own kurtosis, and with it the error of the sd, are those of the rest. So f is taken at points of a
wider Gaussian with the mean m and the covariance F F^T of the draws,

    z = m + s F xi,  weights  w ~ exp(-(s^2 - 1) |xi|^2 / 2),  s = 1 + min(1/2, d^(-1/2)),

and where fewer than `MIN_DECISIVE_DRAWS` effective draws are due beyond the distance from the mean that halves sum w (f - mean)^2,

    error of the sd, as a share = ((kurtosis - 1) / (4 ESS))^(1/2)

with the kurtosis of these points. Where that alarms, the density is asked whether there is what the Gaussian has out
there: at the points that make the variance, and as many of the others, w ~ p(z) / q(z) of the density p that they were
drawn from, q. (Of an overdispersion near 0, z its logarithm falls off as exp(z) to the left; the Gaussian of such draws
has on the right what exp(z) makes hundreds of sds wide, and the posterior has nothing there.)
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
from .stein import bends, through

MIN_HEAVY_PARETO_K = 0.25  # Pareto k from which the error of a sd is infinite
MAX_TAIL_ALARM = 0.005  # by which a Gaussian among the parameters may seem so


def heavy_tails(found: Estimates) -> Float[np.ndarray, " m"]:
    """Pareto k of the parameters whose tails are too heavy, 0 for all others.

    Too heavy from .25 on, and beyond what chance leaves the largest of m: k is from the M = 3 n^(1/2)
    outermost of n draws of a tail, and its standard error (1 + k) / M^(1/2), M lowered as the ESS is.
    """
    k = np.nan_to_num(pareto_k(found.values), nan=0.0)
    count = found.values.shape[0] * found.values.shape[1]
    tail = min(3 * np.sqrt(count), count / 5) * np.clip(found.ess / count, 1e-3, 1.0)
    chance = -ndtri(MAX_TAIL_ALARM / len(k)) / np.sqrt(tail)
    return np.where(k >= np.fmax(MIN_HEAVY_PARETO_K, chance), k, 0.0)


# -- known tails ---------------------------------------------------------------------------


MAX_TAIL_RATIO = 2.0  # times as much far out in draws as on the ray, or as little, is the same tail
MIN_UNSEEN_SHARE = 0.5  # of the fourth moment: the error of a sd is then 1.4 times what draws say
MAX_TAIL_PARAMETERS = 32  # parameters that are looked at


def known_tails(
    problem: Problem,
    known: Known,
    z: Float[np.ndarray, "chain draw d"],
    suspect: Bool[np.ndarray, " d"],
    temperature: float,
) -> Bool[np.ndarray, " d"]:
    """Which of the suspect parameters' tails the density explains, its fourth moment mostly seen.

    None where what is reported is another function than z, or no Gaussian gives the rays their directions.
    """
    found, gaussian = np.zeros(len(suspect), bool), known.gaussian
    numbers = np.flatnonzero(suspect)
    if not isinstance(gaussian, Laplace) or not gaussian.positive_definite or bends(problem):
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


MAX_TAIL_POINTS, MAX_TAIL_NUMBERS = 2**14, 2**24  # at most, and times what is reported
MAX_RARE_DIM = 50  # dimensions: of more, the weights say little
MIN_DECISIVE_DRAWS = 25.0  # effective draws that make half of the variance: a sd within 5%
# points that the density is asked at, and times the rows
MAX_DENSITY_POINTS, MAX_ROW_POINTS = 512, 2**27
MIN_WEIGHTED_POINTS = 20.0  # points that the weights must be worth


def rare_error(
    problem: Problem,
    z: Float[np.ndarray, "chain draw d"],
    ess: Float[np.ndarray, " m"],
    temperature: float = 1.0,
) -> Float[np.ndarray, " m"]:
    """The error of each reported sd as a share of it, where rare values make it; 0 elsewhere."""
    none, d = np.zeros(len(ess)), z.shape[-1]
    count = 2 ** int(np.log2(min(MAX_TAIL_POINTS, max(1, MAX_TAIL_NUMBERS // len(ess)))))
    if not bends(problem) or d > MAX_RARE_DIM or z.size < 2 * d**2 or count < 2**10:
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
    values = through(problem, points[None])[0]
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
    """How many points each stands for: 1 those that make most of a variance, and some for all others."""
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
