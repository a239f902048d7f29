"""Stored draws of a network back in the form of its module."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import leaf_names
from ..errors import UsageError
from ..model.modules import Network, Part, seal
from .draws import Draws

__all__ = ["HELD", "digest_of_held", "restore"]

HELD = "held"  # in the info of stored draws: the digest of what stayed as it was


def digest_of_held(position: Any) -> str | None:
    """SHA-256, in single precision, of the arrays that a part of a network leaves as they are; None of anything else."""
    if not isinstance(position, Network) or not isinstance(position._build, Part):
        return None
    found = hashlib.sha256()
    values = (held.value for held in position._build.held if held is not None)
    for value in values:
        if isinstance(value, (np.ndarray, jax.Array)) and jnp.issubdtype(value.dtype, jnp.inexact):
            complex_too = jnp.issubdtype(value.dtype, jnp.complexfloating)
            array = np.asarray(value, np.complex64 if complex_too else np.float32)
            found.update(str(array.shape).encode() + array.tobytes())
    return found.hexdigest()


def restore(draws: Draws, like: Any) -> Draws:
    """The same draws with their position in the form of `like`.

    A run directory holds arrays and JSON, never code: `sgld.load` gives a module's arrays as a
    dict by name. This puts them into the module again.

    Args:
      draws: of `sgld.load`.
      like: what was given as `init`: a module, or any pytree of the same parameters.

    Raises: UsageError where names or shapes are not those of `like`, or the draws are of a part of a network
    whose other parameters had other values.

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
        given = "what was given to sgld.sample as init"
        if HELD in draws.info:
            given = "sgld.networks.part(init, where) of the init and the where of the run"
        raise UsageError(f"{where} the parameter {odd[0]!r}; give {given}.")
    for name, leaf in zip(names, jax.tree.leaves(like), strict=True):
        if stored[name].shape[2:] != np.shape(leaf):
            raise UsageError(
                f"draws of {name!r} have shape {stored[name].shape[2:]}, and in like it is "
                f"{np.shape(leaf)}; give what was given to sgld.sample as init."
            )
    before, now = draws.info.get(HELD), digest_of_held(like)
    if None not in (before, now) and before != now:
        raise UsageError(
            "the parameters that were not sampled have other values in like than they had in the run, so that it would "
            "predict something else; give the part of the network that was given to sgld.sample."
        )
    return replace(draws, position=treedef.unflatten([stored[name] for name in names]))
