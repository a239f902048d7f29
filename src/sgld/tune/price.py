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
from .estimator import sampler_of

__all__ = ["Choice", "corrected_step", "priced_choice"]

STEP_OVERHEAD = 32  # rows whose gradients cost as much as a step's fixed part
CORRECTED_STEP = (
    0.3  # largest step under noise correction, in units of the posterior; .15: 1.75 times the steps
)
STABLE = 0.5  # largest step times the curvature of a batch apart from that of all rows


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


def priced_choice(
    source: Source, largest: tuple[float, float], ask: Request, correctable: bool, bias: float, T: float,
    longest: float = np.inf, curved: float = 0.0,
) -> Choice:  # fmt: skip
    """The cheapest of control variates, plain minibatches and full gradients, per draw.

    `largest`: variance of N times one row's gradient in the noisiest direction, plain and centred;
    `longest`: the largest step, whatever the noise; `curved`: the curvature of N times one row.
    """
    N, sampler = source.num_data, sampler_of(ask)
    given = None if is_auto(ask.gradient) else ask.gradient
    plain, cv = largest
    centred = isinstance(given, ControlVariates) or (given is not None and given.remembers)
    if isinstance(given, Full):
        sizes = [N]
    elif is_auto(ask.batch_size):
        sizes = [2**k for k in range(N.bit_length()) if 2**k < N] + [N]
    else:
        sizes = [ask.batch_size]

    def priced(gradient, n, order, variance, correctable) -> Choice:
        """Rows per effective draw, on a one-dimensional whitened target."""
        V = variance * (1 / n - 1 / N)
        most = min(longest, STABLE / max(curved * (1 / n - 1 / N), 1e-12))
        period = -(-N // n) if order in ("reshuffle", "symmetric") else 1
        corrected = correctable and period == 1
        if corrected:
            rate = corrected_step(V, T)
        else:
            one = np.ones((1, 1))
            law = of_sampler(Law(np.ones(1), one, V * one, one, period), sampler)
            assert law is not None  # a sampler without one was refused
            rate = law.rate(min(most, largest_step(law, bias, T)))
        return Choice(
            gradient, n, order, corrected, (n + STEP_OVERHEAD) * (2 - rate) / rate, V, most
        )

    choices = []
    for n in sizes:
        if isinstance(given, Full) or (given is None and n == N):
            exact = Full() if given is None else given
            choices.append(priced(exact, n, "reshuffle", 0.0, correctable))
            continue
        if given is None or centred:
            order = "independent" if is_auto(ask.order) else ask.order
            estimator = ControlVariates() if given is None else given
            choices.append(priced(estimator, n, order, cv, correctable))
        if given is None or not centred:
            order = "reshuffle" if is_auto(ask.order) else ask.order
            estimator = Minibatch() if given is None else given
            choices.append(priced(estimator, n, order, plain, False))
    return min(choices, key=lambda choice: choice.cost)


def corrected_step(largest_noise: float, T: float) -> float:
    """The step under noise correction, at the noise's variance in the noisiest direction."""
    return min(CORRECTED_STEP, 0.8 * T / (T + largest_noise))
