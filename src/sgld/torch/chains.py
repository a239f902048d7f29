"""Run the chains of a module: their lengths, what is kept of them, and when they end.

Predictions and temperatures are kept at every draw. Weights are kept at every draw until memory is full, then at
every second draw, and so on. The draws do not depend on where pieces of the work begin and end, nor on where a run
was stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from ..core.progress import enough
from ..core.work import Work
from ..errors import RunError
from ..inference.loop import ADVISED_DRAWS, MIN_DRAWS_IN_TIME
from ..inference.sink import Positions
from ..inference.tuning import network_rules as rule
from .dynamics import Motion, State, kinetic, slopes_of
from .rows import Inputs
from .target import Target
from .tuning import Asked, price

MAX_KEPT_PREDICTIONS = 2**25  # numbers of predictions that are kept
MAX_KEPT_DRAWS, MIN_KEPT_DRAWS = 200, 20  # draws of a chain
# rows whose gradients in a batch take as long as slopes of predictions at a draw (slopes.py): .5 to .9 steps of 100 rows of
# networks of 26,506 to 1,526,410 weights
GRADIENTS_PER_SLOPES = 75


@dataclass(frozen=True)
class Lengths:
    """Steps before the first draw, steps of a draw, draws of a chain."""

    burn_in: int
    thin: int
    num_draws: int

    def steps(self, num_draws: int) -> int:
        """Return the steps until so many draws are kept."""
        return self.burn_in + self.thin * num_draws


def lengths(target: Target, asked: Asked, h: float, batch_size: int | None) -> Lengths:
    """Choose burn-in and span by the step size and its cost, and thinning by the cost of predictions."""
    seconds = rule.seconds_of(rule.MAX_RUN_SECONDS, rule.MAX_TORCH_RUN_SHARE, asked.max_seconds)
    fewest = 1000 if asked.max_seconds is None else rule.MIN_RUN_STEPS
    most = max(fewest, int(seconds / price(target, asked.chains, batch_size)))
    burn_in, span = rule.burn_in_and_span(math.sqrt(h), most)
    burn_in = burn_in if asked.burn_in is None else asked.burn_in
    num_draws = min(rule.PLANNED_DRAWS, span) if asked.num_draws is None else asked.num_draws
    rows = batch_size or target.num_data
    as_many = max(rows, rule.BATCH_SIZE)  # calls cost as much as few rows
    least = max(
        rule.least_thin(rows),
        math.ceil(GRADIENTS_PER_SLOPES / (rule.MAX_PREDICTION_SHARE * as_many)),
    )
    thin = max(least, span // num_draws) if asked.thin is None else asked.thin
    if asked.num_draws is None:
        num_draws = min(num_draws, max(MIN_DRAWS_IN_TIME, span // thin))
    return Lengths(burn_in, thin, num_draws)


def most_draws(
    target: Target, asked: Asked, planned: Lengths, batch_size: int | None, width: int
) -> int:
    """Return the most draws of a prolonged run, by memory, and by cost if time has no limit."""
    most = min(
        MAX_KEPT_PREDICTIONS // (asked.chains * width), rule.MAX_RUN_GROWTH * planned.num_draws
    )
    if asked.max_seconds is None:
        steps = int(rule.MAX_RUN_SECONDS / price(target, asked.chains, batch_size))
        most = min(most, (steps - planned.burn_in) // planned.thin)
    return max(planned.num_draws, most)


def num_directions(target: Target, batch_size: int | None, planned: Lengths) -> int:
    """Return how many directions of large curvature a run of this length can afford."""
    num_data, d = target.num_data, target.dimension
    gradients = planned.steps(planned.num_draws) * (batch_size or num_data)
    return rule.num_directions(gradients, rule.curvature_rows(num_data, d), d)


@dataclass
class Record:
    """What is kept of all chains.

    Attributes:
      positions: weights [chain, d], of as many draws as there is room for.
      failed_at: [chain], the step at which a chain was found to have run away, or -1.
      predicted: [chain, row, k] of every draw; kinetic: [chain, layer + 2].
    """

    positions: Positions
    failed_at: np.ndarray
    predicted: list[np.ndarray] = field(default_factory=list)
    kinetic: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(cls, chains: int, dimension: int) -> Record:
        """Return an empty record, with room for the draws that a run gives back, and as many before these."""
        kept = min(
            MAX_KEPT_DRAWS, max(MIN_KEPT_DRAWS, rule.MAX_KEPT_NUMBERS // (chains * dimension))
        )
        # between room / 2 and room are held, of which a third is left out as burn-in
        return cls(Positions(2 * kept), np.full(chains, -1))

    @property
    def count(self) -> int:
        """The number of draws so far."""
        return len(self.predicted)

    def take(self, z: torch.Tensor, predicted: torch.Tensor, heat: torch.Tensor) -> None:
        """Add one draw of every chain."""
        self.positions.take(self.count, z.detach().cpu().numpy()[None])
        self.predicted.append(predicted.detach().cpu().numpy())
        self.kinetic.append(heat.detach().cpu().numpy())

    def kept_from(self, first: int, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of at most `most` draws from `first` on whose weights are kept, and these weights.

        The weights are [chain, draw, d].
        """
        found = self.positions.between(first, self.count)
        assert found is not None
        every = max(1, -(-len(found[0]) // most))
        return found[0][::every], np.moveaxis(found[1][::every], 0, 1)


@dataclass
class Chains:
    """A run: chains in motion, what they are asked at draws, and what was kept.

    Attributes:
      probe: the rows that are predicted.
      directions: [chain, k, d], orthonormal, in the coordinates of D^{1/2}.
      starts: [chain, d], where chains go on from that fail.
      lengths: from the step `began` on.
      wanted: draws at which it is decided whether there are to be more, so that it depends on nothing else.
      tried: steps that were tried before this one.
    """

    motion: Motion
    state: State
    probe: Inputs
    directions: torch.Tensor
    starts: torch.Tensor
    lengths: Lengths
    record: Record
    wanted: int
    began: int = 0
    step: int = 0
    tried: int = 0
    # the step that `run` began with, and when
    _paced: tuple[int, float] = field(default=(0, 0.0), init=False)

    def run(
        self,
        more: Callable[[Chains], int],
        until: float,
        save: Callable[[Chains, bool], None],
        max_seconds: float = math.inf,
    ) -> bool:
        """Run until the planned draws, and the further ones that `more` asks for, are made.

        `save(self, now)` is called after every piece of the work. False where the time, of `max_seconds`, was up
        before.
        """
        self._paced = self.step, time.monotonic()
        with Work("sampling", until=until) as work:
            work.said = f"h {self.motion.h:.3g}"
            while True:
                if not self._advance(work, save, max_seconds):
                    return False
                found = more(self)
                if found <= self.wanted:
                    return True
                self.wanted = found

    def _advance(
        self, work: Work, save: Callable[[Chains, bool], None], max_seconds: float
    ) -> bool:
        total = self.began + self.lengths.steps(self.wanted)
        for first, count in work.pieces(self.step, total):
            self._stretch(first + count)
            save(self, work.interrupted)
            if not self.healthy.size:
                return True
            if work.late and self.step < total:
                if self.record.count < MIN_DRAWS_IN_TIME:
                    raise RunError(
                        f"the time of max_seconds = {max_seconds:g} was up at step {self.step:,}, with "
                        f"{self.record.count} draws of a chain kept of {MIN_DRAWS_IN_TIME} at least; "
                        f"{enough(max_seconds + self._more_seconds())}, or give a shorter burn_in, or less thinning."
                    )
                return False
        return True

    def _more_seconds(self) -> float:
        """Return the seconds of sampling until there are enough draws, at the pace so far."""
        step, time_then = self._paced
        each = (time.monotonic() - time_then) / max(1, self.step - step)
        return each * max(0, self.began + self.lengths.steps(ADVISED_DRAWS) - self.step)

    def _stretch(self, end: int) -> None:
        """Advance to step `end`, or to the draw at which no chain is left, and measure at the draws on the way."""
        while self.step < end and self.healthy.size:
            ahead = self.began + self.lengths.steps(self.record.count + 1)
            stop = min(end, ahead)
            self.state = self.motion.moved(self.state, self.step, stop - self.step)
            self.step = stop
            if stop == ahead:
                self._look()

    def _look(self) -> None:
        z, p = self.state
        target, bad = self.motion.target, self.motion.target.lost(z).cpu().numpy()
        failed = self.record.failed_at
        failed[bad & (failed < 0)] = self.step
        predicted = target.predicted(z, self.probe)
        slopes = self.motion.root * slopes_of(
            target, z, self.probe, predicted.shape[2], self.record.count
        )
        heat = kinetic(p, self.directions, slopes, target.weights.layers, self.motion.h)
        self.record.take(target.weights.placed(z), predicted, heat)

    @property
    def healthy(self) -> np.ndarray:
        """Numbers of the chains that did not fail."""
        return np.flatnonzero(self.record.failed_at < 0)

    def again(self, planned: Lengths, h: float) -> Chains:
        """Return chains that continue with another step and an empty record; failed ones begin at their starts."""
        lost = torch.from_numpy(self.record.failed_at >= 0).to(self.starts.device)[:, None]
        z = torch.where(lost, self.starts, self.state.z)
        state = State(z, torch.where(lost, 0.0, self.state.p))
        record = Record(Positions(self.record.positions.room), np.full(len(self.state.z), -1))
        motion = replace(self.motion, h=h)
        # steps go on to be counted, so that no order of the rows comes twice
        return replace(
            self, motion=motion, state=state, lengths=planned, record=record,
            wanted=planned.num_draws, began=self.step, tried=self.tried + 1,
        )  # fmt: skip
