"""Whether the process that a lock names is still at work, without trying the lock."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["opened_by"]


def opened_by(pid: int, file: os.stat_result) -> bool:
    """Whether a process of this machine lives, and has the file open where that can be seen.

    Its number alone would not do: of a process that was killed another may have it now.
    """
    if os.name == "nt":  # where locks are not written, and signal 0 is one
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:  # another user's
        return True
    except (OSError, OverflowError):
        return False
    try:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.path.samestat(handle.stat(), file):
                    return True
        return False
    except OSError:  # no such folder, or not ours to read
        return True
