"""The interface between the rules of a network's run and the engine that computes gradients.

JAX (`network.JaxBackend`) and PyTorch (`sgld.torch.tuning.TorchBackend`) implement `NetworkBackend`. This module
writes metric, step size, stages and restarts once, in terms of it.

Every chain takes a few short stages from where an optimiser ended. Before and after each stage

    D      1 / (diagonal of the empirical Fisher information + curvature of the prior), of all chains
    V_l    variance of a batch's gradient in D per parameter of layer l, from a few batches
    delta  min(2 gamma tau / max_l V_l, sqrt(f / lambda_1)),    h = delta^2

are measured at the chains' positions. tau is the kinetic temperature that gradient noise may add, lambda_1 the
largest curvature in D, gamma the friction and f one half, or less if the tolerance is below the default.

Chains from other starts take the same stages, and then a few stretches. Their predictions are compared with those of
the run (diagnostics/function_space/other_chains.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...core.devices import agreed
from ...diagnostics.function_space.other_chains import OtherStarts, met, settled
from ...diagnostics.function_space.verdict import Seen
from . import network_rules as rule

# below so many steps of a stage, measuring between stages costs more than the steps: one stage of twice the length
SHORT_STAGE_STEPS = 20
STEP_TRIALS = 4  # of the last h


class NetworkBackend(Protocol):
    """What an engine computes for a network; z is its array of positions, [chain, d].

    Attributes:
      problem: the posterior, with `num_data` and `dimension`.
      temperature: T.
      friction: gamma; None if the sampler has no momentum.
      ask: the user's request, with `tolerance` and `max_seconds`.
    """

    problem: Any
    temperature: float
    friction: Any
    ask: Any

    def log_density(self, z: Any, rows: int | None) -> np.ndarray:
        """Return the log posterior density [chain] up to a constant, by all rows or the first `rows`."""
        ...

    def information(self, z: Any, first: int, rows: int) -> np.ndarray:
        """Return squared row gradients scaled to all rows, plus the prior's curvature, [d] at one position z [d].

        The rows are `rows` consecutive ones from the `first` on; past the last row they start again.
        """
        ...

    def measured(self, z: Any) -> tuple[Any, float, float]:
        """Return D, max_l V_l and lambda_1 at the chains' positions."""
        ...

    def predicted(self, z: Any) -> np.ndarray:
        """Return predictions at the probe rows, [chain, m, k]."""
        ...

    def moved(self, z: Any, D: Any, h: float, stretch: tuple[int, int, int]) -> Any:
        """Return positions after the steps of a stage: its number, its length and the number of stages."""
        ...

    def restored(self, lost: np.ndarray, old: Any, new: Any) -> Any:
        """Return `new` with the positions of lost chains replaced by `old`."""
        ...

    def positions(self, z: Any) -> np.ndarray:
        """Return z in float64 on the host."""
        ...

    def step_seconds(self, chains: int) -> float:
        """Return the predicted seconds of a step of all chains."""
        ...


class Tuned(NamedTuple):
    """Positions, preconditioner and step size after tuning."""

    z: Any
    D: Any
    h: float


