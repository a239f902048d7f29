"""The constants that sensitivity.py varies are all found, and every reading of them is replaced."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "slow"
SPEC = importlib.util.spec_from_file_location("sensitivity", FOLDER / "sensitivity.py")
assert SPEC is not None and SPEC.loader is not None
bench = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = bench
SPEC.loader.exec_module(bench)

MODULE = """
NEAR, FAR = 0.1, (1.0, 10**2)
WORD, NONE, SUM = "word", None, NEAR + 1
lower = 3

def default(limit=NEAR):
    return limit

def reads():
    return NEAR, FAR, SUM
"""
USER = """
from . import law
from .law import NEAR as CLOSE

def reads():
    return CLOSE, law.FAR, law.reads()[0]
"""


def test_constants_are_numbers_with_a_name_in_capitals():
    assert dict(bench.of_module(ast.parse(MODULE))) == {"NEAR": 0.1, "FAR": (1.0, 100)}


def test_those_that_decide_are_found_under_names_that_are_their_own():
    names = list(bench.keys(bench.found()).values())
    assert len(names) == len(set(names)) > 100
    words = {name.rpartition(".")[2] for name in names}
    assert "MAX_CORRECTED_STEP" in names
    assert "rule.MIN_ESS" in names  # another module has one too
    assert {
        "MAX_MANY_CHAINS_NU",
        "MIN_UNUSABLE_NU",
        "MIN_REPORTED_MISFIT",
        "DEFAULT_DRAWS",
        "MIN_ESS",
        "METER_DRAWS",
        "MIN_PRINTED_R2",
    } <= words
    assert {"MIN_R2", "MAX_SE_ALONE", "MAX_CORRECTED_STEP", "MIN_ENERGY"} <= words
    assert words > bench.INDIFFERENT


@pytest.mark.parametrize("value, factor, expected", [
    (0.1, 2.0, 0.2), (0.9, 2.0, 0.95), (0.9, 0.5, 0.8), (400, 0.5, 200), (1, 0.5, 1), (32, 2.0, 64),
    ((1, 2, 4), 2.0, (2, 4, 8)), (1.0, 0.5, 0.5), (10**6, 2.0, 2 * 10**6),
])  # fmt: skip
def test_twice_and_half(value, factor, expected):
    found = bench.varied(value, factor)
    assert found == pytest.approx(expected) and type(found) is type(value)


def test_every_reading_is_replaced_and_remembered():
    readings = bench.Readings()
    constants = {"p.law": dict(bench.of_module(ast.parse(MODULE)))}
    scope = {}

    class Law:
        """Stands for the module p.law."""

    for module, source in (("p.law", MODULE), ("p.user", USER)):
        tree = bench.Instrumented(module, False, constants).visit(ast.parse(source))
        if module == "p.user":
            tree.body = [part for part in tree.body if not isinstance(part, ast.ImportFrom)]
            scope = {"law": Law, "CLOSE": 0.1}
        scope["__read_constant__"] = readings
        readings.importing = 1
        exec(compile(tree, module, "exec"), scope)
        readings.importing = 0
        if module == "p.law":
            Law.FAR, Law.reads, Law.default = (
                scope["FAR"],
                staticmethod(scope["reads"]),
                staticmethod(scope["default"]),
            )
    assert scope["reads"]() == (0.1, (1.0, 100), 0.1)
    assert readings.read == {"NEAR": {"import", "run"}, "FAR": {"run"}}
    readings.changed = {"NEAR": 0.2, "FAR": (2.0,)}
    assert scope["reads"]() == (0.2, (2.0,), 0.2)
    assert Law.default() == 0.1  # read at import: varied in a process of its own


def test_what_counts_as_a_change():
    was = {"word": "trusted", "step_size": 0.3, "sd error": 0.02, "nu": 1e-9, "seconds": 1.0}
    now = {"word": "trusted", "step_size": 0.301, "sd error": 0.029, "nu": 2e-9, "seconds": 1.4}
    assert bench.change(was, now) == {}
    now = {"word": "unknown", "step_size": 0.31, "sd error": 0.031, "nu": 1e-9, "seconds": 5.0}
    assert set(bench.change(was, now)) == {"word", "step_size", "sd error", "seconds"}
