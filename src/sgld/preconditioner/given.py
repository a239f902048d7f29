"""A preconditioner that somebody gave: fitted to the position, and one matrix behind its three functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Layout, check_compiled
from ..core.validation import unmasked
from ..errors import UsageError

__all__ = ["given"]

SAME = 1e-2  # as a share; rounding of a matrix in float32 leaves less


def given(preconditioner: Any, layout: Layout) -> Any:
    """`preconditioner.prepare(layout)`, a fixed one looked at along two random directions g and xi:

        D^{1/2} (D^{1/2})^T g = D g,      xi . (D^{1/2})^T g = g . D^{1/2} xi

    Where they are not the same, the drift is of one matrix and the noise of another, and no step size makes that the
    posterior. UsageError then. Those that adapt have no matrix yet.
    """
    for leaf in jax.tree.leaves(preconditioner):
        unmasked(type(preconditioner).__name__, leaf)
    D = preconditioner.prepare(layout)
    check_compiled(f"the preconditioner {type(preconditioner).__name__}", D)
    if getattr(D, "adapts", False):
        return D
    g, xi = np.random.default_rng(0).standard_normal((2, layout.dimension)).astype(layout.dtype)
    pulled, drift, noise = D.pullback(g), D.drift(g), D.noise(xi)
    norm = jnp.linalg.norm
    apart = float(norm(D.noise(pulled) - drift) / norm(drift))
    turned = float(abs(xi @ pulled - g @ noise) / (norm(g) * norm(noise)))
    if apart > SAME or turned > SAME:
        raise UsageError(
            f"the noise of {type(preconditioner).__name__} is not that of its drift: for a random g, D^(1/2) (D^(1/2))^T g "
            f"and D g differ by {100 * max(apart, turned):.0f}%; noise and pullback must be of a root of D (factors of "
            "Kronecker and Q of LowRank orthonormal); sgld.testing.check_preconditioner says more."
        )
    return D
