"""What the machine can give, and refusals before more than that is asked for.

Memory is predicted from shapes before any is taken. A prediction counts what is held at once, and
refuses what is beyond what is free: close to that, the operating system may still end a run.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from .errors import UsageError

__all__ = ["check_memory", "free_memory", "gib"]

GROUPS = Path("/sys/fs/cgroup")
LIMITS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))  # fmt: skip


def free_memory() -> float:
    """Bytes that this process may still take; infinity where the platform does not say."""
    return min(_of_the_machine(), _of_the_group(), _of_the_process())


def check_memory(needed: float, what: str, remedy: str) -> None:
    """UsageError where `what` would take more bytes than there are.

    Args:
      needed: bytes, predicted.
      what: takes them; the sentence begins with it.
      remedy: what to do about it; ends the sentence.

    Example:
      >>> from sgld.ceiling import check_memory
      >>> check_memory(2.0**20, "1,000 draws", "ask for fewer")
    """
    free = free_memory()
    if needed > free:
        raise UsageError(
            f"{what} would take {gib(needed)} of memory, and {gib(free)} are free; {remedy}."
        )


def gib(size: float) -> str:
    """Bytes in words."""
    if size < 2**26:
        return f"{size / 2**20:,.3g} MiB"
    return f"{size / 2**30:,.3g} GiB" if size < 2**50 else f"{size / 2**30:.1e} GiB"


def _of_the_machine() -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    with contextlib.suppress(OSError, ValueError, AttributeError):
        import os

        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return float("inf")


def _of_the_group() -> float:
    """Of a container."""
    for limit, used in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such group, or "max"
            return float(int((GROUPS / limit).read_text()) - int((GROUPS / used).read_text()))
    return float("inf")


def _of_the_process() -> float:
    """Under `ulimit -v`."""
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most == resource.RLIM_INFINITY:
            return float("inf")
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return float(most - pages * resource.getpagesize())
    except (ImportError, OSError, ValueError, IndexError):
        return float("inf")
