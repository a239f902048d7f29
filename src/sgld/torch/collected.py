"""What a draw that is collected from a training loop must be, and what it weighs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import UsageError
from . import network
from .base import Langevin
from .watch import dropout_said, say

__all__ = ["check_entries", "check_statistics", "say_where_dropping", "step_of"]


def check_entries(state: Mapping[str, Any]) -> None:
    """UsageError unless a state_dict holds finite tensors."""
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(
                f"a draw is made of tensors. Got {type(value).__name__} in the state_dict's "
                f"{name!r}; remove the module's extra state."
            )
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise UsageError(
                f"weights must be finite. Got nan or inf in {name!r}: the run has diverged; "
                "use a smaller step_size."
            )


def step_of(
    optimizer: torch.optim.Optimizer, first: list[float] | None
) -> tuple[float, list[float] | None]:
    """The optimiser's step size, and those of its groups when it was first positive.

    UsageError where the groups' steps no longer are to one another as they were then.
    """
    steps = [float(group["lr"]) for group in optimizer.param_groups]
    if first is None:
        return max(steps), steps if max(steps) > 0 else None
    if len(steps) != len(first) or any(
        not math.isclose(a * max(first), b * max(steps), rel_tol=1e-6, abs_tol=0.0)
        for a, b in zip(steps, first, strict=True)
    ):
        raise UsageError(
            f"the step sizes of the groups must keep their proportion, to be one weight. Got "
            f"{steps} after {first}; give weight= instead."
        )
    return max(steps), first


def check_statistics(model: torch.nn.Module, first: Mapping[str, torch.Tensor]) -> None:
    """UsageError for running statistics that go on changing, or are no longer the first ones."""
    found = network.running_statistics(model)
    for name, old in first.items():
        new = found.get(name)
        if new is None or not torch.equal(old, new):
            raise UsageError(
                f"{name} has changed since the Ensemble was made: batch normalisation ran in "
                f"training mode; {network.REMEDY}"
            )


def say_where_dropping(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, said: bool
) -> bool:
    """Warn of dropout in training mode, unless that was `said`, or one of this module's optimisers saw it.

    Returns: whether it has been looked at by now.
    """
    if said or not isinstance(optimizer, Langevin):
        return said
    where = network.dropping(model)
    if where and not optimizer._watch.dropout:
        say(dropout_said(type(optimizer).__name__, where))
    return True
