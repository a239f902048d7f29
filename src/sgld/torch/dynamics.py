"""BAOA in a diagonal metric, for all chains at once; the order of the rows; kinetic temperatures.

With delta = sqrt(h), e = exp(-gamma delta) and the momentum p in the coordinates of D^{1/2}:

    B   p     <- p + delta D^{1/2} grad(theta)
    A   theta <- theta + (delta / 2) D^{1/2} p
    O   p     <- e p + sqrt(1 - e^2) xi
    A   theta <- theta + (delta / 2) D^{1/2} p

the step of `sgld.BAOA` (Leimkuhler & Matthews 2013). Its momentum shows the heat of noisy gradients
and of steps that are too long: E p^2 before and after O is 1 where neither does any harm.

Gradients of predictions at a draw, along which the temperature that tells of predictions is measured.

As diagnostics/function_space/temperature.py has it; a network of many weights is asked for fewer rows at a draw, others at every one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from ..data.source import generator
from ..diagnostics.function_space.temperature import LOT_ROWS, SPEED_NUMBERS, SPEED_ROWS, Layers
from .rows import Batch, Inputs, Rows, mapped, num_rows
from .target import Target

FRICTION = 1.0  # gamma


class State(NamedTuple):
    """Positions and momenta, [chain, d]; the momenta in the coordinates of D^{1/2}."""

    z: torch.Tensor
    p: torch.Tensor


def baoa(
    state: State, g: torch.Tensor, h: float, root: torch.Tensor, xi: torch.Tensor
) -> State:  # fmt: skip
    """Take one step by the equations above; g is the gradient at `state.z`, xi standard normals, `root` D^{1/2}."""
    delta = math.sqrt(h)
    decay = -FRICTION * delta
    kicked = torch.addcmul(state.p, root, g, value=delta)
    p = math.exp(decay) * kicked + math.sqrt(-math.expm1(2 * decay)) * xi
    return State(torch.addcmul(state.z, root, kicked + p, value=0.5 * delta), p)


def kinetic(
    p: torch.Tensor, directions: torch.Tensor, slopes: torch.Tensor, layers: Layers, h: float
) -> torch.Tensor:  # fmt: skip
    """Measure temperatures of every layer, of the stiffest directions together, and of predictions: [chain, layer + 2].

    From p after the O step, A = p^2: the mean of it before and after, (A + (A - 1 + e^2) / e^2) / 2. Of a prediction
    of slope f' in the coordinates of D^{1/2}, `slopes` [row, chain, d], A is (f' p)^2 / |f'|^2.
    """
    squares = [part.square().mean(1) for part in p.split(list(layers.sizes), 1)]
    stiff = torch.einsum("ckd,cd->ck", directions, p).square().mean(1)
    lengths = slopes.square().sum(2)
    speeds = torch.einsum("rcd,cd->rc", slopes, p).square() / lengths
    speeds = speeds.nanmean(0)  # 0 / 0 of a row whose units are dead: it says nothing
    speeds = torch.where(speeds.isfinite(), speeds, stiff)
    A = torch.stack([*squares, stiff, speeds], 1)
    decay = math.exp(-2 * FRICTION * math.sqrt(h))
    return (A + (A - (1 - decay)) / decay) / 2


@dataclass
class Order:
    """Batches of rows: of every pass of every chain in a fresh order, drawn again from its number.

    N rows make K = ceil(N / n) batches of floor(N / K) rows; the few that are left over are others in
    every pass. Without a batch size every batch is all rows, which chains share.
    """

    rows: Rows
    chains: int
    batch_size: int | None
    seed: int
    stream: int
    _pass: int = field(default=-1, init=False)
    _permuted: torch.Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        num_data = self.rows.num_data
        self.num_batches = 1 if self.batch_size is None else -(-num_data // self.batch_size)
        self.size = num_data // self.num_batches
        self._all = self.rows.first(num_data) if self.batch_size is None else None

    @property
    def scale(self) -> float:
        """The factor that makes the sum over a batch an estimate for all rows."""
        return self.rows.num_data / self.size

    def at(self, step: int) -> Batch:
        """Return the batches of a step."""
        if self._all is not None:
            return self._all
        number, place = divmod(step, self.num_batches)
        if number != self._pass or self._permuted is None:
            drawn = [
                generator(self.seed, self.stream, number, chain).permutation(self.rows.num_data)
                for chain in range(self.chains)
            ]
            self._pass = number
            self._permuted = torch.from_numpy(np.array(drawn)).to(self.rows.order.device)
        first = place * self.size
        return self.rows.at(self._permuted[:, first : first + self.size])


@dataclass
class Motion:
    """Chains in motion: the target, the metric, the step, the rows' order and the noise."""

    target: Target
    order: Order
    root: torch.Tensor
    h: float
    noise: torch.Generator

    def moved(self, state: State, first: int, count: int) -> State:
        """Return the state after steps [first, first + count)."""
        for step in range(first, first + count):
            g = self.target.gradient(state.z, self.order.at(step), self.order.scale)
            xi = torch.randn(
                state.z.shape, generator=self.noise, dtype=state.z.dtype, device=state.z.device
            )
            state = baoa(state, g, self.h, self.root, xi)
        return state


# -- slopes --------------------------------------------------------------------------------


LOT_STREAM = 19  # of the host's generator: weights of a prediction's numbers, and the lot


def slopes_of(
    target: Target, z: torch.Tensor, probe: Inputs, width: int, draw: int
) -> torch.Tensor:
    """Return slopes of predictions [row, chain, d] at every chain's z; a row's `width` numbers get random weights.

    Args:
      target: the log density and its slopes.
      z: positions of the chains.
      probe: inputs of the probe rows.
      width: number of outputs of a row.
      draw: number of the draw, which selects the probe rows.
    """
    count = min(SPEED_ROWS, num_rows(probe))
    together = target.together and count * z.numel() <= SPEED_NUMBERS
    # by turns every second draw would tell of some alone
    turn = (
        np.arange(count)
        if together
        else generator(0, LOT_STREAM, 1 + draw).integers(0, count, LOT_ROWS)
    )
    weights = generator(0, LOT_STREAM, 0).normal(size=(count, width))
    if target.likelihood.classes:
        weights -= weights.mean(1, keepdims=True)
    parts = [turn] if together else np.split(turn, len(turn))
    return torch.cat([
        target.slopes(z, mapped(lambda leaf, part=part: leaf[part], probe), torch.from_numpy(weights[part]).to(z))
        for part in parts
    ])  # fmt: skip
