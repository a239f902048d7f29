"""What a model and a loss say of rows, after everything that may be wrong with them was looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..errors import DataError, UsageError, first_line
from . import network
from .rows import Inputs, Rows

__all__ = ["Likelihood", "checked"]

FEW = 8  # rows that the model is called with twice
SOME = 16  # rows, and classes, whose own losses are held against that of all of them
LOOKED_AT = 4096  # rows of which the model's first outputs are looked at
SHIFT = 3.0  # added to all outputs: log odds do not change
ALIKE = 1e-3
FAR = 60.0  # log odds
MANY_CLASSES = 256  # of which not all are tried
MULTIPLIED = 0.01  # sum of exp(-loss) over a row's classes: 1 for a likelihood, K^(1 - c) where c times that, K even classes

Kind = Literal["rows", "mean"]


@dataclass(frozen=True)
class Likelihood:
    """Minus the log likelihood of rows, and what the model gives for them.

    Attributes:
      kind: whether the loss of a batch is one number per row, or their mean.
      classes: whether outputs are logits (or log probabilities) of the classes of one choice.
      shape: of a row's outputs, which a module may have squeezed of a single row.
    """

    model: torch.nn.Module
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    kind: Kind
    classes: bool
    shape: tuple[int, ...]

    def outputs(self, weights: dict[str, torch.Tensor], inputs: Inputs) -> torch.Tensor:
        """[row, ...], with some of the weights replaced."""
        return called(self.model, weights, inputs).reshape(-1, *self.shape)

    def total(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Minus the log likelihood of all rows of a batch."""
        found = self.loss(outputs, target)
        return found.sum() if self.kind == "rows" else found * len(outputs)


def called(
    model: torch.nn.Module, weights: dict[str, torch.Tensor], inputs: Inputs
) -> torch.Tensor:
    """What the model gives for inputs by place or by name, in single precision at least."""
    by_name = isinstance(inputs, Mapping)
    arguments, named = ((), inputs) if by_name else (inputs, {})
    found = network.output_of(torch.func.functional_call(model, weights, arguments, named))
    return found.float() if found.dtype in (torch.float16, torch.bfloat16) else found


def checked(model: Any, loss: Any, rows: Rows) -> Likelihood:
    """The likelihood, once model, loss and rows fit together.

    Raises: UsageError for a model that is not a function of weights and row alone, a loss that is
    no mean of the rows' own, labels beyond the classes; DataError where the model's outputs at its first
    weights are not finite.
    """
    _check_layers(model)
    if not callable(loss):
        raise UsageError(
            "loss must be a function (outputs, target) -> one loss per row, or their mean, such as "
            f"torch.nn.functional.cross_entropy. Got {type(loss).__name__}."
        )
    batch = rows.first(FEW)
    with torch.no_grad():
        outputs = _first_outputs(model, batch.inputs)
        again = _first_outputs(model, batch.inputs)
    if outputs.dim() == 0 or len(outputs) != len(batch.target):
        raise UsageError(
            f"the model must give one output per row, rows first. Got shape {tuple(outputs.shape)} for "
            f"{len(batch.target)} rows."
        )
    if not torch.allclose(outputs, again, rtol=ALIKE, atol=1e-5, equal_nan=True):
        raise UsageError(
            "the model gives other outputs when it is called again with the same rows: something in it is random "
            "(dropout as a function, say); call model.eval() first, or switch it off."
        )
    _check_finite(model, rows)
    _check_labels(outputs, rows)
    batch = rows.at(_some_of_each(rows))
    with torch.no_grad():
        outputs = _first_outputs(model, batch.inputs)
    kind = _kind(loss, outputs, batch.target)
    classes = _are_classes(loss, outputs, batch.target)
    _check_factor(loss, outputs, batch.target, classes)
    return Likelihood(model, loss, kind, classes, tuple(outputs.shape[1:]))  # pyright: ignore[reportArgumentType]


def _some_of_each(rows: Rows) -> torch.Tensor:
    """Numbers of some rows, one of every class among them where there are few: the loss may tell them apart."""
    first = torch.arange(min(SOME, rows.num_data), device=rows.order.device)
    target = rows.target[rows.order]
    if target.is_floating_point() or target.dim() != 1:
        return first
    others = [(target == value).int().argmax() for value in target.unique()[:SOME]]
    return torch.cat([first, torch.stack(others)]).unique()


