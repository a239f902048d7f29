"""Typed errors: one sentence that names the thing, the value and the remedy."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType

__all__ = [
    "DataError",
    "MissingExtra",
    "RunError",
    "SGLDError",
    "UsageError",
    "did_you_mean",
    "need",
]


class SGLDError(Exception):
    """Base class of every error this package raises on purpose."""


class UsageError(SGLDError, ValueError):
    """An argument is wrong: its name, what came, and what would be accepted."""


class DataError(SGLDError, ValueError):
    """The data are wrong: where (row, column, leaf), what stands there, what to do."""


class RunError(SGLDError, RuntimeError):
    """A run directory or a run in progress is in a state that does not allow the request."""


class MissingExtra(SGLDError, ImportError):
    """An optional dependency is absent; the message holds the command that installs it."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A suffix " Did you mean 'x'?" for a misspelt name, or an empty string."""
    close = difflib.get_close_matches(str(name), list(choices), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def need(module: str, extra: str) -> ModuleType:
    """Import `module`, or raise MissingExtra with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(
            f"{module.split('.')[0]} is needed for this; install it with: pip install 'sgld[{extra}]'"
        ) from error
