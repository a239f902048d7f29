"""Data of the gallery: what comes with the package and its dependencies, and a reader's own table."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..data.tables import bundled
from ..errors import DataError, need

__all__ = ["Table", "cancer", "columns", "load_table", "own_table"]

LEAST_ROWS = 20  # a fifth is held out
MOST_COLUMNS = 2000  # every cell is stored
Row = tuple[float, dict[int, float]]  # the label, and the values of columns counted from 1


class Table(NamedTuple):
    """A reader's own data: what to call them, X [N, d], labels y [N] of 0 and 1."""

    name: str
    X: Float[np.ndarray, "N d"]
    y: Float[np.ndarray, " N"]


def columns(name: str) -> dict[str, np.ndarray]:
    """The columns of a bundled CSV file: numbers as float64 [N], anything else as text [N].

    Raises DataError for an unknown name.

    Example:
      >>> from sgld.gallery.data import columns
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
    """scikit-learn's breast cancer data: X [569, 30], y [569]."""
    return need("sklearn.datasets", "sklearn").load_breast_cancer(return_X_y=True)


def load_table(path: Path | str) -> tuple[Float[np.ndarray, "N d"], Float[np.ndarray, " N"]]:
    """X [N, d] and labels y [N], 0 or 1, float32, from a reader's own file.

    A .csv has a line of names, then numbers, the label in the last column. Anything else is
    libsvm: `label index:value ...`, indices from 1, what is left out being 0. There are two
    labels, such as -1 and +1 or 0 and 1; the larger is 1.

    Raises DataError: no such file, not text, a bad line (the file and its number), or not two labels.

    Example:
      >>> import tempfile
      >>> from pathlib import Path
      >>> from sgld.gallery.data import load_table
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = Path(folder, "a9a").write_text("-1 1:0.5 3:2\\n+1 2:1\\n")
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
    X = np.zeros((len(rows), max(max(row, default=0) for _, row in rows)), np.float32)
    for i, (_, row) in enumerate(rows):
        X[i, np.fromiter(row.keys(), int) - 1] = np.fromiter(row.values(), float)
    return X, np.array([label == labels[1] for label, _ in rows], np.float32)


def own_table(path: Path | str) -> Table:
    """What `load_table` reads, with the file's name; DataError too where it is too small."""
    X, y = load_table(path)
    if len(y) < LEAST_ROWS or X.shape[1] == 0:
        raise DataError(
            f"{Path(path).name} must hold {LEAST_ROWS} rows or more, and a column beside the "
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
            good = min(row, default=1) >= 1 and np.isfinite([float(cells[0]), *row.values()]).all()
        except ValueError:
            good, row = False, {}
        if not good or len(row) < len(cells) - 1:
            raise DataError(
                f"{name}: line {number} must be `label index:value ...` with indices from 1, "
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
    if width > MOST_COLUMNS:
        raise DataError(
            f"{name}: line {number} has a column {width}; at most {MOST_COLUMNS} are taken."
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
