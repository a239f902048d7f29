"""Long computations in pieces sized by time, with Ctrl-C and a time limit.

Compiled code neither prints nor stops. It is called for one piece of the work after another, and
all other work is done between two pieces:

    with Work("optimising") as work:
        for first, count in work.pieces(0, num_steps, most=1024):
            carry = advance(carry, first, count)  # compiled
            jax.block_until_ready(carry)

The size of a piece follows from the time of earlier pieces, so no result may depend on where pieces
begin and end. `Work` is a stage (progress.py), which counts its units.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

from .progress import check_deadline, report_count, stage

PIECE_SECONDS = 0.5  # about one piece: the interval of counts and of checks for Ctrl-C
ENDING_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
MAX_PIECE_GROWTH = 8  # times the last piece; the time of the first pieces includes compilation


class Work:
    """One computation of a number of units for each chain.

    Args:
      doing: the name of the stage.
      units: the plural name of its units.
      steps: the number of steps in a unit.
      until: the time (of time.monotonic) from which it is `late`.

    Attributes:
      said: text shown after the count; the code that does the work may set it.
    """

    def __init__(
        self, doing: str, *, units: str = "steps", steps: int = 1, until: float = math.inf
    ) -> None:
        self._doing, self._units, self._steps, self._until = doing, units, steps, until
        self._size, self._rate, self._left = 1, 0.0, 0.0
        self._interrupt = threading.Event()
        self._open = ExitStack()
        self.said = ""

    def __enter__(self) -> Work:
        self._open.enter_context(_deferred_signals(self._interrupt))
        self._open.enter_context(stage(self._doing))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed; KeyboardInterrupt is raised at the next piece."""
        return bool(_agreed(self._interrupt.is_set()))

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return self._until < math.inf and bool(_agreed(time.monotonic() > self._until))

    def pieces(
        self, begin: int, end: int, *, most: int | None = None, of: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Yield (first unit, number of units) of the pieces of [begin, end), of at most `most` units.

        The time of a piece runs from its yield to the request for the next one. `of` is the total that is
        counted to, if it is not `end`.
        """
        self._count(begin, of or end)
        while begin < end:
            self.check()
            first = self._size == 1
            count = min(self._size, end - begin, most or end)
            began = time.perf_counter()
            yield begin, count
            seconds = _agreed(max(time.perf_counter() - began, 1e-6))
            begin += count
            self._resize(count, seconds)
            # the time of the first piece includes compilation
            self._rate = 0.0 if first and not self._rate else count / seconds
            self._count(begin, of or end)
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed, RunError past a deadline (progress.py)."""
        if self.interrupted:
            raise KeyboardInterrupt
        check_deadline(self._doing, self._left)

    def _resize(self, count: int, seconds: float) -> None:
        by_time = int(PIECE_SECONDS / seconds * count)
        # the time of a shortened piece measures the cost of a call, not of a unit
        if count == self._size or by_time > self._size:
            self._size = max(1, min(by_time, MAX_PIECE_GROWTH * self._size))

    def _count(self, done: int, total: int) -> None:
        steps, left = self._steps, self._until - time.monotonic()
        self._left = (total - done) / self._rate if self._rate else 0.0
        report_count(
            min(done, total) * steps, total * steps, self._units,
            rate=self._rate * steps, said=self.said, left=left,
        )  # fmt: skip


def _agreed(value: Any) -> Any:
    """Return the first process's value (devices.py); the import of JAX is left until it is needed."""
    from .devices import agreed

    return agreed(value)


@contextmanager
def _deferred_signals(flag: threading.Event) -> Iterator[None]:
    """Set a flag on Ctrl-C, a shutdown or a lost terminal; the flag is read between pieces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ENDING_SIGNALS if hasattr(signal, name)]
    previous = {number: signal.getsignal(number) for number in numbers}

    def handle(number: int, frame: Any) -> None:
        if flag.is_set():  # a second Ctrl-C does not wait
            raise KeyboardInterrupt
        flag.set()

    for number in numbers:
        # nohup ignores SIGHUP, and a shell ignores SIGINT for background jobs
        if number == signal.SIGINT or previous[number] is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, previous[number])
