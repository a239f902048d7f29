"""Levels and columns that hold no event, or nothing else: only the prior decides their coefficient."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

__all__ = ["separated"]

MOST_NAMED = 5
REFERENCE = "the reference level"
LEVEL = re.compile(r"(.+?)\[(?:T\.)?(.+)\]")  # C(g)[T.b], C(g)[b]
LOW = (
    "bernoulli",
    "binomial",
    "poisson",
    "negative-binomial",
)  # an outcome of 0 in all rows has no finite mode
HIGH = ("bernoulli", "binomial")


def separated(
    family: str,
    levels: Sequence[str],
    x: Float[np.ndarray, "N p"],
    y: Float[np.ndarray, " N"],
    state: dict[str, Any],
    extra: dict[str, Any],
) -> tuple[str, ...]:
    """A sentence on every group of rows, of a level or where a column of two values is not 0, that is without an event.

    Its likelihood rises for ever as the coefficient goes off to one side (Albert & Anderson 1984), and the posterior
    there is the prior's tail.

    Args:
      levels: of a categorical outcome, else empty.
      x, y: the design and the outcome, as they came.
      state: of the formula (`design.learn`): the columns' names, and the levels of factors.
      extra: weights and trials of the rows.
    """
    counts = np.asarray(extra.get("weight", np.ones(len(y)))) > 0
    said = []
    for name, rows in _groups(x, state):
        rows = rows & counts
        what = (
            _without(family, levels, y[rows], extra, rows)
            if 0 < rows.sum() < counts.sum()
            else None
        )
        if what is not None:
            said.append((name, int(rows.sum()), what))
    notes = [
        f"{name} ({count:,} row{'' if count == 1 else 's'}) {what}: only the prior decides {_of(name)}."
        for name, count, what in said[:MOST_NAMED]
    ]
    left = len(said) - len(notes)
    return (*notes, *([f"so it is with {left} more levels."] if left else []))


def _of(name: str) -> str:
    return "how the others differ from it" if name.startswith(REFERENCE) else "its coefficient"


def _groups(
    x: Float[np.ndarray, "N p"], state: dict[str, Any]
) -> list[tuple[str, Bool[np.ndarray, " N"]]]:
    """The rows of every level, by its column's name; of levels without a column, those that are left."""
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
            found.append((f"{REFERENCE}{named} of {factor!r}", rest))
    return found


def _levels(state: dict[str, Any], factor: str) -> list[Any]:
    """Of a factor, the reference level among them; none where they are not told."""
    told = state.get("factors", {}).get(factor, {}).get("state", {})
    return dict(told.get("dict", ())).get("categories", []) if isinstance(told, dict) else []


def _without(
    family: str, levels: Sequence[str], y: np.ndarray, extra: dict[str, Any], rows: np.ndarray
) -> str | None:
    """What these outcomes have in common that no finite coefficient gives."""
    if family == "categorical":
        missing = [level for k, level in enumerate(levels) if not (y == k).any()]
        return f"has no {', '.join(map(repr, missing))}" if missing else None
    if family in LOW and not y.any():
        return "has no event" if family in HIGH else "has only zeros"
    most = np.asarray(extra["trials"])[rows] if "trials" in extra else 1.0
    if family in HIGH and (y == most).all():
        return "has nothing but events"
    return None
