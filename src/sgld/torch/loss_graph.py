"""What the loss that backward() was called on looks like: a mean over the batch, or a sum.

Nothing in a gradient says how the loss was reduced, but the graph that made it does: its root
is followed through sums of terms and signs to the reductions, which name their kind and the
rows they went over.

A sum whose every other term is a sum is refused, whatever it adds up. In addition to means and scaled
terms a sum may be a penalty, so only what torch's own losses sum (reduction="sum", or "none" and
then .sum()) is refused there: where constants such as the batch's rows enter it by a linear map,
none of the scaled terms has any, and no other term has more rows.

The factor of a scaled term is gone from the graph once backward() has run. What is left is the
value: a classifier's mean loss begins near the log of the number of classes, and one that begins
near num_data times that has been multiplied by num_data.

What cannot be seen: a sum that is then multiplied or divided (by the right number, or not) where no
number of classes tells, one of a formula with other terms, a loop that adds up rows, a mean over
outputs too (MSELoss over [n, k] is k times too small), a factor left out of the likelihood (MSELoss
is a Gaussian's of variance 1/2), a custom function.

The loss on which the running backward() was called, found from a hook on a parameter.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch

from ..errors import UsageError

_SIGN_NODES = ("Neg", "Add", "Sub", "ToCopy", "Clone", "View", "Squeeze", "Unsqueeze", "Alias")
_LINEAR_NODES = ("Addmm", "Mm", "Bmm", "Baddbmm", "Addbmm", "Addmv", "Mv", "Dot", "Convolution")
_LOOKUP_NODES = ("Embedding", "Index", "Gather")
_MAX_DEPTH = 200
_FIRST_LOSS_RANGE = (0.15, 4.0)  # a classifier's first mean loss, in logs of the number of classes
# of these logs, for a mean: with less data a factor num_data is not distinguished from others
_MAX_MEAN_LOSS = 15.0


@dataclass(frozen=True)
class Reduction:
    """A place where the graph goes from many numbers to one: "mean", "sum" or "unknown"."""

    kind: str
    rows: int = 1
    operation: str = ""
    loss: bool = field(default=False, repr=False)  # a sum by one of torch's losses
    data: bool = field(default=True, repr=False)  # it may depend on rows of data
    certain: bool = field(default=False, repr=False)  # the mean of one of torch's losses itself
    classes: int = field(default=0, repr=False)  # of the classifier below, where there is one
    weighted: bool = field(default=False, repr=False)  # rows may have weights


def judge(found: list[Reduction], num_data: float, value: float | None = None) -> None:
    """Raise UsageError for a sum over several rows, a mean times num_data, or more rows than num_data.

    Args:
      found: what `reductions` found in the first loss.
      num_data: rows in all the data.
      value: the first loss; None where it is not known, or scaled by torch's GradScaler.
    """
    sums = [r for r in found if r.kind == "sum" and r.rows > 1]
    if any(r.kind != "sum" for r in found):
        most = max(r.rows for r in found if r.kind != "sum" or r.loss)
        scaled = any(r.kind == "unknown" and r.data for r in found)
        sums = [r for r in sums if r.loss and r.data and r.rows >= most and not scaled]
    if sums:
        worst = max(sums, key=lambda r: r.rows)
        raise UsageError(
            f"the loss must be the MEAN negative log likelihood of the batch. Got what looks like "
            f"the sum over {worst.rows} rows ({worst.operation}): the gradient would be "
            f"{worst.rows} times too large, since num_data scales a mean; use reduction='mean' or "
            "divide by the number of rows, or give check_loss=False where it is a mean already."
        )
    rows = max((r.rows for r in found if r.kind != "unknown"), default=0)
    if rows > num_data:
        raise UsageError(
            f"num_data must be the number of rows of all the data, at least the batch's {rows}. "
            f"Got {num_data:g}."
        )
    classes = [r.classes for r in found if r.classes > 1 and not r.certain]
    if value is None or not classes or not all(r.data for r in found):
        return  # what a penalty adds cannot be distinguished from a factor
    logs = value / math.log(max(classes))
    low, high = _FIRST_LOSS_RANGE
    if low * num_data <= logs <= high * num_data and logs >= _MAX_MEAN_LOSS:
        raise UsageError(
            f"the loss must be the MEAN negative log likelihood of the batch. Got {value:.4g} at the "
            f"first step, where {max(classes)} classes make about {math.log(max(classes)):.2g}: it "
            f"looks like that mean times num_data = {num_data:g}, which the optimiser multiplies by "
            "itself; leave the factor out, or give check_loss=False where it belongs there."
        )


def reductions(loss: torch.Tensor, *, whole: bool = True) -> list[Reduction]:
    """Find the reductions that the terms of a scalar loss come from; [] if not scalar.

    The same code gives them in the same order. Unless `whole`, nothing below them is looked at.

    Example:
      >>> import torch
      >>> w = torch.ones(5, requires_grad=True)
      >>> reductions(-(w**2).sum())
      [Reduction(kind='sum', rows=5, operation='SumBackward0')]
      >>> [r.kind for r in reductions((w**2).mean() + 0.1 * w.sum())]
      ['unknown', 'mean']
    """
    found: list[Reduction] = []
    waiting = [loss.grad_fn] if loss.dim() == 0 else []
    for _ in range(_MAX_DEPTH):
        if not waiting:
            break
        node = waiting.pop()
        if node is None:
            continue
        if node.name().startswith(_SIGN_NODES) and _shape(node) == ():
            waiting += [child for child, _ in node.next_functions]
        else:
            one = _reduction(node)
            if whole:
                one = replace(
                    one, data=_may_hold_data(node), classes=_classes_below(node),
                    weighted=_weighted_below(node),
                )  # fmt: skip
            found.append(one)
    return found


def _reduction(node: Any) -> Reduction:
    """Classify one node; a scaled sum may be a mean, so it is unknown."""
    name = node.name()
    scaled = name.startswith(("Mul", "Div")) and _shape(node) == ()
    if scaled:
        children = [c for c, _ in node.next_functions if c is not None]
        inner = _reduction(children[0]) if len(children) == 1 else Reduction("unknown")
        if inner.kind == "mean":
            return replace(inner, certain=False)
        return Reduction("unknown", operation=name)
    mode = getattr(node, "_saved_reduction", None)
    if mode in (1, 2):
        rows = _rows(_shape_of_input(node))
        kind = "mean" if mode == 1 else "sum"
        return Reduction(kind, rows, name, loss=mode == 2, certain=mode == 1)
    if name.startswith("Mean"):
        return Reduction("mean", _rows(_sizes(node)), name)
    if name.startswith("Sum"):
        if _mean_over_rows_below(node):
            return Reduction("mean", operation=name)
        return Reduction("sum", _rows(_sizes(node)), name, loss=_losses_below(node))
    return Reduction("unknown", operation=name)


def _line_below(node: Any) -> Iterator[Any]:
    """Yield the nodes below as long as each has exactly one child."""
    for _ in range(_MAX_DEPTH):
        children = [child for child, _ in node.next_functions if child is not None]
        if len(children) != 1:
            return
        (node,) = children
        yield node


def _losses_below(node: Any) -> bool:
    """Return whether a sum adds up unscaled losses of single rows from one of torch's losses."""
    for below in _line_below(node):
        if getattr(below, "_saved_reduction", None) == 0:
            return True
        if not below.name().startswith((*_SIGN_NODES, "Sum")):
            return False
    return False


