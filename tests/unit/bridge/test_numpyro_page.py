"""The Python of docs/numpyro.md runs, and what it prints is what the page says."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

import sgld

PAGE = Path(__file__).parents[3] / "docs" / "numpyro.md"


@pytest.mark.slow
def test_the_page(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names = {"__name__": "numpyro_page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert "signal_to_noise" in printed and "beta[2]" in printed and "verdict: trusted" in printed
    draws, reference = names["draws"], names["posterior"]
    assert isinstance(reference, sgld.Posterior) and draws.verdict.word == "trusted"
    X, y = names["X"], names["y"]
    design = np.column_stack([np.ones(len(y)), X])
    exact = np.linalg.solve(design.T @ design + 1e-2 * np.eye(4), design.T @ y)
    sd = draws.sd()
    np.testing.assert_allclose(draws.mean()["beta"], exact[1:], atol=0.1 * sd["beta"].max())
    assert names["mode"].position["sigma"] > 0
    predicted = names["predictive"](jax.random.key(0), X[:5])["y"]
    assert predicted.shape == (draws.num_chains * draws.num_draws, 5)
