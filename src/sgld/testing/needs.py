"""That a part has what its contract names, asked before anything is done with it."""

from __future__ import annotations

from typing import Any

__all__ = ["check_needs"]


def check_needs(kind: str, part: Any, *names: str) -> None:
    """AssertionError unless `part`, a sampler say, is an object that has all of these."""
    if isinstance(part, type):
        raise AssertionError(f"{part.__name__} is a class; give a {kind}: {part.__name__}(...).")
    for name in names:
        if not hasattr(part, name):
            raise AssertionError(f"{type(part).__name__}: a {kind} needs `{name}`.")
