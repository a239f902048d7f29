"""The speed table of README states what is stored, and figures that moved are named."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))


def _load(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


claims = _load("claims")
harness = sys.modules["harness"]
TABLES = sorted(path.stem for path in harness.RESULTS.glob("*.json"))


def test_readme_states_what_is_stored():
    assert claims.differing() == []
    assert 4 <= len(claims.SPEED) <= 5


def test_a_wrong_figure_is_found_and_rewritten(tmp_path):
    page, readme = tmp_path / "README.md", claims.README.read_text()
    table = claims.speed_table()
    row = next(line for line in table if "batch 500" in line)
    page.write_text(readme.replace(row, re.sub(r"\d\S* times", "99 times", row)))
    (line,) = claims.differing(page)
    assert "says" in line and "99 times" in line and row in line
    page.write_text(claims.rewritten(page.read_text()))
    assert page.read_text() == readme and claims.differing(page) == []
    page.write_text(readme.replace(row + "\n", ""))
    assert claims.differing(page) != [] and claims.rewritten(page.read_text()) == readme


def test_the_table_is_found_by_its_heading():
    text = "# A\n\n| x |\n\n## Speed\n\nWords.\n\n| old |\n|---|\n\nMore.\n\n## Next\n\n| y |\n"
    figures = {figure: {"value": 0.0456} for _, _, (_, figure), _ in claims.SPEED}
    figures["W1, 1 chain, x BlackJAX"] = {"value": "3 to 4"}
    stored = lambda name: {"figures": figures}  # noqa: E731
    found = claims.rewritten(text, stored)
    assert found.count("| old |") == 0 and "| 3 to 4 times |" in found
    assert "| 0.046 times faster |" in found and found.endswith(text[text.index("\n\nMore.") :])
    with pytest.raises(ValueError, match="one table"):
        claims.rewritten("# A\n\n## Speed\n\nWords.\n\n## Next\n\n| y |\n", stored)
    with pytest.raises(KeyError):
        claims.rewritten(text, lambda name: {"figures": {}})


@pytest.mark.parametrize("name", TABLES)
def test_every_stored_figure_says_where_it_comes_from(name):
    for figure, entry in claims.stored(name)["figures"].items():
        assert re.fullmatch(r"[0-9a-f]{7,}\+?", entry["commit"]), figure
        assert entry["command"].startswith(("python benchmarks/", "python tests/")), figure
        assert entry["origin"] == "measured" or entry["origin"].startswith("stated in "), figure


def test_what_is_stored_keeps_the_rest_of_its_table(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    claims.store("t", {"a": 1.0, "b": "word"}, "python benchmarks/t.py")
    claims.store("t", {"a": 2.0}, "python benchmarks/t.py --only a")
    found = json.loads((tmp_path / "t.json").read_text())["figures"]
    assert (found["a"]["value"], found["b"]["value"]) == (2.0, "word")
    assert found["a"]["command"].endswith("--only a") and found["a"]["origin"] == "measured"


def test_more_than_a_third_has_moved():
    assert claims.moved("x", 0.6, 0.017) and claims.moved("x", 0.017, 0.6)
    assert not claims.moved("x", 18.0, 12.1) and claims.moved("x", 18.0, 11.9)
    assert not claims.moved("x", 18.0, 23.9) and claims.moved("x", 18.0, 24.1)
    assert not claims.moved("an sd error", 0.01, 0.035) and claims.moved("an sd error", 0.01, 0.05)
    assert claims.moved("word", "trusted", "unknown") and not claims.moved(
        "word", "trusted", "trusted"
    )


def test_what_moved_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    claims.store("short", {"W3: loop": 0.6, "W3: word": "trusted"}, "python benchmarks/claims.py")
    monkeypatch.setattr(claims, "short", lambda name: {"loop": 0.017, "word": "trusted", "new": 3})
    assert claims.measure(["W3"], keep=False) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "MOVED" in line]
    assert line.startswith("W3: loop") and "stored 0.6" in line


def test_w3_is_measured_as_a_user_runs_it():
    stored = claims.stored("short")["figures"]
    assert set(claims.SHORT) == {figure.partition(":")[0] for figure in stored}
    assert "W3: sgld.sample, 50 units, x BlackJAX" in stored
