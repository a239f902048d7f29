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
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..core.pytrees import as_pytree
from ..model.problem import Problem
from ..samplers.baoa import BAOA
from ..samplers.sgld import SGLD
from .layers import Layers
from .predictions import CLASSES, Predictions

__all__ = ["Meter", "Probe", "along", "meter_of"]

SPEED_ROWS = 8  # of the probe rows, whose predictions' speeds are measured
# numbers of their gradients at once, of a chain (of a million weights they are 128 MB of four chains, and most of what a
# draw costs); of more, at every draw those of FEW rows by lot
AT_ONCE, FEW = 2**18, 2

Meter = Literal["momentum", "step"]


def meter_of(sampler: Any) -> Meter | None:
    """How the temperature of a sampler's draws is measured; None where it is not."""
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
        """Predictions of every chain."""
        return jax.vmap(lambda q: self.predictions.at(problem.target, q))(z)

    def kinetic(
        self, problem: Problem, sampler: Any, D: Any, z: Float[Array, "chain d"],
        moved: Float[Array, "chain d"], h: Array, T: Array, draw: Int[Array, ""],
    ) -> Float[Array, "chain place"]:  # fmt: skip
        """Temperatures over T of the layers, of the stiffest directions together, and of predictions.

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
    """|f_i' D^{1/2}|^2 and f_i' D^{1/2} values, f_i a prediction of each of some rows at z.

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
    if count * z.size <= AT_ONCE:
        return jax.vmap(one)((rows, keys))
    # by turns every second draw would tell of some alone
    lot = jax.random.fold_in(jax.random.key(1), draw)
    turn = jax.random.randint(lot, (FEW,), 0, count)
    return jax.lax.map(one, jax.tree.map(lambda leaf: leaf[turn], (rows, keys)))
