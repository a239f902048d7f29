"""The exact stationary law of SGLD on a Gaussian, and the step size that a tolerance allows.

Coordinates: those of the preconditioner's factor P, turned so that A = P^T J P is
diagonal with entries `a`; J is the curvature of -log posterior at the mode, C the
covariance of the gradient estimate, P^T Cov P. With decay r_i = 1 - h a_i and p = r_i r_j
one step of independent batches gives

    S_ij = (2 h T delta_ij + h^2 C_ij) / (1 - p)

and R blocks in a fresh order each pass give, averaged over the pass,

    S_ij = 2 h T delta_ij / (1 - p) + mean over k < R of (p^k v_ij + w_ij(k)),
    w(k) = h^2 C R/(R-1) [s(k) - t_i(k) t_j(k) / R],   v = w(R) / (1 - p^R),

with s(k) the sum of p^l and t_i(k) that of r_i^l over l < k: within a pass the blocks'
noise sums to zero, so its part of the bias is of order (h R)^2 instead of h R.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

__all__ = ["Law", "accumulated", "largest_step", "off"]

Matrix = Float[np.ndarray, "*laws d d"]


def _mean_power(x: np.ndarray, count: int) -> np.ndarray:
    """The mean over k < count of x^k."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if np.iscomplexobj(x):
            value = -np.expm1(count * np.log(x)) / (count * (1 - x))
            return np.where(np.abs(1 - x) < 1e-14, 1.0, np.where(x == 0, 1 / count, value))
        value = -np.expm1(count * np.log(x)) / (count * (1 - x))
    return np.where(np.abs(1 - x) < 1e-14, 1.0, np.where(x > 0, value, _alternating(x, count)))


def _alternating(x: np.ndarray, count: int) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return (1 - np.power(x, count)) / (count * (1 - x))


def accumulated(r: np.ndarray, q: np.ndarray, period: int) -> np.ndarray:
    """[d, d]: what noises of covariance 1, decaying by r_i and q_j a step, come to.

    The module's formulas for C = 1 and a noise that enters with weight 1.
    """
    p, R = np.outer(r, q), period
    if R == 1:
        return 1 / (1 - p)
    scale = R / (R - 1)
    mean_p, mean_r, mean_q = _mean_power(p, R), _mean_power(r, R), _mean_power(q, R)
    s_mean = (1 - mean_p) / (1 - p)
    t_mean = (1 - mean_r[:, None] - mean_q[None, :] + mean_p) / np.outer(1 - r, 1 - q)
    end = scale * R * (mean_p - np.outer(mean_r, mean_q))
    start = end / (R * mean_p * (1 - p))
    return mean_p * start + scale * (s_mean - t_mean / R)


@dataclass(frozen=True)
class Law:
    """A Gaussian target and a noisy gradient, in the coordinates of a preconditioner's factor.

    `basis` = P times A's eigenvectors maps A's eigenbasis to the original coordinates, `noise`
    is C in that basis, `out` maps it to the m reported parameters. `period` is the number
    of blocks of a reshuffled pass, 1 for independent batches.
    """

    a: Float[np.ndarray, " d"]
    basis: Matrix
    noise: Matrix
    out: Float[np.ndarray, "m d"]
    period: int = 1

    longest: ClassVar[float] = 1.0  # step size times curvature that the tuner stops at

    @classmethod
    def of(
        cls,
        curvature: Matrix,
        factor: Matrix,
        noise: Matrix,
        *,
        period: int = 1,
        out: Float[np.ndarray, "m d"] | None = None,
    ) -> Law:
        """From J, P and Cov(gradient), all in the original coordinates."""
        a, turn = np.linalg.eigh(factor.T @ curvature @ factor)
        basis = factor @ turn
        out = basis if out is None else out @ basis
        return cls(a, basis, basis.T @ noise @ basis, out, period)

    def covariance(self, h: float, temperature: float = 1.0) -> Matrix:
        """S in A's eigenbasis. The steps must be stable: h a < 2."""
        r = 1 - h * self.a
        injected = np.diag(2 * h * temperature / (1 - r**2))
        if not self.noise.any():
            return injected
        return injected + h**2 * self.noise * accumulated(r, r, self.period)

    def stable(self, h: float) -> bool:
        """Whether the steps contract."""
        return bool(0 < h < 2 / self.a.max())

    def rate(self, h: float) -> float:
        """The share that a step forgets in the slowest direction."""
        return min(1.0, h * float(self.a.min()))

    def noise_ratio(self, h: float, temperature: float) -> float:
        """Variance of the gradient's noise over the injected one's, in the worst direction."""
        return h / (2 * temperature) * float(np.linalg.eigvalsh(self.noise)[-1])

    def ratio(self, h: float, temperature: float = 1.0) -> Float[np.ndarray, " m"]:
        """sd of the run over sd of the posterior, per reported parameter; inf if unstable."""
        if not self.stable(h):
            return np.full(self.out.shape[0], np.inf)
        return self.ratio_of(self.covariance(h, temperature), temperature)

    def ratio_of(self, covariance: Matrix, temperature: float) -> Float[np.ndarray, " m"]:
        """sd of the reported parameters under a covariance S over that of the posterior; NaN of a constant."""
        wrong = np.sum((self.out @ covariance) * self.out, axis=1)
        true = np.einsum("mi,i,mi->m", self.out, temperature / self.a, self.out)
        with np.errstate(invalid="ignore"):
            return np.sqrt(wrong / true)


def off(law: Any, h: float, temperature: float) -> float:
    """By how much the sd ratio is off 1 where that is worst, of the parameters that are no constants."""
    wrong = np.abs(law.ratio(h, temperature) - 1)
    return float(np.max(wrong, where=~np.isnan(wrong), initial=0.0))


def largest_step(law: Any, bias: float, temperature: float = 1.0) -> float:
    """The largest h whose sd ratio is within bias of 1 in every parameter, by bisection.

    `law` is a Law or an AffineLaw; h times the largest curvature stops at `law.longest`.
    """
    low, high = 0.0, law.longest / law.a.max()
    for _ in range(60):
        middle = np.sqrt(low * high) if low > 0 else high / 4
        if off(law, middle, temperature) <= bias:
            low = middle
        else:
            high = middle
        if low > 0 and high / low < 1.001:
            break
    return low if low > 0 else high
