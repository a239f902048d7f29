"""The planted bugs can be planted: their texts stand where they say, once, and so do their tests."""

import re
from collections import Counter
from pathlib import Path

from planted import MUTANTS

ROOT = Path(__file__).parents[2]


def test_each_text_stands_once_in_its_file():
    source = ROOT / "src" / "sgld"
    counts = {m.name: (m.file, (source / m.file).read_text().count(m.old)) for m in MUTANTS}
    assert {name: found for name, found in counts.items() if found[1] != 1} == {}


def test_no_bug_is_planted_twice():
    assert [name for name, count in Counter(m.name for m in MUTANTS).items() if count > 1] == []


def test_the_tests_that_are_named_are_there():
    missing = []
    for mutant in MUTANTS:
        for named in mutant.tests.split():
            file, _, test = named.partition("::")
            path = ROOT / file
            name = re.sub(r"\[.*", "", test)
            if not path.is_file() or (name and not re.search(rf"def {name}\b", path.read_text())):
                missing.append((mutant.name, named))
    assert missing == []
