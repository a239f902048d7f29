"""Gradients of predictions at a draw, along which the temperature that tells of predictions is measured.

As diagnostics/function_space/temperature.py has it; a network of many weights is asked for fewer rows at a draw, others at every one.
"""

from __future__ import annotations

import numpy as np
import torch

from ..data.source import generator
from ..diagnostics.function_space.temperature import AT_ONCE, FEW, SPEED_ROWS
from .rows import Inputs, mapped
from .target import Target

__all__ = ["slopes_of"]

STREAM = 19  # of the host's generator: weights of a prediction's numbers, and the lot


def slopes_of(
    target: Target, z: torch.Tensor, probe: Inputs, width: int, draw: int
) -> torch.Tensor:
    """[row, chain, d] at every chain's z; of the `width` numbers of a row their sum with random weights.

    Args:
      draw: its number, of which the lot depends.
    """
    leaf = next(iter(probe.values() if isinstance(probe, dict) else probe))
    count = min(SPEED_ROWS, len(leaf))
    together = target.together and count * z.numel() <= AT_ONCE
    # by turns every second draw would tell of some alone
    turn = np.arange(count) if together else generator(0, STREAM, 1 + draw).integers(0, count, FEW)
    weights = generator(0, STREAM, 0).normal(size=(count, width))
    if target.likelihood.classes:
        weights -= weights.mean(1, keepdims=True)
    parts = [turn] if together else np.split(turn, len(turn))
    return torch.cat([
        target.slopes(z, mapped(lambda leaf, part=part: leaf[part], probe), torch.from_numpy(weights[part]).to(z))
        for part in parts
    ])  # fmt: skip
