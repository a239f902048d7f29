"""ESS, R-hat and Pareto k of all parameters at once, with ArviZ's definitions.

ArviZ loops over parameters in Python. This module ranks, transforms and sums a whole block of
parameters together. The definitions of ESS and R-hat are those of Vehtari, Gelman, Simpson,
Carpenter & Buerkner (2021) for chains that are split in halves, m = 2 chains of n draws, S = m n:

    z = Phi^{-1}((rank - 3/8) / (S + 1/4)),                equal values share their mean rank
    R-hat^2 = (n - 1) / n + B / W                          of z, and of |x - median|: the larger
    rho_t = 1 - (W - C_t) / ((n - 1) / n W + B)            C_t: mean autocovariance at lag t
    ESS = S / tau,   tau = -1 + 2 sum_{t <= K} rho_t       K, and monotone sums: Geyer (1992)

Here B is the variance of the chains' means and W the mean of their variances.

For Pareto k, a generalised Pareto distribution is fitted to the excesses e_1 <= ... <= e_M of the M
outermost draws of a tail over the next draw. The fit averages over a grid of b and needs no search
(Zhang & Stephens 2009):

    b_j = 1 / e_M + (1 - sqrt(m / (j - 1/2))) / (3 e_{M/4}),   j = 1 ... m = 30 + sqrt(M)
    k_j = mean log(1 - b_j e),   l_j = M (log(-b_j / k_j) - k_j - 1)
    b = sum_j b_j softmax(l)_j,   k = (M mean log(1 - b e) + 5) / (M + 10)

For S draws whose tail ESS is r S, M = 3 (S / r)^(1/2). M is a fifth of the draws where r S <= 225,
and at most half of them (Vehtari, Simpson, Gelman, Yao & Gabry 2024).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import scipy.fft
from jaxtyping import Float
from scipy.special import ndtri

Values = Float[np.ndarray, "chain draw parameter"]
PerParameter = Float[np.ndarray, " parameter"]
Block = Float[np.ndarray, "p chain draw"]
Method = Literal["bulk", "mean", "tail"]

# numbers in a block of parameters, so that its dozen temporaries fit in the processor's cache
BLOCK_NUMBERS = 2**18
MIN_CHAIN_DRAWS = 4  # draws of a chain
MAX_PLAIN_CHAINS, CHAIN_GROUPS = 8, 4  # with more chains, R-hat compares groups of chains
TAIL_PROBABILITIES = (0.05, 0.95)


class Mixing(NamedTuple):
    """Mixing statistics of the chains per parameter; NaN where the draws do not move.

    Attributes:
      ess, ess_square: bulk ESS of theta, and of its squared deviation from the mean.
      r_hat: rank-normalised split R-hat; of groups of chains where there are many chains.
      ess_alone: the smaller ESS of the two with B = 0, as if all halves of chains had the same
        mean. It measures how well each chain mixes within its own region.
      gap: the largest distance between neighbouring means of halves of chains, in sds within a
        half, among the distances with both halves of every chain on one side. It separates groups
        of chains.
    """

    ess: PerParameter
    ess_square: PerParameter
    r_hat: PerParameter
    ess_alone: PerParameter
    gap: PerParameter


def mixing(values: Values, center: PerParameter) -> Mixing:
    """Return ESS of theta and (theta - center)^2, R-hat, and measures of slow and split chains."""

    def of(x: Block, c: Float[np.ndarray, " p"]) -> np.ndarray:
        halves = _halves(x)
        bulk, median = _scores(halves)
        square, _ = _scores((halves - c[:, None, None]) ** 2)
        (one, one_alone), (two, two_alone) = _ess(bulk), _ess(square)
        apart = _r_hat(bulk, np.abs(halves - median[:, None, None]))
        return np.array([one, two, apart, np.fmin(one_alone, two_alone), _gap(halves)])

    return Mixing(*over_blocks(of, 5, values, np.asarray(center, np.float64)))


def ess(values: Values, method: Method) -> PerParameter:
    """Return the effective sample size: bulk, of the mean, or the smaller tail at 5% and 95%."""
    return over_blocks(lambda x: _ESS_OF_KIND[method](x)[None], 1, values)[0]


def r_hat(values: Values) -> PerParameter:
    """Return rank-normalised split R-hat; NaN for one chain.

    If there are more than MAX_PLAIN_CHAINS chains, R-hat compares CHAIN_GROUPS groups of chains,
    since many short chains differ by chance however well they mix. The draws of a group count as
    one chain (nested R-hat, Margossian et al. 2024); at most CHAIN_GROUPS - 1 chains are left out.
    """

    def of(x: Block) -> np.ndarray:
        halves = _halves(x)
        bulk, median = _scores(halves)
        return _r_hat(bulk, np.abs(halves - median[:, None, None]))[None]

    return over_blocks(of, 1, values)[0]


def _bulk(x: Block) -> Float[np.ndarray, " p"]:
    return _ess(_scores(_halves(x))[0])[0]


def _mean(x: Block) -> Float[np.ndarray, " p"]:
    return _ess(_halves(x))[0]


def tail_ess(x: Block) -> Float[np.ndarray, " p"]:
    """Return the smaller ESS of the indicators x <= q at the two TAIL_PROBABILITIES."""
    low, high = np.quantile(x.reshape(len(x), -1), TAIL_PROBABILITIES, axis=1)[..., None, None]
    within = [_ess(_halves((x <= q).astype(np.float64)))[0] for q in (low, high)]
    return np.minimum(*within)


_ESS_OF_KIND = {"bulk": _bulk, "mean": _mean, "tail": tail_ess}


def over_blocks(
    function: Callable[..., np.ndarray], rows: int, values: Values, *others: PerParameter
) -> Float[np.ndarray, "rows parameter"]:
    """Apply `function` to blocks [p, chain, draw] of the moving parameters, in parallel.

    `function` also receives the p entries of each of `others`. The blocks depend only on the shape
    of the draws, so the order in which they run does not change a bit of the result.
    """
    chains, draws, count = values.shape
    out = np.full((rows, count), np.nan)
    if draws < MIN_CHAIN_DRAWS or count == 0:
        return out
    size = max(1, BLOCK_NUMBERS // (chains * draws))

    def one(begin: int) -> None:
        here = slice(begin, min(begin + size, count))
        x = np.ascontiguousarray(np.moveaxis(values[..., here], -1, 0), np.float64)
        moving = np.ptp(x.reshape(len(x), -1), axis=1) > 0  # False for NaN
        if moving.any():
            own = (other[here][moving] for other in others)
            with np.errstate(divide="ignore", invalid="ignore"):
                out[:, np.arange(count)[here][moving]] = function(x[moving], *own)

    side_by_side(one, range(0, count, size))
    return out


def side_by_side(one: Callable[[int], None], begins: range) -> None:
    """Call one(begin) for every block, in as many threads as there are processors."""
    if len(begins) <= 1:
        for begin in begins:
            one(begin)
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(one, begins))


def _halves(x: Block) -> Float[np.ndarray, "p chains half"]:
    """Split each chain in two; leave out the middle draw of an odd number."""
    half = x.shape[-1] // 2
    return np.concatenate([x[..., :half], x[..., -half:]], axis=1)


@lru_cache(maxsize=8)
def _normal_scores(size: int) -> np.ndarray:
    """Return Phi^{-1} at the mean of two ranks among `size`, indexed by the ranks' sum."""
    return ndtri((np.arange(2 * size - 1) / 2 + 1 - 3 / 8) / (size + 1 / 4))


