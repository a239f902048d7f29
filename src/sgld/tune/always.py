"""Which rows are in every batch, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..data.memory import InMemory
from ..gaussian.dense import Laplace
from ..gaussian.row_noise import Survey, row_noise
from ..model import sums
from ..model.problem import Problem
from ..samplers.gradients.control_variates import is_centred
from ..samplers.gradients.full import Full
from .levels import dense_levels, marginal_levels

__all__ = ["rows_note", "rows_of", "standing_out"]

MANY_ROWS = 1000  # rows beyond which exact gradients are no matter of course
TOLD = 0.15  # of what is known of a parameter, from which rows are told of
JUMP = 3.0  # sds that a row of a meter's batch may move one gradient by


def rows_of(survey: Survey, gradient: Any, always: int) -> Int[np.ndarray, " m"]:
    """The numbers of the rows of the largest gradients, that an estimator has in every batch."""
    rows = survey.centred if is_centred(gradient) else survey.plain
    return rows.numbers[:always]


def standing_out(
    problem: Problem, gaussian: Any, batch_size: int, T: float, seed: int
) -> Int[np.ndarray, " m"]:
    """The rows, by the user's numbers, that control variates on `batch_size` others have in every batch, to be the most exact for their price.

    None of the others moves a gradient by more than JUMP.
    """
    tempered = gaussian.tempered(T)
    survey = row_noise(problem, tempered, seed)
    if isinstance(gaussian, Laplace):
        assert gaussian.factor is not None
        levels = dense_levels(survey.centred, gaussian.factor, 1 / T)
    else:
        levels = marginal_levels(problem, survey, tempered, T)[1]()
    best, numbers = np.inf, survey.centred.numbers
    for level in levels:
        cost = (batch_size + level.always) * (1 + level.variance / batch_size)
        if cost < best or level.size > JUMP * batch_size:
            best, numbers = cost, survey.centred.numbers[: level.always]
    return problem.called(numbers, seed)


def rows_note(
    problem: Problem, laplace: Laplace, gradient: Any, always: Int[np.ndarray, " m"] | None
) -> tuple[str, ...]:
    """How many rows are in every batch, and their share of what is known, where it is worth telling.

    That of parameter j is (S e_j)^T H (S e_j) / S_jj, with S the covariance and H the curvature of
    these rows: 1 where nothing else tells of it.
    """
    N = problem.num_data
    if isinstance(gradient, Full) and N > MANY_ROWS:
        return (f"every step takes all {N:,} rows: batches that would cost less are too noisy.",)
    if always is None or not len(always):
        return ()
    share = _share(problem, laplace, always)
    if share.max() < TOLD:
        return ()
    told = np.flatnonzero(share > share.max() / 2)
    names = list(problem.posterior.names or ())
    if len(names) != len(share):
        names = problem.layout.element_names()
    of = repr(names[told[0]]) if len(told) == 1 else f"{len(told)} parameters"
    one = len(always) == 1
    return (
        f"{len(always):,} of {N:,} rows {'is' if one else 'are'} in every batch: "
        f"{'it holds' if one else 'they hold'} {share[told].mean():.0%} of what is known of {of}.",
    )


def _share(
    problem: Problem, laplace: Laplace, rows: Int[np.ndarray, " m"]
) -> Float[np.ndarray, " d"]:
    some = replace(problem, data=InMemory.some(problem.source, rows))
    z, S = problem.array(laplace.center), laplace.covariance
    H = np.asarray(sums.curvature(some, z), np.float64) - np.asarray(sums.prior_curvature(some, z))
    return np.clip(np.sum((S @ H) * S, axis=1) / np.diag(S), 0.0, 1.0)
