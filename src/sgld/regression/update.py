"""Update of a finished formula run with appended or dropped rows: centre and metric are reused.

The model remains the run's: prior and standardisation are those of the first fit. Let c and Sigma be the
centre and covariance of the known Gaussian, N and N' the old and the new number of rows. The added and
removed rows change the gradient at c by Delta, a sum over them alone, and so

    Sigma' = (N / N') Sigma,        c' = c + Sigma' Delta

to first order. This needs no search, no curvature and no pass over all rows, which are most of the cost of
a fit. What remains is one pass for the control variates at c', the steps, and the verdict, which measures
the run as usual. Where the rows move the centre by several sds, or change their number by half, everything
is computed again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from ..approximation.gradient_noise import TUNING_STREAM
from ..approximation.laplace import Laplace
from ..core.files import reading
from ..core.progress import SAMPLING_STAGES, progress_shown, stage
from ..data.convert import check_drop, renumbered_drop
from ..data.mapped import OnDisk
from ..data.memory import InMemory
from ..data.source import generator
from ..data.table_source import TableSource, append_rows, parts_record, stored_table, without
from ..errors import DataError, RunError, UsageError
from ..inference import sample as runs
from ..inference.execute import with_prepared_gradient
from ..inference.record import Given, stored_request
from ..inference.tuning.plan import make_plan
from ..model import sums
from ..model.problem import Problem, Request
from ..model.sums import row_gradients
from ..results.codec import plan_of
from ..results.plan import Origin, Plan
from ..results.run_directory import RunDirectory
from ..samplers.gradients.control_variates import ControlVariates
from .design import TRANSFORMS, OtherColumns
from .fit import ON_DISK, is_on_disk, streamed_of
from .formula import FormulaModel
from .result import Fit

MAX_MOVE_SDS = 3.0  # root mean square move in sds beyond which the first order is not used
MAX_ROW_RATIO = 1.5  # largest ratio of the new and the old number of rows, either way
MAX_NEW_NUMBERS = 2**22  # numbers in the gradients of added rows that are held at once
CENTRE_MOVED_NOTE = "centre and metric are those of a run on"  # begins the note of an update
MIN_MOVE_SDS = 0.3  # sds by which one row must move the centre to be in every batch
# a row's share of the information on a direction above which the covariance must be recomputed: the sds by which the
# row moves draws around the centre, over ROW_INFO_DRAWS draws
MAX_ROW_INFO, ROW_INFO_DRAWS = 0.3, 4


@dataclass(frozen=True)
class Changed:
    """Rows of a model's data: the added ones, and the removed ones of the old data."""

    added: Any
    removed: Any
    added_numbers: Int[np.ndarray, " m"]  # numbers of the added rows in the new data
    removed_numbers: Int[np.ndarray, " k"]  # sorted numbers of the removed rows in the old data


def update(
    run: str | Path,
    new: str | Path | None = None,
    *,
    out: str | Path,
    drop: Sequence[int] = (),
    sep: str | None = None,
    decimal: str | None = None,
    overwrite: bool = False,
    progress: bool = True,
    checkpoint_every: float = 10.0,
) -> Fit:
    """Rerun a finished formula run with rows appended, or without some of its own.

    Args:
      run: a run directory of `sgld.fit` with `out=`, whose data file is still in place.
      new: a file of more rows, with the columns of the run's table; None for none.
      out: the run directory to create. It can be resumed, reported and updated as any other.
      drop: the numbers of rows of the run's table, from 0, to remove.
      sep: of `new`, if it is a text file, as for `sgld.fit`; by default the run's, for the same extension
        (.csv, .tsv).
      decimal: as `sep`.
      overwrite: as for `sgld.sample`.
      progress: as for `sgld.sample`.
      checkpoint_every: as for `sgld.sample`.

    Returns: Fit, on the scale and under the prior of the first fit.

    Raises: RunError where `run` is not such a run, DataError for the new rows and where the formula would have
    other columns (a new level, or a level without rows), UsageError for `drop`.

    Example:
      >>> import tempfile, numpy as np, sgld
      >>> from sgld.regression.update import update
      >>> from sgld.data.tables import bundled
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     fit = sgld.fit(bundled("randhie"), "mdvis ~ physlm", family="poisson",
      ...                    out=folder + "/run", progress=False)
      ...     less = update(folder + "/run", drop=range(100), out=folder + "/less", progress=False)
      >>> less.verdict.word
      'trusted'
    """
    if new is None and not len(drop):
        raise UsageError(
            "there is nothing to update with: give a file of new rows, or rows to drop."
        )
    if new is None and (sep is not None or decimal is not None):
        raise UsageError("sep and decimal apply to the file `new`; give it, or leave them out.")
    rows = np.asarray(list(drop))
    if len(rows) and (rows.ndim != 1 or rows.dtype.kind not in "iu"):
        raise UsageError(f"drop must hold whole row numbers. Got {list(drop)[:3]!r}.")
    rows = rows.astype(np.int64)
    directory = RunDirectory(run)
    asked = directory.begun()
    if asked.get("kind") != "formula" or not directory.finished() or not asked.get("data"):
        raise RunError(f"{run} is not a finished sgld.fit run on a file, so it cannot be updated. Run sgld.fit again.")  # fmt: skip
    _check_formula(str(asked.get("formula")))
    more = None if new is None else TableSource.like(asked["data"], new, sep, decimal)
    with progress_shown(progress, SAMPLING_STAGES):
        with stage("data"), reading(run):
            grown = (
                partial(_grown_on_disk, progress=progress) if is_on_disk(asked["data"]) else _grown
            )
            model, changed, source = grown(asked, more, rows)
            before, ask = plan_of(directory), stored_request(directory, asked, Given({}))

        def plan(problem: Problem, ask: Request) -> Plan:
            found = None if before is None else _moved(problem, before, changed, ask)
            return make_plan(problem, ask) if found is None else found

        names = ("kind", "formula", "family", "prior", "priors", "sampler", "weights", "trials")
        facts = {"num_dropped": model.num_dropped} if model.num_dropped else {}
        settings = {name: asked.get(name) for name in names}
        settings |= {"data": source, "model": model.spec, "facts": facts, "updates": str(run)}
        draws = runs.begin(
            model.posterior, model.data, None, ask, asked.get("ess"), settings, path=out,
            overwrite=overwrite, progress=progress, checkpoint_every=checkpoint_every, planned=plan,
        )  # fmt: skip
        draws = replace(draws, origin=Origin(model.posterior, model.data, model))
        return Fit(draws, model, settings | {"seed": ask.seed})


