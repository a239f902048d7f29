"""Rows of the user's own at which a run is judged by predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..core.pytrees import leaf_names
from ..core.validation import unmasked
from ..errors import DataError, UsageError
from ..posterior import Posterior

__all__ = ["with_probe_rows"]


def with_probe_rows(posterior: Posterior, datum: Any) -> Posterior:
    """The posterior, its `predict_at` as arrays like the data's, of which `datum` is one.

    Raises UsageError where the rows are not like the data's, or nothing is judged by predictions; DataError where they
    hold what is no number.
    """
    if posterior.predict_at is None:
        return posterior
    if datum is None or posterior.predict is None:
        raise UsageError(
            "predict_at holds rows at which predictions are judged, and this run is judged by its parameters; give "
            "predict= too, or leave predict_at out."
        )
    given, structure = jax.tree.flatten(posterior.predict_at)
    own, expected = jax.tree.flatten(datum)
    if structure != expected:
        raise UsageError(
            f"predict_at must be rows like the data's, with every array of a datum: {expected}. Got {structure}."
        )
    names, rows, lengths = leaf_names(posterior.predict_at), [], set()
    for name, leaf, one in zip(names, given, own, strict=True):
        array = np.asarray(unmasked(f"predict_at leaf {name!r}", leaf))
        if array.shape[1:] != one.shape or not array.ndim:
            raise UsageError(
                f"predict_at leaf {name!r} must have rows of shape {one.shape}, as the data have. Got an array of "
                f"shape {array.shape}."
            )
        if array.dtype.kind not in "biuf":
            raise UsageError(f"predict_at leaf {name!r} must hold numbers. Got {array.dtype}.")
        lengths.add(len(array))
        with np.errstate(invalid="ignore", over="ignore"):  # of numbers beyond the type's
            rows.append(array.astype(one.dtype))
        if not (np.isfinite(array).all() and np.isfinite(rows[-1]).all()):
            raise DataError(f"predict_at leaf {name!r} holds a number that is not finite.")
        if np.issubdtype(one.dtype, np.integer) and (rows[-1] != array).any():
            raise UsageError(f"predict_at leaf {name!r} must hold whole numbers, as the data do.")
    if len(lengths) > 1 or 0 in lengths:
        raise UsageError(
            f"the arrays of predict_at must have one number of rows, at least 1. Got {sorted(lengths)}."
        )
    return replace(posterior, predict_at=structure.unflatten(rows))
