"""What a type checker makes of the public surface: right uses pass, wrong ones are errors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import sgld
from sgld import typing

USES = Path(__file__).with_name("public_uses.py")


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """{line of public_uses.py: what pyright says of it}."""
    folder = tmp_path_factory.mktemp("types")
    source = str(Path(sgld.__file__).parents[1])
    (folder / USES.name).write_text(USES.read_text())  # pyright sees files of a project only
    config = {"extraPaths": [source], "typeCheckingMode": "basic"}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    result = subprocess.run(
        [sys.executable, "-m", "pyright", "--project", folder, "--outputjson",
         "--pythonpath", sys.executable],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = json.loads(result.stdout)
    assert said["summary"]["filesAnalyzed"] == 1, result.stdout
    found = {}
    for fault in said["generalDiagnostics"]:
        found.setdefault(fault["range"]["start"]["line"] + 1, []).append(fault["message"])
    return found


LINES = dict(enumerate(USES.read_text().splitlines(), start=1))
REFUSED = [number for number, line in LINES.items() if line.endswith("  # refused")]


def test_right_uses_are_no_errors(reported):
    wrong = {LINES[number]: said for number, said in reported.items() if number not in REFUSED}
    assert wrong == {}


def test_wrong_uses_are_errors(reported):
    assert len(REFUSED) > 25
    assert [LINES[number] for number in REFUSED if number not in reported] == []


def test_the_error_names_the_words_that_are_possible(reported):
    (number,) = (n for n in REFUSED if "reshufle" in LINES[n])
    said = " ".join(reported[number])
    assert "reshufle" in said and "'reshuffle'" in said and "'symmetric'" in said


def test_the_words_are_those_that_run():
    from sgld.data.source import ORDERS
    from sgld.inference.reference import ACCEPTANCE_TARGETS
    from sgld.inference.variational import VARIATIONAL_FAMILIES as VARIATIONAL
    from sgld.inference.variational_family import KL_WEIGHTS
    from sgld.regression.families import ALIASES, FAMILIES

    assert set(get_args(typing.Order)) == set(ORDERS)
    assert set(get_args(typing.Method)) == set(ACCEPTANCE_TARGETS)
    assert set(get_args(typing.FamilyName)) == {*FAMILIES, *ALIASES}
    assert set(get_args(typing.VariationalFamily)) == set(VARIATIONAL)
    assert set(get_args(typing.KLWeights)) == set(KL_WEIGHTS)


def test_the_package_says_that_it_is_typed():
    assert (Path(sgld.__file__).parent / "py.typed").is_file()
