"""Arrays of data, checked before anything is computed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..errors import DataError
from ..layout import leaf_names

__all__ = ["check_data", "check_rounding", "converted"]

PyTree = Any

COARSE = 1e-3  # of a column's sd, the rms of what float32 loses: data near 3e4 times their sd
LOOKED_AT = 2**14  # rows for that


def check_data(data: PyTree) -> PyTree:
    """Data as numpy arrays of the precision JAX will use, or a DataError that names the place.

    Refuses: no arrays, arrays of different lengths, no rows, non-numeric or complex dtypes,
    NaN or infinite cells, and where x64 is off floats beyond float32, integers above 2^24 and float64
    columns so far from 0 for their sd that float32 rounds away what sets their rows apart.
    """
    leaves, treedef = jax.tree.flatten(data)
    names = leaf_names(data)
    if not leaves:
        raise DataError("data holds no arrays; give a pytree of arrays with one row per datum.")
    arrays = [np.asarray(leaf) for leaf in leaves]
    lengths = {name: a.shape[0] if a.ndim else None for name, a in zip(names, arrays, strict=True)}
    if None in lengths.values():
        scalar = next(name for name, length in lengths.items() if length is None)
        raise DataError(
            f"data leaf {scalar!r} is a single number; every leaf needs a leading row axis."
        )
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise DataError(f"data leaves differ in their number of rows: {listed}; they must agree.")
    if next(iter(lengths.values())) == 0:
        raise DataError("data has 0 rows; at least one is needed.")
    held = [converted(n, a) for n, a in zip(names, arrays, strict=True)]
    for name, given, kept in zip(names, arrays, held, strict=True):
        check_rounding(name, given, kept)
    return treedef.unflatten(held)


def check_rounding(name: str, given: np.ndarray, kept: np.ndarray) -> None:
    """DataError where rounding to `kept` takes more than COARSE of a column's sd, seen on rows spread over all.

    A likelihood that subtracts the offset would find what is left of it in the numbers.
    """
    if given.dtype.kind != "f" or given.dtype.itemsize <= kept.dtype.itemsize:
        return
    some = slice(None, None, max(1, len(given) // LOOKED_AT))
    values = given[some].reshape(len(given[some]), -1).astype(np.float64)
    lost = np.sqrt(np.mean((kept[some].reshape(values.shape) - values) ** 2, axis=0))
    sd = values.std(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(np.ptp(values, axis=0) > 0, lost / sd, 0.0)
    worst = int(np.argmax(share)) if share.size else 0
    if share.size and share[worst] > COARSE:
        column = f", column {worst}," if given.ndim > 1 else ""
        apart = float(np.spacing(kept.dtype.type(np.abs(values[:, worst]).max())))
        raise DataError(
            f"data leaf {name!r}{column} has an sd of {sd[worst]:.3g} around {values[:, worst].mean():.9g}, where "
            f"numbers of {kept.dtype} are {apart:.2g} apart: its rows would be rounded; subtract an offset from it "
            "before (and not in the model), or enable jax_enable_x64."
        )


def converted(name: str, array: np.ndarray, first: int = 0) -> np.ndarray:
    """An array of rows from number `first` on, in the precision JAX will use; DataError as `check_data`."""
    if array.dtype == bool:
        return array
    if not np.issubdtype(array.dtype, np.number) or np.issubdtype(array.dtype, np.complexfloating):
        raise DataError(
            f"data leaf {name!r} has dtype {array.dtype}; encode it as real numbers first."
        )
    target = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))
    if np.issubdtype(array.dtype, np.integer):
        largest = max(abs(int(array.max())), abs(int(array.min())))
        if target.itemsize <= 4 and largest > 2**24:
            raise DataError(
                f"data leaf {name!r} holds the integer {largest}, above 2^24, which float32 arithmetic "
                "would round; subtract an offset, or enable jax_enable_x64."
            )
        return array.astype(target)
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f"row {first + where[0]}" + (f", column {where[1:]}" if len(where) > 1 else "")
        raise DataError(
            f"data leaf {name!r} holds {array[where]} at {place} (counted from 0); "
            "remove or impute it."
        )
    if array.dtype.itemsize > target.itemsize:
        limit = float(np.finfo(target).max)
        if array.size and float(np.abs(array).max()) > limit:
            raise DataError(
                f"data leaf {name!r} holds values beyond {target}'s largest, {limit:.3g}; rescale it, "
                "or enable jax_enable_x64."
            )
    return array.astype(target, copy=False)
