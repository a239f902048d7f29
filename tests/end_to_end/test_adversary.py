"""The attacker of the verdict: a few of its configurations, others with every change of the package, and how it counts."""

import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "slow" / "adversary.py"


def adversary(*arguments):
    return subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)], capture_output=True, text=True,
        timeout=300, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_nothing_drawn_anew_is_trusted_and_wrong():
    """Whoever runs the suite on one tree sees the same cases: what fails can be made to fail again."""
    files = sorted((ROOT / "src").rglob("*.py"))
    seed = zlib.crc32(b"".join(path.read_bytes() for path in files)) % 10**6
    ran = adversary("--seed", seed, "--sample", 2, "--limit", 20, "--lines")
    print(ran.stdout)
    assert ran.returncode == 0, f"--seed {seed} --sample 2:\n{ran.stdout}\n{ran.stderr[-2000:]}"
    lines = [line for line in ran.stdout.splitlines() if f" {seed}." in line]
    assert len(lines) == 4 and sum(" twin " in line for line in lines) == 2


def row(outcome, deceit=True, **more):
    return {
        "family": "halo", "number": 0, "seed": 1, "deceit": deceit, "label": "", "word": "trusted", "reason": "",
        "cpu": 1.0, "seconds": 1.0, "outcome": outcome, **more,
    }  # fmt: skip


def test_stored_rows_are_counted_and_a_silent_one_is_an_error(tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps([row("flagged"), row("refused"), row("trusted", False)]))
    second.write_text(json.dumps([row("silent"), row("refused", False)]))
    assert adversary("--from", first).returncode == 0
    ran = adversary("--from", first, second)
    assert ran.returncode == 1
    total = ran.stdout.splitlines()[-1]
    assert re.findall(r"\d+", total) == ["3", "1", "1", "0", "1", "2", "0", "0", "1", "1", "5"]


def test_what_is_off_and_trusted_is_silent():
    code = (
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "from adversary import outcome\n"
        "for word, ratio, error, deceit in [('trusted', 1.1, .2, 1), ('trusted', 1.16, 0, 1), ('trusted', .84, 0, 1),\n"
        "        ('trusted', 1, .31, 1), ('trusted', float('nan'), 0, 1), ('unknown', 2, 0, 1), ('biased', 1, 0, 1)]:\n"
        "    print(outcome(dict(word=word, ratio=ratio, error=error, deceit=deceit)))\n"
        "for word, deceit in [('too long', 1), ('not reached', 0), ('an error', 1), ('an error', 0)]:\n"
        "    print(outcome(dict(word=word, deceit=deceit)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout.split() == [
        "trusted", "silent", "silent", "silent", "silent", "flagged", "refused",
        "refused", "refused", "flagged", "refused",
    ]  # fmt: skip
