"""The Gaussian at the mode: curvature J, covariance J^{-1}, and a factor of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..problem import sums
from ..problem.problem import Problem
from ..stages import stage

__all__ = ["Laplace", "laplace_at", "nonlinearity"]

MANY_ROWS = 10**5  # with more, half the draws say enough about nu


class Marginals(NamedTuple):
    """Functions z -> phi and gradient of the log posterior -> gamma of `diagnose.stein`, [..., d] to
    [..., m], and the variance of phi under the Gaussian at the mode."""

    phi: Callable[[np.ndarray], np.ndarray]
    gamma: Callable[[np.ndarray], np.ndarray]
    variance: Float[np.ndarray, " m"]


@dataclass(frozen=True)
class Laplace:
    """N(mode, J^{-1}) in free coordinates, in float64 on the host.

    `factor` F satisfies F F^T = J^{-1}; `smallest` is J's smallest eigenvalue relative
    to its diagonal, negative or zero where the mode is not one, and `flattest` its direction.
    """

    mode: Float[np.ndarray, " d"]
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
        """J^{-1}."""
        assert self.factor is not None
        return self.factor @ self.factor.T

    def draw(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "count d"]:
        """`count` draws."""
        return self.mode + self.spread(rng.standard_normal((count, self.mode.size)))

    def tempered(self, temperature: float) -> Laplace:
        """The Gaussian of the law at `temperature`: covariance T J^{-1}."""
        assert self.factor is not None
        return replace(self, factor=self.factor * np.sqrt(temperature))

    def spread(self, xi: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """F xi: draws' distances from the mode, of standard normal xi."""
        assert self.factor is not None
        return xi @ self.factor.T

    def pull(self, g: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """F^T g."""
        assert self.factor is not None
        return g @ self.factor

    def linear(self, problem: Problem, z: Float[np.ndarray, "n d"]) -> np.ndarray:
        """F^T J (z - mode), the whitened gradients of a Gaussian with this curvature."""
        return self.pull((z - self.mode) @ self.curvature)

    def marginals(self, problem: Problem) -> Marginals:
        """The reported parameters, in the linear approximation at the mode."""
        assert self.factor is not None
        out = problem.target.jacobian(self.mode) @ self.factor
        return Marginals(
            lambda z: self.whiten(z) @ out.T,
            lambda g: -self.pull(g) @ out.T,
            np.sum(out**2, axis=1),
        )

    def whiten(self, z: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """F^{-1} (z - mode)."""
        assert self.factor is not None
        away = (z - self.mode).reshape(-1, self.mode.size)
        return np.linalg.solve(self.factor, away.T).T.reshape(z.shape)


@stage("curvature")
def laplace_at(problem: Problem, mode: Float[np.ndarray, " d"]) -> Laplace:
    """Curvature and its inverse's factor at `mode`."""
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


@stage("curvature")
def nonlinearity(
    problem: Problem,
    laplace: Any,
    rng: np.random.Generator,
    temperature: float = 1.0,
    count: int = 128,
) -> float:
    """nu = max_i average((g_i - z_i)^2) over Laplace draws: 0 for a Gaussian posterior.

    z = F^{-1}(theta - mode) and g = -F^T grad log posterior / T with F F^T = T J^{-1}, so
    that g = z on a Gaussian.
    """
    laplace = laplace.tempered(temperature)
    if problem.num_data > MANY_ROWS:
        count //= 4
    thetas = laplace.draw(rng, count)
    g = -laplace.pull(sums.gradients(problem, thetas)) / temperature
    straight = laplace.linear(problem, thetas) / temperature
    if not np.isfinite(g).all():
        return float("inf")
    return float(np.max(np.mean((g - straight) ** 2, axis=0)))
