"""Estimator, batch, order and step by their predicted cost per effective draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.source import Source
from ..gaussian import noise
from ..gaussian.dense import Laplace
from ..gaussian.lowrank import LowRankLaplace
from ..gradient.control_variates import ControlVariates
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..law.overdamped import Law, largest_step
from ..preconditioner.fixed import Dense
from ..problem.request import Request, is_auto
from ..problem.target import Target
from ..schedule import as_schedule
from . import parts
from .optimised import settled
from .request import Plan, draft

__all__ = ["CORRECTABLE", "from_curvature", "from_lowrank", "priced_choice"]


STEP_OVERHEAD = 32  # rows whose gradients cost as much as a step's fixed part
CORRECTED_STEP = 0.3  # largest step under noise correction, in units of the posterior
STABLE = 0.5  # largest step times the curvature of a batch apart from that of all rows
CORRECTABLE = 0.3  # nu below which the injected noise may be corrected
_UNIT = Law(np.ones(1), np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)))


@dataclass(frozen=True)
class _Choice:
    gradient: Any
    batch_size: int
    order: str
    corrected: bool
    cost: float
    noise: float = 0.0  # variance of the gradient in the noisiest direction
    longest: float = np.inf  # step, whatever the noise


def from_curvature(
    target: Target, source: Source | None, ask: Request, laplace: Laplace, nu: float, T: float
) -> Plan:
    """Estimator, batch, order and step by their predicted cost per effective draw."""
    if parts.of_sampler(_UNIT, parts.sampler(ask)) is None:
        raise parts.no_step(ask)
    dense = is_auto(ask.preconditioner)
    D = None if dense else ask.preconditioner.prepare(target.layout)
    if dense:
        factor = laplace.factor
    else:
        small = (
            None
            if source is None
            else source.with_batches(min(parts.DEFAULT_BATCH, source.num_data), "reshuffle")
        )
        factor = parts.matrix(settled(D, target, small, laplace.mode), target)
    assert factor is not None
    bias = ask.tolerance / 2
    correctable = dense and nu < CORRECTABLE and parts.allows_correction(ask)
    correctable = correctable and (is_auto(ask.gradient) or not ask.gradient.remembers)
    misfit = None
    if source is None:
        gradient = Full() if is_auto(ask.gradient) else ask.gradient
        choice = _Choice(gradient, 0, "independent", correctable, 0.0)
    else:
        largest = (0.0, 0.0)
        if not isinstance(ask.gradient, Full):
            *rows, scores = noise.row_noise(target, source, laplace.tempered(T), ask.seed)
            misfit = parts.misfit(target, laplace, scores, source.num_data)
            largest = tuple(_largest(factor, covariance) for covariance in rows)
        choice = priced_choice(source, largest, ask, correctable, bias, T)
        source = parts.batches(source, choice.batch_size, choice.order, choice.gradient)
    gradient = parts.prepared(choice.gradient, target, source, laplace.mode)
    measured = parts.measure(target, source, gradient, laplace, T, ask.seed)
    white = factor.T @ measured @ factor
    values, turn = np.linalg.eigh(white)
    correction = None
    if choice.corrected:
        values = np.maximum(values, 0.0)
        h = _corrected_step(values[-1], T)
        factor, correction = factor @ turn, target.layout.array(values)
    law = parts.law(target, source, laplace, factor, measured, parts.sampler(ask))
    if not choice.corrected:
        h = largest_step(law, bias, T)
        if nu >= CORRECTABLE:
            h /= 1 + nu / CORRECTABLE
    if dense:
        D = Dense(laplace.covariance, factor).prepare(target.layout)
    return draft(
        sampler=parts.sampler(ask, correction), gradient=gradient, preconditioner=D, source=source,
        step_size=as_schedule(h, "step_size"), noise=measured, law=law, misfit=misfit,
    )  # fmt: skip


def _corrected_step(largest_noise: float, T: float) -> float:
    return min(CORRECTED_STEP, 0.8 * T / (T + largest_noise))


def from_lowrank(
    target: Target,
    source: Source | None,
    ask: Request,
    laplace: LowRankLaplace,
    nu: float,
    T: float,
) -> Plan:
    """The same for low rank plus diagonal curvature, whose parameters share one law.

    That of a single one, with the noise of the noisiest and the curvature of the stiffest.
    """
    if parts.of_sampler(_UNIT, parts.sampler(ask)) is None:
        raise parts.no_step(ask)
    bias, V, period = ask.tolerance / 2, 0.0, 1
    longest = np.inf
    stiffest = 1 + laplace.departure
    gradient = Full() if is_auto(ask.gradient) else ask.gradient
    if source is not None:
        variances, curved = (0.0, 0.0), 0.0
        if not isinstance(ask.gradient, Full):
            # over D's variances, which are too large by up to the stiffest eigenvalue
            *found, curved = noise.marginal_noise(target, source, laplace.tempered(T), ask.seed)
            variances = tuple(stiffest * variance / T for variance in found)
            curved /= T
        choice = priced_choice(source, variances, ask, False, bias, T, 1 / stiffest, curved)
        gradient = choice.gradient
        source = parts.batches(source, choice.batch_size, choice.order, gradient)
        period = max(1, 1 if source.is_independent else source.num_blocks)
        V, longest = choice.noise, choice.longest
    gradient = parts.prepared(gradient, target, source, laplace.mode)
    out = np.ones((laplace.marginals(target).variance.size, 1))
    law = parts.of_sampler(
        Law(np.ones(1), np.ones((1, 1)), np.array([[V]]), out, period), parts.sampler(ask)
    )
    h = min(largest_step(law, bias, T), 1 / stiffest, longest) / (
        1 + (nu / CORRECTABLE if nu >= CORRECTABLE else 0)
    )
    return draft(
        sampler=parts.sampler(ask), gradient=gradient, preconditioner=laplace.metric.prepare(target.layout),
        source=source, step_size=as_schedule(h, "step_size"), law=law,
    )  # fmt: skip


def priced_choice(
    source, largest, ask, correctable, bias, T, longest=np.inf, curved=0.0
) -> _Choice:
    """The cheapest of control variates, plain minibatches and full gradients, per draw.

    `largest`: variance of N times one row's gradient in the noisiest direction, plain and centred;
    `longest`: the largest step, whatever the noise; `curved`: the curvature of N times one row.
    """
    N, sampler = source.num_data, parts.sampler(ask)
    given = None if is_auto(ask.gradient) else ask.gradient
    plain, cv = largest
    centred = isinstance(given, ControlVariates) or (given is not None and given.remembers)
    if isinstance(given, Full):
        sizes = [N]
    elif is_auto(ask.batch_size):
        sizes = [2**k for k in range(N.bit_length()) if 2**k < N] + [N]
    else:
        sizes = [ask.batch_size]

    def priced(gradient, n, order, variance, correctable) -> _Choice:
        """Rows per effective draw, on a one-dimensional whitened target."""
        V = variance * (1 / n - 1 / N)
        most = min(longest, STABLE / max(curved * (1 / n - 1 / N), 1e-12))
        period = -(-N // n) if order in ("reshuffle", "symmetric") else 1
        corrected = correctable and period == 1
        if corrected:
            rate = _corrected_step(V, T)
        else:
            one = np.ones((1, 1))
            law = parts.of_sampler(Law(np.ones(1), one, V * one, one, period), sampler)
            assert law is not None  # a sampler without one was refused
            rate = law.rate(min(most, largest_step(law, bias, T)))
        return _Choice(
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


def _largest(factor: np.ndarray, covariance: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(factor.T @ covariance @ factor)[-1])
