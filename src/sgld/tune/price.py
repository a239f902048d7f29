"""Estimator, batch and order by their predicted cost per effective draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..approximation.gradient_noise import Level, Levels
from ..data.source import Source
from ..model.cost import row_price
from ..model.problem import Problem, Request, is_auto
from ..samplers.gradients.control_variates import ControlVariates, is_centred
from ..samplers.gradients.full import Full, Minibatch, goes_by_tiles
from ..samplers.sgld import SGLD
from ..samplers.stationary.affine import of_sampler
from ..samplers.stationary.overdamped import Law, largest_step
from .estimator import sampler_of

__all__ = ["FETCHED", "Choice", "Together", "corrected_step", "priced_choice", "together"]

FETCHED = 5e-10  # seconds of a number of a row that is taken out of the table
# that take gradients of a large table together: a step of each at 20,000 x 1,000 takes 3.4 ms of 4, 1.3 of 16,
# 1.1 of 32, .7 of 64; of a posterior that is nearly Gaussian, as each of so many goes a short way
SHARED_CHAINS, NEAR = 64, 0.3

STEP_OVERHEAD = 32  # rows whose gradients cost as much as a step's fixed part
# largest step under noise correction, in units of the posterior; .15: 1.75 times the steps
CORRECTED_STEP = 0.3
# and of exact gradients near a Gaussian, for so much of an sd's error at most
EXACT_STEP, TOLERATED = 0.8, 0.025
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
    chains: int = 0  # that pay, 0: as many as usual


class Together(NamedTuple):
    """How chains take gradients of all rows, together.

    chains: how many (0: as many as usual); row: what a row costs them, over one of a chain's own batch;
    step: the largest under noise correction.
    """

    chains: int = 0
    row: float = 1.0
    step: float = CORRECTED_STEP


def together(problem: Problem, ask: Request, nu: float, bias: float) -> Together:
    """A large table in memory is read once for all chains, by products of matrices.

    A row costs a chain row_price + FETCHED width where it takes it by itself, row_price + FETCHED
    width / chains where all take it. With an exact gradient a corrected step h whitens to the variance
    1 + h (E U'' - 1) / 2, U'' the curvature over the metric's, and (E U'' - 1)^2 is at most nu: the
    sd is within `bias` up to h = 4 bias / nu^{1/2}. Many chains where nobody asked for lengths of any.
    """
    if problem.mesh is not None or not goes_by_tiles(Full(), problem):
        return Together()
    most = 4 * min(bias, TOLERATED) / np.sqrt(max(nu, 1e-12))
    step = float(np.clip(most, CORRECTED_STEP, EXACT_STEP))
    lengths = (ask.num_chains, ask.num_draws, ask.burn_in, ask.thin)
    many = all(map(is_auto, lengths)) and ask.max_steps is None and ask.max_seconds is None
    many = many and type(sampler_of(ask)) is SGLD and nu < NEAR
    chains = SHARED_CHAINS if many else ask.chains()
    own, fetched = row_price(problem), FETCHED * problem.source.row_width
    return Together(SHARED_CHAINS if many else 0, (own + fetched / chains) / (own + fetched), step)


def priced_choice(
    source: Source, levels: tuple[Levels, Levels], ask: Request, correctable: bool, bias: float, T: float,
    longest: float = np.inf, whole: Together = Together(),
) -> Choice:  # fmt: skip
    """The cheapest of control variates, plain minibatches and full gradients, per draw.

    `levels` of plain and of centred gradients, made as they are asked for: rows are put into every
    batch as long as that may pay. `longest`: the largest step, whatever the noise. `whole`: how
    full gradients are taken.
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
            most = min(most, whole.step if isinstance(gradient, Full) else CORRECTED_STEP)
            rate = min(most, corrected_step(V, T))
        else:
            one = np.ones((1, 1))
            law = of_sampler(Law(np.ones(1), one, V * one, one, period), sampler)
            assert law is not None  # a sampler without one was refused
            rate = law.rate(min(most, largest_step(law, bias, T)))
        rows, chains = n + level.always, 0
        if isinstance(gradient, Full):
            rows, chains = n * whole.row, whole.chains
        cost = (rows + STEP_OVERHEAD) * (2 - rate) / rate
        return Choice(gradient, n, order, corrected, cost, V, most, level.always, chains)

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
            may_pay = [n for n in sizes if (n + level.always + STEP_OVERHEAD) * each < limit]
            found = min((priced(gradient, n, order, level, may) for n in may_pay), key=_cost)
            if found.cost < limit:
                best = found
    assert best is not None
    return best


def _cost(choice: Choice) -> float:
    return choice.cost


def corrected_step(largest_noise: float, T: float) -> float:
    """The step that noise correction allows, at the noise's variance in the noisiest direction."""
    return 0.8 * T / (T + largest_noise)
