"""Plant real bugs, one at a time, and see the fast suite fail on each.

    python tests/mutants.py                 all of them; the last line is `K of K killed`
    python tests/mutants.py temperature     those whose name or file contains the word
    python tests/mutants.py --jobs 1        one at a time, on a machine that has other work

A mutant names its text alone. The script finds the one file of src/sgld that contains the text, so that
files may move and change their names.

A mutant is killed by a failed assertion of the tests named beside it, within 15 seconds of this
machine's time: the clock's, or the processor's where that is less because others work beside it.
One that survives, or that merely does not run, makes the script exit with 1.

Those of the PyTorch door run in the Python that SGLD_TORCH_PYTHON names, else in .venv-torch, else
in this one; where none of them has PyTorch they are not run, and the last line says so.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from planted import MUTANTS
from planted.mutant import Mutant

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 15.0  # seconds a mutant
PATIENCE = 4  # times the limit that the clock may show before a run is ended
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "witness", "-m", "not slow", "--tb=line"]
# a bug that only breaks the program proves nothing about the tests
BROKEN = re.compile(r"(Name|Type|Import|Syntax|Attribute|UnboundLocal)Error")


class Run(NamedTuple):
    """pytest's exit status (negative: ended by a signal), what it printed, and its seconds."""

    status: int
    output: str
    seconds: float


class Suite:
    """A copy of the tree in which tests are run."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root = root
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", root)
        # a plugin that fails unless the copy is what the tests import
        (root / "witness.py").write_text(
            "from pathlib import Path\nimport sgld\n"
            "assert Path(sgld.__file__).is_relative_to(Path(__file__).parent), sgld.__file__\n"
        )
        # no bytecode: two versions of a file within a second would look the same
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "JAX_COMPILATION_CACHE_DIR": str(cache),
        }

    def run(self, python: str, tests: Iterable[str], limit: float | None = None) -> Run:
        """pytest on these tests; ended where the clock shows more than `limit` seconds."""
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as printed:
            process = subprocess.Popen(
                [python, "-m", "pytest", *OPTIONS, *tests], cwd=self.root, env=self.environment,
                stdout=printed, stderr=subprocess.STDOUT,
            )  # fmt: skip
            timer = threading.Timer(threading.TIMEOUT_MAX if limit is None else limit, process.kill)
            timer.start()
            _, status, used = os.wait4(process.pid, 0)  # what Popen.wait does not tell: its time
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            printed.seek(0)
            seconds = min(time.monotonic() - began, used.ru_utime + used.ru_stime)
            return Run(process.returncode, printed.read(), seconds)

    def judge(self, mutant: Mutant, python: str) -> tuple[bool, str, float]:
        """Whether the mutant dies, by what, and the seconds it took."""
        (place,) = places_of(mutant)
        path = self.root / "src" / "sgld" / place
        text = path.read_text()
        path.write_text(text.replace(mutant.old, mutant.new))
        try:
            status, output, seconds = self.run(python, mutant.tests.split(), PATIENCE * LIMIT)
        finally:
            path.write_text(text)
        failed = re.search(r"^FAILED (\S+?::[^\n]*?)(?: - (.*))?$", output, re.MULTILINE)
        if status == 0:
            return False, "SURVIVED", seconds
        if status < 0 or seconds > LIMIT:
            return False, f"NOTHING FAILED IN {LIMIT:.0f} s", seconds
        if status != 1 or failed is None or BROKEN.match(failed[2] or ""):
            return False, "DOES NOT RUN\n" + output[-2000:], seconds
        return True, f"killed by {failed[1]}", seconds


@cache
def sources() -> dict[str, str]:
    """Return the text of every file of src/sgld, by its path in there."""
    folder = ROOT / "src" / "sgld"
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*.py"))}


@cache
def places_of(mutant: Mutant) -> list[str]:
    """Return the file of each occurrence of a mutant's old text: of one that can be planted, one file."""
    return [file for file, text in sources().items() for _ in range(text.count(mutant.old))]


