"""Stochastic differential equations by Euler-Maruyama, and Brownian motion."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..errors import UsageError
from .checks import Coefficient, floating, positive

__all__ = ["Path", "brownian_motion", "euler_maruyama"]


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
    """Paths of dX = f(X, t) dt + sigma(X, t) dW (Ito) by the Euler-Maruyama scheme.

        X_{k+1} = X_k + f(X_k, t_k) dt + sigma(X_k, t_k) dW_k,     dW_k ~ N(0, dt I)

    (Maruyama 1955; Kloeden & Platen 1992, ch. 9.1.) Strong order 1/2, or 1 where sigma does not
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

    Raises UsageError where `step` or `num_steps` is not positive, the shapes disagree, or not
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
    """Standard Brownian motion at the given times: exact, for any spacing.

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
    instants = np.asarray(times, float)  # in double precision: neighbours' differences cancel
    if instants.ndim != 1 or not np.all(np.diff(instants, prepend=0.0) >= 0):
        raise UsageError(
            "times must be a vector in ascending order, none negative; sort them, and start at 0."
        )
    sd = jnp.asarray(np.sqrt(np.diff(instants, prepend=0.0)), float)
    lead = () if num_paths is None else (num_paths,)
    xi = jax.random.normal(key, (*lead, len(instants), *shape), sd.dtype)
    sd = sd.reshape(*[1] * len(lead), -1, *[1] * len(shape))
    return jnp.cumsum(sd * xi, axis=len(lead))


def _noise_shape(drift: Any, diffusion: Any, x0: Array, start: float) -> tuple[int, ...]:
    """The shape of one increment dW, from the shapes of the coefficients at the start."""
    t = jnp.asarray(start, x0.dtype)
    f, sigma = jax.eval_shape(
        lambda x: (jnp.asarray(drift(x, t)), jnp.asarray(diffusion(x, t))), x0
    )
    if x0.ndim > 1 or f.shape not in ((), x0.shape):
        raise UsageError(
            f"drift must give the shape of a state, [d] or a scalar. Got {f.shape} for a state of "
            f"shape {x0.shape}; give several paths by num_paths."
        )
    if sigma.ndim == 2 and sigma.shape[:1] == x0.shape:
        return sigma.shape[1:]
    if sigma.shape not in ((), x0.shape):
        raise UsageError(
            f"diffusion must give a scalar, a vector {x0.shape} or a matrix with a row per "
            f"coordinate. Got shape {sigma.shape}."
        )
    return x0.shape
