"""What an optimiser notices of the losses that pass by: their kind, their course, their rows.

The first loss is judged by its graph (`loss.py`), and so are the layers it went through. From then on
one hook sees the root of every backward pass: its value is added up where it lies, and read at steps
8, 16, 32, ... and then every thousand; its rows are added up until a pass over the data is known.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import RunError, SGLDWarning
from .batches import Batches
from .loss import Reduction, judge, nodes, reductions
from .root import root_of_backward, under_a_scaler

__all__ = ["LossWatch", "dropout_said", "say"]

About = Callable[[], dict[str, Any]]
_ENOUGH_ROWS = 32  # in the mean of the first losses, which later ones are compared with
_FIRST_LOOK, _LONGEST = 8, 1000  # losses between looks at their mean
_MOST_PER_ROW = (
    10.0  # nats a row that noise may add: weights over rows, but what rows say has an end
)
_INSIDE = ("torch.", "sgld.")
_LONGEST_PASS = 20_000  # batches; then none was shorter than the others
_CLOSE = 0.05  # of num_data, and no more is said of the rows of a pass


class LossWatch:
    """The checks of the losses of one optimiser; `active` is False where none is wanted."""

    def __init__(self, active: bool) -> None:
        self.active = active
        self.dropout = False  # whether dropout has been noticed
        self._checked = False
        self._found: list[Reduction] | None = None
        self._first: torch.Tensor | None = None  # the loss that was found
        self._kept: int | None = None  # the parameter whose hook goes on
        self._handles: dict[int, Any] = {}
        self._fresh = False  # whether a loss was seen since the last step
        self._term: int | None = None  # of the loss, whose rows are those of the batch
        self._course = _Course()
        self._rows = _Rows()
        self._pass: _Pass | None = None

    def attach(self, parameter: torch.Tensor) -> None:
        """Look at the backward passes that reach this parameter."""
        if self.active and not self._checked and parameter.requires_grad:
            handle = parameter.register_post_accumulate_grad_hook(self._reached)
            self._handles[id(parameter)] = handle

    def _reached(self, parameter: torch.Tensor) -> None:
        if not self.active:
            return
        if self._checked:
            self._see(root_of_backward())
        elif self._found is None:
            root = root_of_backward()
            if root is not None:
                self._found, self._first = reductions(root), root
                self._kept = id(parameter)

    def check(self, loss: Any, about: About) -> None:
        """Once a step, before it.

        Args:
          loss: what step() was given, or None.
          about: gives the numbers that sentences name: who, num_data, step_size, ...

        Raises: UsageError for a first loss that is no mean; RunError for losses that are not finite.
        """
        if not self.active:
            return
        given = loss if isinstance(loss, torch.Tensor) and loss.grad_fn is not None else None
        if not self._checked:
            self._check_first(given, about)
        elif given is not None and not self._fresh:
            self._see(given)
        self._fresh = False
        if self._course.due:
            self._course.look(about())
        if self._rows.known is not None:
            _say_rows(self._rows.known, about())
            self._rows = _Rows(open=False)

    def _check_first(self, given: torch.Tensor | None, about: About) -> None:
        if given is not None:
            self._found, self._first = reductions(given), given
        found, first = self._found or [], self._first
        self._found = self._first = None  # after an error the next pass is looked at
        numbers, scaled = about(), under_a_scaler()
        scalar = first is not None and first.dim() == 0 and not scaled
        value = float(first.detach()) if first is not None and scalar else None
        judge(found, numbers["num_data"], value)
        self._checked = True
        for key, handle in self._handles.items():
            if key != self._kept or scaled:
                handle.remove()
        self.active = not scaled  # a scaler's losses are in units of their own
        if first is not None:
            self.dropout = _say_layers(first, numbers["who"])
            self._term = _term_of_the_batch(found)
            self._course.scaled = not any(r.certain for r in found)
            if self.active:
                self._see(first)

    def _see(self, root: torch.Tensor | None) -> None:
        self._fresh = True
        if root is None or root.dim() != 0:
            self._rows.open = False
            return
        value, rows = root.detach().float(), None
        wanted = self._rows.open or self._pass is not None or self._course.rows < _ENOUGH_ROWS
        if self._term is not None and wanted:
            terms = reductions(root, whole=False)
            rows = terms[self._term].rows if len(terms) > self._term else None
        self._course.see(value, rows or 1)
        self._rows.see(rows)
        if self._pass is not None:
            self._pass.see(value, rows)

    def begin_pass(self) -> None:
        """The losses from now on are those of one pass."""
        self._pass = _Pass()

    def end_pass(self, batches: Any, about: dict[str, Any]) -> float | None:
        """The mean loss of the pass, None where it was not seen; its rows are held against num_data."""
        seen, self._pass = self._pass, None
        if seen is None or not seen.count:
            return None
        rows = batches.num_data if isinstance(batches, Batches) else seen.rows
        if rows is not None:
            _say_rows(rows, about)
            self._rows.open = False
        return float(seen.total) / seen.count


@dataclass
class _Course:
    """The mean of the losses between looks, beside that of the first rows."""

    first: Any = 0.0
    count_first: int = 0
    rows: int = 0
    total: Any = 0.0
    count: int = 0
    seen: int = 0
    scaled: bool = False  # whether the loss may have been multiplied by something
    said: bool = False

    def see(self, value: torch.Tensor, rows: int) -> None:
        if self.rows < _ENOUGH_ROWS:
            self.first, self.count_first = self.first + value, self.count_first + 1
            self.rows += rows
        self.total, self.count, self.seen = self.total + value, self.count + 1, self.seen + 1

    @property
    def due(self) -> bool:
        return self.count >= min(max(self.seen // 2, _FIRST_LOOK), _LONGEST)

    def look(self, about: dict[str, Any]) -> None:
        """RunError for nan and inf, SGLDWarning, once, for losses far above the first."""
        mean, first = float(self.total) / self.count, float(self.first) / self.count_first
        began, self.total, self.count = self.seen - self.count + 1, 0.0, 0
        who, h, N = about["who"], about["step_size"], about["num_data"]
        remedy = (
            f"step_size = {h:g} is a learning rate of {h * N:g} for the mean loss; take a tenth of it"
            + (", and leave a factor num_data out of the loss" if self.scaled else "")
        )
        if not math.isfinite(mean):
            raise RunError(
                f"{who} has diverged: the loss is {mean} between steps {began} and {self.seen}. Got "
                f"{first:.4g} at first; {remedy}, and begin from finite weights."
            )
        noise = about["temperature"] * min(about["weights"] / N, _MOST_PER_ROW)
        slack = max(1.0, abs(first)) * (1 + 4 / math.sqrt(self.rows)) + noise
        if mean - first > slack and not self.said:
            self.said = True
            say(
                f"{who}: the mean loss rose from {first:.4g} at first to {mean:.4g} (steps {began} to "
                f"{self.seen}): the run diverges. {remedy}; where it rises as far again, the noise of "
                f"{about['weights']} weights outweighs {N:g} rows, and prior_precision or a lower "
                "temperature holds them."
            )


@dataclass
class _Rows:
    """Rows of a pass: batches of one size end in a shorter one, twice in a row alike."""

    open: bool = True
    known: int | None = None
    sizes: list[int] = field(default_factory=list)
    last: int | None = None  # rows of the pass before

    def see(self, rows: int | None) -> None:
        if not self.open:
            return
        if rows is None:
            self.open = False
            return
        full = max(self.sizes, default=rows)
        short = bool(self.sizes) and self.sizes[-1] < full
        if rows > full or (short and rows < full) or len(self.sizes) == _LONGEST_PASS:
            self.open = False  # not the batches of a DataLoader, or all of one size
        elif short:
            total = sum(self.sizes)
            if self.last is not None:
                self.open, self.known = False, total if total == self.last else None
            self.last, self.sizes = total, [rows]
        else:
            self.sizes.append(rows)


@dataclass
class _Pass:
    """The losses of a pass, and its rows; None where some were not seen."""

    total: Any = 0.0
    count: int = 0
    rows: int | None = 0

    def see(self, value: torch.Tensor, rows: int | None) -> None:
        self.total, self.count = self.total + value, self.count + 1
        self.rows = None if rows is None or self.rows is None else self.rows + rows


def _say_rows(rows: int, about: dict[str, Any]) -> None:
    """Warn where a pass has another number of rows than num_data."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rows *= torch.distributed.get_world_size()  # each process has its share
    if abs(rows - about["num_data"]) > _CLOSE * about["num_data"]:
        say(
            f"{about['who']}: num_data must be the number of rows of all the data. Got "
            f"{about['num_data']:g}, where a pass has {rows} rows: each would count "
            f"{about['num_data'] / rows:.3g} times; give num_data={rows}, unless the passes leave rows "
            "out or repeat them."
        )


