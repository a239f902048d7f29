"""Warm-up: step size by dual averaging, scales by the variances of windows of draws.

Hoffman & Gelman (2014), sec. 3.2.1, with Stan's constants and windows (Stan Reference Manual,
"Adaptation"); pure functions of one chain's state.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

__all__ = ["Adaptation", "begin", "settled", "update", "windows"]

SHRINKAGE, OFFSET, DECAY = 0.05, 10.0, 0.75  # gamma, t0 and kappa of the paper
FIRST, SMALLEST, LAST = 75, 25, 50  # transitions before the windows, in the first one, after them
WEIGHT, VARIANCE = 5.0, 1e-3  # a window's variances are shrunk towards VARIANCE, as WEIGHT draws


class Adaptation(NamedTuple):
    """`step_size` and `inverse_mass` are those to use next; the rest is memory."""

    step_size: Float[Array, ""]
    inverse_mass: Float[Array, " d"]
    center: Float[Array, ""]
    error: Float[Array, ""]
    log_average: Float[Array, ""]
    time: Float[Array, ""]
    count: Float[Array, ""]
    mean: Float[Array, " d"]
    square: Float[Array, " d"]


def begin(u: Float[Array, " d"]) -> Adaptation:
    """Unit scales, and a step size to start the search from."""
    one, zero, none = jnp.ones((), u.dtype), jnp.zeros((), u.dtype), jnp.zeros_like(u)
    return _restart(
        Adaptation(one, jnp.ones_like(u), zero, zero, zero, zero, zero, none, none), one
    )


def _restart(a: Adaptation, step_size: Array) -> Adaptation:
    zero = jnp.zeros_like(step_size)
    center = jnp.log(10 * step_size)
    return a._replace(step_size=step_size, center=center, error=zero, log_average=zero, time=zero)


def settled(a: Adaptation) -> Adaptation:
    """With the step size that the search has come to."""
    return a._replace(step_size=jnp.exp(a.log_average))


def update(
    a: Adaptation, u: Array, acceptance: Array, aim: Array, in_window: Array, ends: Array
) -> Adaptation:
    """After a transition to u; `ends` where it is the last of a window."""
    time = a.time + 1
    share = 1 / (time + OFFSET)
    error = (1 - share) * a.error + share * (aim - acceptance)
    log_step = a.center - jnp.sqrt(time) / SHRINKAGE * error
    new = time**-DECAY
    a = a._replace(
        step_size=jnp.exp(log_step), error=error, time=time,
        log_average=new * log_step + (1 - new) * a.log_average,
    )  # fmt: skip
    count = a.count + 1
    mean = a.mean + (u - a.mean) / count
    more = a._replace(count=count, mean=mean, square=a.square + (u - a.mean) * (u - mean))
    a = _where(in_window, more, a)
    variance = (a.square / jnp.maximum(a.count - 1, 1) * a.count + VARIANCE * WEIGHT) / (
        a.count + WEIGHT
    )
    fresh = a._replace(
        inverse_mass=variance, count=jnp.zeros_like(a.count), mean=jnp.zeros_like(a.mean),
        square=jnp.zeros_like(a.square),
    )  # fmt: skip
    return _where(ends, _restart(fresh, settled(a).step_size), a)


def _where(which: Array, yes: Adaptation, no: Adaptation) -> Adaptation:
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), yes, no)


def windows(num_warmup: int) -> Int[np.ndarray, "num_warmup 2"]:
    """Per transition: whether it is in a window of scales, and whether it is such a window's last.

    Windows double in length; one that could not be followed by another twice as long goes on to
    the end. Short warm-ups keep the proportions; below 20 there is no window.
    """
    out = np.zeros((num_warmup, 2), np.int32)
    first, size, last = FIRST, SMALLEST, LAST
    if num_warmup < 20:
        return out
    if first + size + last > num_warmup:
        first, last = int(0.15 * num_warmup), int(0.1 * num_warmup)
        size = num_warmup - first - last
    start, end = first, num_warmup - last
    out[start:end, 0] = 1
    while start < end:
        stop = start + size
        if stop + 2 * size > end:
            stop = end
        out[stop - 1, 1] = 1
        start, size = stop, 2 * size
    return out
