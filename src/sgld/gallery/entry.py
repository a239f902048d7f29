"""What an entry of the gallery returns: sections of text and figures, and a table of checks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..interfaces.report.figures import Panel

__all__ = ["Check", "Entry", "Section"]


@dataclass(frozen=True)
class Check:
    """One number beside its truth; made by `in_sd`, `in_ratio` or `in_value`.

    Attributes:
      quantity: what it is, in words.
      truth: the exact value, or a long reference run's.
      ours: what the entry computed.
      error: in sd, as a ratio ours / truth, or as a plain difference: what `unit` says.
      limit: of |error|; of a ratio, how far it may be from 1 (.05: from 1 / 1.05 to 1.05).
      unit: "sd", "ratio" or "".
      expected_miss: why the number misses its truth, for one computed as the document prints it.

    Example:
      >>> from sgld.gallery import Check
      >>> Check.in_ratio("sd of b1", truth=0.5, ours=0.51, limit=0.05).word
      'pass'
      >>> Check.in_ratio("sd of b1", 0.5, 5.0, 0.05, expected_miss="the step is too large").word
      'as printed'
      >>> Check.in_sd("mean of b1", truth=1.0, ours=1.05, sd=0.5, limit=0.2).error
      0.10000000000000009
      >>> Check.in_value("draws", truth=100, ours=90, limit=5).passed
      False
    """

    quantity: str
    truth: float
    ours: float
    error: float
    limit: float
    unit: str = ""
    expected_miss: str | None = None

    @classmethod
    def in_sd(
        cls, quantity: str, truth: Any, ours: Any, sd: Any, limit: float,
        expected_miss: str | None = None,
    ) -> Check:  # fmt: skip
        """|ours - truth| is at most `limit` of the true sd; quantity and expected_miss as above."""
        error = (float(ours) - float(truth)) / float(sd)
        return cls(quantity, float(truth), float(ours), error, limit, "sd", expected_miss)

    @classmethod
    def in_ratio(
        cls, quantity: str, truth: Any, ours: Any, limit: float, expected_miss: str | None = None
    ) -> Check:
        """Ours / truth lies between 1 / (1 + limit) and 1 + limit.

        Args:
          quantity, truth, ours, limit, expected_miss: as above.
        """
        error = float(ours) / float(truth)
        return cls(quantity, float(truth), float(ours), error, limit, "ratio", expected_miss)

    @classmethod
    def in_value(
        cls, quantity: str, truth: Any, ours: Any, limit: float, expected_miss: str | None = None
    ) -> Check:
        """|ours - truth| is at most `limit`, in the units of the quantity itself.

        Args:
          quantity, truth, ours, limit, expected_miss: as above.
        """
        error = float(ours) - float(truth)
        return cls(quantity, float(truth), float(ours), error, limit, "", expected_miss)

    @property
    def passed(self) -> bool:
        """Whether the error is within the limit; never where it is not a number."""
        if self.unit == "ratio":
            return bool(1 / (1 + self.limit) <= self.error <= 1 + self.limit)
        return bool(math.isfinite(self.error) and abs(self.error) <= self.limit)

    @property
    def word(self) -> str:
        """ "pass", "miss", or "as printed": a miss that the document's own method makes."""
        if self.passed:
            return "pass"
        return "miss" if self.expected_miss is None else "as printed"


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs and the figures below them.

    Attributes:
      heading: of the section.
      text: paragraphs of plain text; `words` between backticks are shown as code.
      figures: panels (`sgld.gallery.draw` makes them), several side by side.
      key: (colour, words) of what is drawn in all the figures; colours are those of the report.

    Example:
      >>> from sgld.gallery import Section
      >>> Section("What is seen", ("The sd is `h / 4` too large.",)).figures
      ()
    """

    heading: str
    text: tuple[str, ...] = ()
    figures: tuple[Panel, ...] = ()
    key: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Entry:
    """A page of the gallery.

    Attributes:
      title: of the page.
      lead: what it shows, in a sentence or two.
      sections: of the page, in order.
      checks: numbers beside their truths.

    Example:
      >>> from sgld.gallery import Entry, Section
      >>> Entry("X0", "Nothing is shown.", (Section("Nothing"),), ()).checks
      ()
    """

    title: str
    lead: str
    sections: tuple[Section, ...]
    checks: tuple[Check, ...]
