"""Functions of the user's own: what they raise, as a sentence that shows their line.

Arguments by the names that other libraries give them: answered with what they are called here.

A call with a name that a function does not have is a bare TypeError in Python. Decorated, it is a
sentence that names the argument, and what to write instead:

    @answering({"num_samples": "num_draws"})
    def sample(posterior, *, num_draws=1000): ...

What a function does, as JAX reads it: one expression, and every number bound to it.

A random number, a counter or the clock inside a function is read when JAX traces it, once for every
compiled function that uses it: mode, chains and verdict then work on different functions, and nothing
that is measured later shows it. So each is traced twice here, and where the expressions differ, or call
back to Python, evaluated twice.
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
COMPILED_REMEDY = "it is compiled by JAX: mend it there, and write it with jax.numpy."
MAX_LINE_CHARS = 100  # letters of a line of code that is shown


@contextlib.contextmanager
def of_the_user(name: str, compiled: bool = True, remedy: str = COMPILED_REMEDY) -> Iterator[None]:
    """What a user's function raises, as a UsageError that shows their own line; `compiled` by JAX, or as it is."""
    try:
        yield
    except (SGLDError, MemoryError):
        raise
    except Exception as error:
        raise UsageError(
            f"{name} raised {type(error).__name__} ({first_line(error)}){_their_line(error)}"
            + (f"; {remedy}" if compiled else "; mend it there.")
        ) from error


def _their_line(error: BaseException) -> str:
    """Where it was raised in code that is neither ours nor JAX's, and what stands there.

    The last line of the user's own, where there is one: a network's library is not where it is mended.
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
    """Shapes of the arrays of a pytree, in words.

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


def answering(
    called: Mapping[str, str], said: Mapping[str, str] | None = None
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """UsageError, with a sentence, for a call by a name that the function does not have.

    Args:
      called: what an argument of another library is called here.
      said: what stands in the place of one that is called nothing here, or is another number.

    Example:
      >>> from sgld.core.user_code import answering
      >>> @answering({"num_samples": "num_draws"})
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
                more = f"; rows go into data=, as a NumPyro model's arguments do: data={{{name!r}: {name}, ...}}"
            near = "" if more or here in own else did_you_mean(name, own)
            raise UsageError(f"{what}. Got {name}={_short(given[name])}{more}.{near}")

        return checked

    return decorated


def _short(value: Any) -> str:
    """A number or a word as it is; of anything else its kind."""
    plain = isinstance(value, (bool, int, float, str)) or value is None
    return repr(value)[:40] if plain else type(value).__name__


# -- traced --------------------------------------------------------------------------------


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
