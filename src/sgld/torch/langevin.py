"""What the optimisers share: groups, checks, the gradient, the generator, state_dict.

`param_groups[i]["lr"]` IS the step size h, in units of the full-data log posterior: torch's
schedulers read and scale that key.

The numbers of an optimiser by name, and what other libraries call them.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from ..errors import UsageError, did_you_mean
from .monitor import LossWatch, Meter, line

# -- names ---------------------------------------------------------------------------------


_P = ParamSpec("_P")
_Self = TypeVar("_Self")


def by_name(init: Callable[Concatenate[_Self, _P], None]) -> Callable[Concatenate[_Self, _P], None]:
    """Decorate a constructor of params and numbers by name, so that a wrong call is a UsageError."""
    numbers = [p for p in inspect.signature(init).parameters.values() if p.kind is p.KEYWORD_ONLY]
    own = [p.name for p in numbers]

    @functools.wraps(init)
    def checked(self: _Self, *args: _P.args, **given: _P.kwargs) -> None:
        who = type(self).__name__
        check_names(
            who, {k: v for k, v in given.items() if k != "params"}, own, given.get("num_data")
        )
        if len(args) > 1:
            raise UsageError(
                f"{who} takes its numbers by name, such as step_size=. Got {args[1]!r} after params."
            )
        for p in numbers:
            if p.default is p.empty and p.name not in given:
                raise UsageError(
                    f"{who} needs {p.name}: step_size= is in units of the full-data log posterior "
                    "(lr / num_data), num_data= the number of rows in all the data."
                )
        init(self, *args, **given)

    return checked


def check_names(
    who: str, given: dict[str, Any], own: Collection[str], num_data: Any = None
) -> None:
    """Raise UsageError for a name that is not one of `own`; torch's own names are translated."""
    for name, value in given.items():
        if name in own:
            continue
        said = _translated(who, name, value, num_data)
        if said:
            raise UsageError(said)
    for name in given:
        if name not in own:
            raise UsageError(
                f"{who} takes {', '.join(sorted(own))}. Got {name!r}.{did_you_mean(name, own)}"
            )


def _translated(who: str, name: str, value: Any, num_data: Any) -> str | None:
    """Return what a number of torch's optimisers is called here, and its value."""
    got = f"Got {name}={value}"
    if name == "lr":
        here = _computed(lambda: value / num_data)
        return (
            f"{who} takes step_size, not lr. {got}; a learning rate of the mean loss is "
            f"step_size = lr / num_data{here}."
        )
    if name == "weight_decay":
        here = _computed(lambda: value * num_data)
        return (
            f"{who} takes prior_precision, not weight_decay. {got}; a decay of the mean loss is "
            f"prior_precision = weight_decay * num_data{here}, and each weight is N(0, 1 / "
            "prior_precision) a priori."
        )
    if name == "momentum":
        here = f"friction = 1 - momentum{_computed(lambda: 1 - value)}"
        if who.endswith("SGHMC"):
            return f"{who} takes friction, not momentum. {got}; {here}."
        return f"{who} has no momentum. {got}; use sgld.torch.SGHMC, whose {here}."
    if who.endswith("PSGLD") and name in ("alpha", "eps"):
        here = {"alpha": "decay", "eps": "epsilon"}[name]
        return f"{who} takes {here}, not {name}. {got}; RMSprop's {name} is {here}."
    return None


def _computed(number: Callable[[], Any]) -> str:
    """Return for example " = 0.1", or nothing if the number cannot be computed."""
    try:
        return f" = {float(number()):g}"
    except (TypeError, ValueError, ZeroDivisionError):
        return ""


# -- base ----------------------------------------------------------------------------------


_NARROW = (torch.float16, torch.bfloat16)
_Batch = TypeVar("_Batch")


