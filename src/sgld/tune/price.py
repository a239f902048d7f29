"""Estimator, batch and order by their predicted cost per effective draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.source import Source
from ..gradient.control_variates import ControlVariates
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..law.affine import of_sampler
from ..law.overdamped import Law, largest_step
from ..problem.request import Request, is_auto
from .estimator import is_centred, sampler_of
from .levels import Level, Levels

__all__ = ["Choice", "corrected_step", "priced_choice"]

STEP_OVERHEAD = 32  # rows whose gradients cost as much as a step's fixed part
# largest step under noise correction, in units of the posterior; .15: 1.75 times the steps
CORRECTED_STEP = 0.3
STABLE = 0.5  # largest step times the curvature of a batch apart from that of all rows
THROWN = 3.0  # sds that the largest row of a batch may move a chain by in a step
WORTH = 0.9  # of the cost without them, that rows in every batch must get down to


@dataclass(frozen=True)
class Choice:
    """An estimator on batches, and what it costs."""

    gradient: Any
    batch_size: int
    order: str
    corrected: bool
    cost: float
    noise: float = 0.0  # variance of the gradient in the noisiest direction
    longest: float = np.inf  # step, whatever the noise
    always: int = 0  # of the rows with the largest gradients, in every batch


def priced_choice(
    source: Source, levels: tuple[Levels, Levels], ask: Request, correctable: bool, bias: float, T: float,
    longest: float = np.inf,
) -> Choice:  # fmt: skip
    """The cheapest of control variates, plain minibatches and full gradients, per draw.

    `levels` of plain and of centred gradients, made as they are asked for: rows are put into every
    batch as long as that may pay. `longest`: the largest step, whatever the noise.
    """
    N, sampler = source.num_data, sampler_of(ask)
    given = None if is_auto(ask.gradient) else ask.gradient

    def priced(gradient: Any, n: int, order: str, level: Level, correctable: bool) -> Choice:
        """Rows per effective draw, on a one-dimensional whitened target."""
        share = 1 / n - 1 / N
        V, thrown = level.variance * share, THROWN * n / max(level.size, 1e-12)
        most = min(longest, STABLE / max(level.curved * share, 1e-12), thrown)
        period = -(-N // n) if order in ("reshuffle", "symmetric") else 1
        corrected = correctable and period == 1
        if corrected:
            rate = min(most, corrected_step(V, T))
        else:
            one = np.ones((1, 1))
            law = of_sampler(Law(np.ones(1), one, V * one, one, period), sampler)
            assert law is not None  # a sampler without one was refused
            rate = law.rate(min(most, largest_step(law, bias, T)))
        cost = (n + level.always + STEP_OVERHEAD) * (2 - rate) / rate
        return Choice(gradient, n, order, corrected, cost, V, most, level.always)

    exact, best = Level(), None
    sizes = [N] if isinstance(given, Full) else [ask.batch_size]
    if is_auto(sizes[0]):
        sizes = [2**k for k in range(N.bit_length()) if 2**k < N] + [N]
    if sizes[-1] == N and (given is None or isinstance(given, Full)):
        best = priced(given or Full(), sizes.pop(), "reshuffle", exact, correctable)
    if not sizes:
        assert best is not None
        return best
    kinds = []
    if given is None or is_centred(given):
        order = "independent" if is_auto(ask.order) else ask.order
        kinds.append((given or ControlVariates(), order, levels[1], correctable))
    if given is None or not kinds:
        order = "reshuffle" if is_auto(ask.order) else ask.order
        kinds.append((given or Minibatch(), order, levels[0], False))
    for gradient, order, of, may in kinds:
        fixed = sizes[0] + STEP_OVERHEAD
        each = priced(gradient, sizes[0], order, exact, may).cost / fixed
        for level in of():
            limit = np.inf if best is None else best.cost * (WORTH if level.always else 1.0)
            if (fixed + level.always) * each >= limit:
                break
            found = min((priced(gradient, n, order, level, may) for n in sizes), key=_cost)
            if found.cost < limit:
                best = found
    assert best is not None
    return best


def _cost(choice: Choice) -> float:
    return choice.cost


def corrected_step(largest_noise: float, T: float) -> float:
    """The step under noise correction, at the noise's variance in the noisiest direction."""
    return min(CORRECTED_STEP, 0.8 * T / (T + largest_noise))
