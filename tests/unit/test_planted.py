"""The planted bugs can be planted: each text occurs once in src/sgld, and the named tests exist."""

import re
from collections import Counter
from pathlib import Path

from mutants import chosen_by, misplaced
from planted import MUTANTS
from planted.mutant import Mutant

ROOT = Path(__file__).parents[2]


def test_each_text_occurs_once_in_the_sources():
    assert misplaced(MUTANTS) == []


def test_a_text_that_is_absent_or_ambiguous_is_reported():
    absent = Mutant("absent", "no file " + "contains this", "", "")
    ambiguous = Mutant("ambiguous", "from __future__ import annotations", "", "")
    found = misplaced([absent, ambiguous])
    assert found[0] == "absent: the text must occur once; it occurs in no file."
    assert found[1].startswith("ambiguous: the text must occur once; it occurs in __init__.py, ")


def test_mutants_are_chosen_by_words_of_their_name_or_of_their_file():
    mutant = Mutant("a name", "class BAOA:", "", "")
    assert chosen_by(["name", "baoa"], [mutant]) == chosen_by([], [mutant]) == [mutant]
    assert chosen_by(["another"], [mutant]) == []


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
