"""Plans whose metric and step pilot chains chose: posteriors far from the Gaussian at their mode.

Of few rows the pilot's chains see all, and so does the run. Of many they see some, which stand for
all (each counts N / n times): their law has the scales of the posterior at a centre a few sds off,
which is what a metric needs; the run then takes reshuffled batches of all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jax.tree_util import Partial

from ..data.source import Source
from ..gaussian import noise
from ..gaussian.dense import Laplace
from ..gradient.full import Full
from ..gradient.minibatch import Minibatch
from ..law.overdamped import Law, largest_step
from ..metropolis.pilot import MOST_DIMENSIONS, MOST_ROWS, Pilot, pilot
from ..preconditioner.fixed import Dense
from ..problem import sums
from ..problem.request import Request, is_auto
from ..problem.target import Target
from ..sampler.baoa import BAOA
from ..schedule import as_schedule
from . import parts
from .optimised import squared_gradients
from .price import priced_choice
from .request import Plan, draft

__all__ = ["from_pilot"]


def from_pilot(
    target: Target, source: Source | None, ask: Request, laplace: Any, z0: Any, T: float,
    *, many_rows: bool = False,
) -> Plan | None:  # fmt: skip
    """Pilot chains choose metric and step; None where they would cost too much, or find nothing.

    For what is wholly left to the library, at T = 1; with many rows only where `many_rows` allows.
    """
    d = target.layout.dimension
    given = (ask.sampler, ask.gradient, ask.preconditioner, ask.batch_size, ask.order)
    open_ = all(is_auto(value) for value in given)
    if not (open_ and d <= MOST_DIMENSIONS and T == 1):
        return None
    if source is None or source.num_data <= MOST_ROWS:
        found = _found(target, source, ask, laplace, z0)
        return None if found is None else _on_all(target, source, ask, found)
    if not many_rows:
        return None
    some, rows = _on_some(target, source)
    found = _found(some, rows, ask, laplace, z0)
    return None if found is None else _in_batches(target, source, ask, found)


def _found(
    target: Target, source: Source | None, ask: Request, laplace: Any, z0: Any
) -> Pilot | None:
    """The pilot chains, from the Gaussian at the mode where that is of any use."""
    center, factor = np.asarray(z0, np.float64), None
    if isinstance(laplace, Laplace) and _holds_mass(target, source, laplace, z0):
        center, factor = laplace.mode, laplace.factor
    if factor is None:
        squares = squared_gradients(target, source, target.layout.array(center))
        factor = np.diag(1 / np.sqrt(np.asarray(squares, np.float64) + 1e-8))
    return pilot(target, source, center, factor, ask.tolerance / 2, ask.seed)


def _on_some(target: Target, source: Source) -> tuple[Target, Source]:
    """The first rows, each counting for as many as there are."""
    share = source.num_data / MOST_ROWS
    posterior = target.posterior
    scaled = replace(posterior, log_likelihood=Partial(_times, share, posterior.log_likelihood))
    return replace(target, posterior=scaled), source.first(MOST_ROWS)


def _times(share: Any, log_likelihood: Any, position: Any, datum: Any) -> Any:
    return share * log_likelihood(position, datum)


def _on_all(target: Target, source: Source | None, ask: Request, found: Pilot) -> Plan:
    """Exact gradients; kinetic dynamics where nothing is too stiff for them."""
    if source is not None:
        source = source.with_batches(source.num_data, "reshuffle")
    # delta = sqrt(2 h) in the kinetic case; a Gaussian would forget itself at twice the rates
    h, rate, sampler = found.step_size, found.step_size / 2, parts.sampler(ask)
    if found.kinetic:
        h, rate, sampler = 2 * h, np.sqrt(2 * h) / 4, BAOA()
    return draft(
        sampler=sampler, gradient=Full(), preconditioner=_metric(found, target), source=source,
        step_size=as_schedule(h, "step_size"), rate=rate, starts=found.zs, adjustable=True,
    )  # fmt: skip


def _in_batches(target: Target, source: Source, ask: Request, found: Pilot) -> Plan:
    """Reshuffled batches whose noise, measured where the pilot's chains ended, the tolerance allows."""
    V = noise.noise_around(target, source, found.zs, found.factor, ask.seed)
    plain = replace(ask, gradient=Minibatch())
    choice = priced_choice(source, (V, V), plain, False, ask.tolerance / 2, 1.0, found.step_size)
    source = parts.batches(source, choice.batch_size, choice.order, choice.gradient)
    period = 1 if source.is_independent else max(1, source.num_blocks)
    one = np.ones((1, 1))
    law = Law(np.ones(1), one, choice.noise * one, one, period)
    h = min(found.step_size, largest_step(law, ask.tolerance / 2))
    note = f"metric and step were learnt on {MOST_ROWS} of {source.num_data} rows, which stood for all."
    return draft(
        sampler=parts.sampler(ask), gradient=choice.gradient, preconditioner=_metric(found, target),
        source=source, step_size=as_schedule(h, "step_size"), rate=h / 2, starts=found.zs, notes=(note,),
    )  # fmt: skip


def _metric(found: Pilot, target: Target) -> Dense:
    return Dense(found.factor @ found.factor.T, found.factor).prepare(target.layout)


def _holds_mass(target: Target, source: Source | None, laplace: Laplace, z0: Any) -> bool:
    """Whether the Gaussian at the mode is near where the posterior's mass can be.

    A density without a bound (a scale that goes to 0) draws the mode's search into a spike:
    there the Gaussian's own draws have no finite density, or are far less dense than the start.
    """
    if laplace.factor is None:
        return False
    near = laplace.draw(np.random.default_rng(0), 16)
    array = target.layout.array
    values = np.array([float(sums.log_density(target, source, array(z))) for z in near])
    start = float(sums.log_density(target, source, array(z0)))
    return bool(
        np.isfinite(values).mean() > 0.5 and np.nanmedian(values) > start - 10 * laplace.mode.size
    )
