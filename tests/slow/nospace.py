"""A disk that fills up at every single write: one sentence, nothing lost, and the run goes on when there is room.

    python tests/slow/nospace.py [--every 1] [--streamed | --formula]

From one call on, every call that needs room on the disk fails with ENOSPC: opening a file, writing to it (in
its middle, too), flushing, renaming. Removing files does not. The run must end with a RunError that says so, and
go on to the draws of the whole run once there is room. --streamed and --formula as of faults.py; a disk that is full
during a conversion is tests/unit/disk/test_bad_files.py's.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "laws"))

import jax
import numpy as np
import test_faults
from faults import formulate, stream
from test_faults import Disk, run_on

import sgld
from sgld.errors import RunError

SAID = os.strerror(errno.ENOSPC)


class Full(Disk):
    """A disk with room for so many calls."""

    def _about(self, what: str) -> None:
        if not what.startswith("remove") and self.last is not None and len(self.calls) >= self.last:
            raise OSError(errno.ENOSPC, SAID)
        self.calls.append(what)

    def fdopen(self, handle: int, *given: Any, **named: Any) -> Any:
        file = os.fdopen(handle, *given, **named)
        return Writing(self, file) if "w" in (given[0] if given else "") else file


class Writing:
    """A file whose writes count."""

    def __init__(self, disk: Full, file: Any) -> None:
        self.disk, self.file = disk, file

    def write(self, content: Any) -> int:
        self.disk._about("write")
        return self.file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


def nospace(folder: Path, every: int = 1) -> tuple[int, int, list[str]]:
    """Calls at which the disk was full, how many of them ended well, and what went wrong at the others."""
    disk, whole = Full(), folder / "whole"
    assert run_on(disk, whole, lambda: test_faults.begin(whole))
    draws, wrong, tried = sgld.load(whole), [], 0
    room = [n for n, call in enumerate(disk.calls) if not call.startswith("remove")]
    for last in range(0, room[-1] + 1, every):  # later ones need none
        path, tried = folder / f"run{last}", tried + 1
        try:
            run_on(Full(last), path, lambda path=path: test_faults.begin(path))
            wrong.append(f"{last}, {disk.calls[last]}: no word of it")
            continue
        except RunError as error:
            if SAID not in str(error) or "\n" in str(error):
                wrong.append(f"{last}, {disk.calls[last]}: {error}")
        except Exception as error:
            wrong.append(f"{last}, {disk.calls[last]}: {error!r}")
        try:
            run_on(Full(), path, lambda path=path: test_faults.go_on(path))
            found = (jax.tree.leaves(run.position) for run in (sgld.load(path), draws))
            for one, other in zip(*found, strict=True):
                np.testing.assert_array_equal(one, other)
        except Exception as error:
            wrong.append(f"{last}, {disk.calls[last]}, after it: {error!r}"[:300])
    return tried, tried - len(wrong), wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="of the calls, so many apart")
    parser.add_argument("--streamed", action="store_true", help="rows from a file")
    parser.add_argument(
        "--formula", action="store_true", help="a formula's, its design on the disk"
    )
    given = parser.parse_args()
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        if given.streamed:
            stream(Path(folder))
        if given.formula:
            formulate(Path(folder))
        tried, well, wrong = nospace(Path(folder), given.every)
    print(
        f"a full disk at {tried} calls: {well} said so and went on to the same draws; {time.time() - began:.0f} s"
    )
    for line in wrong:
        print(line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
