"""A run stopped before every single call that changes the disk: resumable or finished, to the same bits.

    python tests/slow/faults.py [--every 1]

As kill -9, and as a power cut, which undoes renames that were not flushed and empties files that were not.
The layer, the run and what is held against what are those of tests/laws/test_faults.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "laws"))

from test_faults import Disk, begin, check, run_on

import sgld


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="of the calls, so many apart")
    given = parser.parse_args()
    began, done, lost = time.time(), 0, []
    with tempfile.TemporaryDirectory() as folder:
        disk, path = Disk(), Path(folder) / "whole"
        assert run_on(disk, path, lambda: begin(path))
        whole = sgld.load(path), disk.calls
        for power in (False, True):
            for last in range(0, len(disk.calls), given.every):
                try:
                    check(Path(folder), whole, last, power)
                except Exception as error:
                    lost.append(
                        f"before call {last}, {disk.calls[last]}, {'power cut' * power}: {error!r}"[
                            :300
                        ]
                    )
                done += 1
    kinds = Counter(
        name for call, _, name in (c.partition(" to ") for c in disk.calls) if call == "rename"
    )
    print(f"a run of {len(disk.calls)} calls that change the disk, writes: {dict(kinds)}")
    print(
        f"{done - len(lost)} of {done} stops (kill and power cut) resumable or finished; {time.time() - began:.0f} s"
    )
    for line in lost:
        print(line)
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
