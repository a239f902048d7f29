"""What an estimator says while it is fitted: nothing by default, as scikit-learn's do."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.progress import SAMPLING, told

__all__ = ["told_of_fit"]


@contextmanager
def told_of_fit(estimator: Any, rows: int, columns: int) -> Iterator[None]:
    """With `verbose`, the stages of a fit while it goes on, and at its end a line that stays.

    A search, or a cross-validation, makes many fits, of which each is over before the first telling
    where there is no terminal: their lines say how far it is.
    """
    if not estimator.verbose:
        yield
        return
    began = time.monotonic()
    with told(True, SAMPLING, summary=False):
        yield
    if sys.stderr is not None:
        seconds = time.monotonic() - began
        print(
            f"[{type(estimator).__name__}] {rows:,} rows x {columns:,} columns: {estimator.verdict_.word}, "
            f"{seconds:.1f} s",
            file=sys.stderr, flush=True,
        )  # fmt: skip
