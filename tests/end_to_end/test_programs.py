"""Short versions of tests/slow: what is bad, hostile, damaged, killed or without room is answered, each time."""

import re
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "slow"))

import dirty
import hostile
import mutated
import nospace


@pytest.mark.parametrize(
    "case", dirty.CASES[::3], ids=lambda case: re.sub(r"\W+", " ", case.name)[:50]
)
def test_what_is_bad_is_refused_in_a_sentence_and_leaves_nothing(case):
    with tempfile.TemporaryDirectory() as folder:  # where nobody, too, may come; not so tmp_path
        dirty.tried(case, Path(folder))


def test_what_is_hostile_is_refused_or_only_shown():
    tried, wrong = hostile.hostile(show=False, every=16)
    assert tried > 10 and not wrong, wrong


def test_what_is_damaged_or_forged_is_refused_or_read_as_it_was(tmp_path):
    found = mutated.mutate(60, 7, tmp_path)
    assert not found["faults"] and not found["code run"], found
    assert found["refused"] > 20, found


def test_a_full_disk_is_told_and_loses_nothing(tmp_path):
    tried, well, wrong = nospace.nospace(tmp_path, every=120)
    assert tried == well > 4, wrong