def _scores(x: Block) -> tuple[Block, Float[np.ndarray, " p"]]:
    """Return the normal scores of the ranks within each parameter, and the medians."""
    flat = x.reshape(len(x), -1)
    size = flat.shape[1]
    order = np.argsort(flat, axis=1)
    order += size * np.arange(len(x))[:, None]  # flat positions in the block: ten times as fast
    ordered, scores = flat.ravel().take(order), np.empty(flat.size)
    scores[order] = _normal_scores(size)[::2]
    inside, places = _ties(ordered)
    scores[order.ravel()[inside]] = _normal_scores(size)[places]
    median = ordered[:, (size - 1) // 2 : size // 2 + 1].mean(axis=1)
    return scores.reshape(x.shape), median


def _ties(ordered: Float[np.ndarray, "p place"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the flat positions of tied values, and the first plus last rank of the run of each."""
    p, size = ordered.shape
    same = np.zeros((p, size + 1), bool)  # equal to the value before
    np.equal(ordered[:, 1:], ordered[:, :-1], out=same[:, 1:-1])
    first = np.flatnonzero(same[:, 1:] & ~same[:, :-1])
    last = np.flatnonzero(same[:, :-1] & ~same[:, 1:])
    count = last - first + 1
    inside = np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)
    return inside, np.repeat(first % size + last % size, count)


def _r_hat(bulk: Block, distance: Block) -> Float[np.ndarray, " p"]:
    """Return the larger R-hat of the bulk scores and of the scores of distances from the median."""
    if bulk.shape[1] < 4:  # one chain
        return np.full(len(bulk), np.nan)
    scores = bulk, _scores(distance)[0]
    one, two = (_split_r_hat(_grouped(x)) for x in scores)
    return np.where(two > one, two, one)  # R-hat of equal distances is NaN


def _grouped(halves: Block) -> Float[np.ndarray, "p halves drawn"]:
    """Merge the halves of chains into halves of CHAIN_GROUPS groups if there are many chains."""
    chains = halves.shape[1] // 2
    if chains <= MAX_PLAIN_CHAINS:
        return halves
    each = chains // CHAIN_GROUPS
    first, second = (halves[:, begin : begin + CHAIN_GROUPS * each] for begin in (0, chains))
    return np.concatenate([first, second], axis=1).reshape(len(halves), 2 * CHAIN_GROUPS, -1)


def _split_r_hat(x: Block) -> Float[np.ndarray, " p"]:
    n = x.shape[-1]
    between = n * x.mean(axis=-1).var(axis=-1, ddof=1)
    within = x.var(axis=-1, ddof=1).mean(axis=-1)
    return np.sqrt((between / within + n - 1) / n)


def _gap(halves: Block) -> Float[np.ndarray, " p"]:
    """Return the largest gap between neighbouring means that no chain straddles.

    A chain straddles a gap if it has one half on either side. The halves of a drifting chain are
    far apart too, so such a chain belongs to no group. One chain has no gap.
    """
    if halves.shape[1] < 4:
        return np.zeros(len(halves))
    means, chains = halves.mean(axis=-1), halves.shape[1] // 2
    place = np.argsort(np.argsort(means, axis=1), axis=1)
    ends = np.sort(np.stack([place[:, :chains], place[:, -chains:]]), axis=0)
    astride = np.zeros(means.shape)  # chains that begin below and end above
    np.put_along_axis(astride, ends[0], 1.0, axis=1)
    np.put_along_axis(astride, ends[1], -1.0, axis=1)
    apart = np.diff(np.sort(means, axis=1), axis=1)
    free = np.cumsum(astride, axis=1)[:, :-1] == 0
    within = np.sqrt(halves.var(axis=-1).mean(axis=-1))
    return np.where(free, apart, 0.0).max(axis=1, initial=0.0) / within


def _ess(x: Block) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
    """Return the ESS, and the ESS with B = 0."""
    _, m, n = x.shape
    means = x.mean(axis=-1, keepdims=True)
    length = scipy.fft.next_fast_len(2 * n, real=True)
    waves = np.asarray(scipy.fft.rfft(x - means, length))
    # the inverse transform is linear, so the chains' spectra are summed first
    square = lambda part: np.einsum("pmf,pmf->pf", part, part)  # noqa: E731
    power = square(np.real(waves)) + square(np.imag(waves))
    covariance = np.asarray(scipy.fft.irfft(power, length))[:, :n] / (n * m)
    alone = covariance[:, :1].copy()
    total = alone + means[..., 0].var(axis=1, ddof=1)[:, None]
    below = alone * (n / (n - 1)) - covariance  # W - C_t
    found = [m * n / _tau(1 - below / variance, m * n) for variance in (total, alone)]
    same = total[:, 0] == 0  # only the middle draw moved, or no draw lies beyond the quantile
    return np.where(same, m * n, found[0]), np.where(same, m * n, found[1])


def _tau(rho: Float[np.ndarray, "p lag"], size: int) -> Float[np.ndarray, " p"]:
    """Return Geyer's autocorrelation time from monotone sums of pairs of lags.

    Pairs count up to the first whose sum is not positive. The even lag of that pair counts once, if
    it is positive.
    """
    rho[:, 0] = 1.0
    count = max(1, (rho.shape[1] - 1) // 2)  # pairs that are examined
    pairs = rho[:, : 2 * count : 2] + rho[:, 1 : 2 * count : 2]
    ends = pairs <= 0
    ends[:, -1] = True
    last = np.argmax(ends, axis=1)
    each = np.arange(len(rho))
    before = np.arange(count) < last[:, None]
    whole = np.sum(np.minimum.accumulate(pairs, axis=1), axis=1, where=before)
    even = rho[each, 2 * last]
    half = np.where((even > 0) | (pairs[each, last] >= 0), even, 0.0)
    tau = np.maximum(-1 + 2 * whole + half, 1 / np.log10(size))
    return np.where(np.isnan(pairs).any(axis=1), np.nan, tau)


# -- pareto --------------------------------------------------------------------------------


MIN_TAIL_DRAWS = 25  # draws: 5 in a tail
Tail = Float[np.ndarray, "p place"]


def pareto_k(values: Values) -> PerParameter:
    """Return Pareto k of the heavier tail; moments of order 1/k and above are infinite.

    The result is NaN if a tail, a fifth of the draws, holds fewer than 5 draws. It is NaN too for a
    tail that begins with ties or is one number, for example where rounding cuts it off.
    """
    if values.shape[0] * values.shape[1] < MIN_TAIL_DRAWS:
        return np.full(values.shape[-1], np.nan)

    def of(x: Float[np.ndarray, "p chain draw"]) -> np.ndarray:
        ordered = np.sort(x.reshape(len(x), -1), axis=1)
        size = ordered.shape[1]
        r = tail_ess(x) / (2 * x.shape[1] * (x.shape[2] // 2))  # _halves drops the middle draw
        M = np.where(size * r > 225, 3 * np.sqrt(size / r), size / 5)
        M = np.minimum(M, size // 2).astype(int)
        return np.fmax(_k(ordered, M), _k(-ordered[:, ::-1], M))[None]

    return over_blocks(of, 1, values)[0]


def _k(ordered: Tail, M: np.ndarray) -> PerParameter:
    """Return Pareto k of the M last values of every row."""
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
