"""What draws predict."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ..core.user_code import COMPILED, of_the_user, shapes_of
from ..core.validation import fraction
from ..errors import UsageError
from . import weighted

if TYPE_CHECKING:
    from .draws import Draws

__all__ = ["Prediction", "calling", "predict"]

PyTree = Any


class Prediction(NamedTuple):
    """Weighted mean, sd and interval over draws, each of the shape f returns."""

    mean: PyTree
    sd: PyTree
    lower: PyTree
    upper: PyTree

    def _repr_html_(self) -> str:
        from ..notebook.views import view

        return view(self)


def predict(
    draws: Draws, f: Callable[[PyTree, PyTree], PyTree], x: PyTree, interval: float
) -> Prediction:
    """`Draws.predict`."""
    if not callable(f):
        raise UsageError(
            f"f must be a function of a position and x, as in draws.predict(f, x). Got {type(f).__name__}."
        )
    fraction("interval", interval)
    of_x = lambda position: f(position, x)  # noqa: E731
    with calling(draws, x):
        jax.eval_shape(jax.vmap(jax.vmap(of_x)), draws.position)
    values, restore = draws.flat(of_x)
    tails = [(1 - interval) / 2, (1 + interval) / 2]
    lower, upper = (weighted.quantile(values, draws.weights, q) for q in tails)
    sd = np.sqrt(weighted.var(values, draws.weights))
    parts = (weighted.mean(values, draws.weights), sd, lower, upper)
    return Prediction(*(restore(part) for part in parts))


def calling(draws: Draws, x: PyTree) -> AbstractContextManager[None]:
    """What f raises of a position and x, with what is most likely to be done about it."""
    remedy = COMPILED
    if draws.origin is not None and draws.origin.path is not None and isinstance(draws.position, dict):  # fmt: skip
        remedy = (
            "draws that were loaded hold a module's arrays as a dict: where init was a module, give "
            "sgld.networks.restore(draws, init)."
        )
    elif any(hasattr(leaf, "iloc") for leaf in jax.tree.leaves(x)):
        remedy = "x is a table, and f is of arrays: give its numbers, x.to_numpy()."
    return of_the_user(f"f of x of shape {shapes_of(x)}", remedy=remedy)
