"""A Gaussian with the curvature J at the posterior's mode, its covariance J^{-1} and a factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float

from ..core.progress import stage
from ..model import sums
from ..model.problem import Problem


class Marginals(NamedTuple):
    """The functions phi and gamma of `diagnostics.stein` and the variance of phi.

    phi maps z, and gamma the gradient of the log posterior, from [..., d] to [..., m]; the variance is
    that under the Gaussian.
    """

    phi: Callable[[np.ndarray], np.ndarray]
    gamma: Callable[[np.ndarray], np.ndarray]
    variance: Float[np.ndarray, " m"]


@dataclass(frozen=True)
class Laplace:
    """The Gaussian N(center, J^{-1}) in free coordinates, in float64 on the host.

    The centre is the mode, or the mean (`low_rank.at_the_mean`); J is the curvature at the mode. `factor` F
    satisfies F F^T = J^{-1}. `smallest` is J's smallest eigenvalue relative to its diagonal, negative or zero
    where the centre is not a mode, and `flattest` its direction.
    """

    center: Float[np.ndarray, " d"]
    curvature: Float[np.ndarray, "d d"]
    factor: Float[np.ndarray, "d d"] | None
    smallest: float
    flattest: Float[np.ndarray, " d"]

    @property
    def positive_definite(self) -> bool:
        """Whether J is (numerically) positive definite."""
        return self.factor is not None

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """The covariance J^{-1}."""
        assert self.factor is not None
        return self.factor @ self.factor.T

    @property
    def variance(self) -> Float[np.ndarray, " d"]:
        """The diagonal of J^{-1}."""
        assert self.factor is not None
        return np.sum(self.factor**2, axis=1)

    @property
    def half_log_det(self) -> float:
        """The log volume of the Gaussian, log det J^{-1} / 2; NaN at a saddle."""
        if self.factor is None:
            return float("nan")
        return float(np.linalg.slogdet(self.factor)[1])

    def draw(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "count d"]:
        """Return `count` draws."""
        return self.center + self.spread(rng.standard_normal((count, self.center.size)))

    def tempered(self, temperature: float) -> Laplace:
        """Return the Gaussian at `temperature`, with covariance T J^{-1}."""
        assert self.factor is not None
        return replace(self, factor=self.factor * np.sqrt(temperature))

    def scaled(self, share: float) -> Laplace:
        """Return the Gaussian with `share` times the covariance, as for another number of rows."""
        assert self.factor is not None
        return replace(self, curvature=self.curvature / share, factor=self.factor * np.sqrt(share))

    def moved(self, step: Float[np.ndarray, " d"]) -> Self:
        """Return the Gaussian with its centre moved by `step`."""
        return replace(self, center=self.center + step)

    def solve(self, problem: Problem, g: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """Return J^{-1} g."""
        return self.spread(self.pull(g))

    def spread(self, xi: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """Return F xi: the draws' distances from the centre, for standard normal xi."""
        assert self.factor is not None
        return xi @ self.factor.T

    def pull(self, g: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """Return F^T g."""
        assert self.factor is not None
        return g @ self.factor

    def linear(self, problem: Problem, z: Float[np.ndarray, "n d"]) -> np.ndarray:
        """Return F^T J (z - center), the whitened gradients of a Gaussian with this curvature."""
        return self.pull((z - self.center) @ self.curvature)

    def marginals(self, problem: Problem) -> Marginals:
        """Return the marginals of the reported parameters, linearised at the centre."""
        assert self.factor is not None
        out = problem.target.jacobian(self.center) @ self.factor
        return Marginals(
            lambda z: self.whiten(z) @ out.T,
            lambda g: -self.pull(g) @ out.T,
            np.sum(out**2, axis=1),
        )

    def whiten(self, z: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """Return F^{-1} (z - center)."""
        return (z - self.center) @ self._inverse.T

    @cached_property
    def _inverse(self) -> Float[np.ndarray, "d d"]:
        """The inverse F^{-1}, cached: whitening one position by a solve costs as much."""
        assert self.factor is not None
        return np.linalg.inv(self.factor)


@stage("curvature")
def laplace_at(problem: Problem, mode: Float[np.ndarray, " d"]) -> Laplace:
    """Compute the curvature and its inverse's factor at `mode`."""
    z = problem.array(mode)
    J = np.asarray(sums.curvature(problem, z), np.float64)
    J = (J + J.T) / 2
    if not np.isfinite(J).all():
        bad = (~np.isfinite(np.diag(J))).astype(float)
        return Laplace(np.asarray(mode, np.float64), J, None, -np.inf, bad)
    scale = np.sqrt(np.maximum(np.abs(np.diag(J)), 1e-300))
    values, vectors = np.linalg.eigh(J / np.outer(scale, scale))
    factor = None
    if values[0] > 1e-6 * values[-1]:
        factor = vectors / np.sqrt(values) / scale[:, None]
    flattest = vectors[:, 0] / scale
    flattest = flattest / max(float(np.linalg.norm(flattest)), 1e-300)
    return Laplace(np.asarray(mode, np.float64), J, factor, float(values[0]), flattest)
