"""From what a user gives `sgld.fit` to a model with its rows: in memory, or on the disk where they are many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ..data.mapped import OnDisk, Workers
from ..data.table_source import TableSource
from ..data.tables import as_table
from ..errors import RunError, UsageError
from .family import check_trials, find_family
from .formula import FormulaModel
from .prior import parse_prior
from .streamed import Streamed, is_large

__all__ = ["ON_DISK", "is_on_disk", "model_of", "read", "sources_of", "streamed_of"]

PLACE = "rows"  # in run.json, beside the path, where the design lies on the disk
ON_DISK = {PLACE: "on disk"}


def model_of(
    data: Any, place: dict[str, Any], formula: str, family: str, prior: str | None,
    columns: dict[str, Any], missing: str, seed: int, progress: bool, workers: Workers | None = None,
) -> tuple[FormulaModel, dict[str, Any] | None, dict[str, str | None]]:  # fmt: skip
    """The model with its rows; where these are from, for run.json; and the names of `columns`.

    Args:
      place: sep, decimal, table and database of `sgld.fit`.
      columns: weights and trials, names or numbers.
      workers: of a design on the disk.
    """
    if _may_be_large(data, columns):
        source = TableSource.of(data, place["table"], place["database"], place["sep"], place["decimal"])  # fmt: skip
        if is_large(source, formula):
            return _on_disk(
                source, formula, family, prior, columns, missing, seed, progress, workers
            )
    whole, of_file = read(data, **place)
    whole, named = _with_columns(whole, of_file is not None, columns)
    model = FormulaModel.build(whole, formula, family, prior, **named, missing=missing)
    return model, None if of_file is None else of_file(), named


def _may_be_large(data: Any, columns: dict[str, Any]) -> bool:
    """Whether it is a file, and nothing is given apart."""
    apart = any(not (value is None or isinstance(value, str)) for value in columns.values())
    return isinstance(data, (str, Path)) and not apart


def _on_disk(
    source: TableSource, formula: str, family: str, prior: str | None,
    columns: dict[str, Any], missing: str, seed: int, progress: bool, workers: Workers | None,
) -> tuple[FormulaModel, dict[str, Any], dict[str, str | None]]:  # fmt: skip
    if prior is not None:
        parse_prior(prior)
    check_trials(find_family(family), columns["trials"])
    given = {**columns, "missing": missing}
    streamed = Streamed([source], formula, family, given, seed, workers=workers)
    model = streamed.model({**streamed.learnt(), "prior": prior}, progress)
    assert isinstance(model.data, OnDisk)
    digest = streamed.digests()[0] if streamed.known else model.data.hash()
    stored = {**source.as_json(digest), **ON_DISK}
    return model, stored, columns


def is_on_disk(stored: Any) -> bool:
    """Whether the data of a run.json are those of a design on the disk."""
    return isinstance(stored, dict) and stored.get(PLACE) == ON_DISK[PLACE]


class Part(NamedTuple):
    """A part of a table on the disk: its digest, and the rows of the table up to its end that went later, sorted."""

    source: TableSource
    digest: str
    dropped: Int[np.ndarray, " m"]


def sources_of(stored: dict[str, Any]) -> list[Part]:
    """The parts of such data. RunError where one is missing."""
    parts = stored.get("parts")
    if parts is None:
        dropped = np.asarray(stored.get("dropped", []), np.int64)
        return [Part(TableSource.located(stored), str(stored["sha256"]), dropped)]
    if not isinstance(parts, list) or any("parts" in part for part in parts):
        raise RunError("run.json is damaged: its data have no parts.")
    return [found for part in parts for found in sources_of(part)]


def streamed_of(stored: dict[str, Any], spec: dict[str, Any], seed: int, more: TableSource | None = None) -> Streamed:  # fmt: skip
    """The design of a run's data again, with rows appended; RunError where they are not the same."""
    found = sources_of(stored)
    sources, dropped = [part.source for part in found], [part.dropped for part in found]
    if more is not None:
        sources, dropped = [*sources, more], [*dropped, np.zeros(0, np.int64)]
    columns = {name: spec.get(name) for name in ("weights", "trials", "missing")}
    streamed = Streamed(
        sources, spec["design"]["formula"], spec["family"], columns, seed, dropped=dropped
    )
    for part, now in zip(found, streamed.digests(), strict=False):
        if part.digest != now:
            raise part.source.changed()
    return streamed


def _with_columns(
    table: Any, in_file: bool, given: dict[str, Any]
) -> tuple[Any, dict[str, str | None]]:
    """The table with numbers given apart as columns of it, and every column's name."""
    names: dict[str, str | None] = {}
    for name, value in given.items():
        if value is None or isinstance(value, str):
            names[name] = value
            continue
        if in_file:
            raise UsageError(
                f"{name} of rows in a file are a column of the file, so that the run can be resumed; "
                f"give its name. Got {type(value).__name__}."
            )
        values = np.asarray(value)
        if values.shape != (table.num_rows,):
            raise UsageError(
                f"{name} must be one number per row, [{table.num_rows}]. Got shape {values.shape}."
            )
        names[name] = f"({name})"
        table = table.append_column(f"({name})", [values])
    return table, names


def read(
    data: Any,
    sep: str | None = None,
    decimal: str = ".",
    table: str | None = None,
    database: Any = None,
) -> tuple[Any, Callable[[], dict[str, Any]] | None]:
    """The table; of a file or database a function that reads it, and one that says where it came from."""
    given = [
        name for name, value in (("sep", sep), ("decimal", decimal)) if value not in (None, ".")
    ]
    if not isinstance(data, (str, Path)):
        if given:
            raise UsageError(
                f"{' and '.join(given)} are of files of text; leave them out for a table."
            )
        if table is not None or database is not None:
            raise UsageError("table and database are of database files and of queries on them.")
        return as_table(data), None
    source = TableSource.of(data, table, database, sep, decimal)
    digests: list[str] = []

    def read_file() -> Any:
        found, digest = source.read()
        digests.append(digest)
        return found

    return read_file, lambda: source.as_json(digests[-1])
