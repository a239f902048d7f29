"""Provide what the benchmarks share: timing, tables, stored figures and the command line."""

from __future__ import annotations

import argparse
import atexit
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT, RESULTS = HERE.parent, HERE / "results"
MISSING = "-"  # printed for a value that a row does not have
Figure = float | int | str | list[str]


# -- timing ----------------------------------------------------------------------------------


def wall_seconds(call: Callable[[], Any]) -> float:
    """Return the wall time of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of a call, its wall seconds and its CPU seconds on all cores."""
    began, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - began, time.process_time() - cpu


def paired_rounds(
    timers: dict[str, Callable[[], Any]], rounds: int, warm_up: bool = True
) -> dict[str, np.ndarray]:
    """Run every timer once a round, forwards and backwards in turn; return its values [round, ...].

    Speed on a shared machine drifts by a factor of two, so only ratios within a round count.
    """
    values: dict[str, list[Any]] = {name: [] for name in timers}
    for number in range(-int(warm_up), rounds):
        for name in list(timers)[:: -1 if number % 2 else 1]:
            value = timers[name]()
            if number >= 0:
                values[name].append(value)
    return {name: np.array(each) for name, each in values.items()}


# -- tables ----------------------------------------------------------------------------------


class Table:
    """Print rows in aligned columns as they come, and keep the lines.

    Args:
      name_width: of the first column.
      columns: heading -> format of its numbers. Text and missing values are aligned with them.
    """

    def __init__(self, name_width: int, columns: dict[str, str]) -> None:
        self.name_width, self.columns = name_width, columns
        self.lines: list[str] = []
        self.row("", *columns)

    def row(self, name: str, *values: Any, note: str = "") -> None:
        """Print one row; `note` follows the last column."""
        cells = [f"{name:<{self.name_width}}"]
        for value, (heading, how) in zip(values, self.columns.items(), strict=False):
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            text = format(value, how) if number else MISSING if value is None else str(value)
            cells.append(f"{text:>{max(9, len(heading) + 1)}}")
        line = ("".join(cells) + f"  {note}").rstrip()
        self.lines.append(line)
        print(line, flush=True)


# -- stored figures --------------------------------------------------------------------------


def commit() -> str:
    """Return the commit of the tree, with a + if src or a benchmark has uncommitted changes."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "benchmarks/*.py")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + "+" * bool(changed)


def stored(name: str) -> dict[str, Any]:
    """Return the content of results/NAME.json."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"figures": {}}


def store(name: str, figures: dict[str, Figure], command: str | None = None) -> None:
    """Write figures to results/NAME.json; its other figures keep the commit they came from."""
    table = stored(name)
    mark = {"commit": commit(), "date": time.strftime("%Y-%m-%d"), "origin": "measured"}
    command = command or " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *_options()])
    for figure, value in figures.items():
        table["figures"][figure] = {"value": value, "command": command, **mark}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(table, indent=1) + "\n")


def _options() -> list[str]:
    """Return the options of this run without those that name a folder of this machine."""
    kept: list[str] = []
    for word in sys.argv[1:]:
        if not Path(word).is_absolute():
            kept.append(word)
        elif kept and kept[-1].startswith("--"):
            kept.pop()
    return kept


# -- other libraries and processes -----------------------------------------------------------


def peer(name: str, what: str) -> Any:
    """Import a library that is not required; without it print what is left out and return None."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"left out: {what} ({error})", flush=True)
        return None


def fresh_process(
    program: str, part: str, *, environment: dict[str, str | None] | None = None,
    timeout: float | None = None, **arguments: Any,
) -> Any:  # fmt: skip
    """Return what a part of a program returns in a process of its own, as JSON.

    A value of None in `environment` removes that variable.
    """
    command = [sys.executable, program, "--part", part, json.dumps(arguments)]
    variables = {"PYTHONPATH": package_path()} | (environment or {})
    env = {k: v for k, v in {**os.environ, **variables}.items() if v is not None}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=env, timeout=timeout, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{Path(program).name}: part {part} failed")
    return json.loads(done.stdout.splitlines()[-1])


def package_path() -> str:
    """Return a PYTHONPATH with which another process imports the same `sgld`."""
    import sgld

    source = str(Path(sgld.__file__).resolve().parents[1])
    return os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])


# -- the command line ------------------------------------------------------------------------


def command_line(
    doc: str | None, only: Iterable[str] = (), options: dict[str, dict[str, Any]] | None = None,
    parts: dict[str, Callable[..., Any]] | None = None, arguments: Sequence[str] | None = None,
) -> argparse.Namespace:  # fmt: skip
    """Return the options of a program. A process that was started for a part runs it and ends.

    Every program takes `--smoke`, with which its sizes are tiny and its figures are stored in a
    temporary folder, `--store`, and `--only` if it has several tables.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--part"]:
        print(json.dumps((parts or {})[words[1]](**json.loads(words[2])), default=float))
        sys.exit()
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: only whether it runs")
    parser.add_argument("--store", action="store_true", help="write the figures to results/")
    names = list(only)
    if names:
        parser.add_argument("--only", help=f"some of {', '.join(names)}, with commas")
    for flag, settings in (options or {}).items():
        parser.add_argument(flag, **settings)
    args = parser.parse_args(words)
    if names:
        chosen = args.only.split(",") if args.only else names
        if unknown := set(chosen) - set(names):
            listed = ", ".join(sorted(unknown))
            parser.error(f"--only takes {', '.join(names)}. Got {listed}.")
        args.only = chosen
    if args.smoke:
        args.store = True
        _store_in_a_temporary_folder()
    return args


def _store_in_a_temporary_folder() -> None:
    global RESULTS
    RESULTS = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, RESULTS, ignore_errors=True)
