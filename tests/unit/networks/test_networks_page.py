"""The Python of docs/networks.md runs, and its numbers are those that are printed."""

import re
from pathlib import Path

import numpy as np
import pytest

import sgld

PAGE = Path(__file__).parents[3] / "docs" / "networks.md"


@pytest.mark.slow
def test_the_page(capsys):
    pytest.importorskip("equinox")
    text = PAGE.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    (table,) = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for line in table.splitlines():
        words = line.split("  ")[0]
        (same,) = [here for here in printed.splitlines() if here.split("  ")[0] == words]
        number = r"-?\d\.\d{4}"
        told, found = (np.array(re.findall(number, s), float) for s in (line, same))
        # Monte Carlo error of 4 chains among many modes; another machine has other bits
        np.testing.assert_allclose(found, told, atol=0.015)
        assert re.sub(number, "", line).split()[:-2] == re.sub(number, "", same).split()[:-2]
    noise = names["draws"]
    assert 0 < float(noise.mean()["sd"]) < 1 and noise.verdict.word in ("trusted", "not mixed")
    warm, cold = names["sets"].values()
    logits, x = names["logits"], names["x"][100:]
    for draws, rows, wanted in ((warm, x, 0.105), (warm, 5 * x, 0.167), (cold, x, 0.002)):
        found = sgld.networks.classes(draws, logits, rows)
        np.testing.assert_allclose(found.epistemic.mean(), wanted, atol=0.01)
        assert found.epistemic.min() > -1e-6
