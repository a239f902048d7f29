"""The arguments of a model: which are arrays, which are not, and what each is called.

A model is a function of arrays, sizes, flags and whatever else its author needs. Arrays can be
leaves of compiled functions, so that other values compile nothing; everything else is static.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.validation import is_number
from ..errors import UsageError, did_you_mean, need

__all__ = ["Arguments", "Leaf", "name_of", "spread", "unwrapped"]


@dataclass(frozen=True)
class Leaf:
    """One argument or one part of it: its name, what was given, and the array where it is one."""

    name: str
    value: Any
    array: np.ndarray | None

    @property
    def length(self) -> int | None:
        """The leading axis, None for what has none."""
        return self.array.shape[0] if self.array is not None and self.array.ndim else None


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call, flattened."""

    leaves: tuple[Leaf, ...]
    treedef: Any

    @classmethod
    def of(cls, model: Callable, args: tuple, kwargs: Mapping[str, Any]) -> Arguments:
        """The arguments of `model(*args, **kwargs)`. Raises UsageError where it takes others."""
        positional = _names(model, args, kwargs)
        given = (tuple(args), dict(kwargs))
        flat, treedef = jax.tree_util.tree_flatten_with_path(given, is_leaf=_is_leaf)
        leaves = []
        for (where, key, *rest), value in flat:
            name = positional[key.idx] if where.idx == 0 else key.key
            array = _array(value)
            if array is None and hasattr(value, "item") and np.shape(value) == ():
                value = value.item()  # a size
            leaves.append(Leaf(name + jax.tree_util.keystr(tuple(rest)), value, array))
        return cls(tuple(leaves), treedef)

    def call(self, values: list[Any]) -> tuple[tuple, dict[str, Any]]:
        """`(args, kwargs)` with these in place of the leaves."""
        return jax.tree.unflatten(self.treedef, values)

    @property
    def given(self) -> tuple[tuple, dict[str, Any]]:
        """`(args, kwargs)` as they came."""
        return self.call([leaf.value for leaf in self.leaves])

    @property
    def foreign(self) -> bool:
        """Whether some are numbers in what is no array: a Series, a list."""
        own = (np.ndarray, np.generic, jax.Array)
        return any(
            leaf.array is not None and not isinstance(leaf.value, own) for leaf in self.leaves
        )

    @property
    def as_arrays(self) -> tuple[tuple, dict[str, Any]]:
        """`(args, kwargs)`, all numbers in arrays."""
        return self.call([leaf.value if leaf.array is None else leaf.array for leaf in self.leaves])


def unwrapped(
    model: Callable, args: tuple, kwargs: Mapping[str, Any]
) -> tuple[Callable, tuple, dict[str, Any]]:
    """The model and all its arguments, those of `functools.partial` and `handlers.condition` too."""
    if isinstance(model, partial):
        return unwrapped(model.func, (*model.args, *args), {**model.keywords, **kwargs})
    handlers = need("numpyro.handlers", "numpyro")
    if isinstance(model, handlers.condition) and model.fn is not None and model.data:
        return Conditioned(model.fn), (model.data, *args), dict(kwargs)
    return model, args, dict(kwargs)


@dataclass(frozen=True)
class Conditioned:
    """A model under `handlers.condition` as a function of what it is conditioned on, too."""

    model: Callable

    @property
    def __name__(self) -> str:
        return name_of(self.model)

    @property
    def __signature__(self) -> inspect.Signature:
        first = inspect.Parameter("conditions", inspect.Parameter.POSITIONAL_ONLY)
        return inspect.Signature([first, *_parameters(self.model).values()])

    def __call__(self, conditions: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        handlers = need("numpyro.handlers", "numpyro")
        return handlers.condition(self.model, data=conditions)(*args, **kwargs)


def name_of(model: Any) -> str:
    """What a model is called in a sentence."""
    return getattr(model, "__name__", type(model).__name__)


def spread(model: Callable, data: Any) -> tuple[tuple, dict[str, Any]]:
    """`(args, kwargs)` from `data=` of a call: a tuple, a dict by the names of parameters, or one argument."""
    if data is None:
        return (), {}
    if isinstance(data, tuple) and not hasattr(data, "_fields"):
        return data, {}
    takes = _parameters(model)
    if isinstance(data, dict) and data.keys() <= takes.keys():
        return (), data
    if isinstance(data, dict) and data.keys() & takes.keys():
        other = sorted(data.keys() - takes.keys())[0]
        raise UsageError(
            f"the model {name_of(model)!r} takes ({', '.join(takes)}), and data has {other!r} too."
            + did_you_mean(other, takes)
        )
    return (data,), {}


def _parameters(model: Callable) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(model).parameters
    except (TypeError, ValueError):  # a callable that does not tell
        return {}


def _names(model: Callable, args: tuple, kwargs: Mapping[str, Any]) -> list[str]:
    """One name per positional argument."""
    parameters = _parameters(model)
    try:
        inspect.signature(model).bind(*args, **kwargs)
    except TypeError as error:
        takes = ", ".join(str(p) for p in parameters.values()) or "nothing"
        raise UsageError(
            f"the model {name_of(model)!r} takes ({takes}), and these arguments do not fit: {error}."
        ) from error
    except ValueError:
        pass
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    plain = [name for name, p in parameters.items() if p.kind in kinds]
    rest = next(
        (n for n, p in parameters.items() if p.kind is inspect.Parameter.VAR_POSITIONAL), "arg"
    )
    return [plain[i] if i < len(plain) else f"{rest}[{i - len(plain)}]" for i in range(len(args))]


def _is_leaf(value: Any) -> bool:
    """A list of numbers is one array; a tuple may be a shape."""
    return value is None or (isinstance(value, list) and bool(value) and all(map(is_number, value)))


def _array(value: Any) -> np.ndarray | None:
    """The numbers of an argument, None for what holds none (flags, names, keys, functions, sizes)."""
    table = hasattr(value, "columns")  # of several columns, by name: no array to slice
    if table or not (isinstance(value, list) or hasattr(value, "__array__")):
        return None
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return None
    array = np.asarray(value)
    number = np.issubdtype(array.dtype, np.number) or array.dtype == bool
    # a whole number by itself is a size, and must be one when the model is compiled
    size = array.ndim == 0 and not np.issubdtype(array.dtype, np.floating)
    return None if size or not number else array
