"""Checks before sampling of whether the columns of a design can be distinguished.

It also reports levels and columns whose rows have no events, or only events: the prior alone determines
their coefficients.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..errors import DataError
from .columns import gram, mean_and_sd

MAX_COLUMN_NUMBER = 1e30  # largest number of a column, so that float32 holds the coefficients
BARE_OFFSET = re.compile(r"offset\(\s*((?!log)\w+)\s*\)")  # of a column that is not called a log
MAX_NAMED_COLUMNS = 5  # columns of a kind that are named
MIN_UNEXPLAINED_SHARE = 1e-10  # smallest share of a column's variance not explained by earlier ones
# rows below which the data are less informative than the default priors, unless the noise is tiny
MIN_INFORMATION_ROWS = 0.01


class Facts(NamedTuple):
    """The statistics that decide whether the columns of a design can be distinguished.

    Attributes:
      mean, scale: [p], as in `mean_and_sd`.
      largest, span: [p], the largest magnitude, and the range.
      whole: [p], whether all numbers are whole.
      first: [p], the first row.
      twins: among some columns, those that equal an earlier one, and which.
      gram: the correlations of some columns.
    """

    num_rows: int
    mean: Float[np.ndarray, " p"]
    scale: Float[np.ndarray, " p"]
    largest: Float[np.ndarray, " p"]
    span: Float[np.ndarray, " p"]
    whole: Bool[np.ndarray, " p"]
    first: Float[np.ndarray, " p"]
    twins: Callable[[list[int]], dict[int, int]]
    gram: Callable[[list[int]], Float[np.ndarray, "k k"]]


def check_columns(x: Float[np.ndarray, "N p"], names: list[str]) -> tuple[str, ...]:
    """Apply `check_facts` to a design in memory."""
    mean, scale = mean_and_sd(x, about_mean="Intercept" in names)
    largest = np.maximum(x.max(axis=0), -x.min(axis=0))
    still = _constant(scale, largest)
    whole = np.zeros(len(names), bool)
    whole[still] = (x[:, still] == np.rint(x[:, still])).all(axis=0)
    facts = Facts(
        len(x), mean, scale, largest, np.ptp(x, axis=0), whole, x[0],
        partial(_twins, x), lambda kept: gram(x, kept, mean, scale),
    )  # fmt: skip
    return check_facts(facts, names)


def _constant(scale: Float[np.ndarray, " p"], largest: Float[np.ndarray, " p"]) -> np.ndarray:
    """Return which columns do not vary, within the precision of float64."""
    return scale <= 1e-13 * largest


def check_facts(facts: Facts, names: list[str]) -> tuple[str, ...]:
    """Raise DataError for constant, duplicate or collinear columns; note nearly collinear ones.

    `Intercept` does not count as a constant column. Collinearity is found by Cholesky's sweep over the columns'
    correlations: the remainder of a column after regression on those before it, as a share of its
    variance. With fewer rows than columns only the prior distinguishes them. The prior is proper, and so is
    the posterior, including an outcome's own scale, though its density is unbounded where that goes to 0.
    """
    intercept = "Intercept" in names
    columns = [j for j, name in enumerate(names) if name != "Intercept"]
    if facts.num_rows == 1 and columns:
        raise DataError("the table has one row, so no column varies; give more rows.")
    flat = _constant(facts.scale, facts.largest)
    still = [j for j in columns if flat[j]]
    # different whole numbers are distinct, however many digits they share: ids of a register
    ids = [j for j in still if facts.span[j] >= 1 and facts.whole[j]]
    constant = [j for j in still if j not in ids]
    twins = facts.twins([j for j in columns if j not in still])
    kept = [j for j in columns if j not in still and j not in twins]
    found = _first(
        [f"{names[j]!r} is constant ({facts.first[j]:.10g} in every row)" for j in constant]
    )
    found += _first(
        [
            f"{names[j]!r} holds whole numbers that differ only in their last digits, as ids do "
            f"({facts.first[j]:.0f} in data row 1)"
            for j in ids
        ]
    )
    found += _first([f"{names[j]!r} is a duplicate of {names[i]!r}" for j, i in twins.items()])
    size = len(kept) + intercept
    notes: tuple[str, ...] = ()
    if facts.num_rows >= size:
        own, correlations = [names[j] for j in kept], facts.gram(kept)
        found += _first(
            [
                f"{own[j]!r} is collinear: a linear combination of {_listed(own, others)}"
                f"{' and the intercept' if intercept else ''}"
                for j, others in _combinations(correlations)
            ]
        )
        if not found:
            notes = _collinearity_note(correlations, facts.num_rows, own)
    if found:
        subject, rest = ("column ", "it") if len(found) == 1 else ("columns ", "them")
        raise DataError(f"{subject}{', '.join(found)}; take {rest} out of the formula.")
    return notes


def near_collinear(
    x: Float[np.ndarray, "N p"],
    names: list[str],
    center: Float[np.ndarray, " p"],
    scale: Float[np.ndarray, " p"],
) -> tuple[str, ...]:
    """Return the note of `check_columns` for a design whose columns were checked before."""
    columns = [j for j, name in enumerate(names) if name != "Intercept"]
    if len(x) < len(names):
        return ()
    return _collinearity_note(gram(x, columns, center, scale), len(x), [names[j] for j in columns])


def _collinearity_note(
    gram: Float[np.ndarray, "k k"], num_rows: int, names: list[str]
) -> tuple[str, ...]:
    """Return a note on columns that the others nearly determine: N / (R^{-1})_jj is small.

    The unit is rows of a column by itself.
    """
    try:
        left = 1 / np.diag(np.linalg.inv(gram))
    except np.linalg.LinAlgError:  # fewer rows than in the check
        return ()
    which = np.flatnonzero(num_rows * left < MIN_INFORMATION_ROWS)
    if not len(which):
        return ()
    return (
        f"columns {_listed(names, which)} are nearly combinations of each other: without the others, each is worth less "
        f"than {MIN_INFORMATION_ROWS:g} rows, so that the prior, not the data, decides how their coefficients share the joint "
        "effect; remove one from the formula, or center the columns that are multiplied.",
    )


def _twins(x: Float[np.ndarray, "N p"], columns: list[int]) -> dict[int, int]:
    """Return the columns that equal an earlier one, and which."""
    seen: dict[bytes, int] = {}
    first = {j: seen.setdefault(_digest(x[:, j]), j) for j in columns}
    return {j: i for j, i in first.items() if i != j}


def _digest(column: Float[np.ndarray, " N"]) -> bytes:
    return hashlib.sha256((column + 0.0).tobytes()).digest()  # -0.0 is 0.0


def _combinations(gram: Float[np.ndarray, "k k"]) -> list[tuple[int, np.ndarray]]:
    """Return columns without a remainder, and the earlier columns that combine to them."""
    with contextlib.suppress(np.linalg.LinAlgError):
        if np.diag(np.linalg.cholesky(gram)).min(initial=1.0) ** 2 >= MIN_UNEXPLAINED_SHARE:
            return []  # as the sweep below would find, in a hundredth of its time
    left, found = gram.copy(), []
    for j in range(len(gram)):
        if left[j, j] < MIN_UNEXPLAINED_SHARE:
            before = np.setdiff1d(np.arange(j), [i for i, _ in found])
            share = np.linalg.lstsq(gram[np.ix_(before, before)], gram[before, j], rcond=None)[0]
            found.append((j, before[np.abs(share) > 1e-6]))
        else:
            left[j + 1 :, j + 1 :] -= np.outer(left[j + 1 :, j], left[j, j + 1 :]) / left[j, j]
    return found


def _first(found: list[str]) -> list[str]:
    """Return the first few texts, and the number of the others."""
    return found[:MAX_NAMED_COLUMNS] + (
        [f"{len(found) - MAX_NAMED_COLUMNS} more like these"] if found[MAX_NAMED_COLUMNS:] else []
    )


def _listed(names: list[str], which: np.ndarray) -> str:
    return ", ".join(repr(names[i]) for i in which[:MAX_NAMED_COLUMNS]) + " and others" * (
        len(which) > MAX_NAMED_COLUMNS
    )


def check_names(names: tuple[str, ...]) -> None:
    """Raise DataError where two parameters would have one name."""
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise DataError(
            f"two parameters of this model would be called {twice!r}; rename that column."
        )


def check_magnitudes(values: Float[np.ndarray, "N p"], names: list[str]) -> None:
    """Raise DataError for numbers whose squares exceed float64, or that float32 may not hold."""
    check_largest(np.maximum(np.max(values, axis=0), -np.min(values, axis=0)), names)


def check_largest(largest: Float[np.ndarray, " p"], names: list[str]) -> None:
    """Raise the same for the columns' largest magnitudes."""
    for name, most in zip(names, largest, strict=True):
        if most > MAX_COLUMN_NUMBER or 0 < most < 1 / MAX_COLUMN_NUMBER:
            raise DataError(
                f"{name!r} holds numbers of {most:.3g}; give it in a unit that makes them ordinary "
                f"({1 / MAX_COLUMN_NUMBER:g} to {MAX_COLUMN_NUMBER:g})."
            )


