"""Annotations held against what the suite calls: jaxtyping's import hook, with beartype behind it.

A call is checked when it has returned, arguments and result together: an argument of the wrong type
must be answered by the library itself, in its own sentence, or the annotation is wrong.
"""

import functools
import inspect
import operator
import re
import types
import typing
from typing import Self

import beartype
import jax
import jaxtyping
import numpy as np

# JAX takes NumPy's arrays and numbers wherever it takes its own, and NumPy's whole numbers are whole numbers
ARRAY = jax.Array | np.ndarray | np.generic
BEARTYPE = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))  # 1 is a float


def install():
    """To be called before sgld is imported."""
    jaxtyping.install_import_hook("sgld", "checked_types.check")


def check(function):
    """jaxtyping calls a stub before the call, and one after it that takes the result too."""
    if not any(re.fullmatch(r"ret\d+", name) for name in inspect.signature(function).parameters):
        return function  # the former
    for name, hint in list(function.__annotations__.items()):
        if hint in ("Self", Self):  # which beartype checks where it decorates whole classes alone
            del function.__annotations__[name]
        else:
            function.__annotations__[name] = _wider(hint)
    checked = BEARTYPE(function)
    if function.__name__ != "__init__":
        return checked

    @functools.wraps(function)
    def init(self, *args, **kwargs):
        # JAX makes pytrees anew with whatever leaves there are: tracers, shapes, None
        return None if _is_pytree(self) else checked(self, *args, **kwargs)

    return init


def _wider(hint):
    """The hint with NumPy's arrays and numbers where JAX's and Python's are asked for."""
    if hint is int:
        return int | np.integer
    if hint is jax.Array:
        return ARRAY | float
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return functools.reduce(operator.or_, map(_wider, typing.get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return hint.dtype[ARRAY, hint.dim_str] if hint.array_type is jax.Array else hint
    return hint


def _is_pytree(thing):
    return not jax.tree_util.all_leaves([thing])
