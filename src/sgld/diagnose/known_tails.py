"""Tails that are heavy and yet known: where the density says what draws have not seen of them.

The error of a sd rests on the fourth moment, of which draws of a heavy tail miss what they have not visited; Pareto
k is read off some hundred draws, +- .03 at best, and is not believed where it may be the .25 of an infinite fourth
moment. But where the ray of a parameter (approximation/rays.py) holds as much of the second moment far out as
draws do, the density along it stands for the marginal's, and

    unseen = int_{|t| > farthest draw} t^4 p(t) dt / int t^4 p(t) dt

is .1 for a Student-t with 5 degrees of freedom, .7 with 4, and nearly 1 with 3, however long it is watched.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from ..approximation.known import Known
from ..approximation.laplace import Laplace
from ..approximation.rays import NEAR, rays
from ..model.problem import Problem
from .reported import bends

__all__ = ["known_tails"]

LIKE = 2.0  # times as much far out in draws as on the ray, or as little, is the same tail
UNSEEN = 0.5  # of the fourth moment: the error of a sd is then 1.4 times what draws say
MOST = 32  # parameters that are looked at


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
    if not 0 < len(numbers) <= MOST:
        return found
    for ray in rays(problem, gaussian, np.random.default_rng(0), temperature, numbers.tolist()):
        i = ray.parameter
        t = np.abs(z[..., i] - gaussian.center[i]) / ray.direction[i]
        far = float(np.sum(t**2, where=t > NEAR) / np.sum(t**2))
        alike = far <= LIKE * ray.share and ray.share <= LIKE * far
        found[i] = alike and ray.beyond(float(t.max()), order=4) < UNSEEN
    return found
