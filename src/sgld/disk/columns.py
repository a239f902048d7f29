"""Columns of a table as leaves of a datum, and what is learned of them on the way to the disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import numpy as np

from ..data.names import listed
from ..data.running import Running
from ..errors import DataError, UsageError, did_you_mean

__all__ = ["Column", "Leaf", "Learned", "as_json", "from_json", "leaves_of", "structure_of"]

MOST_CATEGORIES = 2**20
PyTree = Any


@dataclass(frozen=True)
class Column:
    """What is known of a column of a table whose rows are on disk.

    Attributes:
      name: of the column.
      kind: "number", "integer", "boolean" or "text".
      missing: rows that were left out because this cell was empty.
      mean, sd, least, most: of the others, in float64; NaN of texts.
      categories: of texts, sorted: a row holds the place of its text among them.
    """

    name: str
    kind: str
    missing: int = 0
    mean: float = math.nan
    sd: float = math.nan
    least: float = math.nan
    most: float = math.nan
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Leaf:
    """A leaf of the datum: one column, several side by side, or an array of its own."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return self.dtype.itemsize * math.prod(self.shape)


def structure_of(columns: Any, names: Sequence[str]) -> tuple[Any, list[str | tuple[str, ...]]]:
    """The datum's structure, and of each leaf the name of its column, or the names of several.

    `columns` None is a dict of all. Raises UsageError for what names no columns, DataError for
    columns that there are not.
    """
    if columns is None:
        columns = {name: name for name in names}
    is_leaf = lambda part: _is_list(part) or not isinstance(part, (dict, tuple))  # noqa: E731
    found, treedef = jax.tree.flatten(columns, is_leaf=is_leaf)
    leaves: list[str | tuple[str, ...]] = []
    for leaf in found:
        if not isinstance(leaf, str) and not _is_list(leaf):
            raise UsageError(
                "columns must be names, lists of names (which become one array), or a tuple or dict of these. "
                f"Got {leaf!r}."
            )
        leaves.append(leaf if isinstance(leaf, str) else tuple(leaf))
    if not leaves:
        raise UsageError(f"columns names no column. Got {columns!r}.")
    for name in (n for leaf in leaves for n in ((leaf,) if isinstance(leaf, str) else leaf)):
        if name not in names:
            raise DataError(
                f"there is no column {name!r}; the columns are {listed(list(names))}."
                + did_you_mean(name, names)
            )
    return treedef, leaves


def _is_list(part: Any) -> bool:
    return isinstance(part, list) and bool(part) and all(isinstance(name, str) for name in part)


def leaves_of(
    wanted: list[str | tuple[str, ...]], dtypes: dict[str, np.dtype], texts: set[str]
) -> list[Leaf]:
    """The leaves, in the precision that JAX will use; columns side by side have the type that holds all."""
    leaves = []
    for part in wanted:
        names = (part,) if isinstance(part, str) else part
        told = texts.intersection(names)
        if told and not isinstance(part, str):
            raise DataError(
                f"column {min(told)!r} holds text, and no number of an array; name it by itself, and it becomes "
                "the place of each text among all of them."
            )
        dtype = np.result_type(*(dtypes[name] for name in names))
        dtype = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
        shape = () if isinstance(part, str) else (len(names),)
        leaves.append(Leaf(", ".join(names), dtype, shape, names))
    return leaves


@dataclass
class Learned:
    """What is learned of one column, piece by piece."""

    name: str
    kind: str
    missing: int = 0
    numbers: Running = field(default_factory=Running)
    codes: dict[str, int] = field(default_factory=dict)  # in the order of appearance

    def add(self, values: np.ndarray) -> None:
        """The next cells, none of them empty."""
        if len(values):
            self.numbers.add(values)

    def coded(self, texts: list[str], places: np.ndarray) -> np.ndarray:
        """The codes of `texts[places]`, int32, in the order of appearance."""
        for text in texts:
            self.codes.setdefault(text, len(self.codes))
        if len(self.codes) > MOST_CATEGORIES:
            raise DataError(
                f"column {self.name!r} has more than {MOST_CATEGORIES:,} different texts, which is no category; "
                "leave it out of columns."
            )
        return np.array([self.codes[text] for text in texts], np.int32)[places]

    def sorted_codes(self) -> np.ndarray | None:
        """By code in order of appearance, the place among all texts; None of a column of numbers."""
        if self.kind != "text":
            return None
        places = np.empty(len(self.codes), np.int32)
        for place, text in enumerate(sorted(self.codes)):
            places[self.codes[text]] = place
        return places

    def column(self) -> Column:
        """What was learned."""
        found = self.numbers
        if self.kind == "text" or not found.count:
            return Column(self.name, self.kind, self.missing, categories=tuple(sorted(self.codes)))
        sd = math.sqrt(found.squares / found.count)
        numbers = (float(found.mean), sd, float(found.least), float(found.most))
        return Column(self.name, self.kind, self.missing, *numbers)


def as_json(column: Column) -> dict[str, Any]:
    """A column for a manifest: JSON has no NaN."""
    numbers = {k: v for k, v in asdict(column).items() if not (isinstance(v, float) and math.isnan(v))}  # fmt: skip
    return {**numbers, "categories": list(column.categories)}


def from_json(value: dict[str, Any]) -> Column:
    """What `as_json` made."""
    return Column(**{**value, "categories": tuple(value["categories"])})