# -- separated -----------------------------------------------------------------------------


MAX_NAMED_REASONS = 5
REFERENCE_LEVEL = "the reference level"
LEVEL = re.compile(r"(.+?)\[(?:T\.)?(.+)\]")  # C(g)[T.b], C(g)[b]
NO_ZERO_FAMILIES = (
    "bernoulli",
    "binomial",
    "poisson",
    "negative-binomial",
)  # families without a finite mode if all outcomes are 0
NO_ONE_FAMILIES = ("bernoulli", "binomial")


def separation_notes(
    family: str,
    levels: Sequence[str],
    x: Float[np.ndarray, "N p"],
    y: Float[np.ndarray, " N"],
    state: dict[str, Any],
    extra: dict[str, Any],
) -> tuple[str, ...]:
    """Return a sentence on every group of rows without an event.

    A group is a level, or the rows where a column of two values is not 0. Its likelihood rises without limit as
    the coefficient goes to infinity on one side (Albert & Anderson 1984), and the posterior there is the
    prior's tail.

    Args:
      family: the name of the family.
      levels: of a categorical outcome, else empty.
      x: the original design.
      y: the original outcome.
      state: of the formula (`design.learn`): the columns' names, and the levels of factors.
      extra: weights and trials of the rows.
    """
    counts = np.asarray(extra.get("weight", np.ones(len(y)))) > 0
    whole = _without(family, levels, y[counts], extra, counts)
    if whole is not None:
        return (
            f"outcome {state['outcome']!r} {whole}, so only the prior decides the coefficients; check "
            "the column.",
        )
    groups = []
    for name, rows in _groups(x, state):
        rows = rows & counts
        what = (
            _without(family, levels, y[rows], extra, rows)
            if 0 < rows.sum() < counts.sum()
            else None
        )
        if what is not None:
            groups.append((name, int(rows.sum()), what))
    notes = [
        f"{name} ({count:,} row{'' if count == 1 else 's'}) {what}: only the prior decides {_undecided(name)}."
        for name, count, what in groups[:MAX_NAMED_REASONS]
    ]
    left = len(groups) - len(notes)
    return (*notes, *([f"the same holds for {left} more levels."] if left else []))