def _check_formula(formula: str) -> None:
    """Raise UsageError for a formula whose columns all change when rows change."""
    found = TRANSFORMS.search(formula)
    if found:
        raise UsageError(
            f"{formula!r} has {found[1]}(...), whose numbers are estimated from all rows, so new rows would change "
            "every row's columns; run sgld.fit again."
        )


def _grown(
    asked: dict[str, Any], source: TableSource | None, rows: Int[np.ndarray, " m"]
) -> tuple[FormulaModel, Changed, dict[str, Any]]:
    """Return the model on the current rows, the changed rows, and the origin of the data."""
    old, second = stored_table(asked["data"])(), None
    table = without(old, rows) if len(rows) else old
    stayed = table.num_rows
    if source is not None:
        more, digest = source.read()
        table, second = append_rows(table, more, source.data), source.as_json(digest)
    with _explain_changed_columns(asked):
        model = FormulaModel.from_spec(asked["model"], table)
    added = _numbers(model) >= stayed
    pick = lambda data, mask: jax.tree.map(lambda leaf: np.asarray(leaf)[mask], data)  # noqa: E731
    removed, numbers = pick(model.data, np.zeros(len(added), bool)), np.zeros(0, np.int64)
    if len(rows):  # else the old data are not needed
        before = FormulaModel.from_spec(asked["model"], old)
        gone = np.isin(_numbers(before), rows)
        removed, numbers = pick(before.data, gone), np.flatnonzero(gone)
    changed = Changed(pick(model.data, added), removed, np.flatnonzero(added), numbers)
    return model, changed, parts_record(asked["data"], second, rows)


@contextlib.contextmanager
def _explain_changed_columns(asked: dict[str, Any]) -> Iterator[None]:
    """Convert an error about other columns to a sentence about levels."""
    try:
        yield
    except OtherColumns as error:
        changed = [
            f"{verb} the column {', '.join(map(repr, names[:4]))}"
            for verb, names in (("gains", error.gained), ("loses", error.lost))
            if names
        ]
        raise DataError(
            f"with these rows the run's {asked['formula']!r} {' and '.join(changed)}, because a level is new or lost its "
            "last row (the first level, which has no column of its own, included). That is another model; run sgld.fit "
            "on these rows."
        ) from error


def _grown_on_disk(
    asked: dict[str, Any], source: TableSource | None, rows: Int[np.ndarray, " m"], progress: bool
) -> tuple[FormulaModel, Changed, dict[str, Any]]:
    """Do the same for a design on disk.

    No cell of the old table is read, except levels where rows were removed.
    """
    stored, spec, seed, rows = asked["data"], asked["model"], int(asked["seed"]), np.sort(rows)
    parts, removed = stored.get("parts", [stored]), None
    if len(rows):
        old = streamed_of(stored, spec, seed).model(spec, progress=False)
        check_drop(rows, old.num_data + old.num_dropped)
        removed = _rows_numbered(old, rows)
        all_gone = renumbered_drop(np.asarray(parts[-1].get("dropped", []), np.int64), rows)
        parts = [*parts[:-1], {**parts[-1], "dropped": all_gone.tolist()}]
    streamed = streamed_of({"parts": parts}, spec, seed, source)
    added, numbers, read, new = None, np.zeros(0, np.int64), 0, None
    with _explain_changed_columns(asked):
        if source is not None:
            added, numbers, read = streamed.last().in_memory(spec)
            new = {**source.as_json(streamed.digests()[-1]), **ON_DISK}
        if len(rows):
            streamed.check_levels(spec)
    model = streamed.model(spec, progress)
    first = model.num_data + model.num_dropped - read
    record = parts_record({"path": stored["path"]}, new, rows)
    grown = {**record, "parts": parts if new is None else [*parts, new], **ON_DISK}
    none = _rows_numbered(model, rows[:0])
    added, removed = (none if part is None else part for part in (added, removed))
    return model, Changed(added, removed, first + numbers, rows), grown


