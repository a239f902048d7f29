"""A formula's model of a table larger than memory, with a shuffled design on disk, in blocks.

    1   levels, extremes and a sample of the columns: the formula's terms are trained on these rows
    2   every row's design: center and scale of the columns, the outcome's moments
    3   every row's design again, standardised, written to the cache, which the run reads

The table is read three times, and the last pass writes shuffled rows. The cache holds the estimated
quantities and the design under the bytes of the table, and a second fit of the same formula recomputes
neither. Rows appended to a table in the cache are converted alone and merged with the others
(data/convert.py). Blocks are computed here or by workers. Both apply the same functions to the same blocks,
and results return in the blocks' order, so that no bit depends on the workers.

Moments of columns and outcome accumulate over all rows, a block at a time. Second moments are taken about the
first block's means m, in float64, so that years lose no digits:

    S1 = sum (x - m),   S2 = sum (x - m)(x - m)^T;   mean = m + S1 / N,   cov = S2 / N - (S1 / N)(S1 / N)^T
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from ..core.files import read_json, write_json
from ..data.cache import Cache, key_of, stamp_of
from ..data.convert import (
    CachedRows,
    cached_rows,
    check_unchanged,
    convert,
    drop_rows,
    merge,
    report_bytes,
    report_rows,
)
from ..data.databases import DuckDB
from ..data.delimited import renumbered
from ..data.mapped import Workers
from ..data.readers import ColumnStatistics, Leaf, Piece
from ..data.table_source import Chained, TableSource
from ..errors import DataError, RunError, UsageError
from .blocks import Block, BlockDesign, Blocks
from .columns import release_memory
from .design import Design, OtherColumns
from .families import Family, find_family
from .formula import FormulaModel
from .identifiability import Facts, check_facts, check_largest, check_names
from .rows import check_missing, no_weight, rows_of

# -- gathered ------------------------------------------------------------------------------


SAME_COLUMN = 1e-12  # relative difference in mean, sd and correlation of two equal columns


class Columns:
    """Moments and extremes of the columns of a design."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.count = names, 0

    def add(self, x: Float[np.ndarray, "m p"]) -> None:
        """Add the next rows."""
        if not len(x):
            return
        least, most = x.min(axis=0), x.max(axis=0)
        if not self.count:
            self.first, self._about = x[0].copy(), x.mean(axis=0)
            self._sum, self._squares = np.zeros(x.shape[1]), np.zeros((x.shape[1],) * 2)
            self._least, self._most = least, most
            self._whole = np.ones(x.shape[1], bool)
        with np.errstate(over="ignore", invalid="ignore"):  # `check` rejects such numbers
            apart = x - self._about
            self._sum += apart.sum(axis=0)
            self._squares += apart.T @ apart
        self._least, self._most = np.minimum(self._least, least), np.maximum(self._most, most)
        self._whole &= (x == np.rint(x)).all(axis=0)
        self.count += len(x)

    def check(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns' center and scale, [p]; DataError for indistinguishable columns."""
        intercept = "Intercept" in self.names
        largest = np.maximum(self._most, -self._least)
        check_largest(largest, self.names)
        apart = self._sum / self.count
        mean = self._about + apart
        second = self._squares / self.count - np.outer(apart, apart)
        if not intercept:  # about 0
            second, mean = second + np.outer(mean, mean), np.zeros_like(mean)
        scale = np.sqrt(np.maximum(np.diag(second), 0.0))

        def correlations(kept: list[int]) -> np.ndarray:
            return second[np.ix_(kept, kept)] / np.outer(scale[kept], scale[kept])

        def twins(columns: list[int]) -> dict[int, int]:
            found: dict[int, int] = {}
            for at, j in enumerate(columns):
                for i in columns[:at]:
                    same = np.isclose(
                        [mean[i], scale[i]], [mean[j], scale[j]], SAME_COLUMN, 0
                    ).all()
                    if i not in found and same and second[i, j] > (1 - SAME_COLUMN) * second[i, i]:
                        found[j] = i
                        break
            return found

        facts = Facts(
            self.count, mean, scale, largest, self._most - self._least, self._whole, self.first,
            twins, correlations,
        )  # fmt: skip
        check_facts(facts, self.names)
        if intercept:
            index = self.names.index("Intercept")
            mean[index], scale[index] = 0.0, 1.0
        return mean, scale


class Outcome:
    """Moments and counts of levels of the outcome in the unit of eta (`Family.bare`)."""

    def __init__(self, family: Family) -> None:
        self.family, self.size = family, 0
        self._about = self._sum = self._squares = 0.0
        self._levels = np.zeros(0, np.int64)
        self._offset, self._top, self._exp = 0.0, -np.inf, 0.0
        self.has_offset, self.any_weight, self.largest = False, False, 0.0

    def add(self, rows: Design, extra: dict[str, np.ndarray]) -> None:
        """Add the next rows."""
        y, offset = rows.y, extra.get("offset")
        left = self.family.bare(y, extra)
        if not self.size:
            self._about = float(left.mean())
        apart = left - self._about
        self._sum += float(apart.sum())
        self._squares += float(apart @ apart)
        self.largest = max(self.largest, float(np.abs(y).max()))
        if self.family.levels:
            counts = np.bincount(y.astype(np.int64), minlength=len(self._levels))
            counts[: len(self._levels)] += self._levels
            self._levels = counts
        if offset is not None:
            self.has_offset = True
            self._offset += float(offset.sum())
            top = max(self._top, float(offset.max()))
            self._exp = self._exp * np.exp(self._top - top) + float(np.exp(offset - top).sum())
            self._top = top
        self.any_weight = self.any_weight or bool(extra.get("weight", np.ones(1)).any())
        self.size += len(y)

    def mean(self) -> float:
        """Return the mean of the outcome."""
        return self._about + self._sum / self.size

    def sum(self) -> float:
        """Return the sum of the outcome."""
        return self._about * self.size + self._sum

    def sd(self, about: float | None = None) -> float:
        """Return the sd of the outcome, or its root mean square `about` a number."""
        apart = self._sum / self.size
        variance = max(0.0, self._squares / self.size - apart**2)
        return float(np.sqrt(variance + (0.0 if about is None else (self.mean() - about) ** 2)))

    def typical(self) -> Any:
        """Return a typical linear predictor without offset: the intercept prior's centre."""
        if self.family.levels:
            shares = self._levels + 0.5
            centre: Any = np.log(shares[1:] / shares[0])
        else:
            sums: Any = self  # offers sum, mean and size, all that `centre` uses
            centre = np.asarray(self.family.centre(sums))
        if self.family.log_outcome:  # the offset is subtracted already
            return centre.tolist()
        if self.has_offset and self.family.has_log_mean:
            centre = centre - (self._top + np.log(self._exp / self.size))
        elif self.has_offset:
            centre = centre - self._offset / self.size
        return centre.tolist()


# -- streamed ------------------------------------------------------------------------------


# bytes of the used columns in double precision; a fit in memory needs several times that
MAX_MEMORY_BYTES = 2**29
MAX_BLOCK_NUMBERS = 2**22  # numbers in a block's design
MAX_BLOCK_ROWS = 65_536  # rows of a block
BLOCKS_AT_ONCE = 16  # blocks that workers build before the results are used
NORMS_KEY = "norms2"  # the key of a polynomial's sums over all rows

Spec = dict[str, Any]


def is_large(source: TableSource, formula: str) -> bool:
    """Return whether the table's design is built on disk, by its numbers or its size as text."""
    files = source.files()
    size = sum(path.stat().st_size for path in files)
    if files and (size < MAX_MEMORY_BYTES / 64 or not source.is_parquet):
        return size >= MAX_MEMORY_BYTES
    table, counted = Chained([source], None), source.batches()
    # the rows of a query with its own file names must be counted
    rows = counted.count() if isinstance(counted, DuckDB) else table.num_rows
    used = Blocks(table, formula, {"weights": None, "trials": None}, "drop").columns
    return 8 * rows * len(used) >= MAX_MEMORY_BYTES


class Streamed:
    """The parts of a table, and a formula whose design they define.

    Args:
      columns: the names of those of "weights" and "trials", or None, and "missing".
      seed: of the shuffle.
      cache: the folder of caches; None for the user's.
      dropped: sorted rows that were dropped, as `Chained` has them; empty if none were.
      workers: build blocks, and map passes over the rows.
    """

    def __init__(
        self, sources: Sequence[TableSource], formula: str, family: str, columns: dict[str, Any],
        seed: int, cache: str | Path | None = None, dropped: Sequence[Int[np.ndarray, " m"]] = (),
        workers: Workers | None = None,
    ) -> None:  # fmt: skip
        if "lag(" in formula.replace(" ", ""):
            raise UsageError(
                f"{formula!r} has lag(...), which needs the row before, but a table of this size is shuffled; store the "
                "lagged values as a column."
            )
        check_missing(columns["missing"])
        self.sources, self.formula, self.seed = tuple(sources), formula, seed
        self.dropped = tuple(dropped) or (np.zeros(0, np.int64),) * len(self.sources)
        self.family, self.cache = find_family(family), Cache(cache)
        self.given = {name: columns[name] for name in ("weights", "trials", "missing")}
        self.design, self.workers = BlockDesign(formula, self.family.name, self.given), workers
        self._count: int | None = None  # number of complete rows, after all were read

    # -- contents --------------------------------------------------------------------------

    @cached_property
    def contents(self) -> list[dict[str, Any]]:
        """For every part: the SHA-256 of its files, and what is read from them."""
        found: list[dict[str, Any]] = []
        for source, gone in zip(self.sources, self.dropped, strict=True):
            found.append({
                "content": [self.cache.content(path, report_bytes) for path in source.files()],
                "query": source.data if source.is_query else None,
                "table": source.table,
            })  # fmt: skip
            written = {"sep": source.sep, "decimal": source.decimal}
            found[-1] |= {
                name: value for name, value in written.items() if value not in (None, ".")
            }
            if len(gone):
                found[-1]["dropped"] = gone.tolist()
        return found

    def digests(self) -> list[str]:
        """Return for every part a digest for run.json, which changes with its bytes."""
        return [key_of({k: v for k, v in part.items() if k != "dropped"}) for part in self.contents]

    @cached_property
    def known(self) -> bool:
        """Whether files determine the rows; a query with its own file names is repeated."""
        return all(source.files() for source in self.sources)

    @cached_property
    def blocks(self) -> Blocks:
        """The columns that are used."""
        table = Chained(self.sources, self.cache.folder, self.dropped)
        return Blocks(table, self.formula, self.given, self.given["missing"])

    # -- spec ------------------------------------------------------------------------------

    def estimate(self) -> Spec:
        """Return the model's spec without its prior, from the cache or two passes over rows."""
        if not self.known:
            return self._estimate()
        asked = {"formula": self.formula, "family": self.family.name, **self.given, "parts": self.contents}  # fmt: skip
        path = self.cache.folder / f"learned-{key_of(asked)}.json"
        with contextlib.suppress(OSError, RunError, KeyError):
            return read_json(path)["spec"]
        spec = self._estimate()
        with contextlib.suppress(RunError):  # without a writable cache, the spec is computed again
            write_json(path, {"spec": spec})
        return spec

    def _estimate(self) -> Spec:
        stamps = {path: stamp_of(path) for source in self.sources for path in source.files()}
        table, numbers, count = self.blocks.representative()
        whole = {**self.given, "missing": "error"}
        try:
            rows = rows_of(table, self.formula, self.family, whole)
        except DataError as error:
            raise renumbered(error, numbers) from error.__cause__
        state, ends = rows.design.state, (rows.design.y.min(), rows.design.y.max())
        _scale_norms(state, count / len(numbers))
        check_names((*state["names"], *self.family.dispersion))
        size = len(state["names"])
        known = {"design": state, "center": [0.0] * size, "scale": [1.0] * size}
        known |= {"levels" if self.family.levels else "words": rows.levels} if rows.levels else {}
        columns, outcome = Columns(state["names"]), Outcome(self.family)
        for block, made in self._each(partial(self.design.made, known, np.float64), size):
            if made is not None:
                part, extra = made
                self.family.check(np.concatenate([part.y, ends]), state["outcome"])
                columns.add(part.x)
                outcome.add(part, extra)
            report_rows(block.first + len(block.keep), self.blocks.table.num_rows or 0)
        check_unchanged(stamps)
        self._count = count
        release_memory(np.empty((0, 0)))
        return self._spec(known, columns, outcome)

    def _spec(self, known: Spec, columns: Columns, outcome: Outcome) -> Spec:
        if self.given["weights"] is not None and not outcome.any_weight:
            raise no_weight(self.given["weights"])
        center, scale = columns.check()
        shifted = self.family.location_scale
        shift = outcome.mean() if shifted and "Intercept" in columns.names else 0.0
        return {
            **known,
            "family": self.family.name,
            "center": center.tolist(),
            "scale": scale.tolist(),
            "outcome_center": shift,
            "outcome_scale": outcome.sd(shift) if shifted else 1.0,
            "outcome_sd": outcome.sd(),
            "prior_center": 0.0 if shifted else outcome.typical(),
            **self.given,
        }

    # -- rows ------------------------------------------------------------------------------

    def _each(self, work: Callable[[Block], Any], columns: int) -> Iterator[tuple[Block, Any]]:
        """Yield every block and its result of `work`, or None if it has no complete row."""
        blocks = self.blocks(_rows_at_once(columns))
        once, mapped = (1, _local) if self.workers is None else (BLOCKS_AT_ONCE, self.workers)
        while some := list(islice(blocks, once)):
            yield from zip(some, mapped(partial(_apply, work), some), strict=True)

    def standardised(self, spec: Spec) -> Iterator[tuple[Block, Any]]:
        """Yield every block and its rows for the model's posterior, or None if it has none."""
        return self._each(partial(self.design.standardised, spec), len(spec["center"]))

    def model(self, spec: Spec, progress: bool = True) -> FormulaModel:
        """Return the model of a known spec, with its rows on disk."""
        kept, treedef = self.kept(spec)
        source = replace(kept.source(treedef), workers=self.workers)
        if progress and kept.began is not None:
            kept.tell(source)
        return FormulaModel.on_rows(spec, source)

    def in_memory(self, spec: Spec) -> tuple[Any, np.ndarray, int]:
        """Return all rows, standardised, their numbers, and the count including dropped rows."""
        parts, numbers, read = [], [np.zeros(0, np.int64)], 0
        for block, made in self.standardised(spec):
            read = block.first + len(block.keep)
            if made is not None:
                parts.append(made)
                numbers.append(block.numbers)
        if not parts:
            raise DataError(
                f"every one of the {read:,} new rows has a missing cell in a column that is used."
                if read
                else "there is no new row; give a file that has some."
            )
        rows = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        return rows, np.concatenate(numbers), read

    def kept(self, spec: Spec) -> tuple[CachedRows, Any]:
        """Return the rows in the cache, and the structure of one."""
        reader = _Reader(self, spec)

        def write(folder: Path) -> dict[str, Any]:
            stamps = {path: stamp_of(path) for source in self.sources for path in source.files()}
            before = self._before(spec)
            if before is None:
                found = convert(reader, folder, self.seed, "drop", report_rows)
            elif len(self.dropped[-1]):
                found = drop_rows(before, self.dropped[-1], reader, folder, self.seed, report_rows)
            else:
                last = _Reader(self.last(), spec)
                found = merge(before, last, folder, self.seed, report_rows)
            check_unchanged(stamps)
            return found

        found = cached_rows(self.cache, self._decides(spec), write, known=self.known)
        if self._count not in (None, found.manifest["num_data"]):
            raise DataError(
                f"{reader.name}: the query gave {self._count:,} complete rows, and {found.manifest['num_data']:,} when it "
                "was repeated; run it while no process writes to its files."
            )
        return found, reader.treedef

    def _decides(self, spec: Spec) -> dict[str, Any]:
        """Return everything that determines the rows in the cache."""
        decides = {name: value for name, value in spec.items() if name != "prior"}
        return {**decides, "seed": self.seed, "parts": self.contents}

    def _before(self, spec: Spec) -> CachedRows | None:
        """Return the cached rows before the last change, or rows to make them from, or None."""
        before = self.before()
        if before is None:
            return None
        key = key_of(before._decides(spec))
        manifest = self.cache.found(key, report_bytes)
        if manifest is not None:
            return CachedRows(self.cache.folder / key, manifest, None)
        return None if before._before(spec) is None else before.kept(spec)[0]

    def before(self) -> Streamed | None:
        """Return the table before its last rows were dropped, or without its last part.

        It is None where there is neither.
        """
        if len(self.dropped[-1]):
            return self._of(self.sources, (*self.dropped[:-1], np.zeros(0, np.int64)))
        return None if len(self.sources) < 2 else self._of(self.sources[:-1], self.dropped[:-1])

    def last(self) -> Streamed:
        """Return the last part alone, with all of its rows."""
        return self._of(self.sources[-1:], ())

    def _of(self, sources: Sequence[TableSource], dropped: Sequence[Any]) -> Streamed:
        return Streamed(
            sources, self.formula, self.family.name, self.given, self.seed, self.cache.folder, dropped,
            self.workers,
        )  # fmt: skip

    def check_levels(self, spec: Spec) -> None:
        """Raise OtherColumns where the remaining rows lack a level of the formula's categories."""
        if not self.blocks.has_levels:
            return
        table, _, _ = self.blocks.representative()
        found = rows_of(table, self.formula, self.family, {**self.given, "missing": "error"})
        now, before = found.design.state["names"], spec["design"]["names"]
        if now != before:
            raise OtherColumns(now, before)


class _Reader:
    """The standardised design for the conversion; rows with an empty cell are dropped."""

    def __init__(self, streamed: Streamed, spec: Spec) -> None:
        self.streamed, self.spec = streamed, spec
        self.name, self.learned = streamed.formula, list[ColumnStatistics]()
        given, names = streamed.given, spec["design"]["names"]
        more = {"offset": any(e.startswith("offset(") for e in spec["design"]["factors"])}
        more |= {"trials": given["trials"] is not None, "weight": given["weights"] is not None}
        datum: Any = ("x", "y", {name: name for name, there in more.items() if there})
        found, self.treedef = jax.tree.flatten(datum if datum[2] else datum[:2])
        single = np.dtype(np.float32)
        self.num_rows = 0  # known once they are read
        self.leaves = [Leaf(n, single, (len(names),) if n == "x" else ()) for n in found]

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows, as they are needed."""
        self.num_rows = self.streamed.blocks.table.num_rows
        for block, rows in self.streamed.standardised(self.spec):
            if rows is None:
                made = [np.zeros((0, *leaf.shape), np.float32) for leaf in self.leaves]
            else:
                made = jax.tree.leaves(rows)
            if block.keep.all():
                yield Piece(made)
                continue
            whole = [np.zeros((len(block.keep), *part.shape[1:]), np.float32) for part in made]
            for part, rows in zip(whole, made, strict=True):
                part[block.keep] = rows
            yield Piece(whole, ~block.keep)


def _local(work: Callable[[Block], Any], blocks: Sequence[Block]) -> list[Any]:
    return [work(block) for block in blocks]


def _apply(work: Callable[[Block], Any], block: Block) -> Any:
    return work(block) if block.table.num_rows else None


def _rows_at_once(columns: int) -> int:
    return int(np.clip(MAX_BLOCK_NUMBERS // max(1, columns), 256, MAX_BLOCK_ROWS))


def _scale_norms(state: dict[str, Any], more: float) -> None:
    """Scale the norms of polynomials to all rows, `more` times as many as in their training."""
    for pairs in (kept.get("dict", []) for _, kept in state["transforms"].get("dict", [])):
        for pair in pairs:
            if pair[0] == NORMS_KEY and more > 1:
                pair[1] = _times(pair[1], more)


def _times(value: Any, factor: float) -> Any:
    """Multiply the numbers inside `design`'s JSON by a factor."""
    if isinstance(value, dict):
        name, inner = next(iter(value.items()))
        if name == "dict":
            return {"dict": [[key, _times(part, factor)] for key, part in inner]}
        return {name: _times(inner, factor)}
    if isinstance(value, list):
        return [_times(part, factor) for part in value]
    return value * factor
