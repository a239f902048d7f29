"""Tables and paragraphs of plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence

MAX_LINE_CHARACTERS = 100


def paragraph(text: str, first: str = "", rest: str = "") -> list[str]:
    """Wrap text into lines of at most 100 characters; a word is never cut.

    Args:
      text: words and spaces.
      first: what the first line begins with.
      rest: what the other lines begin with.

    Example:
      >>> from sgld.core.text import paragraph
      >>> [len(line) for line in paragraph("word " * 30, "note: ", " " * 6)]
      [100, 60]
    """
    return textwrap.wrap(
        text, MAX_LINE_CHARACTERS, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Return the rows as lines whose columns are aligned and two spaces apart.

    Args:
      rows: lists of cells of equal length; the headings come first, if there are any.
      left: indices of left-aligned columns; the other columns are right-aligned.

    Example:
      >>> from sgld.core.text import columns
      >>> print("\\n".join(columns([["", "mean"], ["alpha", "1.5"], ["b", "-10.25"]])))
               mean
      alpha     1.5
      b      -10.25
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if j in left else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
