"""The covariance of a gradient estimate, measured."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.source import Source, _generator
from ..gradient import sums
from ..posterior import Target
from .curvature import Laplace

__all__ = ["block_noise", "estimator_noise", "row_noise"]

_TUNING = 2  # the stream of the host's generator that tuning uses


def block_noise(target: Target, source: Source, z: np.ndarray) -> Float[np.ndarray, "d d"]:
    """Covariance at z of K times a random block's gradient (divisor K): one pass."""
    table = np.asarray(sums.block_gradients(target, source, jnp.asarray(z, target.layout.dtype)))
    return np.cov(source.num_blocks * table.astype(np.float64), rowvar=False, bias=True).reshape(
        z.size, z.size
    )


def estimator_noise(
    target: Target, source: Source, gradient: Any, laplace: Laplace, seed: int, count: int
) -> Float[np.ndarray, "d d"]:
    """Covariance of an estimator given z, averaged over Laplace draws.

    Half the mean square of the differences of two independent batches at `count` draws.
    """
    rng = _generator(seed, _TUNING, 0, 0)
    zs = laplace.mode + rng.standard_normal((count, laplace.mode.size)) @ laplace.factor.T
    independent = (
        source if source.is_independent else source.with_batches(source.batch_size, "independent")
    )
    entries = independent.chunk((seed, 2**31 - 1), 0, 2 * count)
    gs = _estimates(
        target, independent, gradient, jnp.asarray(np.repeat(zs, 2, axis=0), target.layout.dtype),
        jnp.asarray(entries),
    )  # fmt: skip
    pairs = np.asarray(gs, np.float64).reshape(count, 2, -1)
    difference = pairs[:, 0] - pairs[:, 1]
    return difference.T @ difference / (2 * count)


@jax.jit
def _estimates(target, source, gradient, zs, entries):
    one = lambda pair: gradient.at(target, source, pair[1])(pair[0])  # noqa: E731
    size = max(1, 2**14 // source.batch_size)
    return jax.lax.map(one, (zs, entries), batch_size=size)


def row_noise(
    target: Target, source: Source, laplace: Laplace, seed: int, center: bool, count: int = 4096
) -> Float[np.ndarray, "d d"]:
    """Covariance of N times one random row's gradient; with `center`, minus that at the mode.

    Over `count` rows at Laplace draws (plain: at the mode). Divided by n it is the
    covariance of a batch of n rows.
    """
    rng = _generator(seed, _TUNING, 0, 1)
    d = laplace.mode.size
    spread = rng.standard_normal((count, d)) @ laplace.factor.T if center else np.zeros((count, d))
    rows = rng.integers(0, source.num_data, count)
    dtype = target.layout.dtype
    values = _row_gradients(
        target, source, jnp.asarray(laplace.mode + spread, dtype),
        jnp.asarray(laplace.mode, dtype), jnp.asarray(rows, jnp.int32), center=center,
    )  # fmt: skip
    values = source.num_data * np.asarray(values, np.float64)
    if not center:
        return np.cov(values, rowvar=False).reshape(d, d)
    # rows are paired at the same draw of theta: the mean over rows depends on theta
    difference = values[0] - values[1]
    return difference.T @ difference / (2 * len(difference))


@partial(jax.jit, static_argnames=("center",))
def _row_gradients(target, source, zs, mode, rows, *, center: bool):
    def gradient(z, row):
        datum = jax.tree.map(lambda leaf: leaf[row][None], source.rows)
        return jax.grad(target.log_likelihood)(z, datum)

    size = max(1, 2**20 // max(1, mode.size))
    if not center:
        one = lambda pair: gradient(*pair)  # noqa: E731
        return jax.lax.map(one, (zs, rows), batch_size=size)
    other = jnp.roll(rows, 1)
    excess = lambda z, row: gradient(z, row) - gradient(mode, row)  # noqa: E731
    one = lambda item: (excess(item[0], item[1]), excess(item[0], item[2]))  # noqa: E731
    first, second = jax.lax.map(one, (zs, rows, other), batch_size=size)
    return jnp.stack([first, second])
