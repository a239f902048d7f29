"""The noise of rows by how many of them are in every batch: what a price is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..gaussian.lowrank import LowRankLaplace
from ..gaussian.row_noise import RowNoise, Survey
from ..model.problem import Problem

__all__ = ["Level", "Levels", "dense_levels", "marginal_levels", "no_noise"]

MANY_PARAMETERS = 100  # parameters beyond which the largest eigenvalue is found alone


class Level(NamedTuple):
    """The noise of N times a random row's gradient with the `always` largest rows in every batch.

    variance: in the noisiest direction; size: of the largest row left, in sds (0: not asked);
    curved: its curvature in the Gaussian's coordinates.
    """

    always: int = 0
    variance: float = 0.0
    size: float = 0.0
    curved: float = 0.0


Levels = Callable[[], Iterator[Level]]


def no_noise() -> Iterator[Level]:
    """The levels of exact gradients."""
    yield Level()


def dense_levels(
    rows: RowNoise, factor: Float[np.ndarray, "d d"], per_size: float
) -> Iterator[Level]:
    """Of rows' noise in a dense metric; `per_size` takes sizes to steps of 1 in sds."""

    def outer(g: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
        white = g @ factor
        return white.T @ white

    for m, size, covariance in rows.without(outer):
        yield Level(m, _largest(covariance), per_size * size)


def marginal_levels(
    problem: Problem, survey: Survey, laplace: LowRankLaplace, T: float
) -> tuple[Levels, Levels]:
    """The variance of gamma over that of phi, in the noisiest reported parameter.

    And the curvature of N times one row in the Gaussian's coordinates (root mean square over rows,
    Frobenius norm): steps on n rows are unstable from about h = 2 n over it.
    """
    of = laplace.marginals(problem)
    # D's variances are too large by up to the stiffest eigenvalue
    scale = (1 + laplace.departure) / T / of.variance

    def squares(g: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " measured"]:
        whole = np.sum(laplace.pull(g) ** 2) / T**2
        return np.append(scale * np.sum(of.gamma(g) ** 2, axis=0), whole)

    curved = float(np.sqrt(next(survey.centred.without(squares))[2][-1]))

    def levels(rows: RowNoise, centred: bool) -> Iterator[Level]:
        for m, size, found in rows.without(squares):
            own = float(np.sqrt(max(0.0, found[-1]))) if centred else curved
            yield Level(m, float(np.max(found[:-1])), size / T, own)

    return partial(levels, survey.plain, False), partial(levels, survey.centred, True)


def _largest(covariance: Float[np.ndarray, "d d"]) -> float:
    """The largest eigenvalue; by Lanczos' method where all of them take long."""
    d = len(covariance)
    if d <= MANY_PARAMETERS or not covariance.any():
        return float(np.linalg.eigvalsh(covariance)[-1])
    from scipy.sparse.linalg import eigsh  # a third of a second: not for small models

    start = np.ones(d) / np.sqrt(d)
    found = eigsh(covariance, 1, which="LA", v0=start, return_eigenvectors=False)
    return float(found[0])
