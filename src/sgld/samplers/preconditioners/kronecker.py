"""A preconditioner with a Kronecker product of rotations for every weight matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.pytrees import Layout, as_pytree
from ...errors import UsageError
from .fixed import _of_dtype, _positive


def matrix_of(shape: tuple[int, ...], most: int) -> tuple[int, int] | None:
    """Return a leaf's matrix shape, or None without two axes or with a side over `most`."""
    if len(shape) < 2:
        return None
    sides = shape[0], math.prod(shape[1:])
    return sides if min(sides) >= 1 and max(sides) <= most else None


@as_pytree
@dataclass(frozen=True)
class Kronecker:
    """The matrix D = (U kron V) diag(s) (U kron V)^T for every matrix leaf W [m, n], else diag(s).

    U [m, m] and V [n, n] are orthogonal and s [m, n] is positive: D W = U ((U^T W V) * s) V^T. Its square root
    uses s^{1/2}. `sgld.networks.kronecker` takes U and V from the second moments E G G^T and E G^T G of the
    rows' gradients and s from their squares in that basis. D is then the inverse of an empirical Fisher
    information that includes correlations between units.

    Without arguments the factors are estimated where the library chooses a network's step.

    Args:
      left, right: for every leaf in tree order [m, m] and [n, n]; None for a diagonal one.
      scale: for every leaf s, [m, n], or flat for a diagonal one.
      sizes: the number of elements of every leaf; `prepare` fills it in.

    Source: Martens & Grosse 2015 (the factors); George et al. 2018 (s in their basis).

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> from sgld.core.pytrees import Layout
      >>> turn = jnp.array([[0.0, -1.0], [1.0, 0.0]])
      >>> D = sgld.Kronecker((turn,), (jnp.eye(1),), (jnp.array([[1.0], [4.0]]),))
      >>> D, e = D.prepare(Layout.of(jnp.zeros((2, 1)))), jnp.array([1.0, 0.0])
      >>> D.known, D.drift(e), D.noise(e), D.scaled(4.0).pullback(e)
      (True, Array([4., 0.], dtype=float32), Array([2., 0.], dtype=float32), Array([4., 0.], dtype=float32))
    """

    left: Any = None
    right: Any = None
    scale: Any = None
    sizes: tuple[int, ...] = field(default=(), metadata={"static": True}, repr=False)

    adapts: ClassVar[bool] = False

    @property
    def known(self) -> bool:
        """Whether the factors are given."""
        return self.scale is not None

    def prepare(self, layout: Layout) -> Kronecker:
        """Check against `layout`: UsageError for factors that are missing or do not fit."""
        if not self.known:
            raise UsageError(
                "Kronecker() has no factors. They are estimated only where the library chooses a network's step size; "
                "otherwise use sgld.networks.kronecker(posterior, data, position)."
            )
        count, dtype = len(layout.shapes), layout.dtype
        factors = (self.left, self.right, self.scale)
        if any(not isinstance(part, (tuple, list)) or len(part) != count for part in factors):
            raise UsageError(
                f"Kronecker needs a left, a right and a scale for each of the position's {count} leaves."
            )
        for name, shape, U, V, s in zip(
            layout.names, layout.shapes, self.left, self.right, self.scale, strict=True
        ):
            shapes = [[] if part is None else [*np.shape(part)] for part in (U, V, s)]
            size, got = math.prod(shape), shapes[2]
            square = U is None or (len(got) == 2 and shapes[:2] == [2 * got[:1], 2 * got[-1:]])
            if math.prod(got) != size or (U is None) != (V is None) or not square:
                raise UsageError(
                    f"Kronecker has factors of shapes {shapes[0]}, {shapes[1]} and {got} for leaf {name!r} of "
                    f"shape {shape}; expected [m, m], [n, n] and [m, n] with m n = {size}."
                )
            _positive(f"Kronecker's scale of leaf {name!r}", np.asarray(s, float).reshape(-1))
        held = lambda leaf: None if leaf is None else _of_dtype(leaf, dtype)  # noqa: E731
        parts = [tuple(map(held, part)) for part in (self.left, self.right, self.scale)]
        return Kronecker(*parts, sizes=tuple(math.prod(shape) for shape in layout.shapes))

    def scaled(self, share: float) -> Kronecker:
        """Return `share` * D."""
        return replace(self, scale=tuple(s * share for s in self.scale))

    def drift(self, g: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return D g."""
        return self._times(g, self.scale)

    def noise(self, xi: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return D^{1/2} xi with the symmetric root."""
        return self._times(xi, tuple(jnp.sqrt(s) for s in self.scale))

    def pullback(self, g: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return (D^{1/2})^T g, which is the same for a symmetric root."""
        return self.noise(g)

    def _times(self, v: Float[Array, " d"], scale: tuple[Array, ...]) -> Float[Array, " d"]:
        ends = np.cumsum(self.sizes)[:-1]
        parts = []
        for part, U, V, s in zip(jnp.split(v, ends), self.left, self.right, scale, strict=True):
            if U is None:
                parts.append(part * jnp.ravel(s))
            else:
                turned = (U.T @ part.reshape(s.shape) @ V) * s
                parts.append(jnp.ravel(U @ turned @ V.T))
        return jnp.concatenate(parts)