def _may_hold_data(node: Any) -> bool:
    """Return whether rows of data can have entered below: by a linear map, a look-up, or broadcasting.

    A penalty meets constants too, but only in its own shape, or as numbers. What cannot be decided
    (a function of the user's own) may hold data.
    """
    for below in nodes(node):
        children = [child for child, _ in below.next_functions]
        shapes = [_shape(child) for child in children if child is not None]
        constant = len(shapes) < len(children)
        if isinstance(below, torch.autograd.function.BackwardCFunction):
            return True
        if below.name().startswith(_LOOKUP_NODES) or (
            constant and below.name().startswith(_LINEAR_NODES)
        ):
            return True
        if constant and _shape(below) not in shapes and getattr(below, "_saved_reduction", 0) == 0:
            return True
    return False


def nodes(root: Any) -> Iterator[Any]:
    """Yield every node of the graph below `root`, itself included, each once."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            waiting += [child for child, _ in node.next_functions]


def _weighted_below(node: Any) -> bool:
    """Return whether constants multiply the numbers that a reduction averages."""
    for below in (node, *_line_below(node)):
        if not (
            below is node or below.name().startswith((*_SIGN_NODES, "Mul", "Div", "Mean", "Sum"))
        ):
            return False
        if below.name().startswith(("Mul", "Div")) and _shape(below) != ():
            return True
    return False


def _classes_below(node: Any) -> int:
    """Return the number of classes of the first log softmax or logistic loss below, 0 without one."""
    for below in nodes(node):
        name, shape = below.name(), _shape(below)
        if name.startswith("BinaryCrossEntropy"):
            return 2
        if name.startswith("LogSoftmax") and shape:
            dim = getattr(below, "_saved_dim", -1)
            return shape[dim - 2**64 if dim >= 2**63 else dim]
    return 0


def _mean_over_rows_below(node: Any) -> bool:
    """Return whether the terms of a sum have already been averaged over the rows: x.mean(0).sum()."""
    for below in _line_below(node):
        if below.name().startswith("Mean") and hasattr(below, "_saved_dim"):
            dims = [d - 2**64 if d >= 2**63 else d for d in below._saved_dim]
            return any(d % len(_sizes(below)) == 0 for d in dims)
        if not below.name().startswith((*_SIGN_NODES, "Mul", "Div", "Sum")):
            return False
    return False


def _rows(shape: tuple[int, ...]) -> int:
    return shape[0] if shape else 1


def _sizes(node: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in getattr(node, "_saved_self_sym_sizes", ()))


def _shape(node: Any) -> tuple[int, ...] | None:
    """Return the shape of the node's output, if torch knows it."""
    try:
        return tuple(node._input_metadata[0].shape)
    except (AttributeError, IndexError, RuntimeError):
        return None


def _shape_of_input(node: Any) -> tuple[int, ...]:
    for child, index in node.next_functions:
        if child is not None:
            try:
                return tuple(child._input_metadata[index].shape)
            except (AttributeError, IndexError, RuntimeError):
                return ()
    return ()


# -- root ----------------------------------------------------------------------------------


def root_of_backward() -> torch.Tensor | None:
    """Return the tensor on which the running backward() was called; None if it is not known.

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
    """Return whether step() was called by torch's GradScaler, which multiplies the loss by a power of two."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.amp.grad_scaler":
            return True
        frame = frame.f_back
    return False
