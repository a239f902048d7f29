"""`sgld.open`: a source of rows on disk, from a path, a query, or any object with items."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax

from ..core.progress import progress_shown, stage
from ..core.validation import check_seed, one_of
from ..errors import UsageError
from .arrays import Arrays, Items
from .cache import Cache, stamp_of
from .convert import cached_rows, check_unchanged, convert, report_bytes, report_rows
from .databases import is_query, kind_of_database
from .mapped import OnDisk
from .readers import Reader, TableReader, structure_of
from .table_files import TableFiles, table_files
from .table_source import TableSource
from .tables import existing

MISSING_OPTIONS = ("error", "drop")
PyTree = Any


def open(
    data: Any,
    *,
    columns: PyTree = None,
    table: str | None = None,
    database: str | Path | None = None,
    missing: Literal["error", "drop"] = "error",
    sep: str | None = None,
    decimal: str = ".",
    seed: int = 0,
    cache: str | Path | None = None,
    progress: bool = True,
) -> OnDisk:
    """Open rows on disk, possibly more than fit in memory, as `data=` of `sgld.sample` and others.

    The rows are shuffled once into a cache on disk, which is reused as long as the data do not change. A run
    reads them from there: its memory does not grow with the rows, and its draws equal those of the same rows
    in memory under the same seed.

    Args:
      data: the path of a .npy file, or a tuple or dict of such paths, one for each leaf of a datum;
        of a table (.csv, .parquet, .arrow, .feather), a list of such paths (its parts), or a folder
        of them; of a DuckDB or SQLite file; a SQL query; or any object with `len(data)` and `data[i]`,
        whose items are pytrees of numbers.
      table: the table of a database file that has several.
      database: the DuckDB or SQLite file that a query reads. Without one, DuckDB reads what
        the query names ("select x, y from 'visits/*.parquet' where year > 2019"), and the query
        runs at every call: there is no other way to know whether its rows are the same.
      columns: the structure of a datum from a table: a column's name is one number, a list of names an
        array of them, a tuple or dict of these a tuple or dict. None: a dict of all columns by name.
        A column of texts becomes integers: the index of each text among all texts, sorted.
      missing: "error" refuses a row with an empty cell (or NaN) in a column that is read, "drop"
        leaves such rows out (only for tables: arrays and items must be complete).
      sep: the separator of cells in text files; None detects comma, semicolon, tab or bar.
      decimal: the decimal point of text files.
      seed: the seed of the shuffle; the draws equal those in memory if `sgld.sample` has the same seed.
      cache: the folder of caches; default: SGLD_DATA_CACHE, or the user's cache folder.
      progress: print the progress of the conversion and the size of its cache on standard error.

    Returns: a source of rows: `.num_data`, `.columns` (statistics of each column of a table:
    mean, sd, categories), `.num_dropped`; `.over(client)` maps passes over workers of Dask or Ray. Row numbers
    in messages are those of the data, counted from 0.

    Raises: UsageError for a wrong argument; DataError for data that cannot be read, with the file,
    column or row, and if the disk is full.

    Example:
      >>> import tempfile, numpy as np, sgld
      >>> posterior = sgld.Posterior(
      ...     lambda t: -0.5 * (t / 10) ** 2, lambda t, x: -0.5 * (x - t) ** 2)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     np.save(folder + "/x.npy", np.linspace(-1.0, 3.0, 400))
      ...     rows = sgld.open(folder + "/x.npy", cache=folder, progress=False)
      ...     draws = sgld.sample(posterior, rows, 0.0, progress=False)
      >>> rows.num_data, draws.verdict.word
      (400, 'trusted')
    """
    check_seed(seed)
    if not (sep is None or isinstance(sep, str)) or not isinstance(decimal, str):
        raise UsageError(f"sep and decimal must be text. Got {sep!r} and {decimal!r}.")
    one_of("missing", missing, MISSING_OPTIONS)
    with progress_shown(progress), stage("data"):
        asked = Asked(data, columns, table, database, sep, decimal)
        return _opened(asked, missing, seed, Cache(cache), progress)


class Asked(NamedTuple):
    """The arguments that determine the rows to open."""

    data: Any
    columns: Any = None
    table: str | None = None
    database: str | Path | None = None
    sep: str | None = None
    decimal: str = "."

    @property
    def as_text(self) -> dict[str, Any]:
        """The format of text files, if it was given."""
        return {"sep": self.sep, "decimal": self.decimal} if self[4:] != (None, ".") else {}


def _opened(asked: Asked, missing: str, seed: int, cache: Cache, progress: bool) -> OnDisk:
    paths, make = _reader_of(asked, cache)
    stamps = {path: stamp_of(path) for path in paths}
    decides = {
        "columns": repr(asked.columns), "table": asked.table, "seed": seed, "missing": missing,
        "query": asked.data if is_query(asked.data) else None,
        "x64": bool(jax.config.read("jax_enable_x64")),
        **asked.as_text,
        "content": [cache.content(path, report_bytes) for path in paths],
    }  # fmt: skip

    def write(folder: Path) -> dict[str, Any]:
        manifest = convert(make(), folder, seed, missing, report_rows)
        check_unchanged(stamps)
        return manifest

    kept = cached_rows(cache, decides, write, known=bool(paths))
    found = kept.source(_structure(kept.manifest, asked))
    if progress:
        kept.tell(found)
    return found


def _reader_of(asked: Asked, cache: Cache) -> tuple[list[Path], Callable[[], Reader]]:
    """Return the files whose bytes determine the rows, and the constructor of their reader.

    Without files, only a full read determines the rows.
    """
    data, columns = asked.data, asked.columns
    paths = (data,) if _is_path(data) else data if isinstance(data, (list, tuple)) else ()
    of_files = paths and all(map(_is_path, paths)) and not is_query(data)
    if asked.as_text and not (of_files and all(kind_of_database(path) is None for path in paths)):
        raise UsageError("sep and decimal are only for text files; leave them out.")
    found = _database(asked, cache)
    if found is not None:
        return found
    if asked.table is not None or asked.database is not None:
        raise UsageError("table and database are only for database files and queries.")
    leaves = jax.tree.leaves(data) if isinstance(data, (str, Path, tuple, dict)) else []
    if leaves and all(_is_path(leaf) and str(leaf).lower().endswith(".npy") for leaf in leaves):
        if columns is not None:
            raise UsageError(
                "columns is only for tables; give the paths of .npy files in a tuple or dict instead."
            )
        if asked.as_text:
            raise UsageError(
                "sep and decimal are only for text files, and .npy files are not text; leave them out."
            )
        return [existing(leaf) for leaf in leaves], partial(Arrays, data)
    if listed := _arrays_listed(data):
        raise UsageError(
            f"a list holds the parts of a table, and {listed} is an array; give .npy files in a tuple or dict, one for "
            "each leaf of a datum."
        )
    if of_files:
        files = table_files(data)
        return files, lambda: TableReader(TableFiles(files, columns, **asked.as_text), columns)
    _refuse_what_is_held(data)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or isinstance(data, dict):
        raise UsageError(
            "data must be a path, a list of paths, a tuple or dict of .npy paths, a query, or something with a length "
            f"and items by number. Got {type(data).__name__}."
        )
    if columns is not None:
        raise UsageError("columns is only for tables; items are used unchanged.")
    return [], lambda: Items(data)


def _refuse_what_is_held(data: Any) -> None:
    """Raise UsageError for data in memory, and for a collection of data sets."""
    parts = jax.tree.leaves(data) if isinstance(data, (tuple, dict)) else []
    if parts and any(hasattr(part, "shape") for part in parts):
        raise UsageError(
            f"a {type(data).__name__} of arrays cannot be opened: give arrays in memory directly, sgld.sample(posterior, "
            "(x, y), ...); for files give their paths, or one data set with one datum per item."
        )
    if any(hasattr(data, name) for name in ("iloc", "__dataframe__", "__arrow_c_stream__")):
        raise UsageError(
            f"a {type(data).__name__} is in memory already: give its columns as arrays to sgld.sample, the table to "
            "sgld.fit, or its file to sgld.open."
        )


def _database(asked: Asked, cache: Cache) -> tuple[list[Path], Callable[[], Reader]] | None:
    """Return the same as `_reader_of` for a database or a query, and None for anything else."""
    query = asked.data if is_query(asked.data) else None
    path = asked.database if query is not None else asked.data
    if query is None and (not isinstance(path, (str, Path)) or kind_of_database(path) is None):
        return None
    if query is not None and asked.table is not None:
        raise UsageError("table must be left out for a query, which names its tables itself.")
    source = TableSource(str(asked.data), asked.table, None if path is None else str(path))
    return source.files(), lambda: TableReader(source.batches(cache.folder), asked.columns)


def _arrays_listed(data: Any) -> str | None:
    """Return the first .npy file of a list."""
    parts = [str(part) for part in data if _is_path(part)] if isinstance(data, list) else []
    return next((part for part in parts if part.lower().endswith(".npy")), None)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, Path))


def _structure(manifest: dict[str, Any], asked: Asked) -> Any:
    """Return the treedef of a datum."""
    data = asked.data
    if manifest["columns"]:
        return structure_of(asked.columns, [column["name"] for column in manifest["columns"]])[0]
    return jax.tree.structure(data if isinstance(data, (str, Path, tuple, dict)) else data[0])
