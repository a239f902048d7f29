"""The lock of a run directory: a file that one process holds, and that says who and until when to be believed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import IO, Any

from ..errors import RunError
from ..files import NO_FOLLOW

__all__ = ["Lock"]


class Lock:
    """Of the run directory `run`.

    An advisory lock, which dies with its process; and within it a sign of life, for hosts that see each other's
    locks through no network file system.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.path = run, run / "lock"
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Hold it alone, where this process does not yet. Raises RunError where another process holds it."""
        if self._file is not None:
            return
        try:
            import fcntl
        except ImportError:  # no advisory locks on this platform
            return
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o666)
        except OSError as error:
            raise RunError(f"{self.path} could not be opened: {error.strerror}.") from error
        file = os.fdopen(handle, "r+", errors="replace")
        holder = _holder(file.read(1000))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            by = f", process {holder['pid']} on {holder['host']}" if holder else ""
            raise RunError(
                f"{self.run} is in use by another process{by}; wait for it to end."
            ) from error
        if holder and holder["host"] != socket.gethostname() and time.time() < holder["until"]:
            file.close()
            raise RunError(
                f"{self.run} is in use by another process, {holder['pid']} on {holder['host']}; wait for it "
                f"to end, or, if it is dead, delete {self.path}."
            )
        self._file = file

    def in_use(self) -> bool:
        """Whether a process holds it, by the sign of life that it left.

        No lock is tried to find out: for an instant that would refuse it to a run that begins.
        """
        for _ in range(2):
            try:
                handle = os.open(self.path, os.O_RDONLY | NO_FOLLOW)
            except OSError:
                return False
            with os.fdopen(handle, errors="replace") as file:
                holder, found = _holder(file.read(1000)), os.fstat(file.fileno())
            if holder is not None:
                here = holder["host"] == socket.gethostname()
                return opened_by(holder["pid"], found) if here else time.time() < holder["until"]
            time.sleep(0.02)  # it may be about to say so
        return False

    def alive(self, seconds: float) -> None:
        """Say who holds it, where this process does, and that it may be believed for so long."""
        if self._file is not None:
            until = time.time() + seconds
            self._say(
                json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "until": until})
            )

    def give_back(self) -> None:
        """Let another process have it."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # of a disk without space
                self._say("")
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _say(self, text: str) -> None:
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()


def _holder(text: str) -> dict[str, Any] | None:
    """Who a lock says holds it; None where it says nothing that can be read."""
    try:
        said = json.loads(text)
        return {
            "host": str(said["host"])[:80],
            "pid": int(said["pid"]),
            "until": float(said["until"]),
        }
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


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
