"""The PyTorch engine of a network's tuning: optimisers, metric, curvature, gradient noise, cost of a step.

`TorchBackend` implements the interface of inference/tuning/network_backend.py, which chooses metric and step. Every
chain begins where an Adam of its own ended. The cost of a step is counted in operations, not measured.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from ..core.work import Work
from ..data.source import generator
from ..diagnostics.function_space.temperature import MIN_EIGENVALUE, WEIGHT_ITERATIONS
from ..inference.tuning import network_rules as rule
from ..inference.tuning.network_backend import information
from .dynamics import FRICTION, Motion, Order, State
from .target import Target

ADAM_DECAYS = 0.9, 0.999  # of Adam's moments
# seconds of a step: of its own, of a layer of the module, of a multiplication and addition
TORCH_STEP_SECONDS = 4e-4
LAYER_SECONDS = 6e-5
DEVICE_PRODUCT_SECONDS = {"cpu": 1e-10, "other": 2e-13}
# streams of the host's generator
TORCH_STARTS_STREAM, ADAM_STREAM, STAGE_STREAM, NOISE_STREAM = 11, 12, 13, 14


@dataclass(frozen=True)
class Asked:
    """The user's settings of a run; None leaves the choice to the library."""

    chains: int
    seed: int
    tolerance: float
    max_seconds: float | None
    step_size: float | None
    batch_size: int | None
    num_draws: int | None
    burn_in: int | None
    thin: int | None


