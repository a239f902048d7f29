"""What an optimiser notices of the losses that pass by: their kind, their course, their rows.

The first loss is judged by its graph (`loss.py`), and so are the layers it went through. From then on
one hook sees the root of every backward pass: its value is added up where it lies, and read at steps
8, 16, 32, ... and then every thousand; its rows are added up until a pass over the data is known.

Batches of rows and their weights, with some rows in every one.

What moved the weights in a pass over the data: noise put in, noise of the gradients, temperature.

A step moves a weight by the noise that it draws, of variance 2 (alpha - beta) h T D, and by that of
its gradient, of variance (h N D)^2 Var(U); at temperature 1 the two together are to be 2 alpha h D
(alpha = 1 and beta = 0 but for SGHMC, D = 1 but for PSGLD). So

    temperature = average over weights of (both variances) / (2 alpha h D)

(Welling & Teh 2011, sec. 4.2, whose threshold alpha is the gradients' part.) Var(U) is half the mean
square of the differences of gradients that follow one another, which needs neither a mean over all
rows nor weights that rest.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..core.validation import check_seed, whole_number
from ..errors import RunError, SGLDWarning, UsageError
from .loss_graph import Reduction, judge, nodes, reductions, root_of_backward, under_a_scaler

# -- batches -------------------------------------------------------------------------------


class Batches:
    """Row numbers and weights of reshuffled batches, the rows of `always_in` in every one.

    The loss of a batch is the weighted mean of its rows' negative log likelihoods,

        loss = (weight * loss_of_rows).mean()

    whose average over a pass is the mean over all rows, whatever rows are chosen: with N rows, m of
    them in every one of K batches, the b rows of a batch weigh b K / N where they were drawn and b / N
    where they are always in. A row that holds much of what is known of a weight (the only one of a
    level, say) belongs there: seen once in K steps, it throws the chain or is not felt.

    Args:
      num_data: N, rows in all the data.
      batch_size: most rows of a batch besides those that are always in.
      always_in: numbers of rows, such as `draws.plan.setup.always` of a default run.
      seed: of the order. Every pass has a fresh one.

    Raises: UsageError for impossible numbers.

    Example:
      >>> import sgld.torch
      >>> batches = sgld.torch.Batches(num_data=7, batch_size=2, always_in=[3])
      >>> [(len(rows), float(weight.mean())) for rows, weight in batches]
      [(3, 1.0), (3, 1.0), (3, 1.0)]
    """

    def __init__(
        self, num_data: int, batch_size: int, *, always_in: Sequence[int] = (), seed: int = 0
    ) -> None:
        whole_number("num_data", num_data, 1)
        whole_number("batch_size", batch_size, 1)
        check_seed(seed)
        always = np.asarray(always_in, dtype=np.int64)
        inside = (always >= 0) & (always < num_data)
        if always.ndim != 1 or len(np.unique(always)) != len(always) or not inside.all():
            raise UsageError(
                f"always_in must be numbers of rows from 0 to {num_data - 1}, no two the same. Got {always_in!r}."
            )
        self.num_data, self.always_in = num_data, always
        self._others = np.setdiff1d(np.arange(num_data), always)
        self._count = max(1, -(-len(self._others) // batch_size))
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        """Return K, the number of batches of a pass."""
        return self._count

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield row numbers [b] and weights [b] of each batch of one pass, both on the CPU."""
        order = self._rng.permutation(self._others)
        for drawn in np.array_split(order, self._count):
            rows = np.concatenate([drawn, self.always_in])
            share = len(rows) / self.num_data
            weight = np.full(len(rows), share)
            weight[: len(drawn)] *= self._count
            yield torch.from_numpy(rows), torch.from_numpy(weight).to(torch.get_default_dtype())


# -- watch ---------------------------------------------------------------------------------


