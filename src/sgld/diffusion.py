"""Continuous-time processes: stochastic differential equations, their densities, and root finding.

A drift f(x, t) and a diffusion sigma(x, t) define dX = f dt + sigma dW. The same two functions
are used by `euler_maruyama` (paths) and `fokker_planck` (the density of X at each time). The
Langevin equation that SGLD discretises (handout, eq. 3.5),

    dX = grad log p(X) dt + sqrt(2 T) dW,     with stationary density proportional to p^(1/T),

is the case f = grad log p, sigma = sqrt(2 T); dX = -grad U dt + sigma dW has density exp(-2U/sigma^2).

The module also provides Brownian motion, finite Markov chains (stationary vector, evolution, paths), and
root finding: Robbins & Monro with a noisy function, Newton with an exact one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike
from scipy.linalg import solve_banded
from scipy.sparse import csgraph

from .core import validation
from .errors import UsageError
from .samplers.schedules import RobbinsMonro, Schedule, as_schedule, check_values, robbins_monro
from .typing import Number

__all__ = [
    "brownian_motion",
    "euler_maruyama",
    "fokker_planck",
    "fokker_planck_residual",
    "markov_evolve",
    "markov_path",
    "newton",
    "robbins_monro_root",
    "stationary_distribution",
]


# -- checks --------------------------------------------------------------------------------


Coefficient = Callable[[Array, Array], ArrayLike]  # a function of (x, t)


def positive(**numbers: Any) -> None:
    """Raise UsageError unless every number is positive (and whole, if its name begins with num_)."""
    for name, value in numbers.items():
        if name.startswith("num_") and not isinstance(value, (int, np.integer)):
            raise UsageError(f"{name} must be a whole number. Got {value!r}.")
        if isinstance(value, Tracer):
            continue
        validation.positive(name, value)


def floating(x: ArrayLike) -> Array:
    """Return x as a floating-point array."""
    x = jnp.asarray(x)
    return x.astype(jnp.result_type(float, x))


# -- sde -----------------------------------------------------------------------------------


class Path(NamedTuple):
    """Times [num_steps + 1] and the values there, [num_paths,] num_steps + 1, *state."""

    times: Float[Array, " n"]
    values: Float[Array, "*shape"]


def euler_maruyama(
    drift: Coefficient,
    diffusion: Coefficient,
    x0: ArrayLike,
    *,
    step: float,
    num_steps: int,
    key: Array | None = None,
    increments: Array | None = None,
    num_paths: int | None = None,
    start: float = 0.0,
) -> Path:
    """Simulate paths of dX = f(X, t) dt + sigma(X, t) dW (Ito) by the Euler-Maruyama scheme.

        X_{k+1} = X_k + f(X_k, t_k) dt + sigma(X_k, t_k) dW_k,     dW_k ~ N(0, dt I)

    (Maruyama 1955; Kloeden & Platen 1992, ch. 9.1.) Strong order 1/2, or 1 if sigma does not
    depend on x; weak order 1.

    Args:
      drift: f, from one state of shape [d] (or a scalar) and a time to a vector of that shape.
      diffusion: sigma, from the same arguments to a scalar (times the identity), a vector [d]
        (a diagonal) or a matrix [d, m] driven by m Brownian motions.
      x0: the state at `start`, [d] or a scalar, shared by all paths; vmap over it for others.
      step: dt, in units of time.
      num_steps: the number of steps.
      key: a JAX random key, from which the increments are drawn.
      increments: dW itself, [num_paths,] num_steps, *noise (noise is m, or the state's shape),
        instead of `key`: to refine a path, or to drive two schemes by one Brownian motion.
      num_paths: independent paths along a leading axis (None: one path, without that axis).
      start: the time of x0.

    Raises UsageError if `step` or `num_steps` is not positive, the shapes disagree, or not
    exactly one of `key` and `increments` is given.

    Example: the Ornstein-Uhlenbeck process, with variance 1 - exp(-2 t) from a fixed start.
      >>> import jax
      >>> from sgld.diffusion import euler_maruyama
      >>> times, x = euler_maruyama(lambda x, t: -x, lambda x, t: 2**0.5, 0.0, step=0.01,
      ...                           num_steps=200, key=jax.random.key(0), num_paths=4000)
      >>> x.shape, bool(abs(x[:, -1].var() - 0.98) < 0.1)
      ((4000, 201), True)
    """
    positive(step=step, num_steps=num_steps, num_paths=1 if num_paths is None else num_paths)
    x0 = floating(x0)
    noise = _noise_shape(drift, diffusion, x0, start)
    shape = (() if num_paths is None else (num_paths,)) + (num_steps, *noise)
    if (key is None) == (increments is None):
        raise UsageError("euler_maruyama needs exactly one of key and increments.")
    if increments is None:
        assert key is not None
        increments = jnp.sqrt(step).astype(x0.dtype) * jax.random.normal(key, shape, x0.dtype)
    elif jnp.shape(increments) != shape:
        raise UsageError(f"increments must have shape {shape}. Got {jnp.shape(increments)}.")
    times = start + step * jnp.arange(num_steps + 1, dtype=x0.dtype)

    def one_step(x: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        t, dW = inputs
        sigma = jnp.asarray(diffusion(x, t), x.dtype)
        noise = sigma @ dW if sigma.ndim == 2 else sigma * dW
        x = x + step * jnp.asarray(drift(x, t), x.dtype) + noise
        return x, x

    def path(dW: Array) -> Array:
        values = jax.lax.scan(one_step, x0, (times[:-1], dW))[1]
        return jnp.concatenate([x0[None], values])

    return Path(times, path(increments) if num_paths is None else jax.vmap(path)(increments))


def brownian_motion(
    times: ArrayLike, *, key: Array, shape: tuple[int, ...] = (), num_paths: int | None = None
) -> Float[Array, "*shape"]:
    """Simulate standard Brownian motion at the given times: exact, for any spacing.

        W(0) = 0,     W(t) - W(s) ~ N(0, (t - s) I) independently,     Cov(W(s), W(t)) = min(s, t) I

    (The handout's footnote to eq. 3.5.)

    Args:
      times: [n], in ascending order, none negative.
      key: a JAX random key.
      shape: the shape of W(t): () for a scalar, (d,) for d independent coordinates.
      num_paths: independent paths along a leading axis (None: one path, without that axis).

    Returns: [num_paths,] n, *shape.

    Raises UsageError where `times` is not an ascending vector of numbers that are not negative.

    Example:
      >>> import jax
      >>> from sgld.diffusion import brownian_motion
      >>> brownian_motion([0.0, 0.5, 2.0], key=jax.random.key(0), num_paths=10).shape
      (10, 3)
    """
    instants = np.asarray(times, float)  # in double precision, because differences cancel
    if instants.ndim != 1 or not np.all(np.diff(instants, prepend=0.0) >= 0):
        raise UsageError(
            "times must be a vector in ascending order without negative numbers; sort them, and start at 0."
        )
    sd = jnp.asarray(np.sqrt(np.diff(instants, prepend=0.0)), float)
    lead = () if num_paths is None else (num_paths,)
    xi = jax.random.normal(key, (*lead, len(instants), *shape), sd.dtype)
    sd = sd.reshape(*[1] * len(lead), -1, *[1] * len(shape))
    return jnp.cumsum(sd * xi, axis=len(lead))


def _noise_shape(drift: Any, diffusion: Any, x0: Array, start: float) -> tuple[int, ...]:
    """Return the shape of one increment dW, from the shapes of the coefficients at the start."""
    t = jnp.asarray(start, x0.dtype)
    f, sigma = jax.eval_shape(
        lambda x: (jnp.asarray(drift(x, t)), jnp.asarray(diffusion(x, t))), x0
    )
    if x0.ndim > 1 or f.shape not in ((), x0.shape):
        raise UsageError(
            f"drift must return the shape of a state, [d] or a scalar. Got {f.shape} for a state of "
            f"shape {x0.shape}; use num_paths for several paths."
        )
    if sigma.ndim == 2 and sigma.shape[:1] == x0.shape:
        return sigma.shape[1:]
    if sigma.shape not in ((), x0.shape):
        raise UsageError(
            f"diffusion must return a scalar, a vector {x0.shape} or a matrix with a row per "
            f"coordinate. Got shape {sigma.shape}."
        )
    return x0.shape


# -- fokker planck -------------------------------------------------------------------------


def fokker_planck_residual(
    drift: Coefficient, diffusion: Coefficient, density: Callable[[Array], Array], x: ArrayLike
) -> Float[Array, "*grid"]:
    """Return the residual of a density's stationarity in one dimension: 0 for a stationary one.

        -(f p)'(x) + (1/2) (sigma^2 p)''(x)

    by automatic differentiation, in units of density per time, at time 0 (Calvin's general form;
    his 0 = -a p' + b^2 p''/2 holds only for constant coefficients).

    Args:
      drift: f of a scalar state and a time, as in `euler_maruyama`.
      diffusion: sigma, likewise.
      density: p, a differentiable function of a scalar; its normalisation only scales the result.
      x: the points at which to evaluate, any shape.

    Example: dX = -X dt + sqrt(2) dW preserves the standard normal.
      >>> import jax.numpy as jnp
      >>> from jax.scipy.stats import norm
      >>> from sgld.diffusion import fokker_planck_residual
      >>> x = jnp.linspace(-3.0, 3.0, 7)
      >>> residual = fokker_planck_residual(lambda x, t: -x, lambda x, t: 2**0.5, norm.pdf, x)
      >>> bool(jnp.abs(residual).max() < 1e-5)
      True
    """
    x = floating(x)
    t = jnp.zeros((), x.dtype)

    def flux(x: Array) -> Array:
        spread = jax.grad(
            lambda x: jnp.asarray(0.5 * jnp.asarray(diffusion(x, t)) ** 2 * density(x))
        )
        return jnp.asarray(drift(x, t)) * density(x) - spread(x)

    return -jax.vmap(jax.grad(flux))(x.ravel()).reshape(x.shape)


def fokker_planck(
    drift: Coefficient,
    diffusion: Coefficient,
    grid: ArrayLike,
    density: ArrayLike,
    *,
    step: float,
    num_steps: int,
    start: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the density of X(t) for dX = f dt + sigma dW in one dimension, from that at `start`.

        dp/dt = -(f p)' + (1/2) (sigma^2 p)''

    The scheme uses finite volumes without flux through the ends, so mass is conserved to rounding and never
    negative. The flux between neighbours is exact for a constant f / sigma^2 (Chang & Cooper 1970;
    Scharfetter & Gummel 1969), so the stationary density is resolved to second order in the spacing.
    Backward Euler in time is first order in `step`, and stable for any.

    Args:
      drift: f of a scalar state and a time, as in `euler_maruyama`.
      diffusion: sigma, likewise.
      grid: [n] cell centres, ascending and equally spaced, wide enough to hold the mass.
      density: p at `start` in each cell, [n].
      step: dt, in units of time.
      num_steps: the number of steps.
      start: the time of `density`.

    Returns: times [num_steps + 1] and densities [num_steps + 1, n], in float64.

    Raises UsageError if `step` or `num_steps` is not positive, `grid` is not ascending and
    equally spaced, shapes disagree, or a coefficient is not finite or sigma is 0 on the grid.

    Example: relaxation to the standard normal; mass stays 1.
      >>> import numpy as np
      >>> from sgld.diffusion import fokker_planck
      >>> x = np.linspace(-6.0, 6.0, 121)
      >>> p0 = np.exp(-2 * (x - 1) ** 2) / np.exp(-2 * (x - 1) ** 2).sum() / 0.1
      >>> times, p = fokker_planck(lambda x, t: -x, lambda x, t: 2**0.5, x, p0,
      ...                          step=0.05, num_steps=200)
      >>> [round(float(m), 3) for m in (p[-1].sum() * 0.1, (x**2 * p[-1]).sum() * 0.1)]
      [1.0, 1.0]
    """
    positive(step=step, num_steps=num_steps)
    x, p = np.asarray(grid, float), np.asarray(density, float)
    if x.ndim != 1 or x.size < 3 or x.shape != p.shape:
        raise UsageError(
            "grid and density must be vectors of the same length, at least 3. "
            f"Got {x.shape} and {p.shape}."
        )
    dx = (x[-1] - x[0]) / (x.size - 1)
    if not (dx > 0 and np.allclose(np.diff(x), dx, rtol=1e-3)):
        raise UsageError("grid must be ascending and equally spaced; use numpy.linspace.")
    where = jnp.asarray(np.concatenate([x, 0.5 * (x[1:] + x[:-1])]), float)

    @jax.jit
    def coefficients(t: Array) -> tuple[Array, Array]:
        f = jax.vmap(lambda x: jnp.asarray(drift(x, t), where.dtype))(where)
        sigma = jax.vmap(lambda x: jnp.asarray(diffusion(x, t), where.dtype))(where)
        return f, sigma

    def bernoulli(w: np.ndarray) -> np.ndarray:  # w / (exp(w) - 1)
        small = np.abs(w) < 1e-6
        safe = np.where(small, 1.0, w)
        return np.where(small, 1 - w / 2, safe / np.expm1(np.clip(safe, -700.0, 700.0)))

    def implicit_matrix(t: float) -> np.ndarray:
        f, sigma = (np.asarray(c, float) for c in coefficients(jnp.asarray(t, where.dtype)))
        D = 0.5 * sigma**2
        if not (np.isfinite(f).all() and np.isfinite(D).all() and (D > 0).all()):
            raise UsageError(
                f"drift must be finite and diffusion finite and not 0 on the grid. "
                f"At t={t:g} they are not; move the grid's ends."
            )
        w = f[x.size :] / D[x.size :] * dx
        # flux from cell i to i + 1: (D_i p_i B(-w) - D_{i+1} p_{i+1} B(w)) / dx
        right = step / dx**2 * bernoulli(-w) * D[: x.size - 1]
        left = step / dx**2 * bernoulli(w) * D[1 : x.size]
        bands = np.zeros((3, x.size))
        bands[0, 1:], bands[2, :-1] = -left, -right
        bands[1] = 1 + np.append(right, 0.0) + np.append(0.0, left)  # columns sum to 1
        return bands

    times = start + step * np.arange(num_steps + 1)
    densities = [p]
    for t in times[1:]:
        densities.append(solve_banded((1, 1), implicit_matrix(t), densities[-1]))
    return times, np.stack(densities)


# -- markov --------------------------------------------------------------------------------


def stationary_distribution(A: ArrayLike, *, periodic: bool = False) -> Float[np.ndarray, " n"]:
    """Return the stationary distribution pi of a finite Markov chain: pi = A^T pi, with sum 1.

    A_ij is the probability of i -> j, so that A^T moves a distribution one step (Calvin's A^t x
    needs the transpose). A single recurrent class makes pi unique. If it is aperiodic, (A^T)^t x
    converges to pi; if it is periodic, time averages do. The solution by elimination without
    subtractions (Grassmann, Taksar & Heyman 1985) makes every entry accurate.

    Args:
      A: [n, n], rows summing to 1.
      periodic: also accept a periodic chain, whose time averages (only) converge to pi.

    Raises UsageError if A is not a transition matrix, has several recurrent classes (no unique
    pi), or is periodic although `periodic` is False.

    Example:
      >>> from sgld.diffusion import stationary_distribution
      >>> [round(float(p), 6) for p in stationary_distribution([[0.9, 0.1], [0.3, 0.7]])]
      [0.75, 0.25]
    """
    A = _transition_matrix(A)
    _, label = csgraph.connected_components(A > 0, connection="strong")
    leaving = {int(label[i]) for i, j in np.argwhere(A > 0) if label[i] != label[j]}
    recurrent = sorted(set(label.tolist()) - leaving)
    if len(recurrent) > 1:
        first = sorted(int(np.flatnonzero(label == c)[0]) for c in recurrent)
        raise UsageError(
            f"A has {len(recurrent)} recurrent classes (states {first[0]} and {first[1]} never "
            "reach each other), so its stationary distribution is not unique; choose one class."
        )
    states = np.flatnonzero(label == recurrent[0])
    P = A[np.ix_(states, states)]
    level = csgraph.dijkstra(P > 0, unweighted=True, indices=0).astype(int)
    i, j = np.nonzero(P > 0)
    period = int(np.gcd.reduce(level[i] + 1 - level[j]))
    if period > 1 and not periodic:
        raise UsageError(
            f"A is periodic with period {period}, so (A^T)^t x has no limit; pass periodic=True "
            "for the distribution that its time averages converge to."
        )
    for k in range(len(P) - 1, 0, -1):  # censor state k; later states are already removed
        P[:k, k] /= P[k, :k].sum()
        P[:k, :k] += np.outer(P[:k, k], P[k, :k])
    weight = np.ones(len(P))
    for k in range(1, len(P)):
        weight[k] = weight[:k] @ P[:k, k]
    pi = np.zeros(len(A))
    pi[states] = weight / weight.sum()
    return pi


def markov_evolve(A: ArrayLike, x: ArrayLike, t: int) -> Float[np.ndarray, "*batch n"]:
    """Return the distribution (A^T)^t x of a chain t steps after x [n] (or after each row of x).

    Raises UsageError if A is not a transition matrix.

    Example:
      >>> from sgld.diffusion import markov_evolve
      >>> [round(float(p), 6) for p in markov_evolve([[0.5, 0.5], [0.0, 1.0]], [1.0, 0.0], 3)]
      [0.125, 0.875]
    """
    return np.asarray(x, float) @ np.linalg.matrix_power(_transition_matrix(A), t)


def markov_path(
    A: ArrayLike, state: int, *, num_steps: int, key: Array
) -> Int[Array, " {num_steps}+1"]:
    """Simulate a path of states from `state`; its time averages are ergodic averages of the chain.

    Raises UsageError if A is not a transition matrix, or `num_steps` is not positive.

    Example:
      >>> import jax
      >>> from sgld.diffusion import markov_path
      >>> markov_path([[0.0, 1.0], [1.0, 0.0]], 0, num_steps=3, key=jax.random.key(0)).tolist()
      [0, 1, 0, 1]
    """
    positive(num_steps=num_steps)
    cumulative = jnp.asarray(np.cumsum(_transition_matrix(A), axis=1)[:, :-1], float)

    def one_step(i: Array, u: Array) -> tuple[Array, Array]:
        i = jnp.sum(u >= cumulative[i], dtype=jnp.int32)
        return i, i

    uniforms = jax.random.uniform(key, (num_steps,), cumulative.dtype)
    path = jax.lax.scan(one_step, jnp.int32(state), uniforms)[1]
    return jnp.concatenate([jnp.array([state], jnp.int32), path])


def _transition_matrix(A: ArrayLike) -> np.ndarray:
    """Return A in float64 with rows that sum to 1 exactly; raise UsageError otherwise."""
    A = np.array(A, float)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or not A.size:
        raise UsageError(f"A must be a square matrix of probabilities. Got shape {A.shape}.")
    if not (A >= 0).all():
        i, j = np.argwhere(~(A >= 0))[0]
        raise UsageError(f"A must hold probabilities. Got {A[i, j]:g} at [{i}, {j}].")
    sums = A.sum(axis=1)
    if not np.allclose(sums, 1, atol=1e-5):
        row = int(np.argmax(np.abs(sums - 1)))
        turn = "; the columns do: transpose A" if np.allclose(A.sum(axis=0), 1, atol=1e-5) else ""
        raise UsageError(
            f"A's rows must sum to 1 (A_ij is i -> j). Row {row} sums to {sums[row]:g}{turn}."
        )
    return A / sums[:, None]


# -- roots ---------------------------------------------------------------------------------


class RootSearch(NamedTuple):
    """A Robbins-Monro run and the sufficient conditions of the slides: None if undecided.

    Attributes:
      root: the last iterate.
      iterates: x_0 ... x_{num_steps}, along a leading axis.
      observations: y_0 ... y_{num_steps - 1}.
      schedule: the conditions on the step sizes.
      bounded: whether the y_n are uniformly bounded; None, because a finite number cannot show it.
      nondecreasing: whether g never falls over the range visited (1001 points); needs g, scalar.
      positive_slope: whether g' at the last iterate is positive; needs g, scalar.
    """

    root: Array
    iterates: Array
    observations: Array
    schedule: RobbinsMonro
    bounded: bool | None = None
    nondecreasing: bool | None = None
    positive_slope: bool | None = None


def robbins_monro_root(
    noisy_g: Callable[[Array, Array], ArrayLike],
    x0: ArrayLike,
    schedule: Schedule | Number,
    *,
    num_steps: int,
    key: Array,
    g: Callable[[Array], ArrayLike] | None = None,
) -> RootSearch:
    """Solve g(x) = 0 from unbiased noisy observations y of g (Robbins & Monro 1951).

        x_{n+1} = x_n - h_n y_n,     E[y_n] = g(x_n)

    Args:
      noisy_g: from a point and a random key to an observation of the point's shape.
      x0: the start, a scalar or [d].
      schedule: h, a number or any `step -> h`; it multiplies y directly.
      num_steps: the number of observations.
      key: the JAX random key of the observations.
      g: the mean itself if it is known, only to decide the conditions that need it.

    Raises UsageError if `num_steps` is not positive or `schedule` is negative or not finite.

    Example: h_n = 1 / (n + 1) makes the iterate the mean of all observations.
      >>> import jax
      >>> from sgld.diffusion import robbins_monro_root
      >>> from sgld.samplers.schedules import power
      >>> noisy = lambda x, key: x - 1 + jax.random.normal(key)
      >>> search = robbins_monro_root(noisy, 5.0, power(1.0, 1.0), num_steps=10_000,
      ...                             key=jax.random.key(0), g=lambda x: x - 1)
      >>> bool(abs(search.root - 1) < 0.05), search.schedule.hold, search.positive_slope
      (True, True, True)
    """
    positive(num_steps=num_steps)
    schedule = as_schedule(schedule, "schedule")
    check_values(schedule, num_steps, "schedule")
    x0 = floating(x0)

    def one_step(x: Array, n: Array) -> tuple[Array, tuple[Array, Array]]:
        y = jnp.asarray(noisy_g(x, jax.random.fold_in(key, n)), x.dtype)
        x = x - jnp.asarray(schedule(n), x.dtype) * y
        return x, (x, y)

    x, (later, y) = jax.lax.scan(one_step, x0, jnp.arange(num_steps, dtype=jnp.int32))
    search = RootSearch(x, jnp.concatenate([x0[None], later]), y, robbins_monro(schedule))
    if g is None or x0.ndim:
        return search
    mean = lambda x: jnp.asarray(g(x), x.dtype)  # noqa: E731
    values = jax.vmap(mean)(jnp.linspace(search.iterates.min(), search.iterates.max(), 1001))
    return search._replace(
        nondecreasing=bool((jnp.diff(values) >= 0).all()),
        positive_slope=bool(jax.grad(mean)(x) > 0),
    )


class Newton(NamedTuple):
    """The last iterate of Newton's method and all of them, along a leading axis."""

    root: Array
    iterates: Array


def newton(g: Callable[[Array], ArrayLike], x0: ArrayLike, *, num_steps: int = 10) -> Newton:
    """Solve g(x) = 0 by Newton's method, with the Jacobian from automatic differentiation.

        x_{n+1} = x_n - g'(x_n)^-1 g(x_n)

    Close to a simple root |x_{n+1} - x*| <= M |x_n - x*|^2 (the slides' formula, with its minus).

    Args:
      g: from a scalar to a scalar, or from [d] to [d].
      x0: the start, a scalar or [d].
      num_steps: the number of steps; each doubles the correct digits.

    Raises UsageError, with the step, if `num_steps` is not positive, the shapes differ, or an iterate is not
    finite (a singular Jacobian).

    Example:
      >>> from sgld.diffusion import newton
      >>> [round(float(x), 5) for x in newton(lambda x: x**2 - 2, 1.0, num_steps=4).iterates]
      [1.0, 1.5, 1.41667, 1.41422, 1.41421]
    """
    positive(num_steps=num_steps)
    x0 = floating(x0)
    function = lambda x: jnp.asarray(g(x), x.dtype)  # noqa: E731
    if jax.eval_shape(function, x0).shape != x0.shape or x0.ndim > 1:
        raise UsageError(
            f"g must map a scalar to a scalar or [d] to [d]. x0 has shape {x0.shape}, "
            f"g(x0) {jax.eval_shape(function, x0).shape}."
        )

    def one_step(x: Array, _: None) -> tuple[Array, Array]:
        value, slope = function(x), jax.jacfwd(function)(x)
        move = jnp.linalg.solve(slope, value) if x.ndim else value / slope
        x = x - jnp.where(jnp.all(value == 0), 0.0, move)  # a root stays: 0 / 0 may follow
        return x, x

    later = jax.lax.scan(one_step, x0, None, length=num_steps)[1]
    iterates = jnp.concatenate([x0[None], later])
    if not isinstance(iterates, Tracer):
        finite = np.isfinite(np.asarray(iterates)).reshape(num_steps + 1, -1).all(axis=1)
        if not finite.all():
            raise UsageError(
                f"newton reached a value that is not finite at step {int(np.argmin(finite))}: the Jacobian is "
                "singular there; choose x0 closer to a root."
            )
    return Newton(iterates[-1], iterates)
