"""`make` runs entries of the gallery and writes their pages and the index.

The module also loads the gallery's data: bundled tables, and a user-supplied one. The constant
`NEEDS` of an entry names the optional modules that it requires.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import inspect
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..core.devices import check_device
from ..core.files import write_atomic
from ..core.progress import aside, progress_shown, report_count, stage
from ..core.validation import check_seed
from ..data.tables import bundled
from ..errors import DataError, MissingExtra, SGLDError, UsageError, did_you_mean, need
from .page import Check, Entry, entry_page, index_page

# -- data ----------------------------------------------------------------------------------


MIN_TABLE_ROWS = 20  # a fifth is held out
MAX_TABLE_COLUMNS = 2000  # every cell is stored
Row = tuple[float, dict[int, float]]  # the label, and the values of columns counted from 1


class Table(NamedTuple):
    """A user-supplied table: its name, X [N, d], labels y [N] of 0 and 1."""

    name: str
    X: Float[np.ndarray, "N d"]
    y: Float[np.ndarray, " N"]


def columns(name: str) -> dict[str, np.ndarray]:
    """Return the columns of a bundled CSV file: numbers as float64 [N], anything else as text [N].

    Raises DataError for an unknown name.

    Example:
      >>> from sgld.gallery.make import columns
      >>> {name: values.shape for name, values in columns("handout_regression").items()}
      {'x': (10000,), 'y': (10000,)}
    """
    with open(bundled(name), newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    return {
        title: _numbers(np.array(cells))
        for title, cells in zip(head, zip(*rows, strict=True), strict=True)
    }


def cancer() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's breast cancer data: X [569, 30], y [569]."""
    return need("sklearn.datasets", "sklearn").load_breast_cancer(return_X_y=True)


def load_table(path: Path | str) -> tuple[Float[np.ndarray, "N d"], Float[np.ndarray, " N"]]:
    r"""Load X [N, d] and labels y [N], 0 or 1, float32, from a user-supplied file.

    A .csv has a line of names, then numbers, the label in the last column. Anything else is
    libsvm: `label index:value ...`, indices from 1, or from 0 if one is 0, what is left out being 0. There are two
    labels, such as -1 and +1 or 0 and 1; the larger is 1.

    Raises DataError: no such file, not text, a bad line (the file and its number), or not two labels.

    Example:
      >>> import tempfile
      >>> from pathlib import Path
      >>> from sgld.gallery.make import load_table
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = Path(folder, "a9a").write_text("-1 1:0.5 3:2\n+1 2:1\n")
      ...     X, y = load_table(Path(folder, "a9a"))
      >>> X.tolist(), y.tolist()
      ([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]], [0.0, 1.0])
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}; give a .csv or a libsvm file.")
    read = _csv_rows if path.suffix.lower() == ".csv" else _libsvm_rows
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = read(file, path.name)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not text; give a .csv or a libsvm file.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    labels = np.unique([label for label, _ in rows])
    if len(labels) != 2:
        raise DataError(f"{path.name} must hold two labels. Got {len(labels)} in {len(rows)} rows.")
    base = min(1, *(min(row, default=1) for _, row in rows))
    X = np.zeros((len(rows), 1 - base + max(max(row, default=0) for _, row in rows)), np.float32)
    for i, (_, row) in enumerate(rows):
        X[i, np.fromiter(row.keys(), int) - base] = np.fromiter(row.values(), float)
    return X, np.array([label == labels[1] for label, _ in rows], np.float32)


def own_table(path: Path | str) -> Table:
    """Load a table by `load_table` with the file's name; raise DataError also if it is too small."""
    X, y = load_table(path)
    if len(y) < MIN_TABLE_ROWS or X.shape[1] == 0:
        raise DataError(
            f"{Path(path).name} must hold {MIN_TABLE_ROWS} rows or more, and a column besides the "
            f"label. Got {len(y)} rows of {X.shape[1]} columns."
        )
    return Table(Path(path).name, X, y)


def _libsvm_rows(file: Iterable[str], name: str) -> list[Row]:
    rows = []
    for number, line in enumerate(file, 1):
        cells = line.split("#")[0].split()
        if not cells:
            continue
        try:
            pairs = [cell.split(":") for cell in cells[1:]]
            row = {int(j): float(value) for j, value in pairs}
            good = min(row, default=1) >= 0 and np.isfinite([float(cells[0]), *row.values()]).all()
        except ValueError:
            good, row = False, {}
        if not good or len(row) < len(cells) - 1:
            raise DataError(
                f"{name}: line {number} must be `label index:value ...` with indices from 0 or 1, "
                f"each once. Got {line.strip()[:60]!r}."
            )
        _refuse_wide(name, number, max(row, default=0))
        rows.append((float(cells[0]), row))
    return rows


