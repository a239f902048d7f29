"""Draw the pictures of pages whose code saves them in images/drawn, before the site is built.

The Python of such a page runs in order, in a temporary folder.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

PICTURES = "images/drawn"  # below docs; not kept by git


def pages(folder: Path) -> list[Path]:
    """Return the pages whose code saves a picture in images/drawn."""
    saved = re.compile(rf'savefig\("[./]*{PICTURES}/')
    found = (page for page in sorted(folder.glob("**/*.md")) if "_build" not in page.parts)
    return [page for page in found if saved.search(page.read_text())]


def blocks(text: str) -> list[str]:
    """Return the Python blocks of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def draw(folder: Path) -> None:
    """Run the pages of a folder of documentation, and copy their pictures into it."""
    for page in pages(folder):
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / PICTURES).mkdir(parents=True)
            below = Path(place) / page.relative_to(folder).parent
            below.mkdir(exist_ok=True)
            names = {"__name__": "page"}
            with contextlib.chdir(below):
                for block in blocks(page.read_text()):
                    exec(compile(block, page.name, "exec"), names)
            shutil.copytree(Path(place) / PICTURES, folder / PICTURES, dirs_exist_ok=True)


def setup(app: Any) -> dict[str, bool]:
    """Draw before Sphinx reads the pages."""
    app.connect("builder-inited", lambda app: draw(Path(app.srcdir)))
    return {"parallel_read_safe": True}
