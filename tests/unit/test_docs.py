"""The Python of docs/new-sampler.md runs, and its report is the one that is printed."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "new-sampler.md"


def test_a_sampler_of_your_own(capsys):
    text = PAGE.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    names = {"__name__": "new_sampler"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    (report,) = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert report in printed
    assert "Slipped: variances at temperature 0.5 are off by" in printed
    draws, rows = names["draws"], names["rows"]
    assert draws.verdict.word == "trusted"
    exact = rows.astype(float).sum() / 1001
    np.testing.assert_allclose(draws.mean()["mean"], exact, atol=0.1 / np.sqrt(1001))
