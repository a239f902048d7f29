"""What the benchmarks name of this package is there: they run for minutes, and break where nobody looks."""

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
PROGRAMS = sorted(path for path in FOLDER.rglob("*.py") if "__pycache__" not in path.parts)


def imported(tree):
    """(name here, what it is, how it was asked for) of everything that is imported from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sgld":
            module = importlib.import_module(node.module)
            for alias in node.names:
                asked = f"from {node.module} import {alias.name}"
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                yield alias.asname or alias.name, getattr(module, alias.name), asked
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "sgld":
                    importlib.import_module(alias.name)
                    yield "sgld", importlib.import_module("sgld"), alias.name


def chain(node):
    """["sgld", "run", "loop"] of the expression sgld.inference.loop; empty of any other."""
    names = []
    while isinstance(node, ast.Attribute):
        names, node = [node.attr, *names], node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_what_a_benchmark_names_is_there(path):
    tree = ast.parse(path.read_text())
    if "sgld.torch" in path.read_text():
        pytest.importorskip("torch")
    known = {name: value for name, value, _ in imported(tree)}
    for node in ast.walk(tree):
        names = chain(node)
        if not names or names[0] not in known:
            continue
        value, seen = known[names[0]], names[0]
        for name in names[1:]:
            if not isinstance(value, ModuleType):
                break
            assert hasattr(value, name), f"{path.name}, line {node.lineno}: {seen} has no {name}"
            value, seen = getattr(value, name), f"{seen}.{name}"


def test_the_stopwatch_finds_its_parts(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from stopwatch import PARTS

    for module, name, _ in PARTS:
        assert callable(getattr(module, name, None)), f"{module.__name__} has no {name}"


def test_what_streamed_runs_take_is_stored_by_name(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    stream = importlib.import_module("stream")

    table = {"rows": 5, "devices 500": {"us": 2.0, "ratios": {"4 x 1": 0.9}}}
    found = {"rows": 5, "devices 500: us": 2.0, "devices 500: ratios: 4 x 1": 0.9}
    assert stream.figures(table) == found
    calls = []
    seconds = stream.in_turn({name: lambda name=name: calls.append(name) for name in "ab"})
    assert calls[:4] == list("abba") and len(seconds["a"]) == stream.ROUNDS == len(calls) // 2 - 1
