"""Tables of plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """The rows as lines, each column as wide as its widest cell, two spaces between columns.

    Args:
      rows: of cells, equally many in each, the heads first where there are any.
      left: columns whose cells stand at the left; the others, numbers, stand at the right.

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
