"""Whether the columns of a design can be told apart at all, answered before any sampling."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ..errors import DataError

__all__ = ["check_columns"]


def check_columns(x: Float[np.ndarray, "N p"], names: list[str]) -> None:
    """Raises DataError naming a column that is constant (`Intercept` excepted) or collinear.

    Collinearity by Cholesky's sweep over the columns' correlations: what is left of a column
    after regression on those before it, as a share of its variance, under 1e-10. With
    fewer rows than columns only the prior tells them apart, and nothing is checked.
    """
    intercept = "Intercept" in names
    scale = np.std(x, axis=0) if intercept else np.sqrt(np.mean(x**2, axis=0))
    for j, name in enumerate(names):
        if name != "Intercept" and scale[j] <= 1e-13 * np.abs(x[:, j]).max():
            raise DataError(
                f"column {name!r} is constant ({x[0, j]:.10g} in every row); "
                "take it out of the formula."
            )
    if x.shape[0] < x.shape[1]:
        return
    kept = [j for j, name in enumerate(names) if name != "Intercept"]
    z = (x[:, kept] - (x[:, kept].mean(axis=0) if intercept else 0.0)) / scale[kept]
    gram = z.T @ z / len(z)
    left = gram.copy()
    for j in range(len(kept)):
        if left[j, j] < 1e-10:
            share = np.linalg.lstsq(gram[:j, :j], gram[:j, j], rcond=None)[0]
            others = [names[kept[i]] for i in np.flatnonzero(np.abs(share) > 1e-6)]
            listed = ", ".join(map(repr, others[:5])) + (" and others" if len(others) > 5 else "")
            raise DataError(
                f"column {names[kept[j]]!r} is collinear: a linear combination of {listed}"
                f"{' and the intercept' if intercept else ''}; take one of them out of the formula."
            )
        left[j + 1 :, j + 1 :] -= np.outer(left[j + 1 :, j], left[j, j + 1 :]) / left[j, j]
