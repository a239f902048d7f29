"""Provide the long description of the package: README.md as a page that stands by itself.

README.md links to files of the repository, which a package index does not have, and the repository has no
public address yet. The long description names those files instead, which come with the source
distribution, and omits the picture.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n+", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://|#)([^)]+)\)")


def standing_alone(text: str) -> str:
    """Return the text of README.md without pictures and links to files of the repository.

    Example:
      >>> standing_alone("See [how](docs/verdict.md).")
      'See how (`docs/verdict.md`).'
    """
    return LINK.sub(r"\1 (`\2`)", PICTURE.sub("", text))


class Description(MetadataHookInterface):
    """Hook of Hatchling for `readme` of the metadata."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` to the long description."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": standing_alone(text)}
