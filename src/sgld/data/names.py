"""Names of columns, as files and tables have them."""

from __future__ import annotations

from ..errors import DataError

__all__ = ["check_names", "listed"]

MOST_LETTERS = 1000  # of a column's name


def check_names(names: list[str], where: str) -> None:
    """DataError for a column's name that stands there twice, or has no end."""
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if len(name) > MOST_LETTERS:
            raise DataError(
                f"{where} has a name of {len(name):,} letters in column {position} ({name[:20]!r} ...), and a name "
                f"may have {MOST_LETTERS:,}; rename it."
            )
        if name in seen:
            raise DataError(
                f"{where} has the column name {name!r} twice (columns {seen[name]} and "
                f"{position}); rename one of them."
            )
        seen[name] = position


def listed(names: list[str], most: int = 12) -> str:
    """The first names, and how many there are beside them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
