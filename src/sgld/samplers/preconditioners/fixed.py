"""Constant preconditioners D: a number, a diagonal, a dense matrix, or low rank plus diagonal.

`given` checks a user's preconditioner: that it fits the position, and that its three functions use one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...core.devices import sent
from ...core.pytrees import Layout, as_pytree, check_compiled
from ...core.validation import unmasked
from ...errors import UsageError


@as_pytree
@dataclass(frozen=True)
class Scalar:
    """The preconditioner D = value * I.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> D = sgld.Scalar(4.0)
      >>> D.drift(jnp.ones(2)), D.noise(jnp.ones(2))
      (Array([4., 4.], dtype=float32), Array([2., 2.], dtype=float32))
      >>> D.scaled(0.25).pullback(jnp.ones(2))
      Array([1., 1.], dtype=float32)
    """

    value: Any = 1.0

    adapts: ClassVar[bool] = False

    def prepare(self, layout: Layout) -> Scalar:
        """Check the value: UsageError unless it is positive and finite."""
        if np.ndim(self.value) != 0:
            raise UsageError(
                f"Scalar takes one number. Got shape {np.shape(self.value)}; use Diagonal or Dense."
            )
        _positive("Scalar", np.asarray(self.value, float))
        return Scalar(jnp.asarray(self.value, layout.dtype))

    def scaled(self, share: float) -> Scalar:
        """Return share * D."""
        return Scalar(self.value * share)

    def drift(self, g: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return D g."""
        return self.value * g

    def noise(self, xi: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return D^{1/2} xi."""
        return jnp.sqrt(self.value) * xi

    def pullback(self, g: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return (D^{1/2})^T g."""
        return jnp.sqrt(self.value) * g


@as_pytree
@dataclass(frozen=True)
class Diagonal:
    """The matrix D = diag(array); `array` is flat [d], or a pytree of the position's shape.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> D = sgld.Diagonal(jnp.array([1.0, 4.0]))
      >>> D.drift(jnp.ones(2)), D.noise(jnp.ones(2))
      (Array([1., 4.], dtype=float32), Array([1., 2.], dtype=float32))
      >>> D.scaled(4.0).pullback(jnp.ones(2))
      Array([2., 4.], dtype=float32)
    """

    array: Any

    adapts: ClassVar[bool] = False

    def prepare(self, layout: Layout) -> Diagonal:
        """Check and flatten `array`: UsageError for a wrong shape or a nonpositive entry."""
        array = self.array
        flat = jax.tree.map(jnp.shape, array) == (layout.dimension,)
        if not flat and jax.tree.structure(array) == layout.treedef:
            array = layout.ravel(array)
        array = np.asarray(array) if isinstance(array, (list, tuple)) else array
        if jax.tree.map(jnp.shape, array) != (layout.dimension,):
            raise UsageError(
                f"Diagonal has shape {jax.tree.map(jnp.shape, array)}; expected ({layout.dimension},) or "
                f"the shapes of the position's leaves, {dict(zip(layout.names, layout.shapes, strict=True))}."
            )
        _positive("Diagonal", np.asarray(array, float), layout)
        return Diagonal(_of_dtype(array, layout.dtype))

    def scaled(self, share: float) -> Diagonal:
        """Return share * D."""
        return Diagonal(jax.tree.map(lambda leaf: leaf * share, self.array))

    def drift(self, g: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return D g."""
        return self.array * g

    def noise(self, xi: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return D^{1/2} xi."""
        return jnp.sqrt(self.array) * xi

    def pullback(self, g: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return (D^{1/2})^T g."""
        return jnp.sqrt(self.array) * g


@as_pytree
@dataclass(frozen=True)
class Dense:
    """The preconditioner D = matrix, symmetric positive definite [d, d].

    The noise uses a factor P with P P^T = D, by default the Cholesky factor. Any such P gives the same
    stationary distribution.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> D, e = sgld.Dense(jnp.array([[4.0, 2.0], [2.0, 2.0]])), jnp.array([1.0, 0.0])
      >>> D.drift(e), D.noise(e), D.pullback(e)  # D e, P e and P^T e
      (Array([4., 2.], dtype=float32), Array([2., 1.], dtype=float32), Array([2., 0.], dtype=float32))
      >>> D.scaled(4.0).noise(e)
      Array([4., 2.], dtype=float32)
    """

    matrix: Any
    factor: Any = None

    adapts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.factor is None and isinstance(self.matrix, (np.ndarray, jax.Array)):
            object.__setattr__(self, "factor", _cholesky(self.matrix))

    def prepare(self, layout: Layout) -> Dense:
        """Check the matrix: UsageError for a wrong shape."""
        shape, d = np.shape(self.matrix), layout.dimension
        if shape != (d, d):
            raise UsageError(
                f"Dense has shape {shape}; the position has {d} parameters: ({d}, {d})."
            )
        factor = _cholesky(self.matrix) if self.factor is None else self.factor
        return Dense(_of_dtype(self.matrix, layout.dtype), _of_dtype(factor, layout.dtype))

    def scaled(self, share: float) -> Dense:
        """Return share * D."""
        assert self.factor is not None
        return Dense(self.matrix * share, self.factor * np.sqrt(share).astype(self.factor.dtype))

    def drift(self, g: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return D g."""
        return self.matrix @ g

    def noise(self, xi: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return D^{1/2} xi = P xi."""
        return self.factor @ xi

    def pullback(self, g: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return (D^{1/2})^T g = P^T g."""
        return g @ self.factor


@as_pytree
@dataclass(frozen=True)
class LowRank:
    """The preconditioner D = diag(diagonal) + U U^T, with O(d r) operations a step.

    With S = diag(diagonal)^{1/2} and S^{-1} U = Q diag(s) V^T, D^{1/2} = S (I + Q diag(c) Q^T),
    c = (1 + s^2)^{1/2} - 1. `LowRank(diagonal, Q=Q, c=c)`, where the columns of Q are orthonormal and
    c > -1, is the D of that square root; D may then lie below the diagonal.

    Args:
      diagonal: [d], positive.
      U: [d, r]; None where Q and c are given.
      Q, c: [d, r] and [r], in place of U.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> D, e = sgld.LowRank(jnp.ones(2), jnp.ones((2, 1))), jnp.array([1.0, 0.0])
      >>> D.drift(e).round(4)
      Array([2., 1.], dtype=float32)
      >>> jnp.allclose(D.noise(D.pullback(e)), D.drift(e), atol=1e-5)
      Array(True, dtype=bool)
      >>> D.scaled(3.0).drift(e).round(4)
      Array([6., 3.], dtype=float32)
    """

    diagonal: Any
    U: Any = None
    Q: Any = None
    c: Any = None

    adapts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.Q is None and isinstance(self.U, (np.ndarray, jax.Array)):
            if np.ndim(self.U) != 2:
                raise UsageError(
                    f"LowRank's U must be a matrix [d, r]. Got shape {np.shape(self.U)}."
                )
            for part in (self.diagonal, self.U):
                unmasked("LowRank", part)
            _positive("LowRank's diagonal", np.asarray(self.diagonal, float))
            scaled = (
                np.asarray(self.U, np.float64) / np.sqrt(np.asarray(self.diagonal, float))[:, None]
            )
            Q, s, _ = np.linalg.svd(scaled, full_matrices=False)
            dtype = jax.dtypes.canonicalize_dtype(np.asarray(self.U).dtype)
            object.__setattr__(self, "Q", jnp.asarray(Q, dtype))
            object.__setattr__(self, "c", jnp.asarray(np.sqrt(1 + s**2) - 1, dtype))

    def prepare(self, layout: Layout) -> LowRank:
        """Check the arrays: UsageError for a wrong shape."""
        d, shapes = layout.dimension, (np.shape(self.diagonal), np.shape(self.Q))
        if shapes[0] != (d,) or shapes[1][:1] != (d,):
            raise UsageError(
                f"LowRank has shapes {shapes[0]} and {shapes[1]}; the position has {d} parameters: "
                f"({d},) and ({d}, r)."
            )
        arrays = (self.diagonal, self.Q, self.c)
        diagonal, Q, c = (_of_dtype(a, layout.dtype) for a in arrays)
        return LowRank(diagonal, None, Q, c)

    def scaled(self, share: float) -> LowRank:
        """Return share * D."""
        return LowRank(self.diagonal * share, None, self.Q, self.c)

    def drift(self, g: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return D g."""
        scaled = jnp.sqrt(self.diagonal) * g
        scaled += self.Q @ ((2 * self.c + self.c**2) * (scaled @ self.Q))
        return jnp.sqrt(self.diagonal) * scaled

    def noise(self, xi: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return D^{1/2} xi."""
        return jnp.sqrt(self.diagonal) * (xi + self.Q @ (self.c * (xi @ self.Q)))

    def pullback(self, g: Float[Array, " d"]) -> Float[Array, " d"]:
        """Return (D^{1/2})^T g."""
        scaled = jnp.sqrt(self.diagonal) * g
        return scaled + self.Q @ (self.c * (scaled @ self.Q))


def _positive(name: str, values: np.ndarray, layout: Layout | None = None) -> None:
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        index = int(np.argmax(bad)) if values.ndim else 0
        place = f" at {layout.element_names()[index]}" if layout is not None else ""
        raise UsageError(
            f"{name} must be positive and finite. Got {values.reshape(-1)[index]:g}{place}."
        )


def _cholesky(matrix: Any) -> Any:
    if isinstance(matrix, Tracer):
        return jnp.linalg.cholesky(matrix)
    array = np.asarray(unmasked("Dense", matrix), np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise UsageError(f"Dense takes a square matrix. Got shape {array.shape}.")
    if not np.allclose(array, array.T, rtol=1e-4, atol=1e-6 * float(np.abs(array).max())):
        raise UsageError("Dense takes a symmetric matrix; symmetrise it as (D + D.T) / 2.")
    values = np.linalg.eigvalsh((array + array.T) / 2)
    if not values[0] > 0:
        raise UsageError(
            f"Dense must be positive definite. Got smallest eigenvalue {values[0]:.3g} "
            f"(largest {values[-1]:.3g})."
        )
    # an integer matrix has a floating factor; float64 becomes float32 where x64 is off
    dtype = jax.dtypes.canonicalize_dtype(np.result_type(np.asarray(matrix), np.float32))
    return jnp.asarray(np.linalg.cholesky((array + array.T) / 2), dtype)


def _of_dtype(values: Any, dtype: Any) -> Array:
    return sent(values, dtype) if isinstance(values, np.ndarray) else jnp.asarray(values, dtype)


# -- given ---------------------------------------------------------------------------------


MAX_MATRIX_ROUNDING = 1e-2  # relative difference; rounding in float32 stays below it


def given(preconditioner: Any, layout: Layout) -> Any:
    """Return `preconditioner.prepare(layout)`, checking a constant one at random vectors g and xi.

        D^{1/2} (D^{1/2})^T g = D g,      xi . (D^{1/2})^T g = g . D^{1/2} xi

    Where these differ, the drift uses one matrix and the noise another, and no step size gives the
    posterior: a UsageError. Adaptive preconditioners are not checked because they have no matrix yet.
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
    if apart > MAX_MATRIX_ROUNDING or turned > MAX_MATRIX_ROUNDING:
        raise UsageError(
            f"the noise of {type(preconditioner).__name__} does not match its drift: for a random g, D^(1/2) (D^(1/2))^T g "
            f"and D g differ by {100 * max(apart, turned):.0f}%. noise and pullback must use the same root of D, with "
            "orthonormal factors of Kronecker and Q of LowRank. See sgld.testing.check_preconditioner."
        )
    return D
