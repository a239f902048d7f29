"""What a model and a loss say of rows, after everything that may be wrong with them was looked at.

What a loss takes a row's outputs for: logits of classes, the log odds of 0 and 1, or neither.

A loss of logits does not see a number that is added to all of a row's; one of log odds hardly counts the
outcome that they are for. Both are asked with outputs made up for the purpose: what the model gives at
its first weights may be the same for all rows, and then tells nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..diagnostics.function_space.predictions import LOGIT_SHIFT
from ..errors import DataError, UsageError, first_line
from . import network
from .rows import Inputs, Rows

# -- meaning -------------------------------------------------------------------------------


MAX_REL_ERROR = 1e-3
FAR_LOG_ODDS = 12.0  # log odds, which a sigmoid in single precision still tells from 1
MAX_CLASSES = 256  # of which not all are tried
# sum of exp(-loss) over a row's classes: 1 for a likelihood, K^(1 - c) where c times that, K even classes
MIN_PROBABILITY_SUM = 0.01
LABEL_MODULES = torch.nn.CrossEntropyLoss, torch.nn.NLLLoss
LABEL_LOSSES = torch.nn.functional.cross_entropy, torch.nn.functional.nll_loss
RESHAPING_NODES = ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Alias", "Transpose", "Permute", "ToCopy")  # fmt: skip

Meaning = Literal["classes", "odds", "numbers"]


def meaning_of(loss: Any, outputs: torch.Tensor, target: torch.Tensor) -> Meaning:
    """Return what the loss takes outputs for.

    Outputs are logits of the classes of one choice ("classes"), the log odds of a row's one number or of each of
    its numbers ("odds"), or anything else ("numbers").

    Raises: UsageError where the loss takes log probabilities and outputs are none.
    """
    if _are_classes(loss, outputs, target):
        return "classes"
    return "odds" if _are_odds(loss, outputs, target) else "numbers"


def check_factor(loss: Any, outputs: torch.Tensor, target: torch.Tensor, meaning: Meaning) -> None:
    """Raise UsageError for a loss times the number of rows, or of the opposite sign: a row's probabilities add up to 1."""
    if meaning == "classes" and not target.is_floating_point() and outputs.shape[1] <= MAX_CLASSES:
        labels, spread = list(range(outputs.shape[1])), outputs.amax(1) - outputs.amin(1)
    elif meaning == "odds" and outputs[0].numel() == 1:
        labels, spread = _outcomes(target), outputs.reshape(len(outputs)).abs()
    else:
        return
    first = int(spread.argmin())  # where classes are most alike it shows most
    row = slice(first, first + 1)
    each = [value_of(loss, outputs[row], torch.full_like(target[row], k)).sum() for k in labels]
    total = float(torch.exp(-torch.stack(each)).sum())
    if total < MIN_PROBABILITY_SUM:
        raise UsageError(
            "the loss must be minus the log likelihood of a row, or the mean over rows. Got one whose exp(-loss) adds up "
            f"to {total:.2g} over the {len(each)} classes of a row, where probabilities add up to 1: it looks multiplied, "
            "by the number of rows maybe, which sample does by itself; leave the factor out."
        )
    surer = (_rewarded(loss, outputs[row], target[row], k, meaning) for k in labels)
    if total > (1 + MAX_REL_ERROR) * len(each) and all(
        surer
    ):  # of outputs that count the other way it is 1
        raise UsageError(
            "the loss must be minus the log likelihood of a row, or the mean over rows. Got one that is larger the more "
            "probable the model finds what a row's target is: it has the opposite sign; return minus what it is."
        )


def _rewarded(
    loss: Any, outputs: torch.Tensor, target: torch.Tensor, k: Any, meaning: Meaning
) -> bool:
    """Return whether a row whose target is k has a higher loss if the model is surer of k."""
    surer, label = outputs.clone(), torch.full_like(target, k)
    if meaning == "classes":
        surer[:, k] += LOGIT_SHIFT
    else:
        surer += LOGIT_SHIFT if k == max(_outcomes(target)) else -LOGIT_SHIFT
    before, after = (value_of(loss, some, label).sum() for some in (outputs, surer))
    return bool(after > before)


