"""The Python of docs/arviz.md runs, and does what the page says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "arviz.md"


def test_the_page(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert "'posterior_predictive', 'observed_data', 'constant_data', 'prior'" in printed
    assert "elpd_loo" in printed and "reliable" in printed
    table = names["table"]
    assert table.index[-1] == "sold ~ 1" and table.weight["sold ~ 1"] < 0.1
