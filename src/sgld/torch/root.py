"""The loss on which the running backward() was called, found from a hook on a parameter."""

from __future__ import annotations

import sys
from types import FrameType

import torch

__all__ = ["root_of_backward", "under_a_scaler"]


def root_of_backward() -> torch.Tensor | None:
    """The tensor on which the running backward() was called; None where it cannot be told.

    On the CPU hooks run in the calling thread; those of other devices run in a thread of their
    own, while the caller waits in backward(): it is taken where only one thread does.
    """
    own = _root_in(sys._getframe())
    if own is not None:
        return own
    others = [_root_in(frame) for frame in sys._current_frames().values()]
    roots = [root for root in others if root is not None]
    return roots[0] if len(roots) == 1 else None


def _root_in(frame: FrameType | None) -> torch.Tensor | None:
    while frame is not None:
        if frame.f_code is torch.autograd.backward.__code__:
            tensors = frame.f_locals.get("tensors")
            if isinstance(tensors, torch.Tensor):
                return tensors
            if isinstance(tensors, (tuple, list)) and len(tensors) == 1:
                return tensors[0]
            return None
        frame = frame.f_back
    return None


def under_a_scaler() -> bool:
    """Whether step() was called by torch's GradScaler, which multiplies the loss by a power of two."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.amp.grad_scaler":
            return True
        frame = frame.f_back
    return False