def check_no_probabilities(outputs: torch.Tensor, meaning: Meaning) -> None:
    """Raise UsageError if the loss takes logits, and a softmax or a sigmoid has made probabilities of them.

    Args:
      outputs: the model's outputs with their graph.
      meaning: what the loss takes them for.
    """
    found = outputs.detach()
    if meaning == "classes":
        sums = found.double().sum(1)
        if bool((found >= 0).all()) and bool(((sums - 1).abs() < MAX_REL_ERROR).all()):
            raise UsageError(
                "the loss takes logits, and the model's outputs are probabilities: none is negative, and each row's add up "
                "to 1; remove the softmax at the model's end."
            )
    elif meaning == "odds" and _made_by(outputs).startswith("Sigmoid"):
        raise UsageError(
            "the loss takes logits, and the model ends in a sigmoid, which makes probabilities of them; remove the sigmoid."
        )


def check_pairs(loss: Any, outputs: torch.Tensor, target: torch.Tensor, meaning: Meaning) -> None:
    """Raise UsageError for a weighted mean of the rows' losses, which shows if the losses differ much.

    Two rows at a time: neighbours as they are; each pair of classes, or two outcomes, with logits
    made up so that the one loses little and the other much.
    """
    pairs = [(outputs[i : i + 2], target[i : i + 2]) for i in range(len(outputs) - 1)]
    if meaning == "classes" and not target.is_floating_point() and target.dim() == 1:
        logits = torch.zeros_like(outputs[:2])
        logits[:, 0] = LOGIT_SHIFT
        log_p = torch.log_softmax(logits, 1)
        others = range(1, min(outputs.shape[1], MAX_CLASSES))
        pairs += [(log_p, target.new_tensor([0, other])) for other in others]
    elif meaning == "odds":
        made_up = torch.full_like(outputs[:2], -LOGIT_SHIFT)
        labels = torch.full_like(target[:2], _outcomes(target)[0])
        labels[1] = _outcomes(target)[1]
        pairs.append((made_up, labels))
    for both, labels in pairs:
        whole = value_of(loss, both, labels)
        each = torch.stack([value_of(loss, both[i : i + 1], labels[i : i + 1]) for i in (0, 1)])
        if not bool((whole - each.mean()).abs() <= MAX_REL_ERROR * each.abs().max()):
            raise not_a_mean(whole, each.mean(), both, labels)


def check_own_weights(loss: Any) -> None:
    """Raise UsageError for a mean with the loss's own weights of classes, which single rows do not show."""
    given = getattr(loss, "weight", None) if isinstance(loss, LABEL_MODULES) else None
    if isinstance(loss, functools.partial) and loss.func in LABEL_LOSSES:
        given = loss.keywords.get("weight")
    if isinstance(given, torch.Tensor) and bool((given != given.reshape(-1)[0]).any()):
        raise UsageError(
            f"the loss weighs classes differently (weight={_few(given)}), so that its mean is not that of the rows' "
            "own losses; leave weight out, or use reduction='none', by which a row of class k counts weight[k] times."
        )


def not_a_mean(got: Any, mean: Any, outputs: torch.Tensor, target: torch.Tensor) -> UsageError:
    """Return the error for a mean that is not that of the rows' own losses."""
    said = (
        "the loss of a batch must be the mean of its rows' own. "
        f"Got {float(got):.4g} where that mean is {float(mean):.4g}"
    )
    if outputs.numel() == target.numel() and outputs.shape != target.shape:
        return UsageError(f"{said}{_advice(outputs, target)}.")
    return UsageError(
        f"{said}: classes that weigh differently, a target of another shape than the outputs, or a penalty; use "
        "reduction='none', and leave the prior to prior_sd."
    )


