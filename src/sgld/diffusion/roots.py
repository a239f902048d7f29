"""Root finding: Robbins & Monro with a noisy function, Newton with an exact one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array
from numpy.typing import ArrayLike

from ..errors import UsageError
from ..samplers.schedules import RobbinsMonro, Schedule, as_schedule, check_values, robbins_monro
from ..typing import Number
from .checks import floating, positive

__all__ = ["Newton", "RootSearch", "newton", "robbins_monro_root"]


class RootSearch(NamedTuple):
    """A Robbins-Monro run and the slides' sufficient conditions: None where undecided.

    Attributes:
      root: the last iterate.
      iterates: x_0 ... x_{num_steps}, along a leading axis.
      observations: y_0 ... y_{num_steps - 1}.
      schedule: the conditions on the step sizes.
      bounded: whether the y_n are uniformly bounded; finitely many cannot tell, so None.
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
      schedule: h, a number or any `step -> h`; it multiplies y as it stands.
      num_steps, key: the number of observations, and the JAX random key behind them.
      g: the mean itself where it is known, only to decide the conditions that need it.

    Raises UsageError where `num_steps` is not positive or `schedule` is negative or not finite.

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
    """Solve g(x) = 0 by Newton's method with the Jacobian by automatic differentiation.

        x_{n+1} = x_n - g'(x_n)^-1 g(x_n)

    Close to a simple root |x_{n+1} - x*| <= M |x_n - x*|^2 (the slides' formula, with its minus).

    Args:
      g: from a scalar to a scalar, or from [d] to [d].
      x0: the start, a scalar or [d].
      num_steps: the number of steps; each doubles the correct digits.

    Raises UsageError where `num_steps` is not positive, the shapes differ, or an iterate is not
    finite (a singular Jacobian), naming the step.

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
        x = x - jnp.where(jnp.all(value == 0), 0.0, move)  # at a root, stay: 0 / 0 may follow
        return x, x

    later = jax.lax.scan(one_step, x0, None, length=num_steps)[1]
    iterates = jnp.concatenate([x0[None], later])
    if not isinstance(iterates, Tracer):
        finite = np.isfinite(np.asarray(iterates)).reshape(num_steps + 1, -1).all(axis=1)
        if not finite.all():
            raise UsageError(
                f"newton left the finite numbers at step {int(np.argmin(finite))}: the Jacobian is "
                "singular there; choose x0 closer to a root."
            )
    return Newton(iterates[-1], iterates)
