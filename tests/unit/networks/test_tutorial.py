"""docs/network-tutorial.md: its pictures are drawn by its own Python, and show what it says."""

import importlib.util
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "network-tutorial.md"


@pytest.fixture
def drawn():
    spec = importlib.util.spec_from_file_location("drawn", DOCS / "drawn.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_one_that_the_page_draws(drawn):
    text = PAGE.read_text()
    shown = re.findall(r"!\[[^]]+\]\((.*?)\)", text)
    saved = re.findall(r'savefig\("(.*?)"', text)
    assert len(shown) == 3 and shown == saved
    assert all(Path(name).parent == Path(drawn.PICTURES) for name in shown)
    fenced = re.findall(r"^```python$", text, re.MULTILINE)
    asserted = re.findall(r"^    assert ", text, re.MULTILINE)
    assert len(drawn.blocks(text)) == len(fenced) + len(asserted)


@pytest.mark.slow
def test_the_pictures_are_drawn_and_wide_where_there_are_no_data(drawn, tmp_path):
    shutil.copy(PAGE, tmp_path)
    names = drawn.draw(tmp_path)
    for name in re.findall(r'savefig\("(.*?)"', PAGE.read_text()):
        assert (tmp_path / name).stat().st_size > 10_000
    at = lambda value: int(np.argmin(np.abs(names["grid"][:, 0] - value)))  # noqa: E731
    sd = names["spread"].sd
    assert min(sd[at(0.0)], sd[at(4.5)]) > 5 * max(sd[at(-2.5)], sd[at(2.0)])
    assert names["draws"].verdict.word == "trusted"
