"""`make`: run entries of the gallery and write their pages and the index."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..draws.storage import write_atomic
from ..errors import SGLDError, UsageError, did_you_mean, need
from .entry import Check, Entry
from .page import entry_page, index_page

__all__ = ["NAMES", "Result", "make"]

NAMES = tuple(f"X{i}" for i in range(1, 12))


@dataclass(frozen=True)
class Result:
    """What became of one entry; kept as `x1.json` beside the page.

    Attributes:
      name: "X1" to "X11".
      title: of the page.
      checks: its table.
      error: why it could not be run, a sentence; None where it was.
      seconds: it took.
      quick, seed: as asked.
    """

    name: str
    title: str
    checks: tuple[Check, ...]
    error: str | None
    seconds: float
    quick: bool
    seed: int

    def count(self, word: str) -> int:
        """How many checks end in `word`: "pass", "miss" or "as printed"."""
        return sum(check.word == word for check in self.checks)

    @property
    def missed(self) -> bool:
        """Whether it could not be run, or a check missed without an expected reason."""
        return self.error is not None or self.count("miss") > 0

    def __str__(self) -> str:
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
      progress: show a line over the entries, on a terminal.
      on_result: called after each entry, its page being written.

    Returns: a Result per entry, in the order of the gallery. An entry that cannot be run (an
    extra is missing, say) has its sentence in `error`; the others run all the same.

    Raises: UsageError for an unknown name or a wrong argument, before anything is written;
    MissingExtra where matplotlib is absent.
    """
    chosen, folder = _chosen(names), Path(out)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise UsageError(f"seed must be a whole number from 0 to 2^32 - 1. Got {seed!r}.")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"out must be a folder. Got the file {folder}; name another place.")
    need("matplotlib", "report")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"out cannot be made: {error.strerror} ({folder}); name another place."
        ) from error
    results = []
    with _bar(progress, len(chosen)) as show:
        for done, name in enumerate(chosen):
            show(done, name)
            results.append(_run(name, folder, quick, seed))
            write_atomic(folder / "index.html", index_page(_stored(folder)).encode())
            if on_result is not None:
                on_result(results[-1])
        show(len(chosen), "")
    return results


def _chosen(names: Iterable[str]) -> list[str]:
    asked = [names] if isinstance(names, str) else list(names)
    for name in asked:
        if str(name).upper() not in NAMES:
            raise UsageError(
                f"there is no gallery entry {name!r}; the entries are {NAMES[0]} to {NAMES[-1]}."
                + did_you_mean(str(name).upper(), NAMES)
            )
    wanted = {str(name).upper() for name in asked}
    return [name for name in NAMES if not wanted or name in wanted]


def _run(name: str, folder: Path, quick: bool, seed: int) -> Result:
    """Run one entry; write its page and its checks."""
    module = importlib.import_module(f".{name.lower()}", __package__)
    page, began = folder / f"{name.lower()}.html", time.perf_counter()
    error = None
    try:
        entry: Entry | None = module.run(quick=quick, seed=seed)
    except SGLDError as failure:
        entry, error = None, str(failure)
    checks = () if entry is None else entry.checks
    seconds = time.perf_counter() - began
    result = Result(name, module.TITLE, checks, error, seconds, quick, seed)
    if entry is None:
        page.unlink(missing_ok=True)
    else:
        write_atomic(page, entry_page(result, entry, inspect.getsource(module)).encode())
    text = json.dumps(asdict(result), indent=1, default=str)
    write_atomic(folder / f"{name.lower()}.json", text.encode())
    return result


def _stored(folder: Path) -> list[Result]:
    """The results that lie in the folder, this call's and earlier ones'."""
    found = []
    for name in NAMES:
        try:
            content = json.loads((folder / f"{name.lower()}.json").read_text())
            checks = tuple(Check(**check) for check in content.pop("checks"))
            found.append(Result(**content, checks=checks))
        except (OSError, ValueError, TypeError, KeyError):
            continue  # none, or none of ours
    return found


@contextmanager
def _bar(progress: bool, total: int) -> Iterator[Callable[[int, str], None]]:
    """A line over the entries on a terminal's standard error; silent elsewhere."""
    if not (progress and sys.stderr.isatty()):
        yield lambda done, name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns: list[Any] = [
        TextColumn("gallery"), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        TextColumn("{task.description}"), TimeElapsedColumn(),
    ]  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, name: bar.update(task, completed=done, description=name)
