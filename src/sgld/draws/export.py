"""Export to ArviZ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..layout import leaf_names

if TYPE_CHECKING:
    from xarray import DataTree

    from .draws import Draws

__all__ = ["to_arviz"]


def to_arviz(draws: Draws) -> DataTree:
    """A DataTree of the healthy chains: `posterior` and `sample_stats`.

    `sample_stats` holds `log_weight`, `step_size` and `temperature` [chain, draw]. ArviZ's
    own statistics ignore weights: use the Draws' where step sizes vary.
    """
    from arviz_base import from_dict

    keep = draws.healthy
    names, leaves = leaf_names(draws.position), jax.tree.leaves(draws.position)
    posterior, coords, dims, start = {}, {}, {}, 0
    for name, leaf in zip(names, leaves, strict=True):
        posterior[name] = np.asarray(leaf)[keep]
        size = int(np.prod(leaf.shape[2:]))
        if leaf.ndim == 3:
            labels = [_inside(name, text) for text in draws.names[start : start + size]]
            dims[name], coords[f"{name}_dim"] = [f"{name}_dim"], labels
        start += size
    stats = {
        "log_weight": draws.log_weight[keep],
        "step_size": draws.step_size[keep],
        "temperature": draws.temperature[keep],
    }
    return from_dict({"posterior": posterior, "sample_stats": stats}, coords=coords, dims=dims)


def _inside(leaf: str, name: str) -> Any:
    """`beta[3]` of leaf `beta` is labelled 3; a name of its own stays."""
    if name.startswith(leaf + "[") and name.endswith("]"):
        return int(name[len(leaf) + 1 : -1])
    return name
