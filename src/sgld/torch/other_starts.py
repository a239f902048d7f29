"""Chains of a module from other starts, for a run whose own chains agree; as run/other_starts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from ..core.progress import stage
from ..diagnostics.function_space.other_chains import OtherStarts, settled
from ..inference.tuning import network_rules as rule
from .chains import Chains
from .dynamics import Motion, Order, State
from .target import Target
from .tuning import Asked, generator_of, price, tuned

__all__ = ["from_other_starts"]

STREAM = 15  # of the host's generator


@stage("other starts", whole=True)
def from_other_starts(
    chains: Chains, asked: Asked, until: float, run: np.ndarray
) -> OtherStarts | None:
    """What they predict; None where too few are affordable, or none stayed finite.

    Past the time `until` optimisers and stages are cut short; `run` is what the chains predicted.
    """
    target, probe = chains.motion.target, chains.probe
    whole = chains.motion.order.batch_size is None
    count = _affordable(target, asked, whole)
    if not count or not chains.healthy.size:
        return None
    asked = replace(
        asked, chains=count, seed=asked.seed + rule.OTHERS_SEED, step_size=None,
        batch_size=None if whole else min(rule.BATCH_SIZE, target.rows.num_data),
    )  # fmt: skip
    found = tuned(target, asked, until, elsewhere=True)
    order = Order(target.rows, count, found.batch_size, asked.seed, STREAM)
    noise = generator_of(asked.seed, STREAM, found.z.device)
    motion, looks = Motion(target, order, found.root, found.h, noise), []
    state = State(found.z, torch.zeros_like(found.z))
    for number in range(rule.STRETCHES):
        state = motion.moved(state, number * rule.STRETCH_STEPS, rule.STRETCH_STEPS)
        if number >= rule.STRETCHES // 2:
            looks.append(target.predicted(state.z, probe).cpu().numpy())
    predicted = settled(target.kind, np.array(looks), run)
    good = np.isfinite(predicted).all(axis=(1, 2)) & ~target.lost(state.z).cpu().numpy()
    if not good.any():
        return None
    own = float(_log_mass(target, chains.state.z[chains.healthy]).mean())
    z = state.z[torch.from_numpy(good).to(state.z.device)]
    return OtherStarts(predicted[good], _log_mass(target, z), own, z.cpu().numpy())


def _affordable(target: Target, asked: Asked, whole: bool) -> int:
    """How many are, all taking their steps together; 0 where too few are."""
    size = min(rule.BATCH_SIZE, target.rows.num_data)
    optimiser = max(rule.FEWEST_STEPS, rule.MOST_PASSES * math.ceil(target.rows.num_data / size))
    steps = rule.STAGES * rule.STAGE_STEPS + rule.STRETCHES * rule.STRETCH_STEPS
    seconds = rule.OTHERS_SHARE * rule.seconds_of(rule.RUN_SECONDS, 1 / 2, asked.max_seconds)
    most, fewest = rule.OTHER_STARTS, rule.FEWEST_STARTS
    for count in (most, (most + fewest) // 2, fewest):
        step = price(target, count, None if whole else size)
        if optimiser * price(target, count, size) + steps * step <= seconds:
            return count
    return 0


def _log_mass(target: Target, z: torch.Tensor) -> np.ndarray:
    """log p + (log det D) / 2 of every chain, D as the plan's metric at its place alone."""
    num_data = target.rows.num_data
    rows = min(num_data, rule.FISHER_ROWS)
    numbers = torch.arange(rows, device=z.device)
    squares = torch.stack([target.squares(place, numbers) for place in z]) * (num_data / rows)
    volume = -0.5 * (squares + target.prior.narrowness(z)).clamp(min=1e-8).log().sum(1)
    return (target.log_density(z) + volume).double().cpu().numpy()
