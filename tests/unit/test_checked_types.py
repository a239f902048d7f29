"""The hook that holds annotations against calls: it must see a wrong one, and let refusals pass."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

PACKAGE = """
from __future__ import annotations
import numpy as np
from jaxtyping import Float

def doubled(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return 2 * x

def halved(x: float) -> np.ndarray:
    return x / 2

def refused(word: str) -> str:
    if not isinstance(word, str):
        raise ValueError(f"word must be a word. Got {word!r}.")
    return word
"""

USES = """
import sys
sys.path[:0] = [{tests!r}, {folder!r}]
import checked_types, jaxtyping, numpy as np
jaxtyping.install_import_hook("package", "checked_types.check")
import package
said = []
for call in (
    lambda: package.doubled(np.ones(2)),
    lambda: package.doubled(np.ones((2, 2))),
    lambda: package.halved(1.0),
    lambda: package.refused(1),
):
    try:
        call()
        said.append("passed")
    except Exception as error:
        said.append(type(error).__name__)
print(*said)
"""


def test_wrong_annotations_are_seen_and_refusals_are_the_librarys(tmp_path):
    (tmp_path / "package.py").write_text(PACKAGE)
    code = USES.format(tests=str(TESTS), folder=str(tmp_path))
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["passed", "TypeCheckError", "TypeCheckError", "ValueError"]
