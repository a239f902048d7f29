"""Plans where there is no usable Gaussian at the mode: from where optimisers end."""

from __future__ import annotations

import math
import time

import jax
import numpy as np

from ..approximation.gradient_noise import TUNING
from ..approximation.known import Known
from ..approximation.low_rank import squared_gradients, stiffness
from ..approximation.mode import optimise
from ..data.source import generator
from ..model.problem import Problem, Request, is_auto
from ..results.plan import Plan, Setup
from ..samplers.gradients.full import Full, Minibatch
from ..samplers.preconditioners.fixed import Diagonal, given
from ..samplers.schedules import as_schedule
from .estimator import plain_batches, prepared, sampler_of
from .metric import settled
from .network_rule import LEARNING_RATE

__all__ = ["from_optimisers", "optimised", "starts_near"]

SEARCH, SEARCH_PASSES = 1000, 20  # least steps of an optimiser, and passes over the data


def from_optimisers(problem: Problem, ask: Request, known: Known) -> Plan:
    """No usable curvature: reshuffled batches, a diagonal metric learnt where optimisers end, frozen.

    Every chain starts where an optimiser of its own ended, from a start of its own, so that chains
    in different modes are seen to disagree.
    """
    gradient, problem = plain_batches(problem, ask)
    z0 = np.asarray(problem.start)
    center = z0 if known.gaussian is None else known.gaussian.center
    starts, near = None, np.asarray(center)[None]
    if not known.usable:
        steps = SEARCH
        if problem.has_rows:
            steps = int(np.clip(SEARCH_PASSES * problem.num_blocks, SEARCH, 10 * SEARCH))
        starts = near = optimised(problem, ask, starts_near(problem, ask, z0), steps)
    if is_auto(ask.preconditioner):
        squares = [np.asarray(squared_gradients(problem, problem.array(z))) for z in near]
        D = Diagonal(1 / (np.mean(squares, axis=0) + 1e-8)).prepare(problem.layout)
    else:
        D = given(ask.preconditioner, problem.layout)
    matrix = settled(D, problem, near[0])
    stiffest = max(float(stiffness(problem, matrix, problem.array(z))) for z in near)
    h = ask.tolerance / max(1e-12, stiffest)
    setup = Setup(
        sampler_of(ask), prepared(gradient, problem, center), D, as_schedule(h, "step_size"),
        *problem.batches, starts=starts,
    )  # fmt: skip
    return Plan(setup, known, problem.num_data)


def starts_near(
    problem: Problem, ask: Request, z0: np.ndarray, least: np.ndarray | float = 0.0
) -> np.ndarray:
    """z0, with as much again of what varies within a leaf in every chain but the first; where nothing varies, with `least`."""
    rng = generator(ask.seed, TUNING, 7)
    spread = np.concatenate([
        np.full(math.prod(shape), np.std(np.asarray(leaf)) if math.prod(shape) > 1 else 0.0)
        for leaf, shape in zip(
            jax.tree.leaves(problem.layout.unravel(problem.array(z0))), problem.layout.shapes, strict=True
        )
    ])  # fmt: skip
    spread = np.where(spread > 0, spread, least)
    xi = rng.standard_normal((ask.chains(), z0.size))
    return z0.astype(np.float64) + spread * xi * (np.arange(ask.chains()) > 0)[:, None]


def optimised(
    problem: Problem, ask: Request, starts: np.ndarray, steps: int, until: float = math.inf
) -> np.ndarray:
    """Where `steps` of Adam end, for every chain from its start.

    By the time `until` (of time.monotonic) all are cut short, each with an equal share of what is left when it
    begins.
    """
    import optax

    gradient = Full() if not problem.has_rows else Minibatch()
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps))
    ends = []
    for chain, start in enumerate(starts):
        now = time.monotonic()
        own = now + max(0.0, until - now) / (len(starts) - chain)
        end, *_ = optimise(
            problem, problem.array(start), optimizer, gradient, steps, None, ask.seed + chain, own,
        )  # fmt: skip
        ends.append(np.asarray(end, np.float64))
    return np.array(ends)