About = Callable[[], dict[str, Any]]
_MIN_FIRST_ROWS = 32  # in the mean of the first losses, which later ones are compared with
_FIRST_CHECK, _MAX_CHECK_LOSSES = 8, 1000  # losses between looks at their mean
# nats a row that noise may add: weights over rows, but what rows say has an end
_MAX_NATS_PER_ROW = 10.0
_INNER_MODULES = ("torch.", "sgld.")
_MAX_PASS_BATCHES = 20_000  # batches; then none was shorter than the others
_MAX_ROW_COUNT_ERROR = 0.05  # of num_data, and no more is said of the rows of a pass


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
        """Watch the backward passes that reach this parameter."""
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
        """Check the loss before each step.

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
        wanted = self._rows.open or self._pass is not None or self._course.rows < _MIN_FIRST_ROWS
        if self._term is not None and wanted:
            terms = reductions(root, whole=False)
            rows = terms[self._term].rows if len(terms) > self._term else None
        self._course.see(value, rows or 1)
        self._rows.see(rows)
        if self._pass is not None:
            self._pass.see(value, rows)

    def begin_pass(self) -> None:
        """Begin to count the losses of one pass."""
        self._pass = _Pass()

    def end_pass(self, batches: Any, about: dict[str, Any]) -> float | None:
        """Return the mean loss of the pass, or None if it was not seen, and compare its rows with num_data."""
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
    """The mean of the losses between checks, next to that of the first rows."""

    first: Any = 0.0
    count_first: int = 0
    rows: int = 0
    total: Any = 0.0
    count: int = 0
    seen: int = 0
    scaled: bool = False  # whether the loss may have been multiplied by something
    said: bool = False

    def see(self, value: torch.Tensor, rows: int) -> None:
        if self.rows < _MIN_FIRST_ROWS:
            self.first, self.count_first = self.first + value, self.count_first + 1
            self.rows += rows
        self.total, self.count, self.seen = self.total + value, self.count + 1, self.seen + 1

    @property
    def due(self) -> bool:
        return self.count >= min(max(self.seen // 2, _FIRST_CHECK), _MAX_CHECK_LOSSES)

    def look(self, about: dict[str, Any]) -> None:
        """Raise RunError for nan and inf; warn once of losses far above the first."""
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
        noise = about["temperature"] * min(about["weights"] / N, _MAX_NATS_PER_ROW)
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
        if rows > full or (short and rows < full) or len(self.sizes) == _MAX_PASS_BATCHES:
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
    """Warn if a pass has another number of rows than num_data."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rows *= torch.distributed.get_world_size()  # each process has its share
    if abs(rows - about["num_data"]) > _MAX_ROW_COUNT_ERROR * about["num_data"]:
        say(
            f"{about['who']}: num_data must be the number of rows of all the data. Got "
            f"{about['num_data']:g}, where a pass has {rows} rows: each would count "
            f"{about['num_data'] / rows:.3g} times; give num_data={rows}, unless the passes leave rows "
            "out or repeat them."
        )


def _term_of_the_batch(found: list[Reduction]) -> int | None:
    """Return the term whose rows are the batch's: the only mean over rows of data, none weighted."""
    means = [i for i, r in enumerate(found) if r.kind == "mean" and r.data and r.rows > 1]
    return means[0] if len(means) == 1 and not found[means[0]].weighted else None


def _say_layers(root: torch.Tensor, who: str) -> bool:
    """Warn of layers whose output depends on more than the row and the weights; return whether dropout is one."""
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
    """Return the message on dropout in training mode."""
    return (
        f"{who}: dropout was in training mode ({where}): every step then follows the gradient of "
        "another likelihood, and num_data multiplies that noise; the draws are not of the posterior of "
        "the network that predicts. Call model.eval() before training, or set p=0."
    )


def say(sentence: str) -> None:
    """Warn at the line that called into this module or torch."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_INNER_MODULES):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, SGLDWarning, stacklevel=level)


# -- one pass ------------------------------------------------------------------------------


@dataclass
class Meter:
    """Sums over the steps and weights of a pass: both variances, and the temperature."""

    sums: dict[torch.device, torch.Tensor] = field(default_factory=dict)  # there until read
    count: int = 0
    previous: dict[torch.Tensor, torch.Tensor] = field(default_factory=dict, repr=False)

    def see(
        self, p: torch.Tensor, U: torch.Tensor, group: dict[str, Any], *,
        metric: torch.Tensor | None = None, friction: float = 1.0, known: float = 0.0,
    ) -> None:  # fmt: skip
        """Record one parameter's step along the mean gradient U, in the metric D.

        Args:
          p: the parameter.
          U: its gradient of the potential.
          group: its parameter group in the optimiser.
          metric: D, elementwise; None: 1.
          friction: alpha, the share of the velocity that a step takes away.
          known: beta, the noise of the gradients that the optimiser takes off.
        """
        before, self.previous[p] = self.previous.get(p), U.clone()
        h, T, N = (float(group[name]) for name in ("lr", "temperature", "num_data"))
        if before is None or not h:
            return
        D = torch.ones_like(U) if metric is None else metric
        injected = 2 * (friction - known) * h * T * D
        gradient = (U - before).square_().mul_(0.5 * (h * N) ** 2).mul_(D).mul_(D)
        share = (injected + gradient) / (2 * friction * h * D)
        found = torch.stack([x.sum(dtype=torch.float32) for x in (injected, gradient, share)])
        sums = self.sums.get(p.device)
        self.sums[p.device] = found if sums is None else sums + found
        self.count += p.numel()


def line(number: int, meter: Meter, loss: float | None) -> str:
    """Return the line of a pass.

    Example:
      >>> sums = {torch.device("cpu"): torch.tensor([0.08, 0.02, 10.0])}
      >>> line(3, Meter(sums, count=8), 0.5)
      "pass 3: loss 0.5; a step's noise in a weight: injected 0.1, gradient 0.05; temperature 1.25"
    """
    said = "" if loss is None else f" loss {loss:.4g};"
    if not meter.count:
        return f"pass {number}:{said} the noise of the gradients takes two steps to be seen"
    totals = torch.stack([found.to("cpu", torch.float64) for found in meter.sums.values()]).sum(0)
    injected, gradient, temperature = (totals / meter.count).tolist()
    return (
        f"pass {number}:{said} a step's noise in a weight: injected {math.sqrt(injected):.3g}, "
        f"gradient {math.sqrt(gradient):.3g}; temperature {temperature:.3g}"
    )
