"""Pages whose pictures the build draws: their Python is run, in order, in the folder of the documentation."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

PAGES = ("network-tutorial.md",)
PICTURES = "images/drawn"  # as the pages call it; not kept by git


def blocks(text: str) -> list[str]:
    """The Python of a page, in its order: fenced, or an indented assertion."""
    return re.findall(
        r"^```python\n(.*?)^```$|^ {4}(assert [^\n]*)$", text, re.MULTILINE | re.DOTALL
    )


def draw(folder: Path) -> dict[str, Any]:
    """Run the pages of `folder`, which write their pictures there; the names of the last one."""
    names: dict[str, Any] = {}
    (folder / PICTURES).mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(folder):
        for page in PAGES:
            names = {"__name__": "page"}
            for fenced, line in blocks(Path(page).read_text()):
                exec(compile(fenced or line, page, "exec"), names)
    return names


def setup(app: Any) -> dict[str, bool]:
    """Sphinx's: before the pages are read."""
    app.connect("builder-inited", lambda app: draw(Path(app.srcdir)))
    return {"parallel_read_safe": True}
