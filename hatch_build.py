"""What a package index shows of README.md: a page that stands by itself.

Links in README.md lead to other files of this repository, which an index does not have, and there is
no address of the repository yet to put before them. So the long description names the files instead,
which come with the source distribution, and leaves the picture out. In a checkout, on a forge and in an
editor README.md is shown as it is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n+", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)]+)\)")
REMARK = re.compile(r"<!--.*?-->", re.DOTALL)


def standing_alone(text: str) -> str:
    """README's text without pictures, remarks and links to files beside it.

    Example:
      >>> standing_alone("See [how](docs/verdict.md).")
      'See how (`docs/verdict.md`).'
    """
    text = REMARK.sub("", PICTURE.sub("", text))
    return LINK.sub(r"\1 (`\2`)", text)


class Description(MetadataHookInterface):
    """Hatchling's hook: `readme` of the metadata."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the long description where `readme` would name a file."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": standing_alone(text)}
