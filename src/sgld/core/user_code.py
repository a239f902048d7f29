"""Errors, argument names and traced expressions of user-supplied functions.

An error of a user's function becomes a UsageError that shows the user's own line.

In Python, a call with an unknown argument name raises a bare TypeError. A decorated function raises a
sentence that names the argument and its name in this package:

    @answering({"num_samples": "num_draws"})
    def sample(posterior, *, num_draws=1000): ...

A function is described as JAX traces it: one expression, and every number bound to it. JAX reads a
random number, a counter or the clock inside a function once for every compiled function that uses it.
Mode, chains and verdict then use different functions, and no later measurement shows it. Each function
is therefore traced twice here. Where the expressions differ or call back to Python, both are evaluated.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from ..errors import SGLDError, UsageError, did_you_mean, first_line
from .versions import bound_constants

OURS = Path(__file__).resolve().parents[1]
LIBRARY_FOLDERS = (
    str(OURS),
    str(Path(jax.__file__).parent),
    str(Path(np.__file__).parent),
    "<frozen",
)
INSTALL_FOLDERS = {"site-packages", "dist-packages"}
COMPILED_REMEDY = "JAX compiles it: fix it there, and write it with jax.numpy."
MAX_LINE_CHARS = 100  # characters of a line of code that is shown


@contextlib.contextmanager
def user_errors(name: str, compiled: bool = True, remedy: str = COMPILED_REMEDY) -> Iterator[None]:
    """Convert an error of a user's function to a UsageError that shows the user's line.

    Args:
      name: the function's name in the message.
      compiled: whether JAX compiles the function; `remedy` then ends the message.
      remedy: the advice for a compiled function.
    """
    try:
        yield
    except (SGLDError, MemoryError):
        raise
    except Exception as error:
        raise UsageError(
            f"{name} raised {type(error).__name__} ({first_line(error)}){_their_line(error)}"
            + (f"; {remedy}" if compiled else "; fix it there.")
        ) from error


def _their_line(error: BaseException) -> str:
    """Return where the error was raised in the user's code, with the text of that line.

    The last line outside installed libraries is preferred: a network's library is not where the fix belongs.
    """
    frames = traceback.extract_tb(error.__traceback__)
    others = [frame for frame in frames if not frame.filename.startswith(LIBRARY_FOLDERS)]
    own = [
        frame for frame in others if INSTALL_FOLDERS.isdisjoint(Path(frame.filename).parts)
    ] or others
    if not own:
        return ""
    line = f": {own[-1].line[:MAX_LINE_CHARS]}" if own[-1].line else ""
    return f" at line {own[-1].lineno} of {Path(own[-1].filename).name}{line}"


def shapes_of(x: Any) -> str:
    """Format the shapes of a pytree's arrays.

    Example:
      >>> shapes_of((np.ones((3, 2)), np.ones(3)))
      '(3, 2) and (3,)'
    """
    return " and ".join(str(np.shape(leaf)) for leaf in jax.tree.leaves(x))


# -- foreign -------------------------------------------------------------------------------


_P = ParamSpec("_P")
_T = TypeVar("_T")

# of NumPyro, PyMC, BlackJAX, Stan and scikit-learn
FOREIGN_ARGUMENTS = {
    **dict.fromkeys(("num_samples", "draws", "n_samples", "iter_sampling"), "num_draws"),
    **dict.fromkeys(("num_warmup", "warmup", "tune", "burnin", "iter_warmup"), "burn_in"),
    **dict.fromkeys(("chains", "n_chains"), "num_chains"),
    **dict.fromkeys(("rng_key", "key", "random_seed", "random_state"), "seed"),
    **dict.fromkeys(("lr", "learning_rate"), "step_size"),
    **dict.fromkeys(("progress_bar", "progressbar", "verbose"), "progress"),
    **dict.fromkeys(("thinning", "thin_by"), "thin"),
    **dict.fromkeys(("minibatch_size", "subsample_size"), "batch_size"),
    **dict.fromkeys(("run_dir", "output_dir", "save_dir"), "path"),
    **dict.fromkeys(("epochs", "num_epochs", "num_steps", "n_steps"), "max_steps"),
}


def check_argument_names(
    called: Mapping[str, str], said: Mapping[str, str] | None = None
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Return a decorator that raises UsageError for an argument name the function does not have.

    Args:
      called: the name in this package of another library's argument.
      said: the remark on an argument that has no name here, or a different meaning.

    Example:
      >>> from sgld.core.user_code import check_argument_names
      >>> @check_argument_names({"num_samples": "num_draws"})
      ... def sample(*, num_draws=1000):
      ...     return num_draws
      >>> sample(num_samples=10)
      Traceback (most recent call last):
      sgld.errors.UsageError: sample takes num_draws, not num_samples. Got num_samples=10.
    """

    def decorated(function: Callable[_P, _T]) -> Callable[_P, _T]:
        who, own = function.__name__, list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def checked(*args: _P.args, **given: _P.kwargs) -> _T:
            name = next((name for name in given if name not in own), None)
            if name is None:
                return function(*args, **given)
            here = called.get(name)
            what = f"{who} takes {here}, not {name}" if here in own else f"{who} takes no {name}"
            more = f"; {said[name]}" if said and name in said else ""
            rows: Any = given[name]
            if not more and here not in own and "data" in own and np.ndim(rows) > 0:
                more = f"; pass rows in data=, as the arguments of a NumPyro model: data={{{name!r}: {name}, ...}}"
            near = "" if more or here in own else did_you_mean(name, own)
            raise UsageError(f"{what}. Got {name}={_short(given[name])}{more}.{near}")

        return checked

    return decorated


