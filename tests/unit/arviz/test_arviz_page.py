"""The Python of docs/arviz.md and docs/notebooks.md runs, and does what the pages say."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


def execute(name):
    text = (DOCS / name).read_text()
    names = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, name, "exec"), names)
    return names


@pytest.mark.slow
def test_the_page_on_arviz(capsys):
    names = execute("arviz.md")
    printed = capsys.readouterr().out
    assert "'posterior_predictive', 'observed_data', 'constant_data', 'prior'" in printed
    assert "elpd_loo" in printed and "reliable" in printed
    table = names["table"]
    assert table.index[-1] == "sold ~ 1" and table.weight["sold ~ 1"] < 0.1


def test_the_page_on_notebooks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = execute("notebooks.md")
    assert names["fit"].verdict.word == "trusted"
    assert (tmp_path / "forest.png").stat().st_size > 2000
