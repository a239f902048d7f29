"""Typed errors: one sentence that names the thing, the value and the remedy."""

from __future__ import annotations

import difflib
import functools
import importlib
import re
import warnings
from collections.abc import Iterable, Iterator
from types import ModuleType

__all__ = [
    "DataError",
    "MissingExtra",
    "RunError",
    "SGLDError",
    "SGLDWarning",
    "UsageError",
    "check_requirements",
    "did_you_mean",
    "first_line",
    "need",
    "plain",
]


MAX_SENTENCE_CHARS = 2000  # of a sentence; what it quotes may have millions
DISTRIBUTION = "sgld"
REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[\w,-]+\])?(?P<bounds>[^;]*)(?:;.*extra *== *['\"](?P<extra>[\w-]+))?"
)
MAX_QUOTED_CHARS = 200  # of what another package says


def plain(text: str) -> str:
    """`text` without letters that a terminal would obey: what strangers named is only shown.

    Example:
      >>> from sgld.errors import plain
      >>> print(plain("x\\x1b[2J"))
      x\\x1b[2J
    """
    if text.isprintable():
        return text
    shown = (c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return "".join(shown)


class SGLDError(Exception):
    """Base class of every error this package raises on purpose.

    Args:
      args: one sentence. A longer one than 2000 letters is shortened in its middle, and letters that
        a terminal would obey are shown as such.

    Example:
      >>> import sgld
      >>> try:
      ...     sgld.Scalar(-1.0).prepare(None)
      ... except sgld.errors.SGLDError as error:
      ...     print(error)
      Scalar must be positive and finite. Got -1.
    """

    def __init__(self, *args: object) -> None:
        """A sentence may quote files of strangers: it is shortened in its middle, and shows no more than letters."""
        super().__init__(*(_sentence(arg) if isinstance(arg, str) else arg for arg in args))


def _sentence(text: str) -> str:
    if len(text) > MAX_SENTENCE_CHARS:
        half = MAX_SENTENCE_CHARS // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return plain(text.rstrip("\n")).replace("\n", "\\n")


class UsageError(SGLDError, ValueError):
    """An argument is wrong: its name, what came, and what would be accepted. A ValueError too.

    Example:
      >>> import sgld
      >>> sgld.constant(-0.1)
      Traceback (most recent call last):
      sgld.errors.UsageError: step_size must be positive. Got -0.1.
    """


class DataError(SGLDError, ValueError):
    """The data are wrong: where (row, column, leaf), what stands there, what to do. A ValueError too.

    Example:
      >>> import numpy as np, sgld
      >>> rows = {"x": np.array([1.0, np.nan]), "y": np.ones(2)}
      >>> sgld.fit(rows, "y ~ x", missing="error", progress=False)
      Traceback (most recent call last):
      sgld.errors.DataError: ...
    """


class RunError(SGLDError, RuntimeError):
    """A run directory or a run in progress is in a state that does not allow the request.

    Example:
      >>> import sgld
      >>> sgld.load("no/such/run")
      Traceback (most recent call last):
      sgld.errors.RunError: ...
    """


class MissingExtra(SGLDError, ImportError):
    """An optional dependency is absent; the message holds the command that installs it. An ImportError too.

    Example:
      >>> from sgld.errors import need
      >>> need("a_module_that_nobody_has", "torch")
      Traceback (most recent call last):
      sgld.errors.MissingExtra: a_module_that_nobody_has is needed for this; install it with: pip install 'sgld[torch]'
    """


class SGLDWarning(UserWarning):
    """A run goes on, and is not what its user thinks: what was seen, and what to change.

    Example:
      >>> import warnings, sgld
      >>> with warnings.catch_warnings():  # to stop at the first
      ...     warnings.simplefilter("error", sgld.errors.SGLDWarning)
    """


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A suffix " Did you mean 'x'?" for a misspelt name, or an empty string.

    Args:
      name: what was given.
      choices: what would have been right.

    Example:
      >>> from sgld.errors import did_you_mean
      >>> did_you_mean("poison", ["gaussian", "poisson"])
      " Did you mean 'poisson'?"
    """
    short, choices = str(name)[:MAX_QUOTED_CHARS], list(choices)
    close = [choice for choice in choices if choice.casefold() == short.casefold()]
    close = close or difflib.get_close_matches(short, choices, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def first_line(error: BaseException) -> str:
    """What an error of another package says first, to stand in a sentence: no line breaks, no full stop.

    Args:
      error: whatever was raised; one that says nothing is named by its class.

    Example:
      >>> from sgld.errors import first_line
      >>> first_line(OSError("the disk is full.\\nCall 1234."))
      'the disk is full'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:MAX_QUOTED_CHARS].rstrip(".") if lines else type(error).__name__


def need(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise MissingExtra with the command that installs it, or what it needs itself.

    Args:
      module: its dotted name.
      extra: of this package, that brings it.

    Example:
      >>> from sgld.errors import need
      >>> need("json", "cli").dumps([1])
      '[1]'
    """
    check_requirements(extra)
    try:
        with warnings.catch_warnings():
            # of tqdm, which NumPyro imports for a progress bar of its own: in every notebook without ipywidgets
            warnings.filterwarnings("ignore", "IProgress not found")
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).split(".")[0]
        if missing == __package__:
            raise
        raise MissingExtra(
            f"{missing} is needed for this; install it with: pip install 'sgld[{extra}]'"
        ) from error


@functools.cache
def check_requirements(extra: str | None = None) -> None:
    """Raise MissingExtra if a library that sgld needs is missing or older than its lower bound.

    Args:
      extra: the extra whose libraries are checked; None for those that every use of sgld needs.

    Raises: MissingExtra, with the pip command that installs the library.

    Example:
      >>> from sgld.errors import check_requirements
      >>> check_requirements()
    """
    from importlib import metadata  # 50 ms: not for `import sgld`

    for name, lowest in _requirements(extra):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError as error:
            if extra is not None:  # the import that follows says what is missing
                continue
            raise MissingExtra(
                f"sgld needs {name}, which is not installed: pip install '{name}>={lowest}'"
            ) from error
        if version and version_numbers(version) < version_numbers(lowest):
            raise MissingExtra(
                f"sgld needs {name} {lowest} or newer; {version} is installed: "
                f"pip install '{name}>={lowest}'"
            )


def _requirements(extra: str | None) -> Iterator[tuple[str, str]]:
    """Yield the name and the lower bound of each library that an extra needs."""
    from importlib import metadata

    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # run from its source, not installed
        return
    for text in required:
        found = REQUIREMENT.match(text)
        lowest = found and re.search(r">=\s*([\w.]+)", found["bounds"])
        if found and lowest and found["extra"] == extra and found["name"] != DISTRIBUTION:
            yield found["name"], lowest[1]


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (0, 12, 0, 1) for "0.12.0.1"."""
    leading = re.match(r"[\d.]*\d", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()
