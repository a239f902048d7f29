"""A model that does not fit its data, noticed by the spread of the rows' scores."""

from __future__ import annotations

import numpy as np

from ..approximation.laplace import Laplace
from ..model import sums
from ..model.problem import Problem

__all__ = ["misfit", "misfit_notes"]

FEWEST_EACH = 5  # rows for each parameter that they determine, to judge the model by
MISFIT_ERROR = 0.15  # largest standard error of a misfit that is told, as a share
MISFIT = 2.0  # scores that vary so much more, or less, than the model implies are told
# and where a few rows decide: in a right model one such row's share is that of a squared normal variable
OF_A_FEW = 10.0


def misfit(problem: Problem, laplace: Laplace, mean: float, variance: float) -> float | None:
    """tr F^T (N V_S) F over tr F^T J_lik F, from mean and variance of all rows' (N ||F^T g_i||)^2: about 1 in a well-specified model.

    The denominator is the number of parameters that the data determine; fitting them takes so many
    of N squared scores. None where too few rows are left, or a few of them decide and could do so by chance.
    """
    N = problem.num_data
    prior = np.asarray(sums.prior_curvature(problem, problem.array(laplace.center)), np.float64)
    determined = float(np.trace(laplace.pull(laplace.pull(laplace.curvature - prior).T)))
    if not 0 < FEWEST_EACH * determined < N:
        return None
    spread = mean / N
    found = spread / determined / (1 - determined / N)
    by_chance = variance / N**2 > N * (MISFIT_ERROR * spread) ** 2 and found < OF_A_FEW
    return None if by_chance else found


def misfit_notes(misfit: float | None, num_data: int) -> tuple[str, ...]:
    """What is said of it."""
    if misfit is None or 1 / MISFIT < misfit < MISFIT:
        return ()
    told = f"the rows' scores vary {misfit:.2g} times as much as it implies"
    if 1 / MISFIT < misfit * num_data < MISFIT:
        return (
            f"log_likelihood seems to be divided by the number of rows, {num_data}: {told}; return the log "
            "likelihood of one datum as it is, the library sums over rows.",
        )
    if misfit > 1:
        return (
            f"the model looks misspecified: {told}, so its sds may be about {np.sqrt(misfit):.2g} times too "
            "small for other samples; try a likelihood with more variance (negative binomial for counts, "
            "Student-t for measurements), or sgld.sandwich; rows that do not belong are named by sgld.loo.",
        )
    return (
        f"the model looks misspecified: {told}; try a likelihood with less variance, or sgld.sandwich.",
    )