def _csv_rows(file: Iterable[str], name: str) -> list[Row]:
    reader = csv.reader(file)
    lines = ((reader.line_num, cells) for cells in reader if cells)
    number, head = next(lines, (1, []))
    if head and all(_is_number(cell) for cell in head):
        raise DataError(f"{name}: line {number} must hold the columns' names. Got {head[:6]}.")
    _refuse_wide(name, number, len(head) - 1)
    rows = []
    for number, cells in lines:
        values = [float(cell) if _is_number(cell) else np.nan for cell in cells]
        if len(values) != len(head) or not np.isfinite(values).all():
            raise DataError(
                f"{name}: line {number} must hold {len(head)} finite numbers. Got {cells[:6]}."
            )
        rows.append((values[-1], dict(enumerate(values[:-1], 1))))
    return rows


def _refuse_wide(name: str, number: int, width: int) -> None:
    if width > MAX_TABLE_COLUMNS:
        raise DataError(
            f"{name}: line {number} has a column {width}; at most {MAX_TABLE_COLUMNS} are taken."
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: np.ndarray) -> np.ndarray:
    try:
        return cells.astype(np.float64)
    except ValueError:
        return cells


# -- needs ---------------------------------------------------------------------------------


EXTRAS = {  # module -> what it is called, and the extra that installs it
    "numpyro": ("NumPyro", "numpyro"),
    "sklearn": ("scikit-learn", "sklearn"),
    "torch": ("PyTorch", "torch"),
}


