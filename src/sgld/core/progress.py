"""What a long computation says of itself: its stage by name, how far it is, about how long is left.

Whoever works names the stage; whether and where it is shown is known only to the outermost call,
which a context variable finds:

    with told(progress, SAMPLING_STAGES):        # sgld.sample, sgld.reference, the command line
        with stage("curvature"):          # anything below it
            ...

On a terminal and in a notebook (`cell`) that is one line, written anew by a thread of its own, so
that it moves while a function compiles; anywhere else a line every ten seconds. `stage` decorates, too.

The line of a long computation in a notebook: one output that is written anew, and never left empty.

A notebook's streams know no more than a carriage return, and what they have shown stays as an output
of no words once it is wiped. A display with a name can be replaced: by what each stage took in the end,
or by where it stopped. A call that is over before the first showing leaves nothing.

The time that a call may take, where nothing is there yet that could be returned.

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


CELL_BAR_CHARACTERS = 10
CELL_STYLE = "color: var(--jp-ui-font-color2, gray); background: none; padding: 0; font-size: .9em"


def in_a_notebook() -> bool:
    """Whether this is the kernel of a notebook, which shows what is displayed.

    Example:
      >>> from sgld.core.progress import in_a_notebook
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
      >>> from sgld.core.progress import Cell
      >>> Cell(None).bar(0.3)
      '━━━───────'
    """

    every = 0.25  # seconds from one showing to the next
    stays = True  # what was shown is still there at the end

    def __init__(self, handle: Any = None) -> None:
        self._handle, self._text = handle, ""

    def bar(self, share: float) -> str:
        """A bar of which `share` is full."""
        full = int(CELL_BAR_CHARACTERS * share)
        return "━" * full + "─" * (CELL_BAR_CHARACTERS - full)

    def write(self, text: str) -> None:
        """Show this, in the place of what was shown."""
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

    def clear(self) -> None:
        """Nothing to make room for: other outputs come below."""

    def close(self, summary: str | None) -> None:
        """What each stage took, or where it stopped; nothing where nothing was shown."""
        if self._handle is not None:
            self.write(f"stopped: {self._text}" if summary is None else summary)


# -- deadline ------------------------------------------------------------------------------


VERDICT_SHARE = 0.2  # of max_seconds, which sampling leaves
# of them, and seconds: what a verdict on predictions takes
PREDICTIONS_SHARE, COMPILE_SECONDS = 0.05, 6.0
# of all that a run takes, what has passed by the end of a stage: by the seconds of stages.py; no more of others
SHARE_PASSED_AFTER = {
    "data": 0.2, "mode": 0.25, "curvature": 0.35, "other modes": 0.4, "optimising": 0.4, "step size": 0.5, "rows": 0.6,
}  # fmt: skip
# times what is expected; seconds, of which compiling may take most
DEADLINE_FACTOR, MIN_DEADLINE_SECONDS = 2.0, 5.0
ROUND_NUMBERS = (1, 2, 3, 5, 10)  # times a power of 10


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
def deadline(
    seconds: float | None, until: float, least: float = MIN_DEADLINE_SECONDS
) -> Iterator[None]:
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
    from .devices import agreed  # JAX with it, for which a stage line does not wait

    if not agreed(time.monotonic() > limit.until):
        return
    if limit.shared:
        raise Over
    passed = max(0.0, time.monotonic() - limit.until) + limit.seconds
    whole = (passed + left) / SHARE_PASSED_AFTER.get(stage, min(SHARE_PASSED_AFTER.values()))
    raise RunError(
        f"the time of max_seconds = {limit.seconds:g} was up before the first draw, at the stage {stage!r}; "
        f"{enough(max(limit.least, whole))}, or give fewer parameters or rows."
    )


def sampled_until(started: float, seconds: float, predictions: bool) -> float:
    """The time (of time.monotonic) at which sampling ends; a verdict on predictions takes little of a long run."""
    share = (
        min(VERDICT_SHARE, PREDICTIONS_SHARE + COMPILE_SECONDS / seconds)
        if predictions
        else VERDICT_SHARE
    )
    return started + (1 - share) * seconds


def past(of: float) -> float:
    """The time (of time.monotonic) at which so much of max_seconds has passed; infinite where there is none."""
    limit = _limit.get()
    if limit is None:
        return math.inf
    return limit.until - (1 - VERDICT_SHARE - of) * limit.seconds


def enough(seconds: float) -> str:
    """The remedy for too little time, where about so many seconds are expected to do.

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
# seconds of each in `sgld demo`, with nothing compiled: what is still to come takes in proportion
DEMO_STAGE_SECONDS = {
    "data": 1.4, "mode": 0.3, "curvature": 0.6, "other modes": 0.4, "rows": 1.3, "sampling": 2.2,
    "verdict": 0.4, "report": 1.8,
}  # fmt: skip
REDRAW_SECONDS, LINE_SECONDS = 0.25, 10.0  # seconds: on a terminal, and where lines stay
BAR_CHARACTERS = 10
DEFAULT_COLUMNS = 80  # of a terminal that does not say


