"""The line of a long computation in a notebook: one output that is written anew, and never left empty.

A notebook's streams know no more than a carriage return, and what they have shown stays as an output
of no words once it is wiped. A display with a name can be replaced: by what each stage took in the end,
or by where it stopped. A call that is over before the first showing leaves nothing.
"""

from __future__ import annotations

import sys
from html import escape
from typing import Any

__all__ = ["Cell", "in_a_notebook"]

BAR = 10
STYLE = "color: var(--jp-ui-font-color2, gray); background: none; padding: 0; font-size: .9em"


def in_a_notebook() -> bool:
    """Whether this is the kernel of a notebook, which shows what is displayed.

    Example:
      >>> from sgld.cell import in_a_notebook
      >>> in_a_notebook()
      False
    """
    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class Cell:
    """One display of a notebook's cell.

    Example:
      >>> from sgld.cell import Cell
      >>> Cell(None).bar(0.3)
      '━━━───────'
    """

    every = 0.25  # seconds from one showing to the next
    stays = True  # what was shown is still there at the end

    def __init__(self, handle: Any = None) -> None:
        self._handle, self._text = handle, ""

    def bar(self, share: float) -> str:
        """A bar of which `share` is full."""
        full = int(BAR * share)
        return "━" * full + "─" * (BAR - full)

    def write(self, text: str) -> None:
        """Show this, in the place of what was shown."""
        self._text = text
        shown = {"text/plain": text, "text/html": f'<code style="{STYLE}">{escape(text)}</code>'}
        if self._handle is None:
            from IPython.display import display  # pyright: ignore[reportMissingImports]

            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def clear(self) -> None:
        """Nothing to make room for: other outputs come below."""

    def close(self, summary: str | None) -> None:
        """What each stage took, or where it stopped; nothing where nothing was shown."""
        if self._handle is not None:
            self.write(f"stopped: {self._text}" if summary is None else summary)
