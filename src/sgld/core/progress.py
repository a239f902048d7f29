"""Progress display, stages and time limits of long computations.

Each computation names its stage. Only the outermost call knows whether and where the stages are shown;
a context variable holds the display:

    with progress_shown(progress, SAMPLING_STAGES):        # sgld.sample, sgld.reference, the command line
        with stage("curvature"):          # any code that they call
            ...

A terminal and a notebook (`Cell`) show one line, which a separate thread updates, also while a function
compiles. Any other output gets one line every ten seconds. `stage` is also a decorator.

The line of a notebook is a named display, because a display can be replaced. At the end it shows the
time of each stage, or the stage where the call stopped. A call that ends before the first update shows
nothing.

A time limit ends the stages that do not have a result yet:

    with deadline(max_seconds, until):
        ...  # every stage and piece of work that begins after `until` raises RunError
        with share(0.4):
            ...  # past this share of max_seconds `Over` is raised; the caller uses what it has

The error message gives the number of seconds that suffice, from the time passed and the known rest.
Sampling checks the clock itself and returns its draws. The clock only ends work and chooses nothing, so
a run that is not stopped gives the same bits with and without a limit. The optimisers and stages that
start a network's chains also end at a share of the time (`past`).
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any

from ..errors import RunError

# -- cell ----------------------------------------------------------------------------------


BAR_CHARACTERS = 10
CELL_STYLE = "color: var(--jp-ui-font-color2, gray); background: none; padding: 0; font-size: .9em"


def in_a_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which shows displayed objects.

    Example:
      >>> from sgld.core.progress import in_a_notebook
      >>> in_a_notebook()
      False
    """
    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class _Display:
    """Where progress is shown: a bar and a text, replaced or repeated at intervals.

    Attributes:
      every: seconds from one showing to the next.
      stays: whether the last text stays visible at the end.
      full, empty: the characters of the bar.
    """

    every, stays = 0.25, True
    full, empty = "━", "─"

    def bar(self, share: float) -> str:
        """Return a bar of which `share` is full."""
        full = int(BAR_CHARACTERS * share)
        return self.full * full + self.empty * (BAR_CHARACTERS - full)

    def write(self, text: str) -> None:
        """Show `text`."""

    def clear(self) -> None:
        """Make place for other text; without effect where that appears below."""

    def close(self, summary: str | None) -> None:
        """Show the time of each stage at the end."""


class Cell(_Display):
    """One display in a notebook's cell.

    Example:
      >>> from sgld.core.progress import Cell
      >>> Cell(None).bar(0.3)
      '━━━───────'
    """

    def __init__(self, handle: Any = None) -> None:
        self._handle, self._text = handle, ""

    def write(self, text: str) -> None:
        """Show `text` in place of the previous text."""
        self._text = text
        shown = {
            "text/plain": text,
            "text/html": f'<code style="{CELL_STYLE}">{escape(text)}</code>',
        }
        if self._handle is None:
            from IPython.display import display  # pyright: ignore[reportMissingImports]

            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def close(self, summary: str | None) -> None:
        """Show the time of each stage or where it stopped; show nothing if nothing was shown."""
        if self._handle is not None:
            self.write(f"stopped: {self._text}" if summary is None else summary)


# -- deadline ------------------------------------------------------------------------------


VERDICT_SHARE = 0.2  # the share of max_seconds reserved for the verdict after sampling
# the share and the seconds that a verdict on predictions takes
PREDICTIONS_SHARE, COMPILE_SECONDS = 0.05, 6.0
# the share of a run's time that has passed at the end of a stage (from DEMO_STAGE_SECONDS)
SHARE_PASSED_AFTER = {
    "data": 0.2, "mode": 0.25, "curvature": 0.35, "other modes": 0.4, "optimising": 0.4, "step size": 0.5, "rows": 0.6,
}  # fmt: skip
# a factor on the expected seconds; seconds, most of which may be compilation
DEADLINE_FACTOR, MIN_DEADLINE_SECONDS = 2.0, 5.0
ROUND_NUMBERS = (1, 2, 3, 5, 10)  # times a power of 10


@dataclass(frozen=True)
class _Limit:
    """The user's limit, when it is up, and the least seconds that a run is predicted to take."""

    seconds: float
    until: float
    least: float
    shared: bool = False  # whether `until` is the end of a share


class Over(Exception):
    """Raised past a share of max_seconds; it is not an error."""


_limit: ContextVar[_Limit | None] = ContextVar("deadline", default=None)