@contextmanager
def told(shown: bool, ahead: Sequence[str] = (), *, summary: bool = True) -> Iterator[None]:
    """Show the stages of all that is done inside, on standard error.

    Inside another `told` they are shown there; with `shown` False, nowhere.

    Args:
      ahead: stages that are expected, in order: what is left is estimated from them.
      summary: what each stage took stays at the end (in a notebook it does in any case).
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
    """What is done inside is called `name`; with `whole`, stages inside it are not named."""
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
    """`check_deadline` of the present stage, for what takes long inside it."""
    check_deadline(_named.get())


def counted(
    done: int, total: int, what: str, *, rate: float = 0.0, said: str = "", left: float = math.inf
) -> None:
    """How far the present stage is: `done` of `total` of `what`, a plural.

    Args:
      rate: of them in a second, where it is known.
      said: what else the line ends with.
      left: seconds from now at which the stage ends in any case.
    """
    stages = _present.get()
    if stages is not None:
        now = time.monotonic()
        stages.count(_Count(done, total, what, rate, said, now + left, now))


def aside() -> AbstractContextManager[Any]:
    """Something else is printed inside: the line makes room for it."""
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
    at: float = math.inf  # the time it was made

    def __str__(self) -> str:
        text = f"{self.done:,} of {self.total:,} {self.what}"
        if self.rate:
            text += f", {self.rate:,.0f} a second" if self.rate >= 10 else ""
        return text + (f", {self.said}" if self.said else "")

    def left(self, now: float) -> float | None:
        """Seconds to the end of the stage; None where they are not known."""
        units, since = math.inf, max(0.0, now - self.at)
        if self.rate:  # what goes on longer than it should goes on for a while
            rest = (self.total - self.done) / self.rate
            units = max(rest - since, since / 4) if rest else 0.0
        left = min(units, max(0.0, self.until - now))
        return left if math.isfinite(left) else None


@dataclass(frozen=True)
class _Rest:
    """Seconds to the end of this stage, which may have had its usual time, and of those after it."""

    here: float
    later: float = 0.0
    overdue: bool = False


@dataclass
class _Open:
    """A stage that has begun and not ended."""

    name: str
    whole: bool
    count: _Count | None = None


class _Stages:
    """The stages of one outermost call, and the thread that shows them."""

    def __init__(self, out: _Line | _Lines | Cell, ahead: tuple[str, ...]) -> None:
        self._out, self._ahead = out, ahead
        self._lock = threading.RLock()
        self._began = self._since = time.monotonic()
        self._open: list[_Open] = []
        self._last = _Open("starting", whole=False)  # shown between two stages
        self._took: dict[str, float] = {}  # stages inside a stage left out
        self._share = 0.0
        self._end = threading.Event()
        # in the caller's context, which says whose cell a notebook's outputs belong to
        show = partial(copy_context().run, self._show)
        self._thread = threading.Thread(target=show, name="sgld-progress", daemon=True)

    def start(self) -> None:
        """Begin to show."""
        self._thread.start()

    def stop(self, ended: bool, summary: bool) -> None:
        """Show no more; with `summary` what each stage took, where all is done."""
        self._end.set()
        self._thread.join()
        said = ended and (summary or self._out.stays)
        self._out.close(self._summary(time.monotonic()) if said else None)

    def enter(self, name: str, whole: bool) -> None:
        """A stage begins."""
        with self._lock:
            self._pass(time.monotonic())
            inside_a_whole = bool(self._open) and self._open[-1].whole
            self._open.append(self._open[-1] if inside_a_whole else _Open(name, whole))

    def leave(self) -> None:
        """The innermost ends."""
        with self._lock:
            self._pass(time.monotonic())
            self._last = self._open.pop()

    def count(self, count: _Count) -> None:
        """Of the innermost; stages inside a whole one do not count for it."""
        with self._lock:
            if self._open and not any(outer is self._open[-1] for outer in self._open[:-1]):
                self._open[-1].count = count

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The line makes room."""
        with self._lock:
            self._out.clear()
            yield

    def _pass(self, now: float) -> None:
        """Book the time since the last change on the innermost stage."""
        passed, self._since = now - self._since, now
        if self._open:
            name = self._open[-1].name
            self._took[name] = self._took.get(name, 0.0) + passed

    def _show(self) -> None:
        while not self._end.wait(self._out.every):
            with self._lock:
                self._out.write(self.text(time.monotonic()))

    def text(self, now: float) -> str:
        """The line as it is now."""
        with self._lock:
            self._pass(now)
            here = self._open[-1] if self._open else self._last
            elapsed, rest = now - self._began, self._left(here, now)
            times = _time(elapsed)
            bar = ""
            if rest is not None:
                left = rest.here + rest.later
                # never complete, and never back: the estimate may
                self._share = max(self._share, min(0.99, elapsed / max(elapsed + left, 1e-9)))
                bar = f"{self._out.bar(self._share)} {100 * self._share:3.0f}%  "
                if not rest.overdue:
                    times += f", about {_time(left)} left"
                elif rest.later:  # no promise that would grow while it waits
                    times += f", about {_time(rest.later)} left or more"
            stage = f"{here.name} {_time(self._took.get(here.name, 0.0))}"
            return f"{bar}{times}   {stage}{f': {here.count}' if here.count else ''}"

    def _left(self, here: _Open, now: float) -> _Rest | None:
        """What is to come, from what stages have taken so far and what they take in DEMO_STAGE_SECONDS."""
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
        if counted is None:  # one that takes longer than it should goes on for a while
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