def value_of(loss: Any, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Call the loss, in double precision; UsageError if it cannot be called, or returns no numbers."""
    try:
        found = loss(outputs, target)
    except Exception as error:  # of the user's function
        raise UsageError(
            f"the loss could not be called with outputs {tuple(outputs.shape)} and target {tuple(target.shape)} "
            f"({first_line(error)}){_advice(outputs, target)}."
        ) from error
    if not isinstance(found, torch.Tensor) or not found.is_floating_point():
        raise UsageError(
            f"the loss must return a tensor of floating point. Got {type(found).__name__}."
        )
    return found.double()


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two losses are the same up to rounding."""
    return bool((one - other).abs() <= MAX_REL_ERROR * torch.maximum(one.abs(), other.abs()))


def _advice(outputs: torch.Tensor, target: torch.Tensor) -> str:
    """Return advice on a target of another shape or dtype than the loss takes."""
    floating = target.is_floating_point()
    whole = not floating or bool((target == target.round()).all())
    several = outputs.dim() == 2 and outputs.shape[1] > 1
    if several and whole and target.dim() == 2 and target.shape[1] == 1:
        return f"; labels are one number a row: use target[:, 0]{'.long()' if floating else ''}"
    if outputs.shape != target.shape and outputs.numel() == target.numel():
        shape = "target[:, None]" if outputs.dim() == target.dim() + 1 else "target[:, 0]"
        return (
            f"; give the target the shape of the outputs: {shape}{'' if floating else '.float()'}"
        )
    if not floating and outputs.shape == target.shape:
        return "; if the loss takes a target of floating point, use target.float()"
    if floating and whole:
        return "; if the target holds the numbers of classes, give it as integers: target.long()"
    return ""


def _are_classes(loss: Any, outputs: torch.Tensor, target: torch.Tensor) -> bool:
    """Return whether outputs are log probabilities, or the loss does not depend on a constant added to them."""
    if outputs.dim() != 2 or outputs.shape[1] < 2:
        return False
    sums = torch.logsumexp(outputs.double(), 1)
    if bool((sums.abs() < MAX_REL_ERROR).all()):
        return True
    one, other = (value_of(loss, outputs + c, target) for c in (0.0, LOGIT_SHIFT))
    if not target.is_floating_point() and torch.allclose(
        other, one - LOGIT_SHIFT, rtol=1e-4, atol=1e-4
    ):
        raise UsageError(
            "the loss takes log probabilities, as nll_loss does, and the model's outputs are none: those of its first row "
            f"add up to a probability of {float(sums[0].exp()):.3g}; use torch.nn.functional.cross_entropy, or end the "
            "model with log_softmax."
        )
    return bool(torch.allclose(one, other, rtol=1e-4, atol=1e-4))


def _are_odds(loss: Any, outputs: torch.Tensor, target: torch.Tensor) -> bool:
    """Return whether outputs are log odds of two outcomes: far out the right one costs less than half the other."""
    if outputs.numel() != target.numel():
        return False
    low, high = _outcomes(target)
    for far, right, wrong in ((-FAR_LOG_ODDS, low, high), (FAR_LOG_ODDS, high, low)):
        made_up = torch.full_like(outputs, far)
        try:
            one, other = (value_of(loss, made_up, torch.full_like(target, k)).sum() for k in (right, wrong))  # fmt: skip
        except UsageError:  # it takes probabilities
            return False
        if not bool(other - one > 0.5 * torch.maximum(one.abs(), other.abs())):
            return False
    return True


def _outcomes(target: torch.Tensor) -> list[float]:
    """Return the two numbers that a target has, such as -1 and 1; otherwise 0 and 1."""
    found = target.unique()
    return [float(k) for k in found] if len(found) == 2 else [0.0, 1.0]


def _made_by(outputs: torch.Tensor) -> str:
    """Return the operation that made the outputs, before changes of their shape."""
    node = outputs.grad_fn
    while node is not None and node.name().startswith(RESHAPING_NODES) and node.next_functions:
        node = node.next_functions[0][0]
    return "" if node is None else node.name()


def _few(values: torch.Tensor) -> str:
    said = [f"{value:g}" for value in values.reshape(-1)[:4].tolist()]
    return f"[{', '.join(said)}{', ...' if values.numel() > 4 else ''}]"


# -- likelihood ----------------------------------------------------------------------------


HALF_PRECISIONS = frozenset({torch.float16, torch.bfloat16})
REPEATED_ROWS = 8  # rows that the model is called with twice
MAX_SINGLE_ROWS = 16  # rows, and classes, whose own losses are held against that of all of them
MAX_OUTPUT_ROWS = 4096  # rows of which the model's first outputs are looked at

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
        """Compute outputs [row, ...] with some of the weights replaced."""
        return called(self.model, weights, inputs).reshape(-1, *self.shape)

    def total(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return minus the log likelihood of all rows of a batch."""
        found = self.loss(outputs, target)
        return found.sum() if self.kind == "rows" else found * len(outputs)


def called(
    model: torch.nn.Module, weights: dict[str, torch.Tensor], inputs: Inputs
) -> torch.Tensor:
    """Call the model with inputs by place or by name; outputs are in single precision at least."""
    found = _as_given(model, weights, inputs)
    return found.float() if found.dtype in HALF_PRECISIONS else found


def in_half_precision(
    model: torch.nn.Module, weights: dict[str, torch.Tensor], inputs: Inputs
) -> bool:
    """Return whether the model's weights or outputs are in half precision, for example under autocast."""
    with torch.no_grad():
        given = _as_given(model, weights, inputs)
    return not HALF_PRECISIONS.isdisjoint([given.dtype, *(w.dtype for w in weights.values())])


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
    """Check that model, loss and rows fit together, and return the likelihood.

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
    batch = rows.first(REPEATED_ROWS)
    with torch.no_grad():
        outputs = _first_outputs(model, batch.inputs)
        again = _first_outputs(model, batch.inputs)
    if outputs.dim() == 0 or len(outputs) != len(batch.target):
        raise UsageError(
            f"the model must give one output per row, rows first. Got shape {tuple(outputs.shape)} for "
            f"{len(batch.target)} rows."
        )
    if not torch.allclose(outputs, again, rtol=MAX_REL_ERROR, atol=1e-5, equal_nan=True):
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
    """Return the numbers of some rows, with one of every class if classes are few, since the loss may weigh them."""
    first = torch.arange(min(MAX_SINGLE_ROWS, rows.num_data), device=rows.order.device)
    target = rows.target[rows.order]
    if target.is_floating_point() or target.dim() != 1:
        return first
    others = [(target == value).int().argmax() for value in target.unique()[:MAX_SINGLE_ROWS]]
    return torch.cat([first, torch.stack(others)]).unique()


def _check_layers(model: Any) -> None:
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
    """Raise DataError if an output is nan or inf before the first step."""
    for begin in range(0, min(rows.num_data, MAX_OUTPUT_ROWS), 256):
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
    """Raise UsageError for a class without an output of the model, before the loss sees it."""
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
    """Return whether the loss gives one number per row or their mean, from its values for single rows."""
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
                "the loss is 0 at the data set's first rows, so that a mean cannot be distinguished from a sum; give "
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
    """Raise UsageError for a mean over the numbers of a row too, by which each row counts too little."""
    if outputs.dim() < 2 or outputs.shape != target.shape or outputs[0].numel() < 2:
        return
    twice = value_of(loss, torch.cat([outputs, outputs], -1), torch.cat([target, target], -1))
    if close(twice, whole):
        raise UsageError(
            f"the loss is a mean over the {outputs[0].numel()} outputs of a row too, so that a row counts "
            f"{outputs[0].numel()} times too little; use reduction='none'."
        )