@contextmanager
def deadline(
    seconds: float | None, until: float, least: float = MIN_DEADLINE_SECONDS
) -> Iterator[None]:
    """Make `check_deadline` raise RunError inside the block past the time `until`.

    `until` is a time of time.monotonic. `seconds` is the user's limit, and None is no limit. The error asks
    for at least `least` seconds.
    """
    token = _limit.set(None if seconds is None else _Limit(seconds, until, least))
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def share(of: float) -> Iterator[None]:
    """Make `check_deadline` raise `Over` past this share of max_seconds, if there is a limit."""
    limit = _limit.get()
    token = _limit.set(None if limit is None else replace(limit, until=past(of), shared=True))
    try:
        yield
    finally:
        _limit.reset(token)


def check_deadline(stage: str, left: float = 0.0) -> None:
    """Raise RunError if the time is up; `left` is the seconds that the stage still needs."""
    limit = _limit.get()
    if limit is None:
        return
    from .devices import agreed  # late, because the first stage line need not wait for JAX

    if not agreed(time.monotonic() > limit.until):
        return
    if limit.shared:
        raise Over
    passed = max(0.0, time.monotonic() - limit.until) + limit.seconds
    whole = (passed + left) / SHARE_PASSED_AFTER.get(stage, min(SHARE_PASSED_AFTER.values()))
    raise RunError(
        f"max_seconds = {limit.seconds:g} ended before the first draw, at the stage {stage!r}; "
        f"{enough(max(limit.least, whole))}, or give fewer parameters or rows."
    )


def sampled_until(started: float, seconds: float, predictions: bool) -> float:
    """Return the time (of time.monotonic) at which sampling ends to leave time for the verdict."""
    wanted = PREDICTIONS_SHARE + COMPILE_SECONDS / seconds if predictions else VERDICT_SHARE
    return started + (1 - min(VERDICT_SHARE, wanted)) * seconds


def past(of: float) -> float:
    """Return the time (of time.monotonic) when this share of max_seconds has passed, or infinity."""
    limit = _limit.get()
    if limit is None:
        return math.inf
    return limit.until - (1 - VERDICT_SHARE - of) * limit.seconds


def enough(seconds: float) -> str:
    """Return the advice on max_seconds for a computation expected to take about `seconds`.

    Example:
      >>> from sgld.core.progress import enough
      >>> enough(60.0)
      'max_seconds = 200 should do'
    """
    wanted = DEADLINE_FACTOR * seconds
    power = 10.0 ** math.floor(math.log10(wanted))
    number = next(number * power for number in ROUND_NUMBERS if number * power >= wanted)
    return f"max_seconds = {number:g} should do"


# -- stages --------------------------------------------------------------------------------


SAMPLING_STAGES = ("data", "mode", "curvature", "other modes", "rows", "sampling", "verdict")
# seconds of each stage in `sgld demo` without cached compilation; later stages are estimated in proportion
DEMO_STAGE_SECONDS = {
    "data": 1.4, "mode": 0.3, "curvature": 0.6, "other modes": 0.4, "rows": 1.3, "sampling": 2.2,
    "verdict": 0.4, "report": 1.8,
}  # fmt: skip
REDRAW_SECONDS, LINE_SECONDS = 0.25, 10.0  # seconds between updates: on a terminal, and elsewhere
DEFAULT_COLUMNS = 80  # the width of a terminal that does not report it


@contextmanager
def progress_shown(
    shown: bool, ahead: Sequence[str] = (), *, summary: bool = True
) -> Iterator[None]:
    """Show the stages of the work inside the block on standard error.

    Inside another `progress_shown` block that block shows them. With `shown` False they are not shown.

    Args:
      shown: whether to show the stages.
      ahead: the expected stages in order; the remaining time is estimated from them.
      summary: whether the time of each stage stays visible at the end (always so in a notebook).
    """
    if not shown or sys.stderr is None:
        token = _present.set(None)
        try:
            yield
        finally:
            _present.reset(token)
    elif _present.get() is not None:
        yield
    else:
        stages = _Stages(_written_to(sys.stderr), tuple(ahead))
        token = _present.set(stages)
        stages.start()
        ended = False
        try:
            yield
            ended = True
        finally:
            _present.reset(token)
            stages.stop(ended, summary)


@contextmanager
def stage(name: str, *, whole: bool = False) -> Iterator[None]:
    """Name the work inside the block `name`; with `whole`, hide the stages inside it."""
    check_deadline(name)
    stages, token = _present.get(), _named.set(name)
    if stages is not None:
        stages.enter(name, whole)
    try:
        yield
    finally:
        _named.reset(token)
        if stages is not None:
            stages.leave()


