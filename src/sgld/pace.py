"""The host's side of a long computation: pieces sized by time, progress, Ctrl-C, a time limit.

Compiled code neither prints nor stops. It is called for one piece of the work after another, and
all else happens between two pieces:

    with Work("optimising", shown=progress) as work:
        for first, count in work.pieces(0, num_steps, most=1024):
            carry = advance(carry, first, count)  # compiled
            jax.block_until_ready(carry)

A piece is sized by the time that those before it took, so that nothing that is computed may depend
on where pieces begin and end.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any

__all__ = ["Work"]

SECONDS = 0.5  # of one piece, about: how often progress is shown and Ctrl-C heard
ENDS = ("SIGINT", "SIGTERM", "SIGHUP")
GROWTH = 8  # times the piece before, at most: the first ones compile, and say little


class Work:
    """One computation, of so many units for each chain.

    Args:
      doing: what the progress line calls it.
      shown: whether to show one (on a terminal or in a notebook; nowhere else).
      chains: that each unit advances.
      steps: of a chain that a unit stands for, in the progress line.
      until: the time (of time.monotonic) from which it is `late`.

    Attributes:
      said: what the progress line ends with; whoever does the work may set it.
    """

    def __init__(
        self, doing: str, *, shown: bool = False, chains: int = 1, steps: int = 1,
        until: float = math.inf,
    ) -> None:  # fmt: skip
        self._doing, self._shown = doing, shown
        self._chains, self._steps, self._until = chains, steps, until
        self._size = 1
        self._bar: Any = None
        self._interrupt = threading.Event()
        self._open = ExitStack()
        self.said = ""

    def __enter__(self) -> Work:
        self._open.enter_context(_heard(self._interrupt))
        if self._shown and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            self._bar = self._open.enter_context(_bar(self._doing))
            self._task = self._bar.add_task("", total=1, rate="")
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
        """Whether Ctrl-C was pressed: KeyboardInterrupt comes when the next piece is asked for."""
        return self._interrupt.is_set()

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._until

    def pieces(
        self, begin: int, end: int, *, most: int | None = None, of: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """(first unit, number of units) of pieces that make up [begin, end), each at most `most`.

        The time of a piece is from its being handed out to the next one's being asked for. `of` is
        the whole that the progress line counts to, where it is not `end`.
        """
        while begin < end:
            self.check()
            count = min(self._size, end - begin, most or end)
            began = time.perf_counter()
            yield begin, count
            seconds = max(time.perf_counter() - began, 1e-6)
            begin += count
            self._took(count, seconds)
            self._show(begin, of or end, count / seconds)
        self.check()

    def check(self) -> None:
        """KeyboardInterrupt, where Ctrl-C was pressed."""
        if self.interrupted:
            raise KeyboardInterrupt

    def _took(self, count: int, seconds: float) -> None:
        by_time = int(SECONDS / seconds * count)
        # a piece that was cut short says what a call costs, not how slow a unit is
        if count == self._size or by_time > self._size:
            self._size = max(1, min(by_time, GROWTH * self._size))

    def _show(self, done: int, total: int, rate: float) -> None:
        if self._bar is not None:
            shown = f"{rate * self._steps * self._chains:,.0f} steps/s  {self.said}"
            total = total * self._steps
            done = min(done * self._steps, total)
            self._bar.update(self._task, total=total, completed=done, rate=shown)


@contextmanager
def _heard(flag: threading.Event) -> Iterator[None]:
    """Ctrl-C, a shutdown or a lost terminal sets a flag that is read between pieces, so that none is lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ENDS if hasattr(signal, name)]
    previous = {number: signal.getsignal(number) for number in numbers}

    def handle(number: int, frame: Any) -> None:
        if flag.is_set():  # a second Ctrl-C does not wait
            raise KeyboardInterrupt
        flag.set()

    for number in numbers:
        if previous[number] is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, previous[number])


def _bar(doing: str) -> AbstractContextManager[Any]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn(doing),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}% of {task.total:.0f} steps"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=4,
    )
