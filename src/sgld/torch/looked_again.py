"""Two looks at a module's run that would be trusted; as run/looked_again."""

from __future__ import annotations

import math
import time
from functools import partial

import numpy as np
import torch

from ..core.progress import Over
from ..diagnostics.function_space.other_chains import TOGETHER, OtherRows, others
from ..diagnostics.hidden_mass import (
    BETWEEN_DRAWS,
    OF_RISES,
    ROWS_BETWEEN,
    lines_between,
    missed,
    quadrature,
    size_of,
)
from .rows import Inputs
from .target import Target

__all__ = ["misses_of_gradients", "other_rows"]


def other_rows(target: Target, probe: Inputs, z: np.ndarray, gradients: int) -> OtherRows | None:
    """Rows that are no probe rows, looked at by draws at z [chain, draw, d]; None where the probe rows are the user's."""
    probed = len(next(iter(probe.values() if isinstance(probe, dict) else probe)))
    if probed > target.rows.num_data or not _is_own(target, probe, probed):
        return None
    rows = others(probed, target.rows.num_data, gradients)
    return OtherRows.of(target.kind, partial(_predicted_again, target), z, rows)


def _is_own(target: Target, probe: Inputs, probed: int) -> bool:
    own = target.rows.first(probed).inputs
    names = own.keys() if isinstance(own, dict) else range(len(own))
    return all(torch.equal(own[name], probe[name]) for name in names)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _predicted_again(target: Target, z: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """What draws predict at rows of these numbers, [chain, draw, m, k], in pieces of both."""
    scale, pieces = target.prior.scale, []
    for part in np.split(rows, range(TOGETHER, len(rows), TOGETHER)):
        inputs = target.rows.at(torch.from_numpy(part).to(scale.device)).inputs
        each = (target.predicted(torch.from_numpy(z[:, s]).to(scale), inputs) for s in range(z.shape[1]))  # fmt: skip
        pieces.append(np.stack([one.cpu().numpy() for one in each], 1))
    return np.concatenate(pieces, axis=2)


def misses_of_gradients(target: Target, z: np.ndarray, until: float = math.inf) -> float | None:
    """Root mean square of what integrated gradients miss of rises of log density, in nats of some rows.

    nan where the time `until` (of time.monotonic) came first; None where the module computes in half precision,
    whose rounding is as large.
    """
    begins, ends = lines_between(np.moveaxis(z, 0, 1))
    if not len(begins):
        return 0.0
    if target.narrow:
        return None
    batch = target.rows.first(ROWS_BETWEEN)
    to = lambda values: torch.from_numpy(np.ascontiguousarray(values)).to(target.prior.scale)  # noqa: E731

    def rises(ends: np.ndarray, begins: np.ndarray) -> np.ndarray:
        one, other = (target.value(to(side), batch).double() for side in (ends, begins))
        return (one - other).cpu().numpy()

    def integral(lines: np.ndarray, panels: int) -> np.ndarray:
        begin, away = to(begins[lines]), to(ends[lines] - begins[lines])
        total = np.zeros(len(lines))
        for at, share in zip(*quadrature(panels), strict=True):
            if time.monotonic() > until:
                raise Over
            slope = (target.gradient(begin + at * away, batch, 1.0) * away).sum(1)
            total += share * slope.double().cpu().numpy()
        return total

    def rounding(lines: np.ndarray) -> float:
        there = to(ends[lines])
        beside = torch.nextafter(there, torch.full_like(there, torch.inf)).cpu().numpy()
        return 4 * size_of(rises(beside, ends[lines]))

    try:
        return missed(rises(ends, begins), integral, rounding, BETWEEN_DRAWS, OF_RISES)
    except Over:
        return math.nan
