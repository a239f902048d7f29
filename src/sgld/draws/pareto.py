"""Pareto k of all parameters at once: ArviZ's statistic, over blocks of parameters.

A generalised Pareto law is fitted to the excesses e_1 <= ... <= e_M of the M outermost draws of a
tail over the next one (Zhang & Stephens 2009: a mean over a grid of b, no search):

    b_j = 1 / e_M + (1 - sqrt(m / (j - 1/2))) / (3 e_{M/4}),   j = 1 ... m = 30 + sqrt(M)
    k_j = mean log(1 - b_j e),   l_j = M (log(-b_j / k_j) - k_j - 1)
    b = sum_j b_j softmax(l)_j,   k = (M mean log(1 - b e) + 5) / (M + 10)

with M = 3 (S / r)^(1/2) of S draws whose tail ESS is r S, a fifth of them where r S <= 225, and half
of them at most (Vehtari, Simpson, Gelman, Yao & Gabry 2024).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .mixing import PerParameter, Values, over_blocks, tail_ess

__all__ = ["pareto_k"]

FEWEST_TAIL_DRAWS = 25  # draws: 5 in a tail
Tail = Float[np.ndarray, "p place"]


def pareto_k(values: Values) -> PerParameter:
    """Pareto k of the heavier tail: moments of order 1/k and above are infinite.

    NaN where there are fewer than 5 draws in a tail, a fifth of them. A tail that begins with ties, or
    is one number, as where rounding puts an end to it, has none.
    """
    if values.shape[0] * values.shape[1] < FEWEST_TAIL_DRAWS:
        return np.full(values.shape[-1], np.nan)

    def of(x: Float[np.ndarray, "p chain draw"]) -> np.ndarray:
        ordered = np.sort(x.reshape(len(x), -1), axis=1)
        size = ordered.shape[1]
        r = tail_ess(x) / (2 * x.shape[1] * (x.shape[2] // 2))  # no middle of an odd number
        M = np.where(size * r > 225, 3 * np.sqrt(size / r), size / 5)
        M = np.minimum(M, size // 2).astype(int)
        return np.fmax(_k(ordered, M), _k(-ordered[:, ::-1], M))[None]

    return over_blocks(of, 1, values)[0]


def _k(ordered: Tail, M: np.ndarray) -> PerParameter:
    """Of the M last of every row."""
    longest, each = int(M.max()), np.arange(len(M))
    cutoff = ordered[each, -M - 1]
    e = np.maximum(ordered[:, -longest:] - cutoff[:, None], 0.0)  # draws before the tail count as 0
    m = 30 + np.sqrt(M).astype(int)
    j = np.arange(1, m.max() + 1)
    quarter = e[each, longest - M + (M / 4 + 0.5).astype(int) - 1]
    b = 1 / e[:, -1:] + (1 - np.sqrt(m[:, None] / (j - 0.5))) / (3 * quarter[:, None])
    k = np.stack([_mean_log(b_j, e, M) for b_j in b.T], axis=1)
    log_weight = np.where(j <= m[:, None], M[:, None] * (np.log(-b / k) - k - 1), -np.inf)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    k = _mean_log((b * weight).sum(axis=1) / weight.sum(axis=1), e, M)
    same = ordered[:, -1] == ordered[each, -M]
    return np.where(same, np.nan, (M * k + 5) / (M + 10))


def _mean_log(b: PerParameter, e: Tail, M: np.ndarray) -> PerParameter:
    return np.log1p(-b[:, None] * e).sum(axis=1) / M
