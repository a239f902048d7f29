"""What is measured at the kept draws of a run that is judged by predictions.

Kinetic temperatures, 1 where the step makes no error, are measured in every layer, in the stiffest
directions and along the gradients of predictions at the draw itself, f_i' D^{1/2} / |f_i' D^{1/2}|, in the
coordinates of D^{1/2}. A noise that heats few of many directions is lost in a mean over all of them; in
what it does to predictions it is not. As estimates:

    BAOA    from the momentum p after the O step, A = E p^2, e = exp(-friction delta):
            (A + (A - T (1 - e^2)) / e^2) / 2, the mean of p^2 before and after it
    SGLD    T + (h / 2) E (D^{1/2}^T g)^2, g the step's gradient: exact for independent batches,
            too large for reshuffled ones

of which each draw gives a value without bias. They are over T.

The stiffest directions of a posterior in a metric D, by block power iteration.

    V <- orthonormal basis of  D^{1/2}^T J D^{1/2} V,     J = - Hessian of the log posterior

on some rows. There a step that is too long, or noise that is too large, shows first.

The layers of a position: its leaves, as stretches of the flat vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...core.pytrees import Layout, as_pytree
from ...model.problem import Problem
from ...samplers.baoa import BAOA
from ...samplers.sgld import SGLD
from .predictions import CLASSES, Predictions

# -- directions ----------------------------------------------------------------------------


WEIGHT_ITERATIONS = 8
MIN_EIGENVALUE = 1e-6  # of the eigenvalues of unit rows' products


def stiffest(
    problem: Problem, D: Any, zs: Float[Array, "chain d"], *, count: int, rows: int
) -> tuple[Float[Array, "chain count d"], Float[Array, " chain"]]:
    """Return orthonormal directions of largest curvature at every z, in the coordinates of D^{1/2}, and the largest eigenvalue."""
    found = [_stiffest(problem, D, z, count=count, rows=rows) for z in zs]
    bases, values = zip(*found, strict=True)
    return jnp.stack(bases), jnp.stack(values)


@partial(jax.jit, static_argnames=("count", "rows"))
def _stiffest(
    problem: Problem, D: Any, z: Float[Array, " d"], *, count: int, rows: int
) -> tuple[Float[Array, "count d"], Float[Array, ""]]:
    _, products = jax.linearize(jax.grad(density_by(problem, rows)), z)
    times = lambda v: -D.pullback(products(D.noise(v)))  # noqa: E731

    def iterate(basis: Array, _: None) -> tuple[Array, Array]:
        moved = jax.vmap(times)(basis)
        return _orthonormal(moved), jnp.linalg.eigvalsh(basis @ moved.T)[-1]

    start = jax.random.normal(jax.random.key(0), (count, z.size), z.dtype)
    basis, values = jax.lax.scan(iterate, _orthonormal(start), length=WEIGHT_ITERATIONS)
    return basis, values[-1]


def density_by(problem: Problem, rows: int) -> Callable[[Float[Array, " d"]], Float[Array, ""]]:
    """Return log p as a function of the position, estimated from the first rows and scaled to all rows."""
    if not problem.has_rows:
        return problem.log_prior
    some = problem.source.take(jnp.arange(min(rows, problem.num_data), dtype=jnp.int32))
    scale = problem.num_data / min(rows, problem.num_data)
    return lambda z: problem.log_prior(z) + scale * problem.log_likelihood(z, some)


def _orthonormal(rows: Float[Array, "count d"]) -> Float[Array, "count d"]:
    """Return a basis of the rows' span, computed from their products: many times as fast as QR of long rows.

    Rows that rounding errors leave of next to nothing are no longer orthogonal, but of length 1.
    """
    unit = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    values, vectors = jnp.linalg.eigh(unit @ unit.T)
    basis = vectors.T @ unit / jnp.sqrt(jnp.maximum(values, MIN_EIGENVALUE))[:, None]
    return basis / jnp.linalg.norm(basis, axis=1, keepdims=True)


# -- layers --------------------------------------------------------------------------------


MIN_LAYER_ENTRIES = 20  # of a layer whose temperature is looked at
BIAS_NAMES = {
    "kernel": "bias",
    "weight": "bias",
    "w": "b",
    "W": "b",
}  # as Flax, Haiku and others name them


@dataclass(frozen=True)
class Layers:
    """Names and sizes of the leaves, in the order of the flat vector; hashable.

    Example:
      >>> import jax.numpy as jnp
      >>> from sgld.core.pytrees import Layout
      >>> layers = Layers.of(Layout.of({"a": jnp.zeros((2, 2)), "b": jnp.zeros(1)}))
      >>> layers.means(jnp.array([1.0, 1.0, 3.0, 3.0, 7.0]))
      Array([2., 7.], dtype=float32)
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, layout: Layout) -> Layers:
        """Return the layers of a layout, without leaves that have no entries."""
        pairs = zip(layout.names, map(math.prod, layout.shapes), strict=True)
        names, sizes = zip(*((name, size) for name, size in pairs if size), strict=True)
        return cls(names, sizes)

    @property
    def large(self) -> tuple[bool, ...]:
        """Return which have enough entries for a temperature; only the largest ones if none has."""
        least = min(MIN_LAYER_ENTRIES, max(self.sizes))
        return tuple(size >= least for size in self.sizes)

    @property
    def starts(self) -> tuple[int, ...]:
        """Return where each begins."""
        return tuple(int(end) - size for end, size in zip(np.cumsum(self.sizes), self.sizes, strict=True))  # fmt: skip

    def means(self, values: Float[Array, "*batch d"]) -> Float[Array, "*batch layer"]:
        """Return the mean over the entries of every layer."""
        parts = [
            jnp.mean(values[..., start : start + size], axis=-1)
            for start, size in zip(self.starts, self.sizes, strict=True)
        ]
        return jnp.stack(parts, axis=-1)