@dataclass
class TorchBackend:
    """Chains of a module as a `NetworkBackend`; D stands for D^{1/2}, [d].

    Attributes:
      batch_size: rows of a step; None for all rows.
      probe: the rows that are predicted; None if nothing is predicted.
    """

    problem: Target
    ask: Asked
    batch_size: int | None
    probe: Any = None
    temperature = 1.0
    friction = FRICTION

    @cached_property
    def noise(self) -> torch.Generator:
        """The generator of the stages' noise."""
        return generator_of(self.ask.seed, STAGE_STREAM, self.problem.weights.device)

    def log_density(self, z: torch.Tensor, rows: int | None) -> np.ndarray:
        """Return the log posterior density of every chain; NaN beyond a million scales of the prior."""
        found = self.problem.log_density(z, rows).masked_fill(self.problem.lost(z), math.nan)
        return found.double().cpu().numpy()

    def information(self, z: torch.Tensor, first: int, rows: int) -> np.ndarray:
        """Return the diagonal of the Fisher information plus the prior's precision at one position."""
        target = self.problem
        numbers = (first + torch.arange(rows, device=z.device)) % target.num_data
        squares = target.squares(z, numbers) * (target.num_data / rows)
        return (squares + target.prior.narrowness(z)).cpu().numpy()

    def measured(self, z: torch.Tensor) -> tuple[torch.Tensor, float, float]:
        """Return D^{1/2}, max_l V_l and lambda_1."""
        target, root, V = self.problem, torch.from_numpy(information(self, z)).to(z).rsqrt(), [0.0]
        _, values = stiffest(target, root, z, min(2, target.dimension))
        if self.batch_size is not None:
            order, layers, count = (
                self._order(z, NOISE_STREAM),
                target.weights.layers,
                rule.NOISE_BATCHES,
            )
            total, squares = torch.zeros_like(z), torch.zeros_like(z)
            for step in range(count):
                g = root * target.gradient(z, order.at(step), order.scale)
                total, squares = total + g, squares + g**2
            variance = (squares - total**2 / count) / (count - 1)
            parts = zip(variance.split(list(layers.sizes), 1), layers.large, strict=True)
            V = [float(part.mean()) for part, large in parts if large]
        return root, max(V), float(values.max())

    def predicted(self, z: torch.Tensor) -> np.ndarray:
        """Return predictions of every chain at the probe rows."""
        return self.problem.predicted(z, self.probe).cpu().numpy()

    def moved(
        self, z: torch.Tensor, D: torch.Tensor, h: float, stretch: tuple[int, int, int]
    ) -> torch.Tensor:
        """Return positions after a stage; `stretch` holds its number, its length and the number of stages."""
        number, steps, stages = stretch
        motion = Motion(self.problem, self._order(z, STAGE_STREAM), D, h, self.noise)
        begin, state = number * steps, State(z, torch.zeros_like(z))
        with Work("step size") as work:
            for first, count in work.pieces(begin, begin + steps, most=64, of=stages * steps):
                state = motion.moved(state, first, count)
        return state.z

    def restored(self, lost: np.ndarray, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """Return `new` with the positions of lost chains replaced by `old`."""
        return torch.where(torch.from_numpy(lost).to(old.device)[:, None], old, new)

    def positions(self, z: torch.Tensor) -> np.ndarray:
        """Return z in float64 on the host."""
        return z.double().cpu().numpy()

    def step_seconds(self, chains: int) -> float:
        """Return the predicted seconds of a step of all chains."""
        return price(self.problem, chains, self.batch_size)

    def _order(self, z: torch.Tensor, stream: int) -> Order:
        return Order(self.problem.rows, len(z), self.batch_size, self.ask.seed, stream)


def optimised_chains(
    target: Target, asked: Asked, until: float, probe: Any = None, elsewhere: bool = False
) -> tuple[TorchBackend, torch.Tensor]:
    """Return the backend of chains and where their optimisers end, by the time `until`."""
    size = min(asked.batch_size or rule.BATCH_SIZE, target.num_data)
    z = _optimised(target, asked, size, until, starts(target, asked, elsewhere))
    whole = asked.batch_size is None and affordable(target, asked.chains)
    batch_size = None if whole or size == target.num_data else size
    return TorchBackend(target, asked, batch_size, probe), z


def price(target: Target, chains: int, batch_size: int | None) -> float:
    """Predict the seconds of a step of all chains."""
    likelihood, few = target.likelihood, target.rows.first(64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        likelihood.outputs({}, few.inputs)
    layers = sum(not list(module.children()) for module in likelihood.model.modules())
    rows = chains * (batch_size or target.num_data) / len(few.target)
    kind = "cpu" if target.weights.device.type == "cpu" else "other"
    # a backward pass is two forward ones; a multiplication and an addition are counted as two
    products = 3 * rows * counter.get_total_flops() / 2
    calls = 1 if target.together else chains
    return (
        TORCH_STEP_SECONDS
        + calls * layers * LAYER_SECONDS
        + products * DEVICE_PRODUCT_SECONDS[kind]
    )


def affordable(target: Target, chains: int) -> bool:
    """Return whether chains of sufficient length can use all rows at every step."""
    return rule.TORCH_FULL_STEPS * price(target, chains, None) <= rule.MAX_FULL_SECONDS


def generator_of(seed: int, stream: int, device: torch.device) -> torch.Generator:
    """Return a generator of torch on the device, seeded by the host's generator."""
    found = torch.Generator(device)
    found.manual_seed(int(generator(seed, stream, 0).integers(2**53)))
    return found


def starts(target: Target, asked: Asked, elsewhere: bool) -> torch.Tensor:
    """Return the target's start plus normal noise with the sd of each layer's weights.

    With `elsewhere`, one of every three starts is drawn from the prior at its scales, and one is reflected at 0.
    """
    start = target.start
    spread = torch.cat([
        part.std(correction=0).expand(len(part)) for part in start.split(list(target.weights.layers.sizes))
    ])  # fmt: skip
    # a weight alone, or a layer that begins at 0, would be the same in all
    width = target.prior.precision(start[None])[0].clamp(min=1e-6).rsqrt()
    spread = torch.where(spread > 0, spread, width.clamp(max=1.0))
    xi = generator(asked.seed, TORCH_STARTS_STREAM, 0).standard_normal((asked.chains, len(start)))
    xi[0] = 0
    xi = torch.from_numpy(xi).to(start)
    z = start + spread * xi
    if elsewhere and len(start) <= rule.MAX_PRIOR_START_DIM:
        z[1::3] = target.prior.scale * xi[1::3]
        z[2::3] = -z[2::3]
    return z


def _optimised(
    target: Target, asked: Asked, size: int, until: float, z: torch.Tensor
) -> torch.Tensor:
    """Return where Adam ends for every chain, with estimated prior scales fixed at their nominal values."""
    held = copy.copy(target)
    held.prior = target.prior.as_normal()
    order = Order(target.rows, asked.chains, size, asked.seed, ADAM_STREAM)
    seconds = rule.seconds_of(
        rule.MAX_OPTIMISER_SECONDS, rule.MAX_OPTIMISER_SHARE, asked.max_seconds
    )
    wanted = min(
        seconds / price(target, asked.chains, size), rule.MAX_OPTIMISER_PASSES * order.num_batches
    )
    steps = int(np.clip(wanted, rule.MIN_TRAINING_STEPS, rule.MAX_TRAINING_STEPS))
    # written out: torch.optim takes seconds to import what it compiles with
    mean, square = torch.zeros_like(z), torch.zeros_like(z)
    with Work("optimising", until=until) as work:
        for first, count in work.pieces(0, steps):
            for step in range(first, first + count):
                rate = 0.5 * rule.LEARNING_RATE * (1 + math.cos(math.pi * step / steps))
                g = held.gradient(z, order.at(step), order.scale)
                mean.lerp_(g, 1 - ADAM_DECAYS[0])
                square.lerp_(g**2, 1 - ADAM_DECAYS[1])
                first_moment, second = (
                    moment / (1 - decay ** (step + 1))
                    for moment, decay in zip((mean, square), ADAM_DECAYS, strict=True)
                )
                z = z + rate * first_moment / (second.sqrt() + 1e-8)
            if work.late:
                break
    return z


def stiffest(
    target: Target, root: torch.Tensor, z: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the directions of largest curvature at every z, [chain, count, d], and the largest eigenvalue.

    The directions are orthonormal in the coordinates of D^{1/2}. The method is block power iteration, as in
    diagnostics/function_space/temperature.py.
    """
    some = target.rows.first(rule.curvature_rows(target.num_data, target.dimension))
    times = target.curvature(z, some, target.num_data / len(some.target), root)
    begin = torch.from_numpy(
        generator(0, TORCH_STARTS_STREAM, 1).standard_normal((count, target.dimension))
    )
    basis = _orthonormal(begin.to(z).expand(len(z), -1, -1))
    values = torch.zeros(len(z))
    for _ in range(WEIGHT_ITERATIONS):
        moved = torch.stack([times(v) for v in basis.unbind(1)], 1)
        products = basis @ moved.mT
        values = torch.linalg.eigvalsh((products + products.mT) / 2)[:, -1]
        basis = _orthonormal(moved)
    return basis, values


def _orthonormal(rows: Any) -> torch.Tensor:
    """Return an orthonormal basis of the span of rows [chain, count, d], computed from their products."""
    unit = rows / rows.norm(dim=2, keepdim=True).clamp(min=1e-30)
    values, vectors = torch.linalg.eigh(unit @ unit.mT)
    basis = (vectors.mT @ unit) / values.clamp(min=MIN_EIGENVALUE).sqrt()[:, :, None]
    return basis / basis.norm(dim=2, keepdim=True).clamp(min=1e-30)
