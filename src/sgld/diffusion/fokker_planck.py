"""The density of a one-dimensional diffusion: stationary residual and evolution."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from scipy.linalg import solve_banded

from ..errors import UsageError
from .checks import Coefficient, floating, positive

__all__ = ["fokker_planck", "fokker_planck_residual"]


def fokker_planck_residual(
    drift: Coefficient, diffusion: Coefficient, density: Callable[[Array], Array], x: ArrayLike
) -> Float[Array, "*grid"]:
    """What a density lacks to be stationary in one dimension: 0 everywhere where it is.

        -(f p)'(x) + (1/2) (sigma^2 p)''(x)

    by automatic differentiation, in units of density per time, at time 0 (Calvin's general form;
    his 0 = -a p' + b^2 p''/2 holds only for constant coefficients).

    Args:
      drift, diffusion: f and sigma of a scalar state and a time, as in `euler_maruyama`.
      density: p, a differentiable function of a scalar; its normalisation only scales the result.
      x: where to evaluate, any shape.

    Example: dX = -X dt + sqrt(2) dW leaves the standard normal alone.
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
    """The density of X(t) for dX = f dt + sigma dW in one dimension, from its density at `start`.

        dp/dt = -(f p)' + (1/2) (sigma^2 p)''

    Finite volumes with no flux through the ends, so mass is conserved to rounding and never
    negative; the flux between neighbours is exact for a constant f / sigma^2 (Chang & Cooper 1970;
    Scharfetter & Gummel 1969), so the stationary law is resolved to second order in the spacing;
    backward Euler in time, first order in `step`, stable for any.

    Args:
      drift, diffusion: f and sigma of a scalar state and a time, as in `euler_maruyama`.
      grid: [n] cell centres, ascending and equally spaced, wide enough to hold the mass.
      density: p at `start` in each cell, [n].
      step, num_steps, start: as in `euler_maruyama`.

    Returns: times [num_steps + 1] and densities [num_steps + 1, n], in float64.

    Raises UsageError where `step` or `num_steps` is not positive, `grid` is not ascending and
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
            "grid and density must be vectors of one length, at least 3. "
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
