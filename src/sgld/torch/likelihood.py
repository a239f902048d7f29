"""What a model and a loss say of rows, after everything that may be wrong with them was looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..errors import DataError, UsageError, first_line
from . import network
from .meaning import (
    ALIKE,
    Meaning,
    check_factor,
    check_no_probabilities,
    check_own_weights,
    check_pairs,
    close,
    meaning_of,
    not_a_mean,
    value_of,
)
from .rows import Inputs, Rows

__all__ = ["Likelihood", "checked", "in_half_precision"]

HALF = frozenset({torch.float16, torch.bfloat16})
FEW = 8  # rows that the model is called with twice
SOME = 16  # rows, and classes, whose own losses are held against that of all of them
LOOKED_AT = 4096  # rows of which the model's first outputs are looked at

Kind = Literal["rows", "mean"]


@dataclass(frozen=True)
class Likelihood:
    """Minus the log likelihood of rows, and what the model gives for them.

    Attributes:
      kind: whether the loss of a batch is one number per row, or their mean.
      meaning: what the loss takes outputs for.
      shape: of a row's outputs, which a module may have squeezed of a single row.
    """

    model: torch.nn.Module
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    kind: Kind
    meaning: Meaning
    shape: tuple[int, ...]

    @property
    def classes(self) -> bool:
        """Whether outputs are logits (or log probabilities) of the classes of one choice."""
        return self.meaning == "classes"

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
    found = _as_given(model, weights, inputs)
    return found.float() if found.dtype in HALF else found


def in_half_precision(
    model: torch.nn.Module, weights: dict[str, torch.Tensor], inputs: Inputs
) -> bool:
    """Whether its weights are, or what it gives: of autocast, say."""
    with torch.no_grad():
        given = _as_given(model, weights, inputs)
    return not HALF.isdisjoint([given.dtype, *(w.dtype for w in weights.values())])


def _as_given(
    model: torch.nn.Module, weights: dict[str, torch.Tensor], inputs: Inputs
) -> torch.Tensor:
    by_name = isinstance(inputs, Mapping)
    arguments, named = ((), inputs) if by_name else (inputs, {})
    held = network.in_every_place(model, weights)
    return network.output_of(
        torch.func.functional_call(model, held, arguments, named, tie_weights=False)
    )


def checked(model: Any, loss: Any, rows: Rows) -> Likelihood:
    """The likelihood, once model, loss and rows fit together.

    Raises: UsageError for a model that is not a function of weights and row alone, a loss that is
    no mean of the rows' own, labels beyond the classes; DataError where the model's outputs at its first
    weights are not finite.
    """
    _check_layers(model)
    if not callable(loss) or isinstance(loss, type):
        got = type(loss).__name__
        if isinstance(loss, type):
            got = f"the class {loss.__name__}; give one of it, {loss.__name__}()"
        raise UsageError(
            "loss must be a function (outputs, target) -> one loss per row, or their mean, such as "
            f"torch.nn.functional.cross_entropy. Got {got}."
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
    meaning = meaning_of(loss, outputs, batch.target)
    check_factor(loss, outputs, batch.target, meaning)
    if kind == "mean":
        check_pairs(loss, outputs, batch.target, meaning)
    check_no_probabilities(_first_outputs(model, batch.inputs), meaning)
    return Likelihood(model, loss, kind, meaning, tuple(outputs.shape[1:]))  # pyright: ignore[reportArgumentType]


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
        leaves = inputs.values() if isinstance(inputs, Mapping) else inputs
        raise UsageError(
            f"the model could not be called with the data set's first rows ({first_line(error)}); "
            f"{network.as_floats(leaves)}its inputs are all but the last of a row's tensors, or all but 'labels'."
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
    whole = value_of(loss, outputs, target)
    if not whole.dim() and not target.is_floating_point():
        check_own_weights(loss)
    each = [
        value_of(loss, outputs[i : i + 1], target[i : i + 1]).sum() for i in range(len(outputs))
    ]
    total = torch.stack(each).sum()
    if not bool(torch.isfinite(total)):
        raise DataError(
            "the loss of the data set's first rows is not finite at the weights that the model has; look at the "
            "target, and at what the loss takes (logits, or probabilities)."
        )
    if whole.dim():
        if len(whole) != len(outputs) or not close(whole.sum(), total):
            raise UsageError(
                f"the loss of a batch must be one number per row, its own. Got shape {tuple(whole.shape)} for outputs "
                f"{tuple(outputs.shape)} and target {tuple(target.shape)}, which is not what single rows give; "
                "give outputs and target one shape."
            )
        return "rows"
    if close(whole, total / len(outputs)):
        if close(whole, total):
            raise UsageError(
                "the loss is 0 at the data set's first rows, so that a mean cannot be told from a sum; give "
                "reduction='none'."
            )
        _check_outputs(loss, outputs, target, whole)
        return "mean"
    if close(whole, total):
        raise UsageError(
            f"the loss must be one number per row, or the mean over the rows. Got their sum ({float(whole):.4g} for "
            f"{len(outputs)} rows); use reduction='none' or 'mean'."
        )
    raise not_a_mean(whole, total / len(outputs), outputs, target)


def _check_outputs(loss: Any, outputs: torch.Tensor, target: torch.Tensor, whole: Any) -> None:
    """UsageError for a mean over the numbers of a row too, by which each row counts too little."""
    if outputs.dim() < 2 or outputs.shape != target.shape or outputs[0].numel() < 2:
        return
    twice = value_of(loss, torch.cat([outputs, outputs], -1), torch.cat([target, target], -1))
    if close(twice, whole):
        raise UsageError(
            f"the loss is a mean over the {outputs[0].numel()} outputs of a row too, so that a row counts "
            f"{outputs[0].numel()} times too little; use reduction='none'."
        )
