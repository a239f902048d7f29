"""`Ensemble.step_halving`: half the step, its stages told, and a verdict that says what it found."""

from __future__ import annotations

from typing import Any

from ..core.progress import stage, told
from ..diagnostics.function_space.verdict import HALF, Change
from ..errors import UsageError
from ..results.verdict import Verdict
from .judging import half_the_step
from .sample import few_threads

__all__ = ["halved"]

HALVING_AHEAD = ("sampling", "verdict")


def halved(first: Verdict, run: Any, progress: bool) -> Verdict:
    """The verdict of a run and of one with half its step.

    Args:
      first: the run's own.
      run: its chains and what was asked of them; None where it is not of this session.
    """
    if run is None:
        raise UsageError(
            "step_halving needs a run of sgld.torch.sample that was made in this session; run it again."
        )
    chains, asked = run
    with told(progress, HALVING_AHEAD), few_threads(chains.motion.target, asked):
        change, failed = half_the_step(chains, asked)
        with stage("verdict"):
            return _verdict(first, change, failed)


def _verdict(first: Verdict, change: Change, failed: bool) -> Verdict:
    """As `Change.verdict`; one that keeps its word says beside its reasons what half the step changed."""
    found = change.verdict(first, failed=failed)
    if found is not first:
        return found
    return first.told(HALF, f"{change.said}, which leaves it {first.word}.")
