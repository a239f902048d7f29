"""Sums over the rows of a design, a block at a time: a design is held once, not two or three times."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence, Sized

import numpy as np
from jaxtyping import Float

from ..errors import need

__all__ = ["ROWS", "blocks", "give_back", "gram", "mean_and_sd", "standardised"]

ROWS = 65_536
LARGE = 2**25  # bytes, which are worth a tenth of a second


def give_back(x: Float[np.ndarray, "N p"]) -> None:
    """What the table took that a large design was made of: formulaic's caches refer to one another."""
    if x.nbytes >= LARGE:
        gc.collect()
        need("pyarrow", "tables").default_memory_pool().release_unused()


def blocks(x: Sized) -> Iterator[slice]:
    """The rows, so many at a time."""
    return (slice(at, at + ROWS) for at in range(0, len(x), ROWS))


def mean_and_sd(
    x: Float[np.ndarray, "N p"], about_mean: bool = True
) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
    """Of every column; `about_mean=False`: mean 0 and the root mean square.

    Of differences to the first row, so that a constant column has an sd of 0.

    Example:
      >>> import numpy as np
      >>> from sgld.models.blocks import mean_and_sd
      >>> mean_and_sd(np.array([[1.0, 5.0], [3.0, 5.0]]))
      (array([2., 5.]), array([1., 0.]))
    """
    mean = np.zeros(x.shape[1])
    if about_mean:
        mean = x[0] + sum((x[rows] - x[0]).sum(axis=0) for rows in blocks(x)) / len(x)
    squares = sum(((x[rows] - mean) ** 2).sum(axis=0) for rows in blocks(x))
    return mean, np.sqrt(squares / len(x))


def standardised(
    x: Float[np.ndarray, "N p"], center: Float[np.ndarray, " p"], scale: Float[np.ndarray, " p"]
) -> Float[np.ndarray, "N p"]:
    """(x - center) / scale, taken in double precision, in single."""
    z = np.empty(x.shape, np.float32)
    for rows in blocks(x):
        z[rows] = (x[rows] - center) / scale
    return z


def gram(
    x: Float[np.ndarray, "N p"],
    columns: Sequence[int],
    center: Float[np.ndarray, " p"],
    scale: Float[np.ndarray, " p"],
) -> Float[np.ndarray, "k k"]:
    """The correlations of some columns: z^T z / N of z = (x - center) / scale."""
    total = np.zeros((len(columns), len(columns)))
    for rows in blocks(x):
        z = (x[rows][:, columns] - center[columns]) / scale[columns]
        total += z.T @ z
    return total / len(x)
