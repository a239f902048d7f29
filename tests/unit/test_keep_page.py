"""The Python of docs/keep.md runs, and its draws are what the page says."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "keep.md"


def test_the_page(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    names = {"__name__": "keep"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    draws, moments = names["draws"], names["moments"]
    assert draws.position["prediction"].shape == (4, draws.num_draws, 5)
    assert draws.verdict.word == "trusted" and moments.verdict.word == "unknown"
    np.testing.assert_allclose(draws.mean()["first"], moments.mean()["w"][0], atol=2e-3)
    assert "prediction[4]" in capsys.readouterr().out