def offset_notes(formula: str, offset: Float[np.ndarray, " N"] | None) -> tuple[str, ...]:
    """Return a note on an offset on the log scale that seems to be an exposure: a positive column."""
    column = BARE_OFFSET.search(formula)
    if offset is None or column is None or not (offset > 0).all():
        return ()
    name = column[1]
    return (
        f"offset({name}) adds {name} to the log of the mean; for an exposure write offset(log({name})).",
    )


def _undecided(name: str) -> str:
    return (
        "how the others differ from it" if name.startswith(REFERENCE_LEVEL) else "its coefficient"
    )


def _groups(
    x: Float[np.ndarray, "N p"], state: dict[str, Any]
) -> list[tuple[str, Bool[np.ndarray, " N"]]]:
    """Return the rows of every level by column name, and those of the reference level."""
    found, factors = [], {}
    for j, name in enumerate(state["names"]):
        if name == "Intercept" or ":" in name:
            continue
        rows = x[:, j] != 0
        values = x[rows, j]
        if not (values == values[:1]).all() or rows.all():  # numbers
            continue
        level = LEVEL.fullmatch(name)
        if level is None:
            found.append((f"{name!r}", rows))
            continue
        factors.setdefault(level[1], {})[level[2]] = rows
        found.append((f"level {level[2]!r} of {level[1]!r}", rows))
    for factor, columns in factors.items():
        rest = ~np.any(list(columns.values()), axis=0)
        if rest.any():
            other = [level for level in _levels(state, factor) if str(level) not in columns]
            named = f" {str(other[0])!r}" if len(other) == 1 else ""
            found.append((f"{REFERENCE_LEVEL}{named} of {factor!r}", rest))
    return found


def _levels(state: dict[str, Any], factor: str) -> list[Any]:
    """Return a factor's levels, the reference level included, or none where they are unknown."""
    stored = state.get("factors", {}).get(factor, {}).get("state", {})
    return dict(stored.get("dict", ())).get("categories", []) if isinstance(stored, dict) else []


def _without(
    family: str, levels: Sequence[str], y: np.ndarray, extra: dict[str, Any], rows: np.ndarray
) -> str | None:
    """Describe what these outcomes have in common that no finite coefficient gives."""
    if family == "categorical":
        missing = [level for k, level in enumerate(levels) if not (y == k).any()]
        return f"has no {', '.join(map(repr, missing))}" if missing else None
    if family in NO_ZERO_FAMILIES and not y.any():
        return "has no event" if family in NO_ONE_FAMILIES else "has only zeros"
    most = np.asarray(extra["trials"])[rows] if "trials" in extra else 1.0
    if family in NO_ONE_FAMILIES and (y == most).all():
        return "has nothing but events"
    return None