def _check_layers(model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"model must be a torch.nn.Module. Got {type(model).__name__}.")
    network.running_statistics(model)
    where = network.dropping(model)
    if where:
        raise UsageError(
            f"the model has dropout in training mode ({where}): each evaluation would be of another network, and "
            "none is what is predicted with; call model.eval() first."
        )


def _first_outputs(model: torch.nn.Module, inputs: Inputs) -> torch.Tensor:
    try:
        return called(model, {}, inputs)
    except UsageError:
        raise
    except Exception as error:  # whatever the user's module does with what it is given
        raise UsageError(
            f"the model could not be called with the data set's first rows ({first_line(error)}); its inputs are "
            "all but the last of a row's tensors, or all but 'labels'."
        ) from error


def _check_finite(model: torch.nn.Module, rows: Rows) -> None:
    """DataError where an output is nan or inf before the first step."""
    for begin in range(0, min(rows.num_data, LOOKED_AT), 256):
        end = min(rows.num_data, begin + 256)
        numbers = torch.arange(begin, end, device=rows.order.device)
        with torch.no_grad():
            found = called(model, {}, rows.at(numbers).inputs)
        bad = ~torch.isfinite(found.reshape(len(found), -1)).all(1)
        if bool(bad.any()):
            row = int(rows.order[begin + int(bad.int().argmax())])
            raise DataError(
                f"the model's output for row {row} is not finite at the weights it has; start from others, or scale "
                "the inputs."
            )


def _check_labels(outputs: torch.Tensor, rows: Rows) -> None:
    """UsageError for a class that the model has no output for, before the loss sees it."""
    target = rows.target
    whole = not target.is_floating_point() and target.dtype != torch.bool
    if not whole or target.dim() != 1 or outputs.dim() != 2 or outputs.shape[1] < 2:
        return
    bad = (target < 0) | (target >= outputs.shape[1])
    if bool(bad.any()):
        row = int(bad.int().argmax())
        raise UsageError(
            f"labels must lie between 0 and {outputs.shape[1] - 1}, the classes that the model has outputs for. "
            f"Got {int(target[row])} in row {row}."
        )


def _kind(loss: Any, outputs: torch.Tensor, target: torch.Tensor) -> Kind:
    """Whether the loss gives one number per row or their mean; from what it says of single rows."""
    whole = _value(loss, outputs, target)
    each = [_value(loss, outputs[i : i + 1], target[i : i + 1]).sum() for i in range(len(outputs))]
    total = torch.stack(each).sum()
    if not bool(torch.isfinite(total)):
        raise DataError(
            "the loss of the data set's first rows is not finite at the weights that the model has; look at the "
            "target, and at what the loss takes (logits, or probabilities)."
        )
    if whole.dim():
        if len(whole) != len(outputs) or not _close(whole.sum(), total):
            raise UsageError(
                f"the loss of a batch must be one number per row, its own. Got shape {tuple(whole.shape)} for outputs "
                f"{tuple(outputs.shape)} and target {tuple(target.shape)}, which is not what single rows give; "
                "give outputs and target one shape."
            )
        return "rows"
    if _close(whole, total / len(outputs)):
        if _close(whole, total):
            raise UsageError(
                "the loss is 0 at the data set's first rows, so that a mean cannot be told from a sum; give "
                "reduction='none'."
            )
        _check_outputs(loss, outputs, target, whole)
        return "mean"
    if _close(whole, total):
        raise UsageError(
            f"the loss must be one number per row, or the mean over the rows. Got their sum ({float(whole):.4g} for "
            f"{len(outputs)} rows); use reduction='none' or 'mean'."
        )
    raise UsageError(
        f"the loss of a batch must be the mean of its rows' own. Got {float(whole):.4g} where that mean is "
        f"{float(total) / len(outputs):.4g}: classes that weigh differently, a target of another shape than the "
        "outputs, or a penalty; use reduction='none', and leave the prior to prior_sd."
    )


