"""Checks of arguments and of a sampler's numbers; each message names the argument and its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ..errors import DataError, UsageError, did_you_mean


def is_number(value: Any) -> bool:
    """Return whether `value` is one real number and not a boolean."""
    real = isinstance(value, (int, float, np.integer, np.floating))
    return real and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Return the number in an array without axes, and any other value unchanged."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def unmasked(name: str, value: Any) -> Any:
    """Return `value`; raise DataError for an array with masked cells.

    `np.asarray` would use the numbers under the mask.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        place = tuple(int(i) for i in np.argwhere(np.ma.getmaskarray(value))[0])
        raise DataError(
            f"{name} is a masked array whose cell {place} (counted from 0) is masked, one of "
            f"{np.ma.count_masked(value)}; remove such rows, or fill the cells with numbers."
        )
    return value


def whole_number(name: str, value: Any, least: int = 1, remark: str = "") -> None:
    """Raise UsageError unless `value` is a whole number of at least `least`."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least:
        raise UsageError(f"{name} must be a whole number, at least {least}{remark}. Got {value!r}.")


def positive(name: str, value: Any, remark: str = "") -> None:
    """Raise UsageError unless `value`, or every number of an array, is positive and finite."""
    try:
        numbers = np.asarray(value, float)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if not (np.isfinite(numbers) & (numbers > 0)).all():
        raise UsageError(f"{name} must be positive{remark}. Got {value}.")


def positive_number(name: str, value: Any) -> None:
    """Raise UsageError unless `value` is a positive, finite number."""
    if not (is_number(value) and 0 < value < math.inf):
        raise UsageError(f"{name} must be a positive number. Got {value!r}.")


def fraction(name: str, value: Any, *, ends: bool = False) -> None:
    """Raise UsageError unless `value` lies between 0 and 1; `ends` includes 0 and 1."""
    inside = is_number(value) and (0 <= value <= 1 if ends else 0 < value < 1)
    if not inside:
        raise UsageError(f"{name} must lie between 0 and 1. Got {value!r}.")


def one_of(name: str, value: Any, choices: Collection[str], *, auto: bool = False) -> None:
    """Raise UsageError unless `value` is one of these texts; with `auto`, "auto" is accepted too."""
    if not isinstance(value, str) or (value not in choices and not (auto and value == "auto")):
        other = "'auto' or " if auto else ""
        raise UsageError(
            f"{name} must be {other}one of {', '.join(choices)}. Got {value!r}."
            + did_you_mean(str(value), choices)
        )


def check_seed(seed: Any) -> None:
    """Raise UsageError unless `seed` is a whole number from 0 to 2^32 - 1."""
    whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**32:
        raise UsageError(f"seed must be a whole number from 0 to 2^32 - 1. Got {seed!r}.")


def check_interval(checkpoint_every: Any) -> None:
    """Raise UsageError unless the value is seconds between checkpoints, or 0 for every piece."""
    checkpoint_every = plain(checkpoint_every)
    if not is_number(checkpoint_every) or not 0 <= checkpoint_every < math.inf:
        raise UsageError(
            f"checkpoint_every must be positive, in seconds, or 0. Got {checkpoint_every!r}."
        )


def check_tolerance(tolerance: Any) -> None:
    """Raise UsageError unless `tolerance` is a relative error of at most 0.5."""
    if not is_number(tolerance) or not 0 < tolerance <= 0.5:
        raise UsageError(f"tolerance must lie in (0, 0.5]. Got {tolerance!r}.")


# -- checks --------------------------------------------------------------------------------


def require(name: str, value: Any, holds: Callable[[Any], Any], what: str) -> None:
    """Raise UsageError unless `holds(value)`.

    Only numbers that a user gives are checked: JAX rebuilds samplers from its own arrays, tracers and
    placeholders (zeros for tangents).
    """
    if isinstance(value, str):
        raise UsageError(f"{name} must be {what}. Got {value!r}.")
    if isinstance(value, (int, float, np.ndarray, np.generic)) and not isinstance(value, bool):
        number = np.asarray(value, float)
        if not (np.isfinite(number).all() and np.all(holds(number))):
            raise UsageError(f"{name} must be {what}. Got {value}.")


# -- MAX STEP ------------------------------------------------------------------------------


MAX_STEP = 2**31 - 1