def is_of_layers(layout: Layout) -> bool:
    """Return whether a position is that of a network: at least two matrices with a bias, by their names.

    Example:
      >>> import jax.numpy as jnp
      >>> dense = {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}
      >>> is_of_layers(Layout.of({"Dense_0": dense, "Dense_1": dense})), is_of_layers(Layout.of(dense))
      (True, False)
    """
    parts = [name.rpartition(".") for name in layout.names]
    there = {(place, name) for place, _, name in parts}
    matrices = [part for part, shape in zip(parts, layout.shapes, strict=True) if len(shape) > 1]
    return sum((place, BIAS_NAMES.get(name)) in there for place, _, name in matrices) > 1


# -- probe ---------------------------------------------------------------------------------


SPEED_ROWS = 8  # of the probe rows, whose predictions' speeds are measured
# numbers of their gradients at once, of a chain (of a million weights they are 128 MB of four chains, and most of what a
# draw costs); of more, at every draw those of LOT_ROWS rows by lot
SPEED_NUMBERS, LOT_ROWS = 2**18, 2

Meter = Literal["momentum", "step"]


def meter_of(sampler: Any) -> Meter | None:
    """Return how the temperature of a sampler's draws is measured, or None if it is not."""
    if isinstance(sampler, BAOA):
        return "momentum"
    return "step" if isinstance(sampler, SGLD) else None


@as_pytree
@dataclass(frozen=True)
class Probe:
    """What to measure, where, and with what.

    Attributes:
      predictions: at probe rows.
      directions: [chain, k, d], orthonormal, in the coordinates of D^{1/2}.
      layers: of the flat vector.
      meter: of temperatures.
    """

    predictions: Predictions
    directions: Float[Array, "chain k d"]
    layers: Layers = field(metadata={"static": True})
    meter: Meter | None = field(metadata={"static": True})

    def predicted(self, problem: Problem, z: Float[Array, "chain d"]) -> Float[Array, "chain m k"]:
        """Predict for every chain."""
        return jax.vmap(lambda q: self.predictions.at(problem.target, q))(z)

    def kinetic(
        self, problem: Problem, sampler: Any, D: Any, z: Float[Array, "chain d"],
        moved: Float[Array, "chain d"], h: Array, T: Array, draw: Int[Array, ""],
    ) -> Float[Array, "chain place"]:  # fmt: skip
        """Measure temperatures over T of the layers, of the stiffest directions together, and of predictions.

        `moved` is the momentum at the draw z of this number, or the gradient of its step, by the meter.
        """

        def one(z: Array, values: Array, directions: Array) -> Array:
            if self.meter == "step":
                values = D.pullback(values)
            each = self.layers.means(values**2)
            stiff = jnp.mean((directions @ values) ** 2)
            lengths, moves = along(self.predictions, problem, D, z, values, draw)
            felt = lengths > 0  # a row whose units are dead says nothing
            speeds = jnp.where(felt, moves**2 / jnp.where(felt, lengths, 1), 0)
            count = jnp.sum(felt, dtype=values.dtype)
            speed = jnp.where(count > 0, jnp.sum(speeds) / jnp.maximum(count, 1), stiff)
            return jnp.concatenate([each, stiff[None], speed[None]])

        squares = jax.vmap(one)(z, moved, self.directions)
        if self.meter == "step":
            return 1 + 0.5 * h * squares / T
        decay = jnp.exp(-2 * sampler.friction * jnp.sqrt(h))
        return (squares + (squares - T * (1 - decay)) / decay) / 2 / T


def along(
    predictions: Predictions, problem: Problem, D: Any, z: Float[Array, " d"],
    values: Float[Array, " d"], draw: Int[Array, ""],
) -> tuple[Float[Array, " row"], Float[Array, " row"]]:  # fmt: skip
    """Compute |f_i' D^{1/2}|^2 and f_i' D^{1/2} values, with f_i a prediction of each of some rows at z.

    Of several numbers f_i is their sum with random weights. `draw` says whose turn it is, where not all have theirs.
    """
    rows = jax.tree.map(lambda leaf: leaf[:SPEED_ROWS], predictions.rows)

    def predicted(z: Array, row: Any, key: Array) -> Array:
        alone = replace(predictions, rows=jax.tree.map(lambda leaf: leaf[None], row))
        found = alone.at(problem.target, z)[0]
        weights = jax.random.normal(key, found.shape, found.dtype)
        if predictions.kind == CLASSES:
            weights = weights - jnp.mean(weights)
        return jnp.dot(weights, found)

    def one(row_and_key: tuple[Any, Array]) -> tuple[Array, Array]:
        slope = D.pullback(jax.grad(predicted)(z, *row_and_key))
        return jnp.sum(slope**2), slope @ values

    count = jax.tree.leaves(rows)[0].shape[0]
    keys = jax.random.split(jax.random.key(0), count)
    if count * z.size <= SPEED_NUMBERS:
        return jax.vmap(one)((rows, keys))
    # by turns every second draw would tell of some alone
    lot = jax.random.fold_in(jax.random.key(1), draw)
    turn = jax.random.randint(lot, (LOT_ROWS,), 0, count)
    return jax.lax.map(one, jax.tree.map(lambda leaf: leaf[turn], (rows, keys)))