def lacking(modules: Iterable[str]) -> str | None:
    """Return which of `modules` are not installed, with the command that installs them, or None.

    Example:
      >>> from sgld.gallery.make import lacking
      >>> lacking(()) is None
      True
    """
    missing = [EXTRAS[name] for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    names, extras = zip(*missing, strict=True)
    return f"needs {' and '.join(names)}: pip install 'sgld[{','.join(extras)}]'"


# -- make ----------------------------------------------------------------------------------


EXPERIMENTS = tuple(f"X{i}" for i in range(1, 12))
OWN_TABLE_EXPERIMENT = "X9"  # takes a reader's own table
FRAME_MODULES = ("make", "page")  # what no page shows of this folder


@dataclass(frozen=True)
class Result:
    """The outcome of one entry, stored as `x1.json` next to the page.

    Attributes:
      name: "X1" to "X11".
      title: of the page.
      checks: its table.
      error: why it could not be run, a sentence; None where it was.
      seconds: it took.
      quick, seed: as asked.
      lacks: why it was not made, an optional dependency being absent; None where it was.

    Example:
      >>> from sgld.gallery import Check, Result
      >>> checks = (Check.in_ratio("sd", 1.0, 1.01, 0.05), Check.in_ratio("sd", 1.0, 2.0, 0.05))
      >>> result = Result("X1", "A title", checks, None, 2.0, True, 0)
      >>> result.count("pass"), result.missed
      (1, True)
    """

    name: str
    title: str
    checks: tuple[Check, ...]
    error: str | None
    seconds: float
    quick: bool
    seed: int
    lacks: str | None = None

    def count(self, word: str) -> int:
        """Count the checks that end in `word`: "pass", "miss" or "as printed"."""
        return sum(check.word == word for check in self.checks)

    @property
    def missed(self) -> bool:
        """Whether it could not be run, or a check missed without an expected reason."""
        return self.error is not None or self.count("miss") > 0

    def __str__(self) -> str:
        if self.lacks is not None:
            return f"{self.name:4s} not made: {self.lacks}"
        if self.error is not None:
            return f"{self.name:4s} not run: {self.error}"
        printed = self.count("as printed")
        return (
            f"{self.name:4s}{self.count('pass'):3d} passed, {self.count('miss')} missed"
            + (f", {printed} as printed" if printed else "")
            + f"  {self.seconds:6.1f} s  {self.title}"
        )


def make(
    names: Iterable[str] = (),
    out: Path | str = "gallery",
    *,
    quick: bool = False,
    seed: int = 0,
    data: Path | str | None = None,
    progress: bool = True,
    on_result: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Run entries and write `x1.html` ..., with `index.html` that links all in the folder.

    Args:
      names: "X1" to "X11", in either case; none: all.
      out: the folder to write to; made where it is missing. Other pages of a gallery in it stay,
        and stay in the index.
      quick: smaller runs with wider limits: minutes for all instead of most of an hour.
      seed: of everything random.
      data: for X9, which must then be named: a file of a reader's own table with two labels. A
        .csv has a line of names, then numbers, the label in the last column; anything else is
        libsvm (`sgld.gallery.make.load_table`).
      progress: show a line over the entries, as `sgld.sample` does over its stages.
      on_result: called after each entry, its page being written.

    Returns: a Result per entry, in the order of the gallery. One that could not be run has its
    sentence in `error`, and one whose optional dependency is absent says so in `lacks`, unless it
    was asked for by name; the others run all the same.

    Raises, before anything is written: UsageError for an unknown name or a wrong argument;
    DataError for a file `data` that cannot be read, with the line; MissingExtra where matplotlib
    is absent, or what an entry asked for by name needs.

    Example:
      >>> import sgld
      >>> sgld.gallery.make(["X12"])
      Traceback (most recent call last):
      sgld.errors.UsageError: there is no gallery entry 'X12'; the entries are X1 to X11. Did you mean 'X1'?
    """
    asked = [names] if isinstance(names, str) else [str(name) for name in names]
    chosen, folder = _chosen(asked), Path(out)
    check_seed(seed)
    check_device()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"out must be a folder. Got the file {folder}; name another place.")
    need("matplotlib", "report")
    table = None if data is None else _own(data, asked)
    lacks = {name: lacking(_needs(name, table is not None)) for name in chosen}
    for name in chosen if asked else ():
        if lacks[name] is not None:
            raise MissingExtra(f"{name} {lacks[name]}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"out cannot be made: {error.strerror} ({folder}); name another place."
        ) from error
    results = []
    with progress_shown(progress):
        for done, name in enumerate(chosen):
            own = {} if table is None or name != OWN_TABLE_EXPERIMENT else {"data": table}
            with stage(name):
                report_count(done, len(chosen), "entries")
                results.append(_run(name, folder, quick, seed, lacks[name], own))
                write_atomic(folder / "index.html", index_page(_stored(folder)).encode())
            if on_result is not None:
                with aside():
                    on_result(results[-1])
    return results


def _chosen(asked: list[str]) -> list[str]:
    for name in asked:
        if name.upper() not in EXPERIMENTS:
            raise UsageError(
                f"there is no gallery entry {name!r}; the entries are {EXPERIMENTS[0]} to {EXPERIMENTS[-1]}."
                + did_you_mean(name.upper(), EXPERIMENTS)
            )
    wanted = {name.upper() for name in asked}
    return [name for name in EXPERIMENTS if not wanted or name in wanted]


def _own(data: Path | str, asked: list[str]) -> Table:
    if OWN_TABLE_EXPERIMENT not in (name.upper() for name in asked):
        raise UsageError(
            f"data is for {OWN_TABLE_EXPERIMENT} alone; ask for it: sgld gallery {OWN_TABLE_EXPERIMENT} --data {data}"
        )
    return own_table(data)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f".{name.lower()}", __package__)


def _needs(name: str, own: bool) -> tuple[str, ...]:
    """Return the optional modules of an entry; X9 has others for a user-supplied table."""
    kind = "NEEDS_FOR_DATA" if own and name == OWN_TABLE_EXPERIMENT else "NEEDS"
    return getattr(_module(name), kind, ())


def _sources(module: ModuleType) -> dict[str, str]:
    """Return the source of an entry's file and of the gallery files that it imports, by name."""
    found, left = {}, [module]
    while left:
        one = left.pop(0)
        file = Path(str(one.__file__)).name
        if file in found:
            continue
        found[file] = inspect.getsource(one)
        for value in vars(one).values():
            home = value if inspect.ismodule(value) else inspect.getmodule(value)
            package, _, last = getattr(home, "__name__", "").rpartition(".")
            if home is not None and package == __package__ and last not in FRAME_MODULES:
                left.append(home)
    return found


def _run(
    name: str, folder: Path, quick: bool, seed: int, lacks: str | None, own: dict[str, Any]
) -> Result:
    """Run one entry; write its page and its checks."""
    module = _module(name)
    page, began = folder / f"{name.lower()}.html", time.perf_counter()
    entry: Entry | None = None
    error = None
    if lacks is None:
        try:
            entry = module.run(quick=quick, seed=seed, **own)
        except SGLDError as failure:
            error = str(failure)
    checks = () if entry is None else entry.checks
    seconds = time.perf_counter() - began
    result = Result(name, module.TITLE, checks, error, seconds, quick, seed, lacks)
    if entry is None:
        page.unlink(missing_ok=True)
    else:
        write_atomic(page, entry_page(result, entry, _sources(module)).encode())
    text = json.dumps(asdict(result), indent=1, default=str)
    write_atomic(folder / f"{name.lower()}.json", text.encode())
    return result


def _stored(folder: Path) -> list[Result]:
    """Return the results in the folder, from this call and earlier ones."""
    found = []
    for name in EXPERIMENTS:
        try:
            content = json.loads((folder / f"{name.lower()}.json").read_text())
            checks = tuple(Check(**check) for check in content.pop("checks"))
            found.append(Result(**content, checks=checks))
        except (OSError, ValueError, TypeError, KeyError):
            continue  # none, or none of ours
    return found
