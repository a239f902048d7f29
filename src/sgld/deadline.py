"""The time that a call may take, where nothing is there yet that could be returned.

    with deadline(max_seconds, until):
        ...  # every stage that begins in here, and every piece of work, is refused past `until`

Sampling looks at the clock by itself: what it has is returned. The clock only ends things: nothing
is chosen by it, so that a run that is not stopped has the same bits with a limit and without.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .errors import RunError
from .mesh import agreed

__all__ = ["FOR_THE_VERDICT", "check_deadline", "deadline"]

FOR_THE_VERDICT = 0.2  # of max_seconds, which sampling leaves
_limit: ContextVar[tuple[float, float] | None] = ContextVar("deadline", default=None)


@contextmanager
def deadline(seconds: float | None, until: float) -> Iterator[None]:
    """RunError from `check_deadline` inside, past the time `until` (of time.monotonic).

    `seconds` is what the user called it; None is no limit.
    """
    token = _limit.set(None if seconds is None else (seconds, until))
    try:
        yield
    finally:
        _limit.reset(token)


def check_deadline(stage: str) -> None:
    """RunError, where the time is up."""
    limit = _limit.get()
    if limit is not None and agreed(time.monotonic() > limit[1]):
        raise RunError(
            f"the time of max_seconds = {limit[0]:g} was up before the first draw, at the stage {stage!r}; "
            "give more, or fewer parameters or rows."
        )
