"""Arrays of data, checked before anything is computed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..errors import DataError
from ..layout import leaf_names

__all__ = ["check_data", "converted"]

PyTree = Any


def check_data(data: PyTree) -> PyTree:
    """Data as numpy arrays of the precision JAX will use, or a DataError that names the place.

    Refuses: no arrays, arrays of different lengths, no rows, non-numeric or complex dtypes,
    NaN or infinite cells, floats beyond float32 and integers above 2^24 where x64 is off.
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
    return treedef.unflatten([converted(n, a) for n, a in zip(names, arrays, strict=True)])


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
