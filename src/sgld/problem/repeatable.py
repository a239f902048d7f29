"""Whether log_prior and log_likelihood are functions of their arguments alone.

A random number, a counter or the clock inside them is read when JAX traces the function, once for every
compiled function that uses it: mode, chains and verdict then work on different densities, and nothing that
is measured later shows it. So each is traced twice here, and where the expressions differ, or call back to
Python, evaluated twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from ..errors import UsageError
from ..posterior import Posterior

__all__ = ["check_repeatable"]

_ADDRESS = re.compile(r"0x[0-9a-f]+")


def check_repeatable(posterior: Posterior, position: Any, row: Any) -> None:
    """UsageError where one of the two gives another number when it is asked again; `row` None without data."""
    _check("log_prior", posterior.log_prior, (position,))
    if posterior.log_likelihood is not None:
        _check("log_likelihood", posterior.log_likelihood, (position, row))


def _check(name: str, function: Callable, arguments: tuple) -> None:
    first, second = (_traced(function, arguments) for _ in range(2))
    if _said(first) == _said(second) and "callback" not in str(first):
        return
    flat = jax.tree.leaves(arguments)
    values = [np.asarray(jaxpr_as_fun(one)(*flat)[0]) for one in (first, second)]
    if not np.array_equal(*values, equal_nan=True):
        raise UsageError(
            f"{name} is not a function of its arguments alone: asked twice at init it gives {float(values[0]):.6g} "
            f"and {float(values[1]):.6g}; give what is random or changes (numpy's generator, a counter, the "
            "clock) as data, or draw it once, outside."
        )


def _traced(function: Callable, arguments: tuple) -> Any:
    # of a function of its own, or JAX remembers the first trace
    return jax.make_jaxpr(lambda *given: function(*given))(*arguments)


def _said(closed: Any) -> tuple:
    """The expression and its constants, without the addresses of what it is made of."""
    return _ADDRESS.sub("", str(closed.jaxpr)), tuple(_bytes(c) for c in closed.consts)


def _bytes(constant: Any) -> bytes:
    if jnp.issubdtype(jnp.result_type(constant), jax.dtypes.prng_key):
        constant = jax.random.key_data(constant)
    return np.asarray(constant).tobytes()
