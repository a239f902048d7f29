"""Arguments by the names that other libraries give them: answered with what they are called here.

A call with a name that a function does not have is a bare TypeError in Python. Decorated, it is a
sentence that names the argument, and what to write instead:

    @answering({"num_samples": "num_draws"})
    def sample(posterior, *, num_draws=1000): ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .errors import UsageError, did_you_mean

__all__ = ["DRAWING", "answering"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# of NumPyro, PyMC, BlackJAX, Stan and scikit-learn
DRAWING = {
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
      >>> from sgld.foreign import answering
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
