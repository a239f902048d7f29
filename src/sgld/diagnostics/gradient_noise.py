"""Noise of a gradient estimate along a run, and covariance of the rows' gradients.

Cov(ghat) of any estimator is measured from its own estimates on single rows. Control variates, SVRG
and SAGA are therefore measured with the centre or table that a chain has at that step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.devices import on_host
from ..core.validation import whole_number
from ..data.source import generator
from ..errors import UsageError
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Problem
from ..model.sums import scores
from ..samplers.preconditioners.fixed import Scalar
from ..samplers.schedules.decay import number

PHASE_STREAM = 5  # the stream of the host's generator that chooses rows
MAX_PHASE_ROWS, MIN_PHASE_ROWS, MAX_PHASE_NUMBERS = 1024, 16, 2**20
PHASE_PIECE_NUMBERS = 2**23  # numbers in the row gradients that are computed together
POWER_ITERATIONS = 40  # iterations of the power method
MAX_PRODUCT_ROWS = 64  # rows up to which their products with one another are computed first
# parameters beyond which a single row's gradient leaves the cache and costs more than its share of a
# batch gradient: 14 times as much at 478,410 weights
MAX_CACHED_DIM = 2**15

PyTree = Any


def rows_for(problem: Problem, seed: int, counter: int) -> Int[np.ndarray, " m"]:
    """Return the rows to measure Cov(ghat) on: all if there are few, else a random sample."""
    most = _most_rows(problem.dimension)
    if problem.num_data <= most:
        return np.arange(problem.num_data, dtype=np.int32)
    return (
        generator(seed, PHASE_STREAM, counter).integers(0, problem.num_data, most).astype(np.int32)
    )


def _most_rows(dimension: int) -> int:
    return int(np.clip(MAX_PHASE_NUMBERS // dimension, MIN_PHASE_ROWS, MAX_PHASE_ROWS))


def probe_cost(problem: Problem) -> float:
    """Return the cost of `noise_level` for one chain, in gradients of rows.

    A row gradient counts as about 6 operations per parameter.
    """
    rows = min(problem.num_data, _most_rows(problem.dimension))
    products = rows / 3 if rows <= MAX_PRODUCT_ROWS else 4 * POWER_ITERATIONS / 6
    return rows * (1 + products) * max(1.0, problem.dimension / MAX_CACHED_DIM)


def noise_level(
    problem: Problem,
    gradient: Any,
    preconditioner: Any,
    zs: Float[Array, "chain d"],
    memory: Any,
    statistics: Any,
    rows: Int[Array, " m"],
) -> Float[np.ndarray, " chain"]:
    """Return lambda_max(D^{1/2}^T Cov(ghat) D^{1/2}) of every chain, at its position, memory and D.

    Estimates on single rows give the covariance of one row's gradient; that of a batch of n is 1/n
    of it, and (1/n)(1 - n/N) if no row occurs twice. Rows that are in every batch add nothing to
    it.
    """
    n, N = problem.source.batch_size, problem.num_data
    share = 1 / n if problem.source.order == "replacement" else 1 / n - 1 / N
    white = on_host(_white(problem, gradient, preconditioner, zs, memory, statistics, rows))
    return np.array([share * _largest(one, everything=len(rows) == N) for one in white])


@jax.jit
def _white(problem, gradient, preconditioner, zs, memory, statistics, rows):
    """Return D^{1/2}^T ghat of every chain [chain, m, d] on single rows, or equivalent rows.

    Equivalent rows have the same products with one another.
    """
    single = problem.with_batches(1, "replacement").of_others()
    together = min(MAX_PHASE_ROWS, max(1, PHASE_PIECE_NUMBERS // problem.dimension))

    def one(chain):
        z, memory, statistics = chain
        D = preconditioner.at(statistics) if preconditioner.adapts else preconditioner
        estimate = lambda row: gradient.at(single, row[None], memory)(z)  # noqa: E731
        white = jax.lax.map(lambda row: D.pullback(estimate(row)), rows, batch_size=together)
        return _compressed(white) if white.shape[0] <= MAX_PRODUCT_ROWS < white.shape[1] else white

    return jax.lax.map(one, (zs, memory, statistics))  # one chain at a time: rows x d numbers each


def _compressed(white: Float[Array, "m d"]) -> Float[Array, "m m"]:
    """Return rows with the same mutual products, around their mean, in one pass over d."""
    products = white @ white.T
    products -= products.mean(0, keepdims=True)
    products -= products.mean(1, keepdims=True)
    values, vectors = jnp.linalg.eigh(products)
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None]


@np.errstate(over="ignore", invalid="ignore")  # for a run that diverges
def _largest(white: Any, *, everything: bool) -> float:
    """Return the largest eigenvalue of the rows' covariance (divisor m - 1).

    From a sample, the direction comes from one half and the variance along it from the other, since
    the largest eigenvalue of a sample's covariance is too large, by (1 + sqrt(d/m))^2 at worst. The
    computation runs on the host, where these few small products need no compiling.
    """
    if len(white) < 2:
        return 0.0
    if not np.isfinite(white).all():
        return float("nan")
    if everything:
        return _along(white, _direction(white))
    half = len(white) // 2
    first, second = white[:half], white[half : 2 * half]
    return (_along(second, _direction(first)) + _along(first, _direction(second))) / 2


def _direction(white: Any) -> Any:
    """Return the leading direction by the power method, starting from the longest row."""
    centred = white - white.mean(0, keepdims=True)
    unit = lambda v: v / max(np.linalg.norm(v), 1e-30)  # noqa: E731
    found = unit(centred[np.argmax(np.sum(centred**2, axis=1))])
    for _ in range(POWER_ITERATIONS):
        found = unit(centred.T @ (centred @ found))
    return found


def _along(white: Any, direction: Any) -> float:
    return float(np.var((white - white.mean(0, keepdims=True)) @ direction, ddof=1))


@dataclass(frozen=True)
class GradientStatistics:
    """Gradients of single rows at a position, in free flat coordinates.

    Attributes:
      mean: [d], the mean of the rows' scores, grad log posterior / N.
      covariance: [d, d], V_S, with divisor num_rows - 1.
      num_rows: the number of rows it was measured on.
      num_data: N.
    """

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]
    num_rows: int
    num_data: int

    def batch_covariance(
        self, batch_size: int, *, replacement: bool = False
    ) -> Float[np.ndarray, "d d"]:
        """Return Cov(ghat) of a plain minibatch of n rows, N^2 V_S / n.

        Without replacement it is multiplied by 1 - n/N.

        Args:
          batch_size: n.
          replacement: whether rows are drawn with replacement.
        """
        whole_number("batch_size", batch_size)
        if batch_size > self.num_data:
            raise UsageError(
                f"batch_size must be at most the number of rows, {self.num_data}. Got {batch_size}."
            )
        share = 1 / batch_size - (0 if replacement else 1 / self.num_data)
        return self.num_data**2 * share * self.covariance

    def alpha(
        self,
        step_size: float,
        batch_size: int,
        *,
        temperature: float = 1.0,
        preconditioner: Any = None,
        replacement: bool = True,
    ) -> float:
        """Return Welling & Teh's alpha, (h / 2T) lambda_max(D^{1/2}^T Cov(ghat) D^{1/2}) (sec. 4).

        Args:
          step_size: h.
          batch_size: n, as for `batch_covariance`.
          temperature: T.
          preconditioner: D; None: the identity.
          replacement: whether rows are drawn with replacement.
        """
        step_size = number(step_size, "step_size")
        temperature = number(temperature, "temperature")
        D = Scalar(1.0) if preconditioner is None else preconditioner
        covariance = jnp.asarray(self.batch_covariance(batch_size, replacement=replacement))
        half = jax.vmap(D.pullback, in_axes=1, out_axes=1)(covariance)
        white = jax.vmap(D.pullback)(half)
        return step_size / (2 * temperature) * float(np.linalg.eigvalsh(np.asarray(white))[-1])


def gradient_statistics(
    posterior: Posterior,
    data: PyTree,
    position: PyTree,
    *,
    num_rows: int | None = None,
    seed: int = 0,
) -> GradientStatistics:
    """Return V_S, the covariance over rows of s_i = grad log_likelihood_i + grad log_prior / N.

    Args:
      posterior: as for `sgld.sample`.
      data: as for `sgld.sample`.
      position: the position (a pytree like `init`).
      num_rows: the number of rows to measure on, drawn at random (None: all).
      seed: the seed of that choice.

    Returns: GradientStatistics, in the free coordinates of the samplers.

    Raises: UsageError for a wrong argument, DataError for wrong data.

    Source: Welling & Teh 2011, sec. 4.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
      >>> found = sgld.gradient_statistics(posterior, jnp.array([1.0, 2.0, 3.0]), 0.0)
      >>> found.covariance
      array([[1.]])
    """
    problem = prepare(posterior, data, position, seed=seed)
    if not problem.has_rows:
        raise UsageError("gradient_statistics needs data; a single log density has no rows.")
    if num_rows is not None:
        whole_number("num_rows", num_rows, 2)
        if num_rows > problem.num_data:
            raise UsageError(
                f"num_rows must be at most the number of rows, {problem.num_data}. Got {num_rows}."
            )
    rows = np.arange(problem.num_data, dtype=np.int32)  # already in a random order
    rows = rows if num_rows is None else rows[:num_rows]
    found = np.asarray(scores(problem, problem.start, rows), np.float64)
    d = found.shape[1]
    covariance = np.cov(found, rowvar=False).reshape(d, d) if len(rows) > 1 else np.zeros((d, d))
    return GradientStatistics(found.mean(0), covariance, len(rows), problem.num_data)
