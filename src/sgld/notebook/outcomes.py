"""Outcomes that a model makes beside those that came, for any model that is known: what is plotted and checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arviz.resampled import choose
from ..arviz.subject import Subject
from ..errors import UsageError
from ..report.check import check
from ..report.replicated import Replicated
from ..results.draws import Draws

__all__ = ["Outcomes", "checked", "outcomes_of"]

REPLICAS, ROWS = 200, 5000


@dataclass(frozen=True)
class Outcomes:
    """Of rows whose outcome was observed, and of draws that stand for all with equal weights.

    Attributes:
      name: of the outcome.
      observed: [n, ...].
      made: [chain, draw, n, ...], for the same rows.
      levels: [n, level], predicted probabilities of the outcomes 0, 1, ..., where they are few.
      num_data: rows in all.
    """

    name: str
    observed: np.ndarray
    made: np.ndarray
    levels: np.ndarray | None
    num_data: int

    @property
    def whole(self) -> bool:
        """Whether outcomes are whole numbers."""
        return bool(np.all(self.observed == np.round(self.observed)))


def outcomes_of(draws: Draws, subject: Subject, seed: int) -> Outcomes:
    """At most ROWS rows, drawn by the seed. Raises UsageError where the model makes no outcomes."""
    if subject.replicate is None or not subject.observed or subject.rows is None:
        raise UsageError(
            "a predictive check needs outcomes and a model that makes them: of a formula or a NumPyro model, or give "
            "outcome= (which of the data) and simulate= (a function of key, position, datum)."
        )
    chosen, count = choose(draws, REPLICAS), subject.rows.count
    numbers = np.arange(count)
    if count > ROWS:
        numbers = np.sort(np.random.default_rng([seed, 10]).choice(count, ROWS, replace=False))
    positions = subject.position(chosen.of(draws, draws.position))
    made = subject.replicate(positions, numbers, seed)
    name = next(iter(made))
    observed = np.asarray(subject.observed[name])[numbers]
    there = np.isfinite(observed).reshape(len(observed), -1).all(axis=1)  # NaN was not observed
    values = np.asarray(made[name]).reshape(*chosen.at.shape, *observed.shape)
    levels = None
    if subject.levels is not None:
        levels = subject.levels(positions, numbers).mean(axis=0)[there]
    return Outcomes(name, observed[there], values[:, :, there], levels, count)


def checked(draws: Draws, subject: Subject, seed: int) -> tuple[str, str, Replicated] | None:
    """Panel, reading and outcomes of the report's predictive check; None of outcomes of several numbers a row."""
    found = outcomes_of(draws, subject, seed)
    observed, mean = found.observed, found.levels
    replicas = found.made.reshape(-1, *observed.shape)
    if observed.ndim != 1 or not len(observed):
        return None
    rows = len(observed)
    if mean is None:
        family = "count" if found.whole and observed.min() >= 0 else "gaussian"
        mean = replicas.mean(axis=0)
    elif mean.shape[1] == 2:
        family, mean = "bernoulli", mean[:, 1]
    else:  # each level against the others, all levels after one another
        values = np.arange(mean.shape[1])
        family, mean = "categorical", mean.ravel()
        observed = (observed[:, None] == values).ravel()
        replicas = (replicas[..., None] == values).reshape(len(replicas), -1)
    observed, replicas = observed.astype(float), replicas.astype(float)
    made = Replicated(observed, replicas, mean, found.name, found.num_data, rows)
    return *check(family, made), made
