"""From the sampler's scale to that of the user: the affine map of the parameters, and the priors in words."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from .family import Family
from .prior import DISPERSIONS, PRIOR_SCALE

__all__ = ["affine", "prior_text"]


def affine(
    spec: dict, center: np.ndarray, scale: np.ndarray, index: int | None, family: Family
) -> tuple[np.ndarray, np.ndarray]:
    """matrix [d, d] and offset [d] of: slope_j = s z_j / scale_j, intercept the rest, s sigma.

    Of a family with levels the same for each level but the first."""
    stretch, size = spec["outcome_scale"], len(scale)
    matrix, offset = np.diag(stretch / scale), np.zeros(size)
    if index is not None:
        slopes = np.arange(size) != index
        matrix[index][slopes] = -(stretch * center / scale)[slopes]
        offset[index] = spec["outcome_center"]
    if family.levels:
        count = len(spec["levels"]) - 1
        matrix, offset = np.kron(np.eye(count), matrix), np.tile(offset, count)
    own = [stretch if name == "sigma" else 1.0 for name in family.dispersion]
    if own:
        matrix = np.asarray(scipy.linalg.block_diag(matrix, np.diag(own)))
    return matrix, np.concatenate([offset, np.zeros(len(own))])


def prior_text(spec: dict, family: Family, unit: np.ndarray, index: int | None) -> tuple[str, ...]:
    """One line per prior, on the original scale; `unit` [p] is what one of the sampler's is worth there."""
    lines, each = [], ", of each level" if family.levels else ""
    if spec["prior"] is not None:
        lines.append(f"every coefficient, intercept included ~ {spec['prior']}")
    else:
        for j, name in enumerate(spec["design"]["names"]):
            sd = PRIOR_SCALE * unit[j]
            if j == index:
                mean = spec["outcome_center"] + np.asarray(spec["prior_center"])
                means = ", ".join(f"{value:.4g}" for value in np.atleast_1d(mean))
                lines.append(f"{name}, at the predictors' means{each} ~ normal({means}, {sd:.4g})")
            else:
                lines.append(f"{name}{each} ~ normal(0, {sd:.4g})")
    laws = [DISPERSIONS[name] for name in family.dispersion]
    lines += [
        law.text.format(spec["outcome_sd"] if law.scale is None else law.scale) for law in laws
    ]
    return tuple(lines)
