"""Metric and step of a module's chains, from where optimisers end: the path of tune/from_network.

Every chain begins where an Adam of its own ended and takes four short stages, before and after which

    D      1 / (diagonal of the empirical Fisher information + prior precision), of all chains
    V_l    variance of a batch's gradient in D per parameter of layer l, from 20 batches
    delta  min(2 gamma tau / max_l V_l, sqrt(f / lambda_1)),    h = delta^2

are measured where the chains are (of a prior with heavy tails, no further out than its scales); then they
are frozen. tau is twice the tolerance, lambda_1 the largest curvature in D. What a step costs is counted in
operations: the clock chooses nothing.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from ..core.work import Work
from ..data.source import generator
from ..diagnostics.function_space.temperature import MIN_EIGENVALUE, WEIGHT_ITERATIONS
from ..inference.tuning import network_rules as rule
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
    """What was asked of a run; None is left to the library."""

    chains: int
    seed: int
    tolerance: float
    max_seconds: float | None
    step_size: float | None
    batch_size: int | None
    num_draws: int | None
    burn_in: int | None
    thin: int | None


@dataclass(frozen=True)
class Tuned:
    """Where the chains are, D^{1/2}, the step, and rows per step (None: all of them)."""

    z: torch.Tensor
    root: torch.Tensor
    h: float
    batch_size: int | None


def tuned(target: Target, asked: Asked, until: float, elsewhere: bool = False) -> Tuned:
    """All of the module docstring; past the time `until` optimisers and stages are cut short."""
    size = min(asked.batch_size or rule.BATCH_SIZE, target.rows.num_data)
    z = _optimised(target, asked, size, until, starts(target, asked, elsewhere))
    whole = asked.batch_size is None and affordable(target, asked.chains)
    batch_size = None if whole or size == target.rows.num_data else size
    each = price(target, asked.chains, batch_size)
    seconds = rule.seconds_of(rule.STAGE_SECONDS, rule.MAX_STAGE_SHARE, asked.max_seconds)
    steps = int(np.clip(seconds / each / rule.STAGES, 20, rule.STAGE_STEPS))
    noise = generator_of(asked.seed, STAGE_STREAM, z.device)
    order = Order(target.rows, asked.chains, batch_size, asked.seed, STAGE_STREAM)
    caution = 1.0
    with Work("step size", until=until) as work:
        for number in range(rule.STAGES + 1):
            root = metric(target, z)
            h = asked.step_size or caution * step_size(target, asked, root, z, batch_size)
            if number == rule.STAGES or work.late:
                break
            motion, begin = Motion(target, order, root, h, noise), number * steps
            state = State(z, torch.zeros_like(z))
            for first, count in work.pieces(begin, begin + steps, most=64, of=rule.STAGES * steps):
                state = motion.moved(state, first, count)
            lost = (target.lost(state.z) | _fallen(target, z, state.z))[:, None]
            if bool(lost.any()):  # curvature is larger where they went: the stage goes for nothing
                caution *= rule.STEP_CUT
            z = torch.where(lost, z, state.z)
    return Tuned(z, root, h, batch_size)


def _fallen(target: Target, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Chains whose log p fell further than noise takes it, [chain]; nan is no less."""
    rows = rule.curvature_rows(target.rows.num_data, target.dimension)
    before, after = (target.log_density(z, rows) for z in (old, new))
    return ~(after >= before - rule.most_fallen(target.dimension, 1.0))


def price(target: Target, chains: int, batch_size: int | None) -> float:
    """Predicted seconds of a step of all chains."""
    likelihood, few = target.likelihood, target.rows.first(64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        likelihood.outputs({}, few.inputs)
    layers = sum(not list(module.children()) for module in likelihood.model.modules())
    rows = chains * (batch_size or target.rows.num_data) / len(few.target)
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
    """Whether all rows are, at every step of long enough chains."""
    return rule.TORCH_FULL_STEPS * price(target, chains, None) <= rule.MAX_FULL_SECONDS


def generator_of(seed: int, stream: int, device: torch.device) -> torch.Generator:
    """Torch's, on the device, begun from the host's."""
    found = torch.Generator(device)
    found.manual_seed(int(generator(seed, stream, 0).integers(2**53)))
    return found


def starts(target: Target, asked: Asked, elsewhere: bool) -> torch.Tensor:
    """The target's start with as much again of what varies in a layer; `elsewhere`: as tune/prior_starts, too.

    Of every three one is then of the prior, as wide as its scales, and one on the other side of 0.
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
    """Where Adam ends for every chain, from its start, with sds that are learnt at what they are held to be."""
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


def metric(target: Target, z: torch.Tensor) -> torch.Tensor:
    """D^{1/2}, [d]: each chain has rows of its own, past the last of which they begin again."""
    num_data = target.rows.num_data
    share = -(-rule.fisher_rows(num_data, target.dimension) // len(z))
    squares = torch.zeros_like(target.prior.scale)
    for chain, place in enumerate(z):
        numbers = (chain * share + torch.arange(share, device=z.device)) % num_data
        squares += target.squares(place, numbers) * (num_data / share) / len(z)
    return (squares + target.prior.narrowness(z).mean(0)).clamp(min=1e-8).rsqrt()


def step_size(
    target: Target, asked: Asked, root: torch.Tensor, z: torch.Tensor, batch_size: int | None
) -> float:
    """The largest h that noise and curvature allow where the chains are."""
    _, stiff = stiffest(target, root, z, min(2, target.dimension))
    V = _noise(target, asked, root, z, batch_size)
    return rule.largest_step(V, float(stiff.max()), asked.tolerance, FRICTION)


def _noise(
    target: Target, asked: Asked, root: torch.Tensor, z: torch.Tensor, batch_size: int | None
) -> float:
    """V of the noisiest layer of those that are looked at."""
    if batch_size is None:
        return 0.0
    order = Order(target.rows, len(z), batch_size, asked.seed, NOISE_STREAM)
    total, squares = torch.zeros_like(z), torch.zeros_like(z)
    for step in range(rule.NOISE_BATCHES):
        g = root * target.gradient(z, order.at(step), order.scale)
        total, squares = total + g, squares + g**2
    variance = (squares - total**2 / rule.NOISE_BATCHES) / (rule.NOISE_BATCHES - 1)
    layers = target.weights.layers
    V = [float(part.mean()) for part in variance.split(list(layers.sizes), 1)]
    return max(v for v, large in zip(V, layers.large, strict=True) if large)


def stiffest(
    target: Target, root: torch.Tensor, z: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Orthonormal directions at every z in the coordinates of D^{1/2}, [chain, count, d]; the largest eigenvalue.

    By block power iteration, as probe/directions.
    """
    some = target.rows.first(rule.curvature_rows(target.rows.num_data, target.dimension))
    times = target.curvature(z, some, target.rows.num_data / len(some.target), root)
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
    """A basis of the span of rows [chain, count, d], from their products."""
    unit = rows / rows.norm(dim=2, keepdim=True).clamp(min=1e-30)
    values, vectors = torch.linalg.eigh(unit @ unit.mT)
    basis = (vectors.mT @ unit) / values.clamp(min=MIN_EIGENVALUE).sqrt()[:, :, None]
    return basis / basis.norm(dim=2, keepdim=True).clamp(min=1e-30)
