"""A progress line between chunks: rate, time left, step size."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

__all__ = ["Progress"]


class Progress:
    """Shown on a terminal's or notebook's standard error only; silent elsewhere."""

    def __init__(self, shown: bool, chains: int, doing: str = "sampling") -> None:
        self._bar: Any = None
        self._task: Any = None
        self._chains = chains
        if shown and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
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

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=1, rate="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int, steps_per_second: float, step_sizes: Any) -> None:
        """`done` of `total` steps of every chain are finished; the last chunk's first h is shown."""
        if self._bar is not None:
            h = float(step_sizes[0])
            rate = f"{steps_per_second * self._chains:,.0f} steps/s" + (f"  h {h:.3g}" if h else "")
            self._bar.update(self._task, total=total, completed=min(done, total), rate=rate)