def tuned(
    backend: NetworkBackend,
    z: Any,
    until: float,
    step_size: float | None = None,
    enough: Callable[[Any], bool] = lambda z: False,
) -> Tuned:
    """Run short stages, each with the metric and the step measured where the last one ended.

    Args:
      backend: the engine.
      z: where optimisers ended.
      until: the time (of time.monotonic) after which no stage begins.
      step_size: h, if the user gave it.
      enough: ends the stages as soon as it is true of the positions.
    """
    h, caution, stages = 0.0, 1.0, rule.STAGES
    D = None
    seconds = rule.seconds_of(rule.STAGE_SECONDS, rule.MAX_STAGE_SHARE, backend.ask.max_seconds)
    steps = int(min(seconds / backend.step_seconds(len(z)) / stages, rule.STAGE_STEPS))
    if steps <= SHORT_STAGE_STEPS:
        stages, steps = 1, 2 * SHORT_STAGE_STEPS
    for number in range(stages + 1):
        D, V, curvature = backend.measured(z)
        longest = rule.largest_step(V, curvature, backend.ask.tolerance, backend.friction)
        h = step_size or caution * longest
        if number == stages or agreed(time.monotonic() > until):
            break
        new = backend.moved(z, D, h, (number, steps, stages))
        lost = lost_chains(backend, z, new)
        if lost.any():  # curvature is larger where they went: the stage is taken back
            caution *= rule.STEP_CUT
        z = backend.restored(lost, z, new)
        if enough(z):
            return Tuned(z, D, h)
    for _ in range(STEP_TRIALS * (step_size is None)):  # steps from the same positions
        end = backend.moved(z, D, h, (stages, steps, stages))
        if not lost_chains(backend, z, end).any():
            break
        h *= rule.STEP_CUT
    return Tuned(z, D, h)


def information(backend: NetworkBackend, z: Any) -> np.ndarray:
    """Return the diagonal of the information averaged over chains, [d], each of which has rows of its own."""
    share = -(-rule.fisher_rows(backend.problem.num_data, backend.problem.dimension) // len(z))
    each = [backend.information(place, k * share, share) for k, place in enumerate(z)]
    return np.maximum(np.mean(each, axis=0), 1e-8)


def lost_chains(backend: NetworkBackend, old: Any, new: Any) -> np.ndarray:
    """Return which chains' steps were too long, [chain]: log p dropped more than noise explains, or is NaN."""
    rows = rule.curvature_rows(backend.problem.num_data, backend.problem.dimension)
    before, after = (backend.log_density(z, rows) for z in (old, new))
    return ~(after >= before - rule.most_fallen(backend.problem.dimension, backend.temperature))


# -- restarts ------------------------------------------------------------------------------


def followed(
    backend: NetworkBackend, z: Any, run: Seen, until: float, *, to_the_end: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what chains from other starts predict [start, m, k], their log masses, and where they end.

    Unless `to_the_end`, chains stop early once their predictions are among those of the run after two stages.
    """
    seen: list[np.ndarray] = []
    looks: list[bool] = []

    def known(z: Any) -> bool:  # twice, since one draw of a wide function may be among the run's
        looks.append(met(run.kind, backend.predicted(z), run.predicted))
        return not to_the_end and looks[-2:] == [True, True]

    z, D, h = tuned(backend, z, until, enough=known)
    if not to_the_end and looks[-2:] == [True, True]:
        return backend.predicted(z), log_masses(backend, z), backend.positions(z)
    for number in range(rule.STRETCHES):
        at = (number + 2 * rule.STRETCHES, rule.STRETCH_STEPS, rule.STRETCHES)  # past the stages
        z = backend.moved(z, D, h, at)
        if number >= rule.STRETCHES // 2:
            seen.append(backend.predicted(z))
    predicted = settled(run.kind, np.array(seen), run.predicted)
    return predicted, log_masses(backend, z), backend.positions(z)


def finite_starts(
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]], own: np.ndarray
) -> OtherStarts | None:
    """Return the starts that stayed finite, or None; `own` holds log masses of the run's chains."""
    predicted, masses, z = (np.concatenate(part) for part in zip(*found, strict=True))
    good = np.isfinite(predicted).all(axis=(1, 2)) & np.isfinite(z).all(axis=1)
    if not good.any():
        return None
    return OtherStarts(predicted[good], masses[good], float(np.mean(own)), z[good])


def log_masses(backend: NetworkBackend, z: Any) -> np.ndarray:
    """Return log p / T + (log det D) / 2 of every chain, with D measured at its position alone."""
    rows = min(backend.problem.num_data, rule.MAX_FISHER_ROWS)
    values = backend.log_density(z, None) / backend.temperature
    each = [np.asarray(backend.information(place, 0, rows), np.float64) for place in z]
    return values - 0.5 * np.log(np.maximum(each, 1e-8)).sum(axis=1)