def _check_outputs(loss: Any, outputs: torch.Tensor, target: torch.Tensor, whole: Any) -> None:
    """UsageError for a mean over the numbers of a row too, by which each row counts too little."""
    if outputs.dim() < 2 or outputs.shape != target.shape or outputs[0].numel() < 2:
        return
    twice = _value(loss, torch.cat([outputs, outputs], -1), torch.cat([target, target], -1))
    if _close(twice, whole):
        raise UsageError(
            f"the loss is a mean over the {outputs[0].numel()} outputs of a row too, so that a row counts "
            f"{outputs[0].numel()} times too little; use reduction='none'."
        )


def _check_factor(loss: Any, outputs: torch.Tensor, target: torch.Tensor, classes: bool) -> None:
    """UsageError for a loss times the number of rows: the probabilities of a row's classes add up to 1."""
    if classes and not target.is_floating_point() and outputs.shape[1] <= MANY_CLASSES:
        labels, spread = range(outputs.shape[1]), outputs.amax(1) - outputs.amin(1)
    elif _is_a_logit(loss, outputs, target):
        labels, spread = range(2), outputs.reshape(len(outputs)).abs()
    else:
        return
    row = slice(
        int(spread.argmin()), int(spread.argmin()) + 1
    )  # where classes are most alike it shows most
    each = [_value(loss, outputs[row], torch.full_like(target[row], k)).sum() for k in labels]
    total = float(torch.exp(-torch.stack(each)).sum())
    if total < MULTIPLIED:
        raise UsageError(
            "the loss must be minus the log likelihood of a row, or the mean over rows. Got one whose exp(-loss) adds up "
            f"to {total:.2g} over the {len(each)} classes of a row, where probabilities add up to 1: it looks multiplied, "
            "by the number of rows maybe, which sample does by itself; leave the factor out."
        )


def _is_a_logit(loss: Any, outputs: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether a row's one output is the log odds of its target, 0 or 1: far out the right one costs nothing."""
    one = outputs.shape == target.shape and outputs[0].numel() == 1
    if not one or not bool(((target == 0) | (target == 1)).all()):
        return False
    try:
        far = [_value(loss, torch.full_like(outputs, o), torch.full_like(target, k)) for o, k in ((-FAR, 0), (FAR, 1))]  # fmt: skip
    except UsageError:  # it takes probabilities
        return False
    return bool((torch.stack([value.mean() for value in far]).abs() < ALIKE).all())


def _value(loss: Any, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    try:
        found = loss(outputs, target)
    except Exception as error:  # of the user's function
        raise UsageError(
            f"the loss could not be called with outputs {tuple(outputs.shape)} and target {tuple(target.shape)} "
            f"({first_line(error)}){_whole(target)}."
        ) from error
    if not isinstance(found, torch.Tensor) or not found.is_floating_point():
        raise UsageError(
            f"the loss must return a tensor of floating point. Got {type(found).__name__}."
        )
    return found.double()


def _whole(target: torch.Tensor) -> str:
    """Advice where labels were given as floating point."""
    whole = target.is_floating_point() and bool((target == target.round()).all())
    return (
        "; if the target holds the numbers of classes, give it as integers: target.long()"
        if whole
        else ""
    )


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one - other).abs() <= ALIKE * torch.maximum(one.abs(), other.abs()))


def _are_classes(loss: Any, outputs: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether outputs are log probabilities, or the loss knows them up to a constant."""
    if outputs.dim() != 2 or outputs.shape[1] < 2:
        return False
    sums = torch.logsumexp(outputs.double(), 1)
    if bool((sums.abs() < ALIKE).all()):
        return True
    one, other = (_value(loss, outputs + c, target) for c in (0.0, SHIFT))
    if not target.is_floating_point() and torch.allclose(other, one - SHIFT, rtol=1e-4, atol=1e-4):
        raise UsageError(
            "the loss takes log probabilities, as nll_loss does, and the model's outputs are none: those of its first row "
            f"add up to a probability of {float(sums[0].exp()):.3g}; use torch.nn.functional.cross_entropy, or end the "
            "model with log_softmax."
        )
    return bool(torch.allclose(one, other, rtol=1e-4, atol=1e-4))
