"""The time that a call may take, where nothing is there yet that could be returned.

    with deadline(max_seconds, until):
        ...  # every stage that begins in here, and every piece of work, is refused past `until`
        with share(0.4):
            ...  # the same past so much of max_seconds, with `Over`: whoever asks goes on with what there is

The refusal says how many seconds will do, by what has passed and what is known to be left. Sampling looks at the clock by itself: what it has is returned. The clock only ends things: nothing
is chosen by it, so that a run that is not stopped has the same bits with a limit and without. The optimisers
and stages that a network's chains begin with are ended by it too, at a share of the time (`past`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from .errors import RunError

__all__ = [
    "FOR_THE_VERDICT", "Over", "check_deadline", "deadline", "enough", "past", "sampled_until", "share",
]  # fmt: skip

FOR_THE_VERDICT = 0.2  # of max_seconds, which sampling leaves
JUDGED, COMPILED = 0.05, 6.0  # of them, and seconds: what a verdict on predictions takes
# of all that a run takes, what has passed by the end of a stage: by the seconds of stages.py; no more of others
PASSED = {
    "data": 0.2, "mode": 0.25, "curvature": 0.35, "other modes": 0.4, "optimising": 0.4, "step size": 0.5, "rows": 0.6,
}  # fmt: skip
CAUTION, LEAST = 2.0, 5.0  # times what is expected; seconds, of which compiling may take most
ROUND = (1, 2, 3, 5, 10)  # times a power of 10


@dataclass(frozen=True)
class _Limit:
    """What the user gave, when it is up, and the seconds that a run is predicted to take at least."""

    seconds: float
    until: float
    least: float
    shared: bool = False  # `until` is that of a share


class Over(Exception):
    """A share of max_seconds is over; nothing is wrong."""


_limit: ContextVar[_Limit | None] = ContextVar("deadline", default=None)


@contextmanager
def deadline(seconds: float | None, until: float, least: float = LEAST) -> Iterator[None]:
    """RunError from `check_deadline` inside, past the time `until` (of time.monotonic).

    `seconds` is what the user called it; None is no limit. The error asks for no less than `least`.
    """
    token = _limit.set(None if seconds is None else _Limit(seconds, until, least))
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def share(of: float) -> Iterator[None]:
    """`Over` from `check_deadline` inside, past this share of max_seconds; nothing, where there is no limit."""
    limit = _limit.get()
    token = _limit.set(None if limit is None else replace(limit, until=past(of), shared=True))
    try:
        yield
    finally:
        _limit.reset(token)


def check_deadline(stage: str, left: float = 0.0) -> None:
    """RunError, where the time is up; `left` are the seconds that the stage is known to need still."""
    limit = _limit.get()
    if limit is None:
        return
    from .mesh import agreed  # JAX with it, for which a stage line does not wait

    if not agreed(time.monotonic() > limit.until):
        return
    if limit.shared:
        raise Over
    passed = max(0.0, time.monotonic() - limit.until) + limit.seconds
    whole = (passed + left) / PASSED.get(stage, min(PASSED.values()))
    raise RunError(
        f"the time of max_seconds = {limit.seconds:g} was up before the first draw, at the stage {stage!r}; "
        f"{enough(max(limit.least, whole))}, or give fewer parameters or rows."
    )


def sampled_until(started: float, seconds: float, predictions: bool) -> float:
    """The time (of time.monotonic) at which sampling ends; a verdict on predictions takes little of a long run."""
    share = min(FOR_THE_VERDICT, JUDGED + COMPILED / seconds) if predictions else FOR_THE_VERDICT
    return started + (1 - share) * seconds


def past(of: float) -> float:
    """The time (of time.monotonic) at which so much of max_seconds has passed; infinite where there is none."""
    limit = _limit.get()
    if limit is None:
        return math.inf
    return limit.until - (1 - FOR_THE_VERDICT - of) * limit.seconds


def enough(seconds: float) -> str:
    """The remedy for too little time, where about so many seconds are expected to do.

    Example:
      >>> from sgld.deadline import enough
      >>> enough(60.0)
      'max_seconds = 200 should do'
    """
    wanted = CAUTION * seconds
    power = 10.0 ** math.floor(math.log10(wanted))
    number = next(number * power for number in ROUND if number * power >= wanted)
    return f"max_seconds = {number:g} should do"
