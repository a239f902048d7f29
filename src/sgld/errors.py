"""Exceptions whose message is one sentence with the cause, the value and the remedy."""

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


MAX_SENTENCE_CHARS = 2000  # characters of a message; quoted text may have millions
DISTRIBUTION = "sgld"
REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[\w,-]+\])?(?P<bounds>[^;]*)(?:;.*extra *== *['\"](?P<extra>[\w-]+))?"
)
MAX_QUOTED_CHARS = 200  # characters of a message of another package


def plain(text: str) -> str:
    """Return `text` with control characters escaped, so that a terminal does not act on them.

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
    """Base class of every error that this package raises on purpose.

    Args:
      *args: one sentence. A sentence longer than 2000 characters is shortened in its middle, and control
        characters are escaped.

    Example:
      >>> import sgld
      >>> try:
      ...     sgld.Scalar(-1.0).prepare(None)
      ... except sgld.errors.SGLDError as error:
      ...     print(error)
      Scalar must be positive and finite. Got -1.
    """

    def __init__(self, *args: object) -> None:
        """Shorten and escape the message, which may quote untrusted files."""
        super().__init__(*(_sentence(arg) if isinstance(arg, str) else arg for arg in args))


def _sentence(text: str) -> str:
    if len(text) > MAX_SENTENCE_CHARS:
        half = MAX_SENTENCE_CHARS // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return plain(text.rstrip("\n")).replace("\n", "\\n")


class UsageError(SGLDError, ValueError):
    """An argument is wrong: its name, its value, and what is accepted. Also a ValueError.

    Example:
      >>> import sgld
      >>> sgld.constant(-0.1)
      Traceback (most recent call last):
      sgld.errors.UsageError: step_size must be positive. Got -0.1.
    """


class DataError(SGLDError, ValueError):
    """The data are wrong: where (row, column, leaf), the value, and the remedy. Also a ValueError.

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
    """An optional dependency is missing; the message has its install command. Also an ImportError.

    Example:
      >>> from sgld.errors import need
      >>> need("a_module_that_nobody_has", "torch")
      Traceback (most recent call last):
      sgld.errors.MissingExtra: a_module_that_nobody_has is needed for this; install it with: pip install 'sgld[torch]'
    """


class SGLDWarning(UserWarning):
    """A run continues with a difference from the request: what was found, and what to change.

    Example:
      >>> import warnings, sgld
      >>> with warnings.catch_warnings():  # to stop at the first
      ...     warnings.simplefilter("error", sgld.errors.SGLDWarning)
    """


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for a misspelt name, or an empty string.

    Args:
      name: the given name.
      choices: the valid names.

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
    """Return the first line of another package's error without a full stop, to quote it.

    Args:
      error: any exception; one without a message is named by its class.

    Example:
      >>> from sgld.errors import first_line
      >>> first_line(OSError("the disk is full.\\nCall 1234."))
      'the disk is full'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:MAX_QUOTED_CHARS].rstrip(".") if lines else type(error).__name__


def need(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise MissingExtra with the command that installs what is missing.

    Args:
      module: its dotted name.
      extra: the extra of this package that installs it.

    Example:
      >>> from sgld.errors import need
      >>> need("json", "cli").dumps([1])
      '[1]'
    """
    check_requirements(extra)
    try:
        with warnings.catch_warnings():
            # from tqdm, which NumPyro imports for its progress bar: in every notebook without ipywidgets
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
    from importlib import metadata  # imported late: it takes 50 ms

    for name, lowest in _requirements(extra):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError as error:
            if extra is not None:  # the import that follows raises the error
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