def misplaced(mutants: list[Mutant]) -> list[str]:
    """Return a sentence on each mutant whose old text does not occur exactly once in src/sgld."""
    found = []
    for mutant in mutants:
        places = places_of(mutant)
        if len(places) != 1:
            where = ", ".join(places) or "no file"
            found.append(f"{mutant.name}: the text must occur once; it occurs in {where}.")
    return found


def chosen_by(words: Iterable[str], mutants: list[Mutant]) -> list[Mutant]:
    """Return the mutants whose name or file contains every word."""
    return [m for m in mutants if all(word in " ".join([m.name, *places_of(m)]) for word in words)]


@cache
def torch_python() -> str | None:
    """A Python that has PyTorch, or None."""
    given = os.environ.get("SGLD_TORCH_PYTHON")
    beside = ROOT / ".venv-torch" / "bin" / "python"
    for python in (given, str(beside), sys.executable):
        if python is not None and shutil.which(python) is not None:
            found = subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL)
            if found.returncode == 0:
                return python
    return None


def python_of(mutant: Mutant) -> str | None:
    """What runs its tests, or None where nothing here can."""
    return torch_python() if mutant.needs_torch else sys.executable


def unbroken(suites: list[Suite], mutants: list[Mutant]) -> str:
    """What the named tests print where they fail on the tree as it is, else nothing."""
    tests: dict[str, dict[str, None]] = {}
    for mutant in mutants:
        tests.setdefault(python_of(mutant) or "", {}).update(dict.fromkeys(mutant.tests.split()))
    shares = [
        (python, list(named)[i :: len(suites)])
        for python, named in tests.items()
        for i in range(min(len(suites), len(named)))
    ]
    free = _queue(suites)

    def one(share: tuple[str, list[str]]) -> str:
        suite = free.get()
        done = suite.run(*share)
        free.put(suite)
        return "" if done.status == 0 else done.output[-4000:]

    with ThreadPoolExecutor(len(suites)) as pool:
        return "\n".join(filter(None, pool.map(one, shares)))


def _queue(suites: list[Suite]) -> SimpleQueue[Suite]:
    free: SimpleQueue[Suite] = SimpleQueue()
    for suite in suites:
        free.put(suite)
    return free


def judged(suites: list[Suite], mutants: list[Mutant]) -> int:
    """Plant them in the copies, print what becomes of each, and count the killed."""
    free = _queue(suites)

    def one(mutant: Mutant) -> bool:
        suite = free.get()
        died, how, seconds = suite.judge(mutant, python_of(mutant) or "")
        free.put(suite)
        print(f"{seconds:5.1f} s  {mutant.name}: {how}", flush=True)
        return died

    with ThreadPoolExecutor(len(suites)) as pool:
        return sum(pool.map(one, mutants))


def main(words: list[str], jobs: int) -> int:
    """Plant and judge the mutants whose name or file contains every word."""
    chosen = chosen_by(words, MUTANTS)
    lost = misplaced(chosen)
    if lost:
        print("\n".join(lost), "these cannot be planted", sep="\n")
        return 1
    absent = [m for m in chosen if python_of(m) is None]
    chosen = [m for m in chosen if m not in absent]
    with tempfile.TemporaryDirectory(prefix="sgld-mutants-") as folder:
        began = time.monotonic()
        suites = [Suite(Path(folder, str(i)), Path(folder, "cache")) for i in range(jobs)]
        failed = unbroken(suites, chosen)
        if failed:
            print(f"{failed}\nthe tests fail on the tree as it is")
            return 1
        print(f"{time.monotonic() - began:5.1f} s  the tree as it is passes", flush=True)
        killed = judged(suites, chosen)
    for mutant in absent:
        print(f"         {mutant.name}: not run (no torch)")
    print(f"{time.monotonic() - began:5.1f} s  in all")
    unseen = f", {len(absent)} not run (no torch)" if absent else ""
    print(f"{killed} of {len(chosen)} killed{unseen}")
    return 0 if killed == len(chosen) > 0 else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Plant bugs; a fast test must fail on each.")
    parser.add_argument("words", nargs="*", help="only mutants whose name or file contains these")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default 2)")
    given = parser.parse_args()
    sys.exit(main(given.words, max(1, given.jobs)))
