"""Stored draws of a network back in the form of its module."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ..errors import UsageError
from ..layout import leaf_names
from ..module import seal
from .draws import Draws

__all__ = ["restore"]


def restore(draws: Draws, like: Any) -> Draws:
    """The same draws with their position in the form of `like`.

    A run directory holds arrays and JSON, never code: `sgld.load` gives a module's arrays as a
    dict by name. This puts them into the module again.

    Args:
      draws: of `sgld.load`.
      like: what was given as `init`: a module, or any pytree of the same parameters.

    Raises: UsageError where names or shapes are not those of `like`.

    Example:
      >>> import numpy as np, sgld
      >>> loaded = sgld.Draws.of({"a": np.zeros((4, 10, 3))})
      >>> from collections import namedtuple
      >>> restore(loaded, namedtuple("Weights", "a")(np.zeros(3))).position.a.shape
      (4, 10, 3)
    """
    if not isinstance(draws, Draws):
        raise UsageError(f"draws must be Draws. Got {type(draws).__name__}.")
    like = seal(like)
    names, treedef = leaf_names(like), jax.tree.structure(like)
    stored = dict(zip(leaf_names(draws.position), jax.tree.leaves(draws.position), strict=True))
    odd = [name for name in (*names, *stored) if (name in names) != (name in stored)]
    if odd:
        where = "the draws do not hold" if odd[0] in names else "like does not hold"
        raise UsageError(
            f"{where} the parameter {odd[0]!r}; give what was given to sgld.sample as init."
        )
    for name, leaf in zip(names, jax.tree.leaves(like), strict=True):
        if stored[name].shape[2:] != np.shape(leaf):
            raise UsageError(
                f"draws of {name!r} have shape {stored[name].shape[2:]}, and in like it is "
                f"{np.shape(leaf)}; give what was given to sgld.sample as init."
            )
    return replace(draws, position=treedef.unflatten([stored[name] for name in names]))
