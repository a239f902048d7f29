"""Tails in which the sd of draws cannot be known from them, by Pareto k."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from ..results.mixing import pareto_k
from ..results.statistics import Estimates

__all__ = ["heavy_tails"]

HEAVY = 0.25  # Pareto k from which the error of a sd is infinite
CHANCE = 0.005  # by which a Gaussian among the parameters may seem so


def heavy_tails(found: Estimates) -> Float[np.ndarray, " m"]:
    """Pareto k of the parameters whose tails are too heavy, 0 for all others.

    Too heavy from .25 on, and beyond what chance leaves the largest of m: k is from the M = 3 n^(1/2)
    outermost of n draws of a tail, and its standard error (1 + k) / M^(1/2), M lowered as the ESS is.
    """
    k = np.nan_to_num(pareto_k(found.values), nan=0.0)
    count = found.values.shape[0] * found.values.shape[1]
    tail = min(3 * np.sqrt(count), count / 5) * np.clip(found.ess / count, 1e-3, 1.0)
    chance = -ndtri(CHANCE / len(k)) / np.sqrt(tail)
    return np.where(k >= np.fmax(HEAVY, chance), k, 0.0)
