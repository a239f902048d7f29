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


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_benchmark_uses_the_public_surface_alone(path):
    """What a user may import: `sgld` and its modules, and what a result gives."""
    public = {f"sgld.{name}" for name in ("errors", "gallery", "networks", "testing", "torch")}
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sgld":
            assert node.module in public, f"{path.name}, line {node.lineno}: {node.module}"
        if isinstance(node, ast.Import):
            asked = {alias.name for alias in node.names if alias.name.startswith("sgld")}
            assert asked <= {"sgld", *public}, f"{path.name}, line {node.lineno}: {asked}"
        names = chain(node)
        if names[:1] == ["sgld"]:
            private = [name for name in names if name.startswith("_") and not name.endswith("__")]
            assert not private, f"{path.name}, line {node.lineno}: {'.'.join(names)}"


def test_every_program_has_a_short_form(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    smoke = importlib.import_module("smoke")

    runnable = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text()}
    assert set(smoke.programs()) == runnable - {"smoke"} and len(runnable) > 10


def test_rounds_are_in_turn_and_tables_are_aligned(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    harness = importlib.import_module("harness")

    calls = []
    timers = {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}
    found = harness.paired_rounds(timers, rounds=2)
    assert calls == list("baabba") and [len(values) for values in found.values()] == [2, 2]
    table = harness.Table(8, {"seconds": ".1f", "steps": "d"})
    table.row("one", 1.26, None, note="trusted")
    table.row("two", "much", 12)
    assert table.lines == [
        "          seconds    steps", "one           1.3        -  trusted", "two          much       12",
    ]  # fmt: skip
    assert capsys.readouterr().out.splitlines() == table.lines


def test_a_short_form_stores_nothing_in_results(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    harness = importlib.import_module("harness")

    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    args = harness.command_line("", ("a", "b"), arguments=["--smoke", "--only", "b"])
    assert args.only == ["b"] and args.store
    harness.store("t", {"x": 1.0}, "python benchmarks/t.py")
    assert harness.stored("t")["figures"]["x"]["value"] == 1.0 and not list(tmp_path.iterdir())
    with pytest.raises(SystemExit):
        harness.command_line("", ("a", "b"), arguments=["--only", "c"])


def test_what_streamed_runs_take_is_stored_by_name(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    stream = importlib.import_module("stream")

    table = {"rows": 5, "devices 500": {"us": 2.0, "ratios": {"4 x 1": 0.9}}}
    found = {"rows": 5, "devices 500: us": 2.0, "devices 500: ratios: 4 x 1": 0.9}
    assert stream.figures(table) == found