def _short(value: Any) -> str:
    """Return the repr of a number or a string, and the type name of anything else."""
    plain = isinstance(value, (bool, int, float, str)) or value is None
    return repr(value)[:40] if plain else type(value).__name__


# -- traced --------------------------------------------------------------------------------


_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def check_repeatable(name: str, function: Callable, *arguments: Any, where: str = "init") -> None:
    """Raise UsageError if `function` gives different numbers when it is called again."""
    first, second = (trace(function, *arguments) for _ in range(2))
    if digest(first) == digest(second) and "callback" not in str(first):
        return
    once, again = (_value(one, arguments) for one in (first, second))
    if not np.array_equal(once, again, equal_nan=True):
        differ = ~np.isclose(once, again, rtol=0, atol=0, equal_nan=True)
        raise UsageError(
            f"{name} is not a function of its arguments alone: two calls at {where} return {once[differ][0]:.6g} and "
            f"{again[differ][0]:.6g}; pass values that are random or change (numpy's generator, a counter, the clock) "
            "as data, or draw them once outside the function."
        )


def trace(function: Callable, *arguments: Any) -> ClosedJaxpr:
    """Return the expression of a function now; a new function stops JAX from reusing an old trace."""
    return jax.make_jaxpr(lambda *given: function(*given))(*arguments)


def digest(closed: ClosedJaxpr, *numbers: Any) -> str:
    """Return the SHA-256 of an expression, the numbers bound to it, and `numbers`."""
    found = hashlib.sha256(without_addresses(closed.jaxpr).encode())
    for x in [*numbers, *_bound(closed)]:
        if jnp.issubdtype(jnp.result_type(x), jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        array = np.asarray(x)
        found.update(f"{array.shape} {array.dtype}".encode() + array.tobytes())
    return found.hexdigest()


def without_addresses(thing: Any) -> str:
    """Return the printed form without memory addresses."""
    return _ADDRESS.sub("", str(thing))


def _value(closed: ClosedJaxpr, arguments: tuple[Any, ...]) -> np.ndarray:
    found = jaxpr_as_fun(closed)(*jax.tree.leaves(arguments))
    return np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in found])


def _bound(inside: Any) -> Iterator[Any]:
    """Yield the numbers of an expression and of the separately compiled functions in it."""
    if isinstance(inside, (ClosedJaxpr, Jaxpr)):
        yield from bound_constants(inside)
        for equation in inside.eqns:
            yield from _bound(tuple(equation.params.values()))
    elif isinstance(inside, (tuple, list)):
        for part in inside:
            yield from _bound(part)
