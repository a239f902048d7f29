"""The Gaussian at the mode where there are too many parameters for a dense curvature.

With S^2 = 1 / (squared gradients + the prior's curvature), the Ritz pairs (lambda, V) of S J S from
Lanczos' iteration, and s the smallest curvature of all other directions,

    J^{-1} ~ S [ (I - V V^T) / s + V diag(1 / lambda) V^T ] S = D,   D^{1/2} = s^{-1/2} S (I + V diag(c) V^T),

c = (s / lambda)^{1/2} - 1. The quality of this approximation of J is measured: the eigenvalues of
D^{1/2} J D^{1/2} lie between 1 and 1 + `departure`, which is 0 where J is exactly low rank plus diagonal.
With D in place of J^{-1} the bias meter keeps its mean under the posterior, and exaggerates the bias of a
run. On a Gaussian it shows a variance rho times the true one as at most rho / (1 - (rho - 1) departure).
With the mean for s it would hide some bias. J is used only through Hessian-vector products over all rows.

Where no Gaussian exists, the module measures curvature along the axes and in the stiffest direction.

It also measures the distance of a posterior from its Gaussian, and moves the Gaussian's centre from the
mode to the mean. With draws theta = m + F z of the Gaussian N(m, T J^{-1}), F F^T = T J^{-1}, and g the
whitened gradient F^T grad U(theta) / T of U = -log posterior,

    nu = max_i average((g_i - z_i)^2),     m <- m - J^{-1} average(grad U).

nu is 0 on a Gaussian posterior. At the mode most of nu is the distance to the mean, which grows with the
number of parameters. The gradients that measure nu also give that distance: the step above is one
natural-gradient step of a Gaussian variational fit (Khan & Rue 2023) with a fixed curvature. Draws come in
antithetic pairs, so that the centre does not move on a Gaussian.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from ..core.progress import stage
from ..model import sums
from ..model.problem import Problem
from ..model.sums import row_gradient
from ..samplers.preconditioners.fixed import LowRank
from .laplace import Laplace, Marginals

MAX_LOW_RANK_DIM = 20_000  # parameters
# rows times parameters beyond which hundreds of passes over the data take too long
MAX_PASS = 2**30
# largest number of Lanczos steps, and of rows x parameters x steps
MAX_LANCZOS_STEPS, MAX_LANCZOS_WORK = 1024, 2**36
SIGN_CHECK_STEPS = 32  # steps between checks of the sign of the curvature
TRACE_PROBES = 32
MAX_EDGE_ERROR = 0.03  # relative error of the smallest eigenvalue of D^{1/2} J D^{1/2}
MAX_LBFGS_STEPS = 400  # largest number of L-BFGS steps
LOW_RANK_SEARCH_SDS = (3.0, 12.0)  # distance in sds of the starts of the search for other modes
MAX_SOLVE_RESIDUAL, MAX_SOLVE_STEPS = 0.01, 50  # relative residual of J x = g, and largest steps
MAX_JACOBIAN = 2**26  # numbers in a Jacobian of the reported parameters


@dataclass(frozen=True)
class LowRankLaplace:
    """The Gaussian N(center, T D) in free coordinates, with the methods of the dense `Laplace`."""

    center: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    Q: Float[np.ndarray, "d r"]
    c: Float[np.ndarray, " r"]
    smallest: float
    flattest: Float[np.ndarray, " d"]
    departure: float
    positive_definite: bool = True

    @property
    def metric(self) -> LowRank:
        """D, as a preconditioner."""
        return LowRank(self.scale**2, None, self.Q, self.c)

    @property
    def variance(self) -> Float[np.ndarray, " d"]:
        """The diagonal of D."""
        return self.scale**2 * (1 + self.Q**2 @ (2 * self.c + self.c**2))

    def moved(self, step: Float[np.ndarray, " d"]) -> Self:
        """Return the Gaussian with its centre moved by `step`."""
        return replace(self, center=self.center + step)

    def solve(self, problem: Problem, g: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """Solve for J^{-1} g by conjugate gradients with D as the preconditioner."""
        from scipy.sparse.linalg import LinearOperator, cg  # a slow import, a third of a second

        shape, center = (g.size, g.size), problem.array(self.center)
        J, D = (
            LinearOperator(shape, matvec=times)  # pyright: ignore[reportCallIssue]
            for times in (partial(_times, problem, center), lambda v: self.spread(self.pull(v)))
        )
        return cg(J, g, rtol=MAX_SOLVE_RESIDUAL, maxiter=MAX_SOLVE_STEPS, M=D)[0]

    def spread(self, xi: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """Return D^{1/2} xi: the draws' distances from the centre."""
        return self.scale * (xi + (xi @ self.Q * self.c) @ self.Q.T)

    def pull(self, g: Real[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """Return (D^{1/2})^T g."""
        scaled = self.scale * g
        return scaled + (scaled @ self.Q * self.c) @ self.Q.T

    def whiten(self, z: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """Return D^{-1/2} (z - center)."""
        scaled = (z - self.center) / self.scale
        return scaled - (scaled @ self.Q * (self.c / (1 + self.c))) @ self.Q.T

    def linear(self, problem: Problem, z: Float[np.ndarray, "n d"]) -> np.ndarray:
        """Return D^{1/2} J (z - center), the whitened gradients of such a Gaussian."""
        center = problem.array(self.center)
        return self.pull(np.stack([_times(problem, center, v) for v in z - self.center]))

    @property
    def half_log_det(self) -> float:
        """The log volume of the Gaussian, log det D / 2; NaN at a saddle."""
        if not self.positive_definite:
            return float("nan")
        return float(np.sum(np.log(self.scale)) + np.sum(np.log1p(self.c)))

    def draw(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "count d"]:
        """Return `count` draws."""
        return self.center + self.spread(rng.standard_normal((count, self.center.size)))

    def tempered(self, temperature: float) -> LowRankLaplace:
        """Return the Gaussian at `temperature`."""
        return replace(self, scale=self.scale * np.sqrt(temperature))

    def marginals(self, problem: Problem) -> Marginals:
        """Return the marginals of the reported parameters, linearised at the centre."""
        plain = problem.posterior.transform is None and problem.posterior.output is None
        if plain:
            return Marginals(
                lambda z: z - self.center, lambda g: -self.spread(self.pull(g)), self.variance
            )
        out = problem.target.jacobian(self.center)
        return Marginals(
            lambda z: (z - self.center) @ out.T,
            lambda g: -self.spread(self.pull(g)) @ out.T,
            np.sum(self.pull(out) ** 2, axis=1),
        )


def affordable(problem: Problem) -> bool:
    """Return whether curvature is worth hundreds of passes over the data."""
    d = problem.dimension
    rows = max(1, problem.num_data)
    plain = problem.posterior.transform is None and problem.posterior.output is None
    return d <= MAX_LOW_RANK_DIM and rows * d <= MAX_PASS and (plain or d * d <= MAX_JACOBIAN)


@stage("mode")
def lowrank_mode(
    problem: Problem, start: Float[np.ndarray, " d"]
) -> tuple[Float[np.ndarray, " d"], float, bool]:
    """Return (z, log density, converged) of L-BFGS on all rows, until the density stops rising."""
    from scipy.optimize import minimize

    def loss(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = sums.value_and_gradient(problem, problem.array(z))
        return -float(value), -np.asarray(slope, np.float64)

    found = minimize(
        loss, start, jac=True, method="L-BFGS-B",
        options={"maxiter": MAX_LBFGS_STEPS, "maxcor": 20, "ftol": 1e-9, "gtol": 0.0},
    )  # fmt: skip
    # in float32 the last line search fails where no step raises the density
    return found.x, -float(found.fun), bool(np.isfinite(found.fun) and found.nit < MAX_LBFGS_STEPS)


@stage("other modes", whole=True)
def lowrank_modes(
    problem: Problem, laplace: LowRankLaplace, rng: np.random.Generator
) -> list[tuple[Float[np.ndarray, " d"], float]]:
    """Return (z, log density) of modes other than `laplace.center`, found from wide starts."""
    found: list[tuple[np.ndarray, float]] = []
    for scale in LOW_RANK_SEARCH_SDS:
        start = laplace.center + laplace.spread(scale * rng.standard_normal(laplace.center.size))
        z, value, converged = lowrank_mode(problem, start)
        # L-BFGS stops within a fraction of an sd in each direction
        known = [laplace.center, *(m for m, _ in found)]
        apart = min(float(np.linalg.norm(laplace.whiten(z) - laplace.whiten(m))) for m in known)
        if converged and apart > 3 + 0.3 * np.sqrt(z.size):
            found.append((z, value))
    return found


@stage("curvature")
def lowrank_laplace(
    problem: Problem,
    mode: Float[np.ndarray, " d"],
    squared_gradients: Float[np.ndarray, " d"],
    rng: np.random.Generator,
) -> LowRankLaplace:
    """Compute a low rank plus diagonal curvature at `mode`.

    It is marked as not positive definite where Lanczos' iteration finds a negative eigenvalue.
    """
    d = mode.size
    scale = 1 / np.sqrt(np.maximum(np.asarray(squared_gradients, np.float64), 1e-30))
    times = partial(_scaled_times, problem, problem.array(mode), scale)
    rows = max(1, problem.num_data)
    steps = int(
        np.clip(MAX_LANCZOS_WORK // (rows * d), SIGN_CHECK_STEPS, min(MAX_LANCZOS_STEPS, d))
    )
    values, vectors, definite = _lanczos(times, d, steps, rng)
    flattest = scale * vectors[:, 0]
    flattest /= np.linalg.norm(flattest)
    if not definite:
        return LowRankLaplace(
            mode, scale, vectors, np.zeros(len(values)), float(values[0]), flattest, np.inf, False
        )
    probes = rng.standard_normal((TRACE_PROBES, d))
    probes -= (probes @ vectors) @ vectors.T
    rest = np.mean([w @ times(w) for w in probes]) / np.mean(np.sum(probes**2, axis=1))
    if not rest > 0:
        rest = float(np.median(values))
    found = LowRankLaplace(
        mode,
        scale / np.sqrt(rest),
        vectors,
        np.sqrt(rest / values) - 1,
        float(values[0]),
        flattest,
        0.0,
    )

    def whitened(v: np.ndarray) -> np.ndarray:
        z = problem.array(mode)
        return found.pull(_times(problem, z, found.spread(v)))

    edges, *_ = _lanczos(whitened, d, steps, rng, within=MAX_EDGE_ERROR)
    # an iteration that ended before its first check is exact
    missed = (
        0.0 if len(edges) < SIGN_CHECK_STEPS else _bound(d, len(edges)) * (edges[-1] - edges[0])
    )
    low = min(1.0, max(edges[0] - missed, edges[0] / 4))
    # all of D is widened: with V's part unchanged, its coupling to the rest would fall below 1
    return replace(found, scale=found.scale / np.sqrt(low), departure=float(edges[-1] / low - 1))


def _lanczos(
    times, d: int, steps: int, rng, within: float = 0.0
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return Ritz values, ascending, their vectors [d, r], and whether J seems positive definite.

    Pairs that have not converged are included: with all of them J is exact on the whole subspace. The
    iteration ends where the relative error of the smallest value is below `within`.
    """
    Q, alpha, beta = np.zeros((steps, d)), [], []
    q = rng.standard_normal(d)
    q /= np.linalg.norm(q)
    for k in range(steps):
        Q[k] = q
        w = times(q)
        if not np.isfinite(w).all():
            return np.array([-np.inf]), q[:, None], False
        alpha.append(float(q @ w))
        for _ in range(2):  # one pass is not enough in finite precision
            w = w - Q[: k + 1].T @ (Q[: k + 1] @ w)
        beta.append(float(np.linalg.norm(w)))
        last = k + 1 == steps or beta[-1] < 1e-5 * max(map(abs, alpha))
        if last or (k + 1) % SIGN_CHECK_STEPS == 0:
            (lowest, small), (highest, _) = (_ritz(alpha, beta, at) for at in (0, k))
            if lowest < 1e-6 * highest:
                return np.array([lowest]), Q[: k + 1].T @ small[:, None], False
            last = last or _bound(d, k + 1) * (highest - lowest) < within * lowest
        if last:
            break
        q = w / beta[-1]
    from scipy.linalg import eigh_tridiagonal

    values, small = eigh_tridiagonal(alpha, beta[:-1])
    return values, Q[: len(alpha)].T @ small, True


def _bound(d: int, k: int) -> float:
    """Return a bound on an extreme eigenvalue's mean error after k >= 4 steps, random start.

    It is a share of the spectrum's width (Kuczynski & Wozniakowski 1992, Theorem 3.2).
    """
    return 0.103 * (np.log(d * (k - 1.0) ** 4) / (k - 1)) ** 2


def _ritz(alpha: list[float], beta: list[float], at: int) -> tuple[float, np.ndarray]:
    """Return the `at`-th Ritz value and its vector in the Krylov basis, without the others."""
    from scipy.linalg import eigh_tridiagonal

    value, vector = eigh_tridiagonal(alpha, beta[:-1], select="i", select_range=(at, at))
    return float(value[0]), vector[:, 0]


def _scaled_times(problem, z: Array, scale: np.ndarray, v: np.ndarray) -> np.ndarray:
    return scale * _times(problem, z, scale * v)


def _times(problem, z: Array, v: np.ndarray) -> np.ndarray:
    """Return J v, where J is the curvature of -log posterior at z."""
    return np.asarray(_hvp(problem, z, problem.array(v)), np.float64)


@jax.jit
def _hvp(problem: Problem, z: Array, v: Array) -> Any:
    gradient = lambda q: sums.value_and_gradient(problem, q)[1]  # noqa: E731
    return -jax.jvp(gradient, (z,), (v,))[1]


# -- diagonal ------------------------------------------------------------------------------


STIFFNESS_STEPS = 30  # steps of the power method
MAX_STIFFNESS_ROWS = 4096


@jax.jit
def squared_gradients(problem: Problem, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """Return the diagonal of the empirical Fisher information plus the prior's curvature."""
    prior = -jax.jvp(jax.grad(problem.log_prior), (z,), (jnp.ones_like(z),))[1]
    # a kink at z has no usable curvature
    prior = jnp.where(jnp.isfinite(prior), jnp.maximum(prior, 1e-6), 1.0)
    if not problem.has_rows:
        return jnp.maximum(prior, 1e-2 * jnp.max(prior))
    count = min(problem.num_data, max(16, 2**22 // z.size))
    one = lambda row: row_gradient(problem, z, row) ** 2  # noqa: E731
    rows = jnp.arange(count, dtype=jnp.int32)
    squares = jnp.sum(jax.lax.map(one, rows, batch_size=max(1, 2**20 // z.size)), 0)
    return prior + squares * (problem.num_data / count)


@jax.jit
def stiffness(problem: Problem, D: Any, z: Float[Array, " d"]) -> Float[Array, ""]:
    """Compute lambda_max of D^{1/2}^T J D^{1/2} by power iteration on a few thousand rows."""
    gradient = jax.grad(problem.log_prior)
    if problem.has_rows:
        count = min(problem.num_data, MAX_STIFFNESS_ROWS)
        rows = problem.source.take(jnp.arange(count, dtype=jnp.int32))
        scale = problem.num_data / count
        gradient = jax.grad(
            lambda q: problem.log_prior(q) + scale * problem.log_likelihood(q, rows)
        )
    return largest_eigenvalue(lambda v: -D.pullback(jax.jvp(gradient, (z,), (D.noise(v),))[1]), z)


def largest_eigenvalue(
    times: Callable[[Array], Array], like: Float[Array, " d"]
) -> Float[Array, ""]:
    """Compute |lambda|_max of the symmetric matrix v -> times(v) by the power method.

    The function is traceable.
    """

    def iterate(v, _):
        v = times(v)
        size = jnp.linalg.norm(v)
        return v / jnp.maximum(size, 1e-30), size

    start = jax.random.normal(jax.random.key(0), like.shape, like.dtype)
    return jax.lax.scan(iterate, start / jnp.linalg.norm(start), length=STIFFNESS_STEPS)[1][-1]


# -- center --------------------------------------------------------------------------------


MAX_NU_DRAWS, MAX_NU_ROWS = 128, 10**5  # draws; with more rows than this, a quarter of them
MAX_MOVED_CENTRE_NU = 0.5  # largest nu at a new centre: where a gradient vanishes, nu tends to 1
MAX_UNMEASURED_SDS = 0.1  # sds (Euclidean) of a step up to which it is taken without a test of nu
TRIED_STEP_SHARES = (1.0, 0.5, 0.25)  # shares of the step that are tried

Gaussian = TypeVar("Gaussian", bound=Laplace | LowRankLaplace)


class Departure(NamedTuple):
    """nu at a centre, the nu that a move by `slope` leaves, and the draws' mean gradient of U."""

    nu: float
    around: float
    slope: Float[np.ndarray, " d"]


@stage("curvature")
def departure(
    problem: Problem, gaussian: Any, rng: np.random.Generator, temperature: float = 1.0
) -> Departure:
    """Measure the distance of the posterior from `gaussian` at its centre.

    nu is inf where a gradient is not finite.
    """
    gaussian = gaussian.tempered(temperature)
    count = MAX_NU_DRAWS if problem.num_data <= MAX_NU_ROWS else MAX_NU_DRAWS // 4
    xi = rng.standard_normal((count // 2, gaussian.center.size))
    away = gaussian.spread(np.concatenate([xi, -xi]))
    thetas = gaussian.center + away
    slopes = -sums.gradients(problem, thetas)
    slope = slopes.mean(0)
    if not np.isfinite(slopes).all():
        return Departure(float("inf"), float("inf"), slope)
    apart = (gaussian.pull(slopes) - gaussian.linear(problem, thetas)) / temperature
    nu, around = np.mean(apart**2, axis=0), np.var(apart, axis=0)
    return Departure(float(np.max(nu)), float(np.max(around)), slope)


def at_the_mean(
    problem: Problem, gaussian: Gaussian, rng: np.random.Generator, temperature: float
) -> tuple[Gaussian, float, float]:
    """Return the Gaussian with its centre at the mean, nu there, and nu at the mode.

    The step can be harmful. It, or a half or quarter of it, is taken only where nu decreases to at most
    `MAX_MOVED_CENTRE_NU` and the density is no lower than that of a draw; otherwise the centre stays.
    """
    here = departure(problem, gaussian, rng, temperature)
    if not np.isfinite(here.nu):
        return gaussian, here.nu, here.nu
    step = -gaussian.solve(problem, here.slope)
    tempered = gaussian.tempered(temperature)
    if np.linalg.norm(tempered.whiten(gaussian.center + step)) <= MAX_UNMEASURED_SDS:
        return gaussian.moved(step), here.around, here.nu
    half = gaussian.center.size / 2
    density = lambda at: float(sums.log_density(problem, problem.array(at.center)))  # noqa: E731
    least = density(gaussian) - temperature * (half + 3 * np.sqrt(half))
    for share in TRIED_STEP_SHARES:
        there = gaussian.moved(share * step)
        if not density(there) >= least:
            continue
        nu = departure(problem, there, rng, temperature).nu
        if nu <= min(MAX_MOVED_CENTRE_NU, here.nu):
            return there, nu, here.nu
    return gaussian, here.nu, here.nu
