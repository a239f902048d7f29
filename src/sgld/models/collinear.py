"""Whether the columns of a design can be told apart at all, answered before any sampling."""

from __future__ import annotations

import contextlib
import hashlib

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from .blocks import gram, mean_and_sd

__all__ = ["check_columns", "check_magnitudes", "check_own"]

LARGEST = 1e30  # of a column's numbers, whose coefficients float32 shall hold
SHOWN = 5  # columns of a kind that are named
LEFT = 1e-10  # share of a column's variance that those before it leave, at least


def check_columns(x: Float[np.ndarray, "N p"], names: list[str]) -> None:
    """Raises DataError naming every column that is constant, a duplicate or collinear, at once.

    `Intercept` is no constant column. Collinearity by Cholesky's sweep over the columns'
    correlations: what is left of a column after regression on those before it, as a share of its
    variance. With fewer rows than columns only the prior tells them apart, and it is proper; so is
    the posterior, an outcome's own scale included, though its density has no end where that goes to 0.
    """
    intercept = "Intercept" in names
    columns = [j for j, name in enumerate(names) if name != "Intercept"]
    mean, scale = mean_and_sd(x, about_mean=intercept)
    still = [j for j in columns if scale[j] <= 1e-13 * np.abs(x[:, j]).max()]
    # whole numbers that differ differ, however many digits they share: the ids of a register
    ids = [j for j in still if np.ptp(x[:, j]) >= 1 and (x[:, j] == np.rint(x[:, j])).all()]
    constant = [j for j in still if j not in ids]
    twins = _twins(x, [j for j in columns if j not in still])
    kept = [j for j in columns if j not in still and j not in twins]
    found = _first([f"{names[j]!r} is constant ({x[0, j]:.10g} in every row)" for j in constant])
    found += _first(
        [
            f"{names[j]!r} holds whole numbers that share all but their last digits, as ids do "
            f"({x[0, j]:.0f} in data row 1)"
            for j in ids
        ]
    )
    found += _first([f"{names[j]!r} is a duplicate of {names[i]!r}" for j, i in twins.items()])
    size = len(kept) + intercept
    if x.shape[0] >= size:
        own = [names[j] for j in kept]
        found += _first(
            [
                f"{own[j]!r} is collinear: a linear combination of {_listed(own, others)}"
                f"{' and the intercept' if intercept else ''}"
                for j, others in _combinations(gram(x, kept, mean, scale))
            ]
        )
    if found:
        subject, rest = ("column ", "it") if len(found) == 1 else ("columns ", "them")
        raise DataError(f"{subject}{', '.join(found)}; take {rest} out of the formula.")


def _twins(x: Float[np.ndarray, "N p"], columns: list[int]) -> dict[int, int]:
    """Columns that are equal to one before them, and which."""
    seen: dict[bytes, int] = {}
    first = {j: seen.setdefault(_digest(x[:, j]), j) for j in columns}
    return {j: i for j, i in first.items() if i != j}


def _digest(column: Float[np.ndarray, " N"]) -> bytes:
    return hashlib.sha256((column + 0.0).tobytes()).digest()  # -0.0 is 0.0


def _combinations(gram: Float[np.ndarray, "k k"]) -> list[tuple[int, np.ndarray]]:
    """Columns that nothing is left of, and those before them of which they are made."""
    with contextlib.suppress(np.linalg.LinAlgError):
        if np.diag(np.linalg.cholesky(gram)).min(initial=1.0) ** 2 >= LEFT:
            return []  # as the sweep below would find, in a hundredth of its time
    left, found = gram.copy(), []
    for j in range(len(gram)):
        if left[j, j] < LEFT:
            before = np.setdiff1d(np.arange(j), [i for i, _ in found])
            share = np.linalg.lstsq(gram[np.ix_(before, before)], gram[before, j], rcond=None)[0]
            found.append((j, before[np.abs(share) > 1e-6]))
        else:
            left[j + 1 :, j + 1 :] -= np.outer(left[j + 1 :, j], left[j, j + 1 :]) / left[j, j]
    return found


def _first(found: list[str]) -> list[str]:
    """The first few, and how many there are beside them."""
    return found[:SHOWN] + ([f"{len(found) - SHOWN} more like these"] if found[SHOWN:] else [])


def _listed(names: list[str], which: np.ndarray) -> str:
    return ", ".join(repr(names[i]) for i in which[:SHOWN]) + " and others" * (len(which) > SHOWN)


def check_own(names: tuple[str, ...]) -> None:
    """DataError where two parameters would have one name."""
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise DataError(
            f"two parameters of this model would be called {twice!r}; rename that column."
        )


def check_magnitudes(values: Float[np.ndarray, "N p"], names: list[str]) -> None:
    """DataError for numbers whose squares float64 does not hold, or which float32 may not report."""
    largest = np.maximum(np.max(values, axis=0), -np.min(values, axis=0))
    for name, most in zip(names, largest, strict=True):
        if most > LARGEST or 0 < most < 1 / LARGEST:
            raise DataError(
                f"{name!r} holds numbers of {most:.3g}; give it in a unit that makes them ordinary "
                f"({1 / LARGEST:g} to {LARGEST:g})."
            )
