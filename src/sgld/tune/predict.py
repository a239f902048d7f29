"""What a plan will take of the machine's memory, predicted before it runs, and refused where there is less.

Counted from the plan's own numbers; the constants are resident memory of runs of 10^5 to 10^7 kept
numbers and of tables of 10 to 50 MiB, measured once.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..draws.setup import Setup
from ..errors import UsageError
from ..gradient.full import Full
from ..gradient.saga import SAGA
from ..problem.problem import Problem

__all__ = ["check_memory", "machine_bytes", "predicted_bytes"]

BASE = 300 * 2**20  # JAX, its compiled functions, the interpreter
KEPT = 112  # of a number of a draw: position, gradient, what is reported, and the verdict's float64 copies
ROWS = 6  # times the rows: the user's, shuffled, on the device, pieces of them at work
NOISE, STEPS, NUMBERS = (
    16,
    512,
    2**16,
)  # of a normal; those of a chain are of at most so many steps, or so many
DENSE = 80  # of a number of a dense matrix
AT_WORK = 32  # of a row whose gradient is taken, in each chain
CGROUP = Path("/sys/fs/cgroup/memory.max")


def predicted_bytes(problem: Problem, setup: Setup, kept: int | None = None) -> int:
    """Peak resident memory of a run, its verdict included.

    `kept`: the numbers that a draw leaves, those of the position if None; 0 where only moments are.
    """
    d, N, chains = problem.dimension, problem.num_data, setup.num_chains
    rows = N * problem.source.row_width * 4 if problem.has_rows else 0
    draws = chains * setup.num_draws * (d if kept is None else kept)
    batch = N if isinstance(setup.gradient, Full) else setup.batch_size or 0
    table = 4 * N * d if isinstance(setup.gradient, SAGA) and setup.gradient.features is None else 0
    noise = NOISE * max(d, min(STEPS * d, NUMBERS))
    each = noise + AT_WORK * (batch + d) + table
    dense = DENSE * d**2 if type(setup.preconditioner).__name__ == "Dense" else 0
    return BASE + ROWS * rows + KEPT * draws + chains * each + dense


def machine_bytes() -> int | None:
    """Memory of this machine, or what a container may take of it; None where nobody says."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None
    try:
        return min(found, int(CGROUP.read_text()))
    except (OSError, ValueError):  # "max", or no such file
        return found


def check_memory(problem: Problem, setup: Setup, kept: int | None = None) -> None:
    """UsageError for a run that this machine has no room for, with what takes it."""
    needed, there = predicted_bytes(problem, setup, kept), machine_bytes()
    if there is None or needed <= there:
        return
    raise UsageError(
        f"the run would take about {in_words(needed)} of memory, and this machine has {in_words(there)}: "
        f"{setup.num_chains:,} chains of {setup.num_draws:,} draws of {problem.dimension:,} parameters; give fewer "
        "(num_chains, num_draws), or keep less of each (keep=, keep='moments')."
    )


def in_words(size: float) -> str:
    """Bytes: "12 MiB", "3.4 GiB"."""
    number, unit = size / 2**10, "KiB"
    for larger in ("MiB", "GiB", "TiB", "PiB", "EiB"):
        if number >= 1024:
            number, unit = number / 1024, larger
    return f"{number:.2g} {unit}" if number < 100 else f"{number:.0f} {unit}"
