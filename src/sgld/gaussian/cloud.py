"""Modes narrower than the known one, in few parameters: where the density tops all points around it.

Rays and shells are a few lines, and a mode a tenth as wide as the known one lies between them. In up to four
dimensions space itself can be looked at: with Sobol points spread evenly over log |x| and over directions,

    z = m + r F v,  |v| = 1,  log r uniform on 0 ... log 400,

the distance to the nearest point grows with r; and so it may, for the known mode's density falls by r per sd at r sds.
A point counts whose density is above what the known mode's Gaussian says, and above all its neighbours on the cylinder
(v, log r): where the density falls outwards from the known mode half of them are nearer to it, and denser. Of modes
4 to 12 sds away in random directions, of equal mass, sds a tenth, a fifth and .3 of the known one's are found in 10 of
10, 10, 10 (d = 1 and 2), 4, 10, 10 (d = 3) and 1, 6, 9 (d = 4).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

from ..core.progress import stage
from ..model import sums
from ..model.problem import Problem

__all__ = ["tops_of_cloud"]

LOW, FEW = 4, 20  # parameters: of five, points are as far apart as the known mode is wide
POINTS, WORK = 2**14, 2**23  # at most, and rows x points
FARTHEST = 400.0  # sds
NEAREST = 1.3  # within, all points are as near to the known mode as to each other
ABOVE = 1.0  # log density, beyond what the known mode's Gaussian says
NEIGHBOURS = 3  # for each of the 2^d corners of a cell
LOOKED_AT, TOPS = 1024, 8  # points whose neighbours are, the densest; and places that are told
CONE = np.cos(np.pi / 6)

Values = Float[np.ndarray, " n"]
Numbers = Int[np.ndarray, " m"]


@stage("other modes", whole=True)
def tops_of_cloud(
    problem: Problem, gaussian, temperature: float = 1.0
) -> list[tuple[float, tuple[float, ...]]]:
    """The densest places that top all around them, (log density less the centre's, free position).

    `gaussian` is that of `problem` itself, whose centre is a mode.
    """
    from scipy.stats import qmc  # half a second to import

    d = problem.dimension
    if d > FEW:
        return []
    count = 2 ** int(np.log2(min(2 ** (7 + 3 * d), POINTS, WORK // max(1, problem.num_data))))
    u = qmc.Sobol(d + 1, rng=0).random(count)
    xi = ndtri(u[:, :d])
    v = xi / np.linalg.norm(xi, axis=1)[:, None]
    log_r = np.log(FARTHEST) * u[:, d]
    z = gaussian.center + gaussian.tempered(temperature).spread(np.exp(log_r)[:, None] * v)
    with np.errstate(over="ignore"):  # far out, in float32
        value = sums.differences(problem, z, gaussian.center) / temperature
    value = np.where(np.isfinite(value), value, -np.inf)
    more = (log_r > np.log(NEAREST)) & (value > ABOVE - np.exp(2 * log_r) / 2)
    more = np.flatnonzero(more)
    more = more[np.argsort(-value[more])][:LOOKED_AT]
    tops = _topping(v, log_r, value, more) if d <= LOW else _apart(v, more)
    return [(float(value[k]), tuple(z[k])) for k in tops]


def _topping(
    v: Float[np.ndarray, "n d"], log_r: Values, value: Values, more: Numbers
) -> Int[np.ndarray, " k"]:
    """Those of `more` whose density is above all their neighbours'."""
    from scipy.spatial import KDTree

    cylinder = np.column_stack([v, log_r])
    around = np.asarray(KDTree(cylinder).query(cylinder[more], NEIGHBOURS * 2 ** v.shape[1] + 1)[1])
    return more[value[more] > value[around[:, 1:]].max(axis=1)][:TOPS]


def _apart(v: Float[np.ndarray, "n d"], more: Numbers) -> list[int]:
    """The first of `more` in each cone of directions."""
    tops: list[int] = []
    for k in more:
        if len(tops) < TOPS and all(v[k] @ v[other] < CONE for other in tops):
            tops.append(int(k))
    return tops