def check_time() -> None:
    """Call `check_deadline` for the current stage, from work that takes long inside it."""
    check_deadline(_named.get())


def report_count(
    done: int, total: int, what: str, *, rate: float = 0.0, said: str = "", left: float = math.inf
) -> None:
    """Report the progress of the current stage: `done` of `total`, in the plural unit `what`.

    Args:
      done: the number of units done.
      total: the number of units in all.
      what: the plural name of the units.
      rate: units per second, if known.
      said: further text at the end of the line.
      left: seconds from now at which the stage ends in any case.
    """
    stages = _present.get()
    if stages is not None:
        now = time.monotonic()
        stages.count(_Count(done, total, what, rate, said, now + left, now))


def aside() -> AbstractContextManager[Any]:
    """Return a context in which other text is printed: the progress line is cleared first."""
    stages = _present.get()
    return nullcontext() if stages is None else stages.aside()


@dataclass(frozen=True)
class _Count:
    done: int
    total: int
    what: str
    rate: float
    said: str
    until: float
    at: float = math.inf  # the time of the count

    def __str__(self) -> str:
        text = f"{self.done:,} of {self.total:,} {self.what}"
        if self.rate:
            text += f", {self.rate:,.0f} a second" if self.rate >= 10 else ""
        return text + (f", {self.said}" if self.said else "")

    def left(self, now: float) -> float | None:
        """Return the seconds to the end of the stage, or None if they are not known."""
        units, since = math.inf, max(0.0, now - self.at)
        if self.rate:  # an overdue stage is assumed to take a quarter longer
            rest = (self.total - self.done) / self.rate
            units = max(rest - since, since / 4) if rest else 0.0
        left = min(units, max(0.0, self.until - now))
        return left if math.isfinite(left) else None


@dataclass(frozen=True)
class _Rest:
    """Seconds left in this stage, which may exceed its usual time, and in the stages after it."""

    here: float
    later: float = 0.0
    overdue: bool = False


@dataclass
class _Open:
    """A stage that has begun and has not ended."""

    name: str
    whole: bool
    count: _Count | None = None


