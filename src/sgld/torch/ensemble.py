"""Draws of a network's weights: collect, predict with uncertainty, save and load.

A draw is a copy of the state_dict; its weight is the size of the step taken FROM it (Teh, Thiery
& Vollmer 2016), that is the optimiser's step size when it is collected. Predictions average what
the draws predict, never the weights themselves:

    p(y | x) = sum_s w_s p(y | x, theta_s) / sum_s w_s
    H[p(y | x)] = sum_s w_s H[p(y | x, theta_s)] + mutual information        (nats)
       total    =           aleatoric            +      epistemic
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.modules import batchnorm, instancenorm

from ..errors import UsageError
from .base import require
from .predictive import Classes, Values, classes, values
from .storage import read, write

__all__ = ["Ensemble"]


class Ensemble:
    """Weighted copies of a network's weights.

    Args:
      model: the network whose weights are copied and which is called to predict; its own
        weights and its training mode are left as they are.

    Raises: UsageError for batch normalisation in training mode, whose running statistics are
    no part of a draw: they come from other weights than the draw's.

    Example:
      >>> import torch, sgld.torch
      >>> model = torch.nn.Linear(1, 2, bias=False)
      >>> ensemble = sgld.torch.Ensemble(model)
      >>> for slope in (0.0, 2.0):
      ...     _ = torch.nn.init.constant_(model.weight, slope)
      ...     with torch.no_grad():
      ...         model.weight[1] = 0.0
      ...     ensemble.collect()
      >>> ensemble.predict_classes(torch.ones(1, 1)).probabilities
      tensor([[0.6904, 0.3096]], dtype=torch.float64)
    """

    def __init__(self, model: torch.nn.Module) -> None:
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"Ensemble takes a torch.nn.Module. Got {type(model).__name__}.")
        self.model = model
        self.states: list[dict[str, torch.Tensor]] = []
        self._weights: list[float] = []
        self._steps: list[float] | None = None
        self._statistics = _running_statistics(model)

    def __len__(self) -> int:
        """The number of draws."""
        return len(self.states)

    @property
    def weights(self) -> torch.Tensor:
        """[draw], as collected: they need not sum to 1."""
        return torch.tensor(self._weights, dtype=torch.float64)

    def draws_of(self, name: str) -> torch.Tensor:
        """One entry of the state_dict in every draw, [draw, ...]."""
        self._some_draws()
        if name not in self.states[0]:
            raise UsageError(f"name must be one of {', '.join(self.states[0])}. Got {name!r}.")
        return torch.stack([state[name] for state in self.states])

    def collect(
        self, optimizer: torch.optim.Optimizer | None = None, *, weight: float = 1.0,
        model: torch.nn.Module | None = None,
    ) -> None:  # fmt: skip
        """Add a copy of the weights as they are now, on the CPU.

        Args:
          optimizer: one of this module's, whose step size becomes the draw's weight; call after
            scheduler.step(), so that it is the size of the next step.
          weight: without an optimiser, the draw's weight.
          model: another network of the same architecture (a deep ensemble's member).

        Raises: UsageError for weights that are not finite, another architecture, running
        statistics that have changed, or groups whose steps have changed their proportion.
        """
        source = self.model if model is None else model
        if model is None:
            self._check_statistics()
        else:
            _running_statistics(model)
        state = source.state_dict()
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
        _check_shapes(state, self.states[0] if self.states else self.model.state_dict())
        if optimizer is None:
            require("weight", weight, zero=True)
        else:
            weight = self._step_of(optimizer)
        self._weights.append(float(weight))
        self.states.append({k: v.detach().to("cpu", copy=True) for k, v in state.items()})

    def _step_of(self, optimizer: torch.optim.Optimizer) -> float:
        steps = [float(group["lr"]) for group in optimizer.param_groups]
        first = self._steps
        if first is None:
            if max(steps) > 0:
                self._steps = steps
        elif len(steps) != len(first) or any(
            not math.isclose(a * max(first), b * max(steps), rel_tol=1e-6, abs_tol=0.0)
            for a, b in zip(steps, first, strict=True)
        ):
            raise UsageError(
                f"the step sizes of the groups must keep their proportion, to be one weight. Got "
                f"{steps} after {first}; give weight= instead."
            )
        return max(steps)

    def _check_statistics(self) -> None:
        for name, old in self._statistics.items():
            new = _running_statistics(self.model).get(name)
            if new is None or not torch.equal(old, new):
                raise UsageError(
                    f"{name} has changed since the Ensemble was made: batch normalisation ran in "
                    f"training mode; {_REMEDY}"
                )

    def outputs(self, x: Any, *, batch_size: int | None = None) -> torch.Tensor:
        """What each draw's network gives for rows x: [draw, row, ...], on the CPU.

        Args:
          x: a tensor, or a tuple of tensors (the network's arguments), rows first. Arrays and
            lists become tensors of the network's floating dtype, and so do floating tensors of
            a dtype that no weight has; a tensor of integers (an embedding's) stays one.
          batch_size: rows at once; None: all.

        Raises: UsageError without draws, or for x that is no such thing.
        """
        return torch.stack(list(self._each(x, batch_size)))

    def predict_classes(self, x: Any, *, batch_size: int | None = None) -> Classes:
        """Mean probabilities and the two parts of their entropy.

        The network's outputs [row, class] are logits; one output is the logit of the second of
        two classes.

        Raises: UsageError without draws, or for outputs of another shape.
        """
        return classes(self._each(x, batch_size), self._normalised())

    def predict_values(
        self, x: Any, *, interval: float = 0.9, noise_sd: Any = 0.0, batch_size: int | None = None
    ) -> Values:
        """Mean, sd and central interval of y, the network's output being its mean.

        Args:
          interval: the probability between `lower` and `upper`.
          noise_sd: the sd of y around the output: a number, one per draw ([draw] or [draw, 1]),
            or [draw, row, ...] like `outputs`, where an axis may be 1; 0 gives the law of the
            output alone.

        Raises: UsageError without draws, for interval outside (0, 1), or for a noise_sd that is
        negative or has another shape.
        """
        if not 0 < interval < 1:
            raise UsageError(f"interval must be above 0 and below 1. Got {interval}.")
        return values(
            self.outputs(x, batch_size=batch_size), self._normalised(), noise_sd, interval
        )

    def save(self, path: str | Path) -> None:
        """One .npz file of plain arrays and a JSON text; nothing in it is a pickle."""
        self._some_draws()
        write(Path(path), self.states, np.asarray(self._weights, np.float64))

    @classmethod
    def load(cls, path: str | Path, model: torch.nn.Module) -> Ensemble:
        """What `save` wrote, for a network of the same architecture; its weights are not changed.

        Raises: DataError for any other file; UsageError for another architecture.
        """
        ensemble = cls(model)
        states, weights = read(Path(path))
        _check_shapes(states[0], model.state_dict())
        ensemble.states, ensemble._weights = states, [float(w) for w in weights]
        return ensemble

    def _some_draws(self) -> None:
        if not self.states:
            raise UsageError("the Ensemble has no draws yet; call collect() after the burn-in.")

    def _normalised(self) -> torch.Tensor:
        self._some_draws()
        w = self.weights
        if not float(w.sum()) > 0:
            raise UsageError("every draw has weight 0; collect while the step size is positive.")
        return w / w.sum()

    def _each(self, x: Any, batch_size: int | None) -> Iterator[torch.Tensor]:
        """The outputs of one draw after the other, in float64 on the CPU."""
        self._some_draws()
        if batch_size is not None and batch_size < 1:
            raise UsageError(f"batch_size must be positive. Got {batch_size}.")
        anchor = next(iter(self.model.state_dict().values()))
        dtypes = {v.dtype for v in self.states[0].values() if v.is_floating_point()}
        arguments = tuple(
            _as_input(a, dtypes).to(anchor.device) for a in (x if isinstance(x, tuple) else (x,))
        )
        rows = len(arguments[0])
        size = batch_size or max(rows, 1)
        names = _places(self.model)
        for state in self.states:
            with _evaluating(self.model), torch.no_grad():
                held = {k: v.to(anchor.device) for k, v in state.items() if k in names}
                parts = [
                    torch.func.functional_call(
                        self.model, held, tuple(a[i : i + size] for a in arguments),
                        tie_weights=False,
                    ).to("cpu", torch.float64)
                    for i in range(0, max(rows, 1), size)
                ]  # fmt: skip
            yield torch.cat(parts)


_REMEDY = (
    "use GroupNorm or LayerNorm, whose output depends on the row alone, or train with the layer "
    "in eval() mode, so that its statistics are constants."
)


def _places(model: torch.nn.Module) -> set[str]:
    """Names of parameters and buffers, each place once.

    functional_call leaves weights of a draw behind in a module that is named twice.
    """
    return {
        f"{path}.{key}" if path else key
        for path, module in model.named_modules()
        for key in (*module._parameters, *module._buffers)
    }


def _running_statistics(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the running statistics by name; UsageError where they would go on changing."""
    kept = {}
    for name, module in model.named_modules():
        per_row = isinstance(module, instancenorm._InstanceNorm)
        if not isinstance(module, batchnorm._NormBase):
            continue
        tracked = module.running_mean is not None
        if not tracked and per_row:
            continue
        if module.training or not tracked:
            raise UsageError(
                f"{name or 'the model'} ({type(module).__name__}) normalises by statistics of the "
                f"batch, which a draw of the weights does not determine; {_REMEDY}"
            )
        for key in ("running_mean", "running_var"):
            kept[f"{name}.{key}"] = getattr(module, key).detach().clone()
    return kept


def _check_shapes(state: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in expected.keys() | state.keys():
        one, other = expected.get(name), state.get(name)
        if one is None or other is None or one.shape != other.shape:
            shapes = [None if t is None else tuple(t.shape) for t in (other, one)]
            raise UsageError(
                f"the draw must have the model's entries. Got shape {shapes[0]} for {name!r}, "
                f"where the model has {shapes[1]}; give a model of the same architecture."
            )


def _as_input(x: Any, dtypes: set[torch.dtype]) -> torch.Tensor:
    """A tensor as it is, but in one of the network's floating dtypes; an array or list as one."""
    widest = max(dtypes, key=lambda dtype: torch.finfo(dtype).bits, default=torch.float32)
    try:
        given = x if isinstance(x, torch.Tensor) else torch.as_tensor(np.array(x, np.float64))
    except (TypeError, ValueError):
        given = None
    if given is None or given.dim() == 0:
        raise UsageError(
            "x must be a tensor, an array or a list of numbers with rows first, or a tuple of "
            f"these, the network's arguments. Got {type(x).__name__}."
        )
    if isinstance(x, torch.Tensor) and (not x.is_floating_point() or x.dtype in dtypes):
        return x
    return given.to(widest)


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Dropout off; every module's mode is put back."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