class Langevin(torch.optim.Optimizer, abc.ABC):
    """The abstract optimiser: a subclass has `_advance`, and `_check` for its own numbers."""

    def __init__(
        self, params: Any, own: dict[str, Any], *, step_size: Any, num_data: Any, temperature: Any,
        prior_precision: Any, seed: int, check_loss: bool,
    ) -> None:  # fmt: skip
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise UsageError(f"seed must be a whole number, zero or positive. Got {seed!r}.")
        self._seed = seed
        self._generators: dict[str, torch.Generator] = {}
        self._watch = LossWatch(check_loss)
        self._meter: Meter | None = None
        self._passes = 0
        numbers = {
            "lr": step_size, "num_data": num_data, "temperature": temperature,
            "prior_precision": prior_precision,
        }  # fmt: skip
        super().__init__(params, {**numbers, **own})

    @abc.abstractmethod
    def _advance(self, moving: list[tuple[dict[str, Any], torch.Tensor]]) -> None:
        """Move every parameter that has a gradient."""

    @abc.abstractmethod
    def _check(self, group: dict[str, Any]) -> None:
        """Raise UsageError for a number of the group that is out of range."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, *, loss: Any = None) -> Any:
        """Take one step of every parameter that requires a gradient and has one.

        Args:
          closure: evaluates the loss again, calls backward() and returns it, as torch's do.
          loss: the loss that backward() was called on, for the check at the first step where it
            cannot be found (several threads in backward() at once).

        Returns: the loss, if one was given or returned.

        Raises: UsageError if no parameter has a gradient, if the first step's loss looks like
        a sum over the batch or a mean multiplied by num_data, if the batch has more rows than
        num_data, or if a number of a group has become invalid; RunError where the loss has become
        nan or inf. Warns (SGLDWarning) of dropout and batch normalisation in training mode, of a
        loss that rises far above the first, and of passes with another number of rows than
        num_data.

        Example:
          >>> import torch, sgld.torch
          >>> w = torch.nn.Parameter(torch.tensor([2.0]))
          >>> optimizer = sgld.torch.SGLD([w], step_size=0.01, num_data=10, temperature=0.0)
          >>> def closure():
          ...     optimizer.zero_grad()
          ...     loss = (0.5 * w**2).mean()
          ...     loss.backward()
          ...     return loss
          >>> optimizer.step(closure)
          tensor(2., grad_fn=<MeanBackward0>)
        """
        if closure is not None:
            if not callable(closure):
                raise UsageError(
                    f"step takes a closure first. Got {type(closure).__name__}; give a loss by name: "
                    "step(loss=loss)."
                )
            with torch.enable_grad():
                loss = closure()
        moving = []
        for group in self.param_groups:
            require("step_size (lr of a group)", group["lr"], zero=True)
            self._check_shared(group)
            moving += [
                (group, p) for p in group["params"] if p.requires_grad and p.grad is not None
            ]
        if not moving:
            raise UsageError(
                "no parameter has a gradient: call loss.backward() before step(), and zero_grad() "
                "after it."
            )
        self._watch.check(loss, self._about)
        for _, p in moving:
            if p.grad.is_sparse:
                raise UsageError(
                    f"gradients must be dense. Got a sparse one for a parameter of shape "
                    f"{tuple(p.shape)}; use sparse=False in its embedding."
                )
        self._advance(moving)
        return loss

    def one_pass(
        self, batches: Iterable[_Batch], *, report: Callable[[str], Any] = print
    ) -> Iterator[_Batch]:
        """Yield the batches of one pass over the data, and then report in one line what moved the weights.

        Put it around the loader: `for rows, labels in optimizer.one_pass(loader)`. The line holds
        the mean loss of a row; the sd of the noise that a step put into a weight, sqrt(2 h T);
        the sd of the gradients' own, h num_data sd(U), from the differences of gradients that
        follow one another; and the temperature that both together amount to, T where the gradients
        have none. Where batches are reshuffled their noise cancels in part, and less is felt.

        Args:
          batches: a DataLoader, `sgld.torch.Batches`, or anything else to iterate over.
          report: what is done with the line. A loop that is left early reports nothing.

        Warns (SGLDWarning) where the batches had another number of rows than num_data. Costs a
        copy of the gradients, and two passes over them a step.

        Example:
          >>> import torch, sgld.torch
          >>> w = torch.nn.Parameter(torch.zeros(1))
          >>> optimizer = sgld.torch.SGLD([w], step_size=0.005, num_data=6)
          >>> for rows in optimizer.one_pass(torch.ones(3, 2, 1)):
          ...     optimizer.zero_grad()
          ...     (0.5 * (rows - w) ** 2).sum(1).mean().backward()
          ...     optimizer.step()
          pass 1: loss ...; a step's noise in a weight: injected 0.1, gradient ...; temperature ...
        """
        self._meter = Meter()
        self._watch.begin_pass()
        try:
            yield from batches
            self._passes += 1
            found = self._watch.end_pass(batches, self._about())
            report(line(self._passes, self._meter, found))
        finally:
            self._meter = None

    def _about(self) -> dict[str, Any]:
        """Return the numbers that messages on the whole optimiser contain."""
        groups = self.param_groups
        return {
            "who": type(self).__name__,
            "num_data": max(group["num_data"] for group in groups),
            "step_size": max(float(group["lr"]) for group in groups),
            "temperature": max(float(group["temperature"]) for group in groups),
            "weights": sum(p.numel() for group in groups for p in group["params"]),
        }

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with numbers of their own; missing ones are the optimiser's.

        Args:
          param_group: "params" and any of this optimiser's numbers by name: step_size,
            num_data, temperature, prior_precision, ...

        Raises: UsageError for a name that is not one of these, a number out of range, a
        parameter that is given twice, or one that is not a floating-point tensor.
        """
        if not isinstance(param_group, dict):
            raise UsageError(f"a parameter group must be a dict. Got {param_group!r}.")
        group = dict(param_group)
        names = group.keys() - {"params", "param_names", "initial_lr"}
        own = {"step_size", *self.defaults} - {"lr"}
        check_names(
            f"a parameter group of {type(self).__name__}",
            {k: group[k] for k in names},
            own,
            {**self.defaults, **group}.get("num_data"),
        )
        if "step_size" in group:
            group["lr"] = group.pop("step_size")
        params = group["params"]
        group["params"] = [params] if isinstance(params, torch.Tensor) else list(params)
        self._check_params([p[1] if isinstance(p, tuple) else p for p in group["params"]])
        numbers = {**self.defaults, **group}
        require("step_size", numbers["lr"])
        self._check_shared(numbers)
        super().add_param_group(group)
        for p in self.param_groups[-1]["params"]:
            self._watch.attach(p)

    def _check_params(self, params: list[Any]) -> None:
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        for p in params:
            if not isinstance(p, torch.Tensor):
                raise UsageError(
                    f"params must hold tensors, such as model.parameters(). Got {type(p).__name__}."
                )
            if id(p) in seen:
                raise UsageError(
                    f"a parameter of shape {tuple(p.shape)} is given twice; it would move twice "
                    "a step. Give each parameter once, in one group."
                )
            if not p.is_floating_point():
                raise UsageError(f"parameters must be floating-point tensors. Got {p.dtype}.")
            seen.add(id(p))

    def _check_shared(self, group: dict[str, Any]) -> None:
        require("num_data", group["num_data"])
        require("temperature", group["temperature"], zero=True)
        require("prior_precision", group["prior_precision"], zero=True)
        self._check(group)

    def _noise(self, p: torch.Tensor) -> torch.Tensor:
        """Draw standard normals of p's shape, dtype and device from this optimiser's generator."""
        device = str(p.device)
        if device not in self._generators:
            # one stream a device, or equal devices would repeat each other's numbers
            digest = hashlib.sha256(f"{self._seed} {device}".encode()).digest()
            generator = torch.Generator(p.device)
            generator.manual_seed(int.from_bytes(digest[:7], "little"))
            self._generators[device] = generator
        generator = self._generators[device]
        return torch.randn(p.shape, generator=generator, dtype=p.dtype, device=p.device)

    def state_dict(self) -> dict[str, Any]:
        """Return torch's state with the generators, from which `load_state_dict` continues bit for bit."""
        return {
            **super().state_dict(),
            "kind": type(self).__name__,
            "seed": self._seed,
            "generators": {d: g.get_state().clone() for d, g in self._generators.items()},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken.

        Raises: UsageError where it is another optimiser's.
        """
        kind = state_dict.get("kind", "one of torch's optimisers")
        if kind != type(self).__name__:
            raise UsageError(
                f"the state_dict must be one of {type(self).__name__}. Got that of {kind}."
            )
        super().load_state_dict(state_dict)
        self._seed = state_dict["seed"]
        self._set_generators(state_dict["generators"])
        ordered = [p for group in self.param_groups for p in group["params"]]
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        for index, p in zip(saved, ordered, strict=True):
            for name, value in state_dict["state"].get(index, {}).items():
                if isinstance(value, torch.Tensor):
                    # torch casts to the parameter's dtype; ours may be wider
                    self.state[p][name] = value.detach().to(p.device, copy=True)

    def _set_generators(self, states: dict[str, torch.Tensor]) -> None:
        devices = {str(p.device) for group in self.param_groups for p in group["params"]}
        self._generators = {}
        for device, state in states.items():
            if device in devices:
                self._generators[device] = torch.Generator(device)
                self._generators[device].set_state(state.cpu())

    def __getstate__(self) -> dict[str, Any]:
        generators = {d: g.get_state() for d, g in self._generators.items()}
        return {**super().__getstate__(), "_seed": self._seed, "_saved": generators}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        saved = state.pop("_saved", None)
        super().__setstate__(state)
        if saved is not None:  # a copy, or from a pickle: not from load_state_dict
            self._watch, self._meter, self._passes = LossWatch(False), None, 0
            self._set_generators(saved)


def require(name: str, value: Any, *, zero: bool = False) -> None:
    """Raise UsageError unless `value` is a positive (or zero) finite number."""
    what = "zero or positive" if zero else "positive"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        try:
            value = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(f"{name} must be a {what} number. Got {value!r}.") from error
    if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise UsageError(f"{name} must be {what} and finite. Got {value}.")


def position(p: torch.Tensor) -> torch.Tensor:
    """Return p itself, or a float32 copy if half precision would overflow or lose the sum."""
    return p.to(torch.float32) if p.dtype in _NARROW else p


def write(p: torch.Tensor, theta: torch.Tensor) -> None:
    """Write back what `position` returned."""
    if theta is not p:
        p.copy_(theta)


def gradient_of_the_mean(
    p: torch.Tensor, theta: torch.Tensor, group: dict[str, Any]
) -> torch.Tensor:
    """Return grad(loss) + (prior_precision / num_data) theta: -1 / num_data of the log posterior's gradient."""
    g = p.grad.to(theta.dtype)  # pyright: ignore[reportOptionalMemberAccess]
    precision = group["prior_precision"] / group["num_data"]
    return g.add(theta, alpha=precision) if precision else g