def _rows_numbered(model: FormulaModel, rows: Int[np.ndarray, " m"]) -> Any:
    """Return the rows of a design on disk with these numbers of the user."""
    data = model.data
    assert isinstance(data, OnDisk)
    places = data.rows_called(rows, 0) if len(rows) else rows
    return jax.tree.map(lambda leaf: np.asarray(leaf)[places], data.rows)


def _numbers(model: FormulaModel) -> Int[np.ndarray, " N"]:
    """Return the numbers of the data's rows in the table."""
    if model.row_numbers is not None:
        return np.asarray(model.row_numbers)
    return np.arange(len(jax.tree.leaves(model.data)[0]))


def _moved(problem: Problem, before: Plan, changed: Changed, ask: Request) -> Plan | None:
    """Return the old plan around the new centre, or None where the first order is not enough."""
    gaussian = before.known.gaussian
    share = before.num_data / problem.num_data
    if not isinstance(gaussian, Laplace) or not gaussian.positive_definite or before.setup.exact:
        return None
    if before.known.modes is not None or not 1 / MAX_ROW_RATIO <= share <= MAX_ROW_RATIO:
        return None
    wider = gaussian.scaled(share)
    delta, influential = np.zeros(gaussian.center.size), np.zeros(0, np.int64)
    for sign, rows in ((1.0, changed.added), (-1.0, changed.removed)):
        if len(jax.tree.leaves(rows)[0]):
            part = replace(problem, data=InMemory.of(rows))
            at = problem.array(gaussian.center)
            delta += sign * np.asarray(sums.likelihood_gradient(part, at), np.float64)
            if sign > 0:
                influential = _influential_rows(part, wider, ask.seed)
    if influential is None or len(influential) > (before.setup.batch_size or 0):
        return None  # the plan is made again from all rows
    step = wider.spread(wider.pull(delta))
    size = float(np.linalg.norm(wider.pull(delta))) / np.sqrt(step.size)
    if not size <= MAX_MOVE_SDS:
        return None
    setup = before.setup.scaled(share)
    always = _always(before, changed, changed.added_numbers[influential])
    moved = wider.moved(step)
    known = replace(before.known, gaussian=moved, log_density=float("nan"), notes=())
    setup = replace(setup, starts=None, always=always)
    if isinstance(setup.gradient, ControlVariates):
        setup = replace(setup, gradient=ControlVariates(moved.center))
    note = (
        f"{CENTRE_MOVED_NOTE} {before.num_data:,} rows: the centre was moved by "
        f"{size:.2g} sds (root mean square), the metric scaled by {share:.4g}."
    )
    plan = replace(before, setup=setup, known=known, num_data=problem.num_data, predicted=None)
    notes = (note, *(old for old in before.notes if not old.startswith(CENTRE_MOVED_NOTE)))
    return with_prepared_gradient(problem, replace(plan, notes=notes), ask.seed)


def _influential_rows(part: Problem, wider: Laplace, seed: int) -> Int[np.ndarray, " m"] | None:
    """Return the added rows that each move the centre by much; None if one rotates the Gaussian.

    Only the likelihood counts. The second row of a level agrees with the first and moves no centre, but it
    changes the sd there; without this test all chains failed.
    """
    z, found = part.array(wider.center), [np.zeros(0, np.int32)]
    draws = wider.draw(generator(seed, TUNING_STREAM, 17), ROW_INFO_DRAWS)
    size = max(1, MAX_NEW_NUMBERS // z.size)
    for at in range(0, part.num_data, size):
        numbers = np.arange(at, min(part.num_data, at + size), dtype=np.int32)
        each = np.asarray(row_gradients(part, z, numbers), np.float64)
        turned = [
            np.asarray(row_gradients(part, part.array(q), numbers), np.float64) - each
            for q in draws
        ]
        square = np.mean([np.sum(wider.pull(t) ** 2, axis=1) for t in turned], axis=0)
        if (square > MAX_ROW_INFO**2).any():
            return None
        found.append(numbers[np.linalg.norm(wider.pull(each), axis=1) > MIN_MOVE_SDS])
    return part.source.original_rows(np.concatenate(found), 0)


def _always(before: Plan, changed: Changed, more: Int[np.ndarray, " m"]) -> Any:
    """Return the rows in every batch by their new numbers: the remaining old ones, and `more`."""
    always = before.setup.always
    stay = np.zeros(0, np.int64)
    if always is not None:
        stay = np.setdiff1d(np.asarray(always), changed.removed_numbers)
        stay = stay - np.searchsorted(changed.removed_numbers, stay)
    found = np.unique(np.concatenate([stay, more]))
    return found if len(found) else None
