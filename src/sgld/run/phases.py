"""The phase of every chain, measured along a run at fixed steps between chunks."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ..diagnose.phase import noise_level, rows_for
from ..draws.phase import Phase
from ..gradient.full import Full
from .chunk import Carry, Kernel

__all__ = ["Phases"]

PROBES = 16  # of a run of the planned length; a longer one has some more


class Phases:
    """Gradient noise at steps that depend on the plan alone, never on where chunks end."""

    def __init__(self, kernel: Kernel, seed: int, num_steps: int) -> None:
        self.kernel, self.seed = kernel, seed
        self.every = max(1, -(-num_steps // kernel.block) // PROBES) * kernel.block
        self.silent = not kernel.problem.has_rows or isinstance(kernel.gradient, Full)
        self.steps: list[int] = []
        self.levels: list[np.ndarray] = []

    def next_after(self, step: int) -> int:
        """The first step after `step` that is measured; rarer as a run outgrows its plan."""
        if self.silent:
            return 2**62
        block, growth = self.kernel.block, 1 + step // (2 * PROBES * self.every)
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
            np.array([float(schedule(jnp.int32(t))) for t in after])
            for schedule in (kernel.step_size, kernel.temperature)
        )
        return Phase(steps, h, T, np.stack(self.levels))

    def _measure(self, carry: Carry, step: int) -> None:
        kernel = self.kernel
        rows = rows_for(kernel.problem, self.seed, step)
        level = noise_level(
            kernel.problem, kernel.gradient, kernel.preconditioner,
            carry.state.position, carry.gradient, carry.metric, jnp.asarray(rows),
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
