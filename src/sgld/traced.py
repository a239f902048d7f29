"""What a function does, as JAX reads it: one expression, and every number bound to it.

A random number, a counter or the clock inside a function is read when JAX traces it, once for every
compiled function that uses it: mode, chains and verdict then work on different functions, and nothing
that is measured later shows it. So each is traced twice here, and where the expressions differ, or call
back to Python, evaluated twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from .errors import UsageError
from .versions import bound_constants

__all__ = ["check_repeatable", "digest", "trace", "without_addresses"]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def check_repeatable(name: str, function: Callable, *arguments: Any, where: str = "init") -> None:
    """UsageError where `function` gives other numbers when it is asked again."""
    first, second = (trace(function, *arguments) for _ in range(2))
    if digest(first) == digest(second) and "callback" not in str(first):
        return
    once, again = (_value(one, arguments) for one in (first, second))
    if not np.array_equal(once, again, equal_nan=True):
        differ = ~np.isclose(once, again, rtol=0, atol=0, equal_nan=True)
        raise UsageError(
            f"{name} is not a function of its arguments alone: asked twice at {where} it gives "
            f"{once[differ][0]:.6g} and {again[differ][0]:.6g}; give what is random or changes (numpy's "
            "generator, a counter, the clock) as data, or draw it once, outside."
        )


def trace(function: Callable, *arguments: Any) -> ClosedJaxpr:
    """As it is now: of a function of its own, or JAX remembers the first trace."""
    return jax.make_jaxpr(lambda *given: function(*given))(*arguments)


def digest(closed: ClosedJaxpr, *numbers: Any) -> str:
    """SHA-256 of the expression, of every number bound to it or to a function in it, and of `numbers`."""
    found = hashlib.sha256(without_addresses(closed.jaxpr).encode())
    for x in [*numbers, *_bound(closed)]:
        if jnp.issubdtype(jnp.result_type(x), jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        array = np.asarray(x)
        found.update(f"{array.shape} {array.dtype}".encode() + array.tobytes())
    return found.hexdigest()


def without_addresses(thing: Any) -> str:
    """As it prints, without where in memory it lies."""
    return _ADDRESS.sub("", str(thing))


def _value(closed: ClosedJaxpr, arguments: tuple[Any, ...]) -> np.ndarray:
    found = jaxpr_as_fun(closed)(*jax.tree.leaves(arguments))
    return np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in found])


def _bound(inside: Any) -> Iterator[Any]:
    """Numbers of an expression, and of the functions in it that were compiled by themselves."""
    if isinstance(inside, (ClosedJaxpr, Jaxpr)):
        yield from bound_constants(inside)
        for equation in inside.eqns:
            yield from _bound(tuple(equation.params.values()))
    elif isinstance(inside, (tuple, list)):
        for part in inside:
            yield from _bound(part)
