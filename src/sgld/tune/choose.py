"""Estimator, batch, order and step by their predicted cost per effective draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.source import Source
from ..gradient.control_variates import ControlVariates
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..posterior import Target
from ..preconditioner.fixed import Dense
from ..schedule import as_schedule
from . import noise, parts
from .curvature import Laplace
from .law import Law, largest_step
from .request import Plan, Request, draft, is_auto
from .rough import settled

__all__ = ["CORRECTABLE", "from_curvature"]


STEP_OVERHEAD = 32  # rows whose gradients cost as much as a step's fixed part
CORRECTED_STEP = 0.3  # largest step under noise correction, in units of the posterior
CORRECTABLE = 0.3  # nu below which the injected noise may be corrected
_UNIT = Law(np.ones(1), np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)))


@dataclass(frozen=True)
class _Choice:
    gradient: Any
    batch_size: int
    order: str
    corrected: bool
    cost: float


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
    bias = ask.tolerance / 2
    correctable = dense and nu < CORRECTABLE and parts.allows_correction(ask)
    correctable = correctable and (is_auto(ask.gradient) or not ask.gradient.remembers)
    misfit = None
    if source is None:
        gradient = Full() if is_auto(ask.gradient) else ask.gradient
        choice = _Choice(gradient, 0, "independent", correctable, 0.0)
    else:
        rows = None
        if not isinstance(ask.gradient, Full):
            rows = noise.row_noise(target, source, laplace.tempered(T), ask.seed)
            misfit = parts.misfit(laplace, rows[0], source.num_data)
        choice = _choose(source, rows, ask, factor, correctable, bias, T)
        source = parts.batches(source, choice.batch_size, choice.order, choice.gradient)
    gradient = parts.prepared(choice.gradient, target, source, laplace.mode)
    measured = parts.measure(target, source, gradient, laplace, T, ask.seed)
    assert factor is not None
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


def _choose(source, rows, ask, factor, correctable, bias, T) -> _Choice:
    """The cheapest of control variates, plain minibatches and full gradients, per draw."""
    N, sampler = source.num_data, parts.sampler(ask)
    given = None if is_auto(ask.gradient) else ask.gradient
    plain = cv = 0.0
    centred = isinstance(given, ControlVariates) or (given is not None and given.remembers)
    if not isinstance(given, Full):
        plain, cv = (_largest(factor, covariance) for covariance in rows)
    if isinstance(given, Full):
        sizes = [N]
    elif is_auto(ask.batch_size):
        sizes = [2**k for k in range(N.bit_length()) if 2**k < N] + [N]
    else:
        sizes = [ask.batch_size]
    choices = []
    for n in sizes:
        left = 1 / n - 1 / N
        if isinstance(given, Full) or (given is None and n == N):
            choices.append(
                _priced(
                    Full() if given is None else given,
                    n,
                    "reshuffle",
                    0,
                    1,
                    correctable,
                    bias,
                    T,
                    sampler,
                )
            )
            continue
        if given is None or centred:
            order = "independent" if is_auto(ask.order) else ask.order
            period = -(-N // n) if order in ("reshuffle", "symmetric") else 1
            estimator = ControlVariates() if given is None else given
            choices.append(
                _priced(estimator, n, order, cv * left, period, correctable, bias, T, sampler)
            )
        if given is None or not centred:
            order = "reshuffle" if is_auto(ask.order) else ask.order
            period = -(-N // n) if order in ("reshuffle", "symmetric") else 1
            estimator = Minibatch() if given is None else given
            choices.append(
                _priced(estimator, n, order, plain * left, period, False, bias, T, sampler)
            )
    return min(choices, key=lambda choice: choice.cost)


def _priced(gradient, n, order, V, period, correctable, bias, T, sampler) -> _Choice:
    """Rows per effective draw, on a one-dimensional whitened target with gradient variance V."""
    corrected = correctable and (period == 1)
    if corrected:
        rate = h = _corrected_step(V, T)
    else:
        one = np.ones((1, 1))
        law = parts.of_sampler(Law(np.ones(1), one, V * one, one, period), sampler)
        assert law is not None  # a sampler without one was refused
        h = largest_step(law, bias, T)
        rate = law.rate(h)
    return _Choice(gradient, n, order, corrected, (n + STEP_OVERHEAD) * (2 - rate) / rate)


def _largest(factor: np.ndarray, covariance: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(factor.T @ covariance @ factor)[-1])