class _Line:
    """One line of a terminal, written over."""

    every, stays = REDRAW_SECONDS, False

    def __init__(self, stream: Any, columns: Callable[[], int]) -> None:
        self._stream, self._columns = stream, columns
        self._shown = 0  # characters that stand there
        full, empty = "━", "─"
        try:
            (full + empty).encode(getattr(stream, "encoding", None) or "ascii")
        except UnicodeEncodeError:
            full, empty = "#", "-"
        self._full, self._empty = full, empty

    def bar(self, share: float) -> str:
        """A bar of which `share` is full."""
        full = int(BAR_CHARACTERS * share)
        return self._full * full + self._empty * (BAR_CHARACTERS - full)

    def write(self, text: str) -> None:
        """Write over what stands there."""
        text = text[: max(1, self._columns() - 1)]
        _put(self._stream, "\r" + text.ljust(self._shown))
        self._shown = len(text)

    def clear(self) -> None:
        """Leave an empty line."""
        if self._shown:
            _put(self._stream, "\r" + " " * self._shown + "\r")
            self._shown = 0

    def close(self, summary: str | None) -> None:
        """The line ends: empty, or with a summary that stays."""
        self.clear()
        if summary is not None:
            _put(self._stream, summary + "\n")


class _Lines:
    """Lines that stay: a file, a pipe, a batch system. Nothing where all is over before the first."""

    every, stays = LINE_SECONDS, False

    def __init__(self, stream: Any) -> None:
        self._stream, self._begun = stream, False

    def bar(self, share: float) -> str:
        """None: the share is said in numbers."""
        return "sgld"

    def write(self, text: str) -> None:
        """One more line."""
        self._begun = True
        _put(self._stream, text + "\n")

    def clear(self) -> None:
        """Nothing to clear."""

    def close(self, summary: str | None) -> None:
        """The summary, where there was a line."""
        if summary is not None and self._begun:
            _put(self._stream, f"sgld 100%  {summary}\n")


def _put(stream: Any, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # closed, or a reader that went away: no reason to stop
        pass


def _written_to(stream: Any) -> _Line | _Lines | Cell:
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
