"""The phase of every chain, measured along a run at fixed steps between chunks.

A probe takes gradients of single rows and the largest eigenvalue of their covariance. How many a
run has follows from counted operations, never from the clock: all of PROBES where they cost
nothing to speak of, else as many as take a small share of the run's own gradients.
"""

from __future__ import annotations

import numpy as np

from ..core.devices import sent
from ..diagnostics.gradient_noise import noise_level, probe_cost, rows_for
from ..results.verdict import Phase
from ..samplers.gradients.full import Full
from .chunk import Carry, Kernel

__all__ = ["Phases"]

PROBES = 16  # of a run of the planned length, at most; a longer one has some more
SHARE = 0.03  # of the run's own row gradients, that the probes of each chain may cost
FREE = 2**26  # row gradients x parameters that they may cost in any case: a fraction of a second


class Phases:
    """Gradient noise at steps that depend on the plan alone, never on where chunks end."""

    def __init__(self, kernel: Kernel, seed: int, num_steps: int) -> None:
        self.kernel, self.seed = kernel, seed
        # of networks the probe knows more, and gradients of single rows are too dear
        exact = not kernel.problem.has_rows or isinstance(kernel.gradient, Full)
        self.silent = exact or kernel.probe is not None
        self.probes = 1 if self.silent else _affordable(kernel, num_steps)
        self.every = max(1, -(-num_steps // kernel.block) // self.probes) * kernel.block
        self.steps: list[int] = []
        self.levels: list[np.ndarray] = []

    def next_after(self, step: int) -> int:
        """The first step after `step` that is measured; rarer as a run outgrows its plan."""
        if self.silent:
            return 2**62
        block, growth = self.kernel.block, 1 + step // (2 * self.probes * self.every)
        spacing = self.every * growth
        return max(step + block, (step // spacing + 1) * spacing)

    def visit(self, carry: Carry, step: int) -> None:
        """Measure, where `step` is one of the steps to be measured."""
        due = not self.steps or self.next_after(self.steps[-1]) <= step
        if due and not self.silent:
            self._measure(carry, step)

    def ended(self, carry: Carry, step: int) -> Phase | None:
        """The whole record, the run's last step included."""
        if self.silent:
            return None
        if self.steps[-1] != step:
            self._measure(carry, step)
        kernel = self.kernel
        steps = np.asarray(self.steps, np.int64)
        after = np.maximum(steps - int(kernel.burn_in), 0)
        h, T = (
            np.array([float(schedule(sent(t, np.int32))) for t in after])
            for schedule in (kernel.step_size, kernel.temperature)
        )
        return Phase(steps, h, T, np.stack(self.levels))

    def _measure(self, carry: Carry, step: int) -> None:
        kernel = self.kernel
        rows = rows_for(kernel.problem, self.seed, step)
        level = noise_level(
            kernel.problem, kernel.gradient, kernel.preconditioner,
            carry.state.position, carry.gradient, carry.metric, sent(rows),
        )  # fmt: skip
        self.steps.append(step)
        self.levels.append(np.asarray(level, np.float64))

    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint keeps."""
        if self.silent:
            return {}
        return {"phase_step": np.asarray(self.steps), "phase_level": np.stack(self.levels)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a checkpoint."""
        if not self.silent:
            self.steps = arrays["phase_step"].tolist()
            self.levels = list(arrays["phase_level"])


def _affordable(kernel: Kernel, num_steps: int) -> int:
    """Probes of a run of so many steps, the two at its ends not counted."""
    d = kernel.problem.dimension
    own = num_steps * kernel.problem.source.batch_size
    return int(np.clip((SHARE * own + FREE / d) / probe_cost(kernel.problem), 1, PROBES))