def _term_of_the_batch(found: list[Reduction]) -> int | None:
    """The term whose rows are the batch's: the only mean over rows of data, none weighted."""
    means = [i for i, r in enumerate(found) if r.kind == "mean" and r.data and r.rows > 1]
    return means[0] if len(means) == 1 and not found[means[0]].weighted else None


def _say_layers(root: torch.Tensor, who: str) -> bool:
    """Warn of layers whose output is not the row's and the weights'; whether dropout is one."""
    names = {node.name() for node in nodes(root.grad_fn) if "Dropout" in node.name()}
    if names:
        say(dropout_said(who, min(names)))
    for node in nodes(root.grad_fn):
        training = getattr(node, "_saved_training", getattr(node, "_saved_train", False))
        if "BatchNorm" in node.name() and training:
            say(
                f"{who}: the loss went through batch normalisation in training mode "
                f"({node.name()}): what a row is worth then depends on the other rows of its batch, "
                "and the running statistics belong to no draw; use GroupNorm or LayerNorm, or call "
                "eval() of that layer."
            )
            break
    return bool(names)


def dropout_said(who: str, where: str) -> str:
    """The sentence on dropout in training mode."""
    return (
        f"{who}: dropout was in training mode ({where}): every step then follows the gradient of "
        "another likelihood, and num_data multiplies that noise; the draws are not of the posterior of "
        "the network that predicts. Call model.eval() before training, or set p=0."
    )


def say(sentence: str) -> None:
    """Warn, at the line that called into this module or torch."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, SGLDWarning, stacklevel=level)
