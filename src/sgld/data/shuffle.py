"""The order in which rows are laid: that of a 64-bit mix of row number and seed.

    key(row) = mix(mix(row + s) ^ s'),   s = mix(seed + g),   s' = mix(s + g)

with the finalizer of SplitMix64 (Steele, Lea & Flood 2014) for `mix` and its constant for g. `mix` is
a bijection of 64 bits, so that no two rows have one key. A row's key asks nothing of the others: a
table that is read in pieces, from any kind of file, is laid in the order in which it would lie in
memory, and no permutation of its rows is ever held.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int, UInt64

__all__ = ["keys", "shuffled"]

GAMMA = np.uint64(0x9E3779B97F4A7C15)


def keys(rows: Int[np.ndarray, " m"], seed: int) -> UInt64[np.ndarray, " m"]:
    """The keys of the rows of these numbers: laid in ascending order of them, rows are shuffled."""
    with np.errstate(over="ignore"):  # sums and products are meant modulo 2^64
        first = _mix(np.asarray([seed % 2**64], np.uint64) + GAMMA)
        second = _mix(first + GAMMA)
        return _mix(_mix(rows.astype(np.uint64) + first) ^ second)


def shuffled(num_data: int, seed: int) -> Int[np.ndarray, " N"]:
    """The numbers of all rows in the order of their keys."""
    return np.argsort(keys(np.arange(num_data), seed))


def _mix(x: UInt64[np.ndarray, " m"]) -> UInt64[np.ndarray, " m"]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
