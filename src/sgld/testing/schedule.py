"""The contract suite of schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import tell_apart
from ..errors import UsageError
from ..samplers.schedules import check_values
from .needs import check_needs

__all__ = ["ScheduleReport", "check_schedule"]

LOOKS = 24  # steps at which single calls are compared
RTOL = 2e-6  # between ways of calling it: compilers may fuse


@dataclass(frozen=True)
class ScheduleReport:
    """What `check_schedule` found.

    Attributes:
      schedule: the name of its class, or of the function.
      num_steps: up to which it was certified.
      first, last: its values at step 0 and at step num_steps.
      checks: sentences, one per property that held.

    Example:
      >>> import sgld
      >>> report = sgld.testing.check_schedule(sgld.constant(0.5), num_steps=10)
      >>> report.first, report.last
      (0.5, 0.5)
    """

    schedule: str
    num_steps: int
    first: float
    last: float
    checks: tuple[str, ...]

    def __repr__(self) -> str:
        head = f"{self.schedule}: {len(self.checks)} checks passed"
        ends = f"  {self.first:g} at step 0, {self.last:g} at step {self.num_steps:,}"
        return "\n".join([head, *(f"  {check}" for check in self.checks), ends])


def check_schedule(schedule: Any, *, num_steps: int = 10_000) -> ScheduleReport:
    """Certify a schedule: a function of the step alone, counted from 0.

    A schedule gives one finite number that is not negative for every step, a step size or a
    temperature; JAX can trace it; it remembers nothing, so that a resumed run, other chunks and
    several chains see the same values.

    Args:
      schedule: a function of the step: one of `sgld.samplers.schedules`, of optax, or your own.
      num_steps: the last step it must serve.

    Returns: ScheduleReport. Raises AssertionError, in a sentence, at the first failure.

    Example:
      >>> import sgld
      >>> report = sgld.testing.check_schedule(sgld.power(0.1, 0.33), num_steps=1000)
      >>> report.first > report.last, len(report.checks)
      (True, 3)
    """
    name = getattr(schedule, "__name__", type(schedule).__name__)
    check_needs("schedule", schedule)
    if not callable(schedule):
        raise AssertionError(f"{name}: a schedule is a function of the step.")
    tell_apart(schedule)
    suite = _ScheduleSuite(schedule, name, num_steps)
    checks = (suite.values(), suite.stateless(), suite.compiled())
    return ScheduleReport(name, num_steps, suite.single[0], suite.single[num_steps], checks)


class _ScheduleSuite:
    """The checks, each of which returns the sentence of what held."""

    def __init__(self, schedule: Any, name: str, num_steps: int) -> None:
        self.schedule, self.name, self.num_steps = schedule, name, num_steps
        spread = np.geomspace(1, num_steps + 1, LOOKS) - 1
        self.steps = np.unique([*spread.astype(np.int32), 0, num_steps])
        self.single: dict[int, float] = {}

    def _fail(self, sentence: str) -> AssertionError:
        return AssertionError(f"{self.name}: {sentence}")

    def values(self) -> str:
        """One finite number that is not negative at every step, under a tracer."""
        try:
            check_values(self.schedule, self.num_steps, "the value")
        except UsageError as error:
            raise self._fail(f"{error}") from error
        return f"it can be traced, and is finite and not negative from step 0 to {self.num_steps:,}"

    def stateless(self) -> str:
        """The order in which steps are asked for, and how often, changes nothing."""
        forward = [float(self.schedule(int(step))) for step in self.steps]
        backward = [float(self.schedule(int(step))) for step in self.steps[::-1]][::-1]
        if forward != backward:
            step = self.steps[np.argmax(np.array(forward) != np.array(backward))]
            raise self._fail(
                f"asked again, step {step} has another value: it must remember nothing, draw nothing."
            )
        self.single = dict(zip(self.steps.tolist(), forward, strict=True))
        return "it remembers nothing: the same step, the same value"

    def compiled(self) -> str:
        """A plain call, a compiled one and a vmap agree."""
        plain, steps = np.array(list(self.single.values())), jnp.asarray(self.steps)
        one = jax.jit(lambda step: jnp.asarray(self.schedule(step)))
        found = {
            "compiled": np.array([float(one(step)) for step in steps]),
            "under vmap": np.asarray(jax.vmap(one)(steps), np.float64),
        }
        for how, values in found.items():
            wrong = ~np.isclose(values, plain, rtol=RTOL, atol=RTOL * plain.max())
            if wrong.any():
                i = int(np.argmax(wrong))
                raise self._fail(
                    f"at step {self.steps[i]} it is {values[i]:g} {how}, and {plain[i]:g} called "
                    "with the number itself."
                )
        return "compiled, under vmap and called with a number it is the same"
