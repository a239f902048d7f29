"""The numbers of an optimiser by name, and what other libraries call them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..errors import UsageError, did_you_mean

__all__ = ["by_name", "check_names"]

_P = ParamSpec("_P")
_Self = TypeVar("_Self")


def by_name(
    init: Callable[Concatenate[_Self, _P], None],
) -> Callable[Concatenate[_Self, _P], None]:
    """A constructor of params and numbers by name, whose wrong call is a UsageError."""
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
    """UsageError for a name that is not one of `own`; torch's own names are translated."""
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
    """What a number of torch's optimisers is called here, and how large it is then."""
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
    """ " = 0.1", or nothing where what was given does not compute."""
    try:
        return f" = {float(number()):g}"
    except (TypeError, ValueError, ZeroDivisionError):
        return ""