class _Stages:
    """The stages of one outermost call, and the thread that shows them."""

    def __init__(self, out: _Display, ahead: tuple[str, ...]) -> None:
        self._out, self._ahead = out, ahead
        self._lock = threading.RLock()
        self._began = self._since = time.monotonic()
        self._open: list[_Open] = []
        self._last = _Open("starting", whole=False)  # shown between two stages
        self._took: dict[str, float] = {}  # seconds by stage, without the stages inside it
        self._share = 0.0
        self._end = threading.Event()
        # in the caller's context, so that the output appears in the caller's notebook cell
        show = partial(copy_context().run, self._show)
        self._thread = threading.Thread(target=show, name="sgld-progress", daemon=True)

    def start(self) -> None:
        """Start the thread that shows the stages."""
        self._thread.start()

    def stop(self, ended: bool, summary: bool) -> None:
        """Stop the display; with `summary`, show the time of each stage if the work is complete."""
        self._end.set()
        self._thread.join()
        said = ended and (summary or self._out.stays)
        self._out.close(self._summary(time.monotonic()) if said else None)

    def enter(self, name: str, whole: bool) -> None:
        """Begin a stage."""
        with self._lock:
            self._pass(time.monotonic())
            inside_a_whole = bool(self._open) and self._open[-1].whole
            self._open.append(self._open[-1] if inside_a_whole else _Open(name, whole))

    def leave(self) -> None:
        """End the innermost stage."""
        with self._lock:
            self._pass(time.monotonic())
            self._last = self._open.pop()

    def count(self, count: _Count) -> None:
        """Set the count of the innermost stage, unless it is a stage inside a whole one."""
        with self._lock:
            if self._open and not any(outer is self._open[-1] for outer in self._open[:-1]):
                self._open[-1].count = count

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Clear the line while other text is printed."""
        with self._lock:
            self._out.clear()
            yield

    def _pass(self, now: float) -> None:
        """Add the time since the last change to the innermost stage."""
        passed, self._since = now - self._since, now
        if self._open:
            name = self._open[-1].name
            self._took[name] = self._took.get(name, 0.0) + passed

    def _show(self) -> None:
        while not self._end.wait(self._out.every):
            with self._lock:
                self._out.write(self.text(time.monotonic()))

    def text(self, now: float) -> str:
        """Return the current progress line."""
        with self._lock:
            self._pass(now)
            here = self._open[-1] if self._open else self._last
            elapsed, rest = now - self._began, self._left(here, now)
            times = _time(elapsed)
            bar = ""
            if rest is not None:
                left = rest.here + rest.later
                # the bar never goes back and never completes, although the estimate may
                self._share = max(self._share, min(0.99, elapsed / max(elapsed + left, 1e-9)))
                bar = f"{self._out.bar(self._share)} {100 * self._share:3.0f}%  "
                if not rest.overdue:
                    times += f", about {_time(left)} left"
                elif rest.later:  # the estimate of an overdue stage would grow
                    times += f", about {_time(rest.later)} left or more"
            stage = f"{here.name} {_time(self._took.get(here.name, 0.0))}"
            return f"{bar}{times}   {stage}{f': {here.count}' if here.count else ''}"

    def _left(self, here: _Open, now: float) -> _Rest | None:
        """Estimate the time left from the stages so far and their times in DEMO_STAGE_SECONDS."""
        counted = None if here.count is None else here.count.left(now)
        if not self._ahead:
            return None if counted is None else _Rest(counted)
        counted = counted if self._open else 0.0  # between two stages
        reached = [i for i, name in enumerate(self._ahead) if name in self._took]
        place = reached[-1] if reached else -1
        ended = [self._ahead[i] for i in reached]
        passed = [name for name in ended if not self._open or name != here.name]
        usual = sum(DEMO_STAGE_SECONDS[name] for name in passed)
        slower = sum(self._took[name] for name in passed) / usual if passed else 1.0
        later = slower * sum(DEMO_STAGE_SECONDS[name] for name in self._ahead[place + 1 :])
        overdue = False
        if counted is None:  # an overdue stage is assumed to take a quarter longer
            own = slower * DEMO_STAGE_SECONDS.get(here.name, 0.0)
            took = self._took.get(here.name, 0.0)
            counted, overdue = max(own - took, took / 4), took > own
        return _Rest(counted, later, overdue)

    def _summary(self, now: float) -> str:
        parts = [f"{name} {_time(took)}" for name, took in self._took.items() if took >= 0.05]
        return f"{_time(now - self._began)}{': ' if parts else ''}{', '.join(parts)}"


def _time(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60) if seconds >= 6000 else int(seconds // 60)
    if minutes >= 100:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60:.0f} s"


class _Line(_Display):
    """One line of a terminal, which is overwritten."""

    every, stays = REDRAW_SECONDS, False

    def __init__(self, stream: Any, columns: Callable[[], int]) -> None:
        self._stream, self._columns = stream, columns
        self._shown = 0  # characters on the line
        try:
            (self.full + self.empty).encode(getattr(stream, "encoding", None) or "ascii")
        except UnicodeEncodeError:
            self.full, self.empty = "#", "-"

    def write(self, text: str) -> None:
        """Overwrite the line with `text`."""
        text = text[: max(1, self._columns() - 1)]
        _put(self._stream, "\r" + text.ljust(self._shown))
        self._shown = len(text)

    def clear(self) -> None:
        """Leave an empty line."""
        if self._shown:
            _put(self._stream, "\r" + " " * self._shown + "\r")
            self._shown = 0

    def close(self, summary: str | None) -> None:
        """End the line: empty it, or leave the summary there."""
        self.clear()
        if summary is not None:
            _put(self._stream, summary + "\n")


class _Lines(_Display):
    """Lines in a file, a pipe or a batch log; none if the work ends before the first."""

    every, stays = LINE_SECONDS, False

    def __init__(self, stream: Any) -> None:
        self._stream, self._begun = stream, False

    def bar(self, share: float) -> str:
        """Return a label instead of a bar: the share appears as a number."""
        return "sgld"

    def write(self, text: str) -> None:
        """Write one more line."""
        self._begun = True
        _put(self._stream, text + "\n")

    def close(self, summary: str | None) -> None:
        """Write the summary if a line was written."""
        if summary is not None and self._begun:
            _put(self._stream, f"sgld 100%  {summary}\n")


def _put(stream: Any, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # a closed stream does not stop the run
        pass


def _written_to(stream: Any) -> _Display:
    if in_a_notebook():
        return Cell()
    if stream is not None and stream.isatty():
        return _Line(stream, lambda: _columns(stream))
    return _Lines(stream)


def _columns(stream: Any) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS
    except (OSError, ValueError):
        return DEFAULT_COLUMNS


_present: ContextVar[_Stages | None] = ContextVar("sgld_stages", default=None)
_named: ContextVar[str] = ContextVar("sgld_stage", default="starting")
