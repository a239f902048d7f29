"""Arrays of data, checked before anything is computed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..core.pytrees import leaf_names, types_of
from ..core.validation import unmasked
from ..errors import DataError
from .running import Running

__all__ = ["Rounding", "check_data", "converted", "held_dtype"]

PyTree = Any

COARSE = 1e-3  # of a column's sd, the rms of what float32 loses: data near 3e4 times their sd
LOOKED_AT = 2**14  # rows for that
AS_ARRAY = (
    "__array__",
    "__array_interface__",
    "__array_struct__",
    "__dlpack__",
    "__buffer__",
    "buffer_info",
)


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
    arrays = [_as_array(*pair) for pair in zip(names, leaves, strict=True)]
    lengths = {name: a.shape[0] if a.ndim else None for name, a in zip(names, arrays, strict=True)}
    if None in lengths.values():
        scalar = next(name for name, length in lengths.items() if length is None)
        lists = ": give arrays, np.asarray(...), not lists" if list in types_of(treedef) else ""
        raise DataError(
            f"data leaf {scalar!r} is a single number; every leaf needs a leading row axis{lists}."
        )
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise DataError(f"data leaves differ in their number of rows: {listed}; they must agree.")
    if next(iter(lengths.values())) == 0:
        raise DataError("data has 0 rows; at least one is needed.")
    held = [converted(n, a) for n, a in zip(names, arrays, strict=True)]
    for name, given, kept in zip(names, arrays, held, strict=True):
        rounding = Rounding(f"data leaf {name!r}")
        rounding.add(given, kept)
        rounding.check()
    return treedef.unflatten(held)


def _as_array(name: str, leaf: Any) -> np.ndarray:
    """A leaf that is an array; NumPy would ask anything else that has items for one after the other, some without end."""
    known = isinstance(leaf, (str, bytes, bytearray, memoryview, range)) or any(
        hasattr(leaf, way) for way in AS_ARRAY
    )
    if hasattr(leaf, "__getitem__") and not known:
        raise DataError(
            f"data leaf {name!r} is a {type(leaf).__name__}, which is no array; give arrays, or sgld.open(...) of "
            "a data set whose rows are had one by one."
        )
    return np.asarray(unmasked(f"data leaf {name!r}", leaf))


class Rounding:
    """What rounding to the run's precision takes of a leaf's columns, seen on rows spread over each piece of it.

    A likelihood that subtracts an offset would find what is left of the numbers.
    """

    def __init__(self, leaf: str) -> None:
        self.leaf = leaf
        self.seen = Running()
        self.lost: Any = 0.0

    def add(self, given: np.ndarray, kept: np.ndarray) -> None:
        """The next rows, as they were given and as they are kept."""
        if given.dtype.kind != "f" or given.dtype.itemsize <= kept.dtype.itemsize or not given.size:
            return
        some = slice(None, None, max(1, len(given) // LOOKED_AT))
        values = given[some].reshape(len(given[some]), -1).astype(np.float64)
        rounded = kept[some].reshape(values.shape).astype(np.float64)
        self.dtype = kept.dtype
        self.seen.add(values)
        self.lost += ((rounded - values) ** 2).sum(axis=0)

    def check(self) -> None:
        """DataError where it is more than COARSE of a column's sd."""
        seen = self.seen
        if not seen.count:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(seen.most > seen.least, np.sqrt(self.lost / seen.squares), 0.0)
        worst = int(np.argmax(share))
        if share[worst] > COARSE:
            column = f", column {worst}," if share.size > 1 else ""
            largest = max(abs(seen.least[worst]), abs(seen.most[worst]))
            raise DataError(
                f"{self.leaf}{column} has an sd of {np.sqrt(seen.squares[worst] / seen.count):.3g} around "
                f"{seen.mean[worst]:.9g}, where numbers of {self.dtype} are "
                f"{float(np.spacing(self.dtype.type(largest))):.2g} apart: its rows would be rounded; subtract an offset "
                "from it before (and not in the model), or enable jax_enable_x64."
            )


def held_dtype(dtype: np.dtype) -> np.dtype:
    """The type that JAX uses for numbers of this one, of which it knows none wider than 64 bits."""
    wide = dtype.kind == "f" and dtype.itemsize > 8
    return np.dtype(jax.dtypes.canonicalize_dtype("float64" if wide else dtype.newbyteorder("=")))


def converted(name: str, array: np.ndarray, first: int = 0) -> np.ndarray:
    """An array of rows from number `first` on, in the precision JAX will use; DataError as `check_data`."""
    if array.dtype == bool:
        return array
    if not np.issubdtype(array.dtype, np.number) or np.issubdtype(array.dtype, np.complexfloating):
        raise DataError(
            f"data leaf {name!r} has dtype {array.dtype}; encode it as real numbers first."
        )
    target = held_dtype(array.dtype)
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
